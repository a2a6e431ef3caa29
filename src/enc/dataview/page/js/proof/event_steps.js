/** Checks what an event proves by itself, step by step. */

import { versionOf, wrongAuthor, wrongHash } from "./commit.js";
import { wrongId, wrongOrder, wrongPlace } from "./event.js";
import { commitHash, eventHash, sha256 } from "./hashing.js";
import { Refused } from "./refusal.js";
import { step } from "./step.js";

const MEANS = {
  hash: "Something in the event was changed after its author signed it.",
  author: "The author's key did not sign this: another author wrote it, or it was changed.",
  order: "The sequencer's key did not give this event this place and time.",
  id: "The event has been given an id that is not its own.",
};

/** `judge` returns the version by which the event was hashed; by default it is derived from the event. */
export function eventSteps(event, judge = versionOf) {
  return [hashStep(event, judge), authorStep(event), orderStep(event), idStep(event)];
}

function hashStep(event, judge) {
  const [version, why] = judged(event, judge);
  const says =
    "Enclave, author, type, content, expiry and tags hash to the commit hash that the author signed" +
    (event.content === null ? "; the content is not shown, and its hash stands for it." : ".");
  const inputs = [
    ["protocol version", version ?? "not known"],
    ["enclave", event.enclave],
    ["author", event.from],
    ["type", event.type],
    ["hash of the content", event.contentHash],
    ["expires (Unix ms)", event.exp],
    ["tags", JSON.stringify(event.tags)],
    ["commit hash in the file", event.hash],
    ["commit hash computed", computed(event, version)],
  ];
  return step("hash", "Commit hash", says, wrongPlace(event) ?? why, { inputs, means: MEANS.hash });
}

function judged(event, judge) {
  try {
    const version = judge(event);
    return [version, wrongHash(event, version)];
  } catch (error) {
    if (error instanceof Refused) return [null, error.message];
    throw error;
  }
}

function computed(event, version) {
  try {
    return version === null ? "cannot be computed" : commitHash(version, event);
  } catch (error) {
    if (error instanceof Refused) return "cannot be computed";
    throw error;
  }
}

function authorStep(event) {
  const name = event.alg === "schnorr" ? "BIP-340 Schnorr" : "ECDSA";
  const inputs = [
    ["author's key", event.from],
    ["what is signed", event.hash],
    ["signature", event.sig],
  ];
  const says = `The author's key signed the commit hash (${name} over secp256k1).`;
  return step("author", "Author's signature", says, wrongAuthor(event), { inputs, means: MEANS.author });
}

/** For events and receipts. */
export function orderStep(event) {
  const inputs = [
    ["sequencer's key", event.sequencer],
    ["place (seq)", event.seq],
    ["time (Unix ms)", event.timestamp],
    ["author's signature", event.sig],
    ["what is signed", eventHash(event)],
    ["signature", event.seqSig],
  ];
  const says = "The sequencer's key signed the place, the time and the author's signature.";
  return step("order", "Sequencer's signature", says, wrongOrder(event), { inputs, means: MEANS.order });
}

export function idStep(event) {
  const inputs = [
    ["id in the file", event.id],
    ["id computed", sha256(event.seqSig)],
  ];
  return step("id", "Event id", "The id is the hash of the sequencer's signature.", wrongId(event), {
    inputs,
    means: MEANS.id,
  });
}
