/** Partial checks without a proof file: of an event by itself, and of a receipt. */

import { hex, unhex } from "./bytes.js";
import { eventForm, readEvent } from "./event.js";
import { eventSteps, idStep, orderStep } from "./event_steps.js";
import { exact, integer, oneOf, optional, struct, text } from "./form.js";
import { firstBroken, group } from "./step.js";
import { timeText } from "./words.js";

const NOT_IN_LOG = "that it is in the log: that takes a proof, with a head that the sequencer signed";
const KEY = "that this key is the enclave's sequencer: compare it with what you know";

/** An event without a proof. `why`: the server's reason for that, if any. */
export function inspectEvent(value, why = "") {
  const event = readEvent(eventForm(value));
  const groups = [group("event", "The event", eventSteps(event))];
  const ok = firstBroken(groups) === null;
  return {
    ok: false,
    verdict: ok ? "signatures" : "fails",
    kind: "event without a proof",
    enclave: hex(event.enclave),
    sequencer: hex(event.sequencer),
    event,
    groups,
    said: why,
    proved: ok
      ? [
          `${hex(event.from)} signed an event of type ${event.type} for enclave ${hex(event.enclave)}`,
          `${hex(event.sequencer)} made it event ${event.seq} at ${timeText(event.timestamp)}`,
        ]
      : [],
    notProved: ok ? [NOT_IN_LOG, KEY] : [],
  };
}

const receiptForm = struct({
  id: text,
  hash: text,
  timestamp: integer,
  sequencer: text,
  seq: integer,
  alg: optional(oneOf("schnorr", "ecdsa"), "schnorr"),
  sig: text,
  seq_sig: text,
});

/** The sequencer's signed statement that a commit is now an event. It names neither the enclave nor the author. */
export function inspectReceipt(value) {
  const wire = receiptForm(value);
  const receipt = {
    timestamp: exact(wire.timestamp, "timestamp"),
    seq: exact(wire.seq, "seq"),
    id: unhex(wire.id, 32, "id"),
    hash: unhex(wire.hash, 32, "hash"),
    sequencer: unhex(wire.sequencer, 32, "sequencer"),
    sig: unhex(wire.sig, 64, "sig"),
    seqSig: unhex(wire.seq_sig, 64, "seq_sig"),
  };
  const groups = [group("receipt", "The receipt", [orderStep(receipt), idStep(receipt)])];
  const ok = firstBroken(groups) === null;
  const key = hex(receipt.sequencer);
  return {
    ok: false,
    verdict: ok ? "signatures" : "fails",
    kind: "receipt",
    enclave: null,
    sequencer: key,
    groups,
    proved: ok
      ? [`${key} put a commit with this signature in place ${receipt.seq} at ${timeText(receipt.timestamp)}`]
      : [],
    notProved: ok
      ? [
          "which enclave it is for, and what was written: a receipt names neither; keep the commit beside it",
          "that the signature in it is the author's over the hash in it: a receipt does not name the author",
          NOT_IN_LOG,
          KEY,
        ]
      : [],
  };
}
