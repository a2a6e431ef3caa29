/** Entry point: inspects a text and returns what it proves. It makes no requests. */

import { hex, utf8 } from "./bytes.js";
import { inspectEvidence } from "./evidence.js";
import { isObject } from "./form.js";
import { parseJson } from "./json.js";
import { inspectProof } from "./proof_file.js";
import { inspectEvent, inspectReceipt } from "./receipt.js";
import { Refused, Unsupported } from "./refusal.js";
import { firstBroken, group, step } from "./step.js";

export const MAX_BYTES = 8 * 1024 * 1024;
const FORMATS = { "enc-proof": inspectProof, "enc-evidence": inspectEvidence };

/** `expected`: the trusted sequencer's key, "" for any. The verdict is one of
 *
 * holds       a proof; every step holds
 * convicts    evidence that convicts the sequencer
 * finding     evidence that shows an audit's finding and convicts nobody
 * open        evidence with valid signatures that convicts nobody
 * signatures  an event or a receipt by itself: valid signatures, but no place in a log
 * fails       a step does not hold
 * unreadable  the file cannot be read
 * unsupported a file that this page cannot judge
 */
export function inspectText(text, options = {}) {
  return guarded(() => {
    if (text.length > MAX_BYTES || utf8(text).length > MAX_BYTES) throw new Refused(TOO_LARGE);
    if (text.trim() === "") throw new Refused("It is empty.");
    return judged(parseJson(text), options);
  });
}

const OWN_FAULT = "Checking it failed because of an error in this page. “enc verify FILE” can check it.";
const TOO_LARGE = `It is over ${MAX_BYTES / 1024 / 1024} MiB, more than this page reads. “enc verify FILE” reads larger ones.`;

export function inspectBytes(bytes, options = {}) {
  return guarded(() => {
    if (bytes.length > MAX_BYTES) throw new Refused(TOO_LARGE);
    return inspectText(decoded(bytes), options);
  });
}

/** For JSON that is parsed already: see `parseJson`. */
export const inspectValue = (value, options = {}) => guarded(() => judged(value, options));

function decoded(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Refused("not JSON: its bytes are not UTF-8 text");
  }
}

function guarded(work) {
  try {
    return work();
  } catch (error) {
    const verdict = error instanceof Refused ? "unreadable" : "unsupported";
    const isSaid = error instanceof Refused || error instanceof Unsupported;
    if (!isSaid) console.error(error);
    const why = isSaid ? error.message : OWN_FAULT;
    return { ok: false, convicts: false, verdict, why, kind: "", groups: [], proved: [], notProved: [] };
  }
}

function judged(value, { expected = "", asked = "", why = "" }) {
  const found = { convicts: false, message: "", said: "", event: null, ...routed(value, why) };
  const pins = pinSteps(found, expected.trim().toLowerCase(), asked);
  const groups = pins.length ? [...found.groups, group("expected", "What you expect", pins)] : found.groups;
  const broken = firstBroken(groups);
  if (broken === null) return { ...found, groups, broken: null };
  return {
    ...found,
    ok: false,
    convicts: false,
    verdict: "fails",
    groups,
    broken: broken.id,
    proved: [],
    notProved: [],
  };
}

function routed(value, why) {
  if (!isObject(value)) throw new Refused("It is JSON, but neither a proof nor evidence: it is not an object.");
  const { format } = value;
  if (typeof format === "string" && Object.hasOwn(FORMATS, format)) return FORMATS[format](value);
  if (typeof format === "string")
    throw new Unsupported(
      `Its format, “${format.slice(0, 60)}”, is unknown to this page; expected one of ${Object.keys(FORMATS).join(", ")}.`,
    );
  if (value.type === "Receipt" && !("content" in value)) return inspectReceipt(value);
  if ("seq_sig" in value && "content" in value) return inspectEvent(value, why);
  throw new Refused("It is JSON, but neither a proof nor evidence: it has no “format”.");
}

function pinSteps({ sequencer, event }, expected, asked) {
  const steps = [];
  if (asked) {
    const same = event !== null && hex(event.id) === asked;
    const says = "The server answered with the event that was asked for.";
    steps.push(
      step("asked", "The event you asked for", says, same ? null : "the server answered with another event", {
        inputs: [
          ["id asked for", asked],
          ["id answered", event === null ? null : event.id],
        ],
        means: "The server's answer may be true, but it is not the event you asked for.",
      }),
    );
  }
  if (expected) {
    const why = sequencer === expected ? null : `signed by ${sequencer}, not by ${expected}`;
    steps.push(
      step("pin", "The sequencer you expect", "The key in the file is the key that you entered.", why, {
        inputs: [
          ["key in the file", sequencer],
          ["key you entered", expected],
        ],
        means: "Another key signed this. It proves nothing if you trust the key that you entered.",
      }),
    );
  }
  return steps;
}
