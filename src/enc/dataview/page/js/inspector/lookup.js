// Requests an event and its proof by id, as any reader may, without trusting the answer.

import { fetched, Refused } from "../api.js";
import { isObject } from "../proof/form.js";
import { parseJson } from "../proof/json.js";
import { Refused as NotJson } from "../proof/refusal.js";

const ID = /^[0-9a-f]{64}$/;
const MAX_ANSWER = 32 * 1024 * 1024;

// Returns {asked, value, why}: a proof file, or an event and why there is no proof; without a value only `why`.
export async function fromServer(text, signal) {
  const asked = text.trim().toLowerCase();
  if (!ID.test(asked))
    return {
      why: "An event id is 64 hex characters (0 to 9, a to f). Copy it from a list of events, or from “enc query”.",
    };
  try {
    const answer = await fetched(
      "views/events",
      { id: asked, verify: "1", limit: "1", select: "enclave,seq,id" },
      { signal },
    );
    return { asked, ...shown(await answer.text()) };
  } catch (error) {
    if (error instanceof NotJson) return { why: `The server's answer cannot be read: ${error.message}` };
    if (error instanceof Refused) return { why: refused(error) };
    if (!signal.aborted && (error instanceof TypeError || error instanceof DOMException))
      return { why: "The server's answer was cut off." };
    if (signal.aborted) return { why: "Another page was opened meanwhile." };
    throw error;
  }
}

function refused({ message, status }) {
  if (status === 401 || status === 404)
    return `You may not read events here. A token may give access; a proof file can be checked without one. ${message}`;
  return message;
}

function shown(text) {
  if (text.length > MAX_ANSWER) return { why: "The server's answer is larger than this page reads." };
  const answer = parseJson(text);
  const rows = isObject(answer) && Array.isArray(answer.rows) ? answer.rows : null;
  if (rows === null) return { why: "The server's answer is not one of its kind." };
  if (!rows.length)
    return {
      why: "No event with this id is served here: this DataView may not follow its enclave, or it has not arrived yet.",
    };
  const found = Array.isArray(answer.proofs) && isObject(answer.proofs[0]) ? answer.proofs[0] : {};
  const why = typeof found.why === "string" ? found.why : "";
  if (isObject(found.proof)) return { value: found.proof, why };
  if (isObject(found.event)) return { value: found.event, why };
  return { why: `The server has the event but no proof of it: ${why || "no reason given"}.` };
}
