/** Evidence: statements of a node that contradict each other or the rules (`enc-evidence-*.json`). Only a signature convicts. */

import { hex, unhex } from "./bytes.js";
import { anyObject, oneOf, struct, text } from "./form.js";
import { attested, inspectFork, inspectInconsistent, inspectRollback } from "./head_evidence.js";
import { inspectEquivocation, inspectOrder, inspectSingle, inspectSplit } from "./event_evidence.js";
import { Unsupported } from "./refusal.js";
import { firstBroken } from "./step.js";

const KINDS = {
  fork: inspectFork,
  rollback: inspectRollback,
  inconsistent: inspectInconsistent,
  equivocation: inspectEquivocation,
  split: inspectSplit,
  foreign: inspectWords,
  answer: inspectWords,
  event: inspectSingle,
  order: inspectOrder,
  log: inspectLog,
};

/** Kinds whose steps compare two heads. */
const HEADS = ["fork", "rollback", "inconsistent"];

const fileForm = struct({
  format: oneOf("enc-evidence"),
  version: oneOf(1),
  kind: oneOf(...Object.keys(KINDS)),
  enclave: text,
  sequencer: text,
  message: text,
  parts: anyObject,
});

/** Kinds that may name no sequencer: a line that cannot be read, a log without a Manifest. */
const OF_NOBODY = ["event", "log"];

/** Returns what a piece of evidence shows, given its parsed JSON. */
export function inspectEvidence(value) {
  const wire = fileForm(value);
  const accusesNobody = wire.sequencer === "" && OF_NOBODY.includes(wire.kind);
  const evidence = {
    ...wire,
    enclave: unhex(wire.enclave, 32, "enclave"),
    sequencer: accusesNobody ? new Uint8Array() : unhex(wire.sequencer, 32, "sequencer"),
  };
  const found = { convicts: false, holds: false, proved: [], notProved: [], ...KINDS[wire.kind](evidence) };
  const attests = (wire.parts.cosigned ?? null) !== null && "heads" in wire.parts ? attested(evidence) : null;
  const heads = attests !== null && !HEADS.includes(wire.kind) ? attests.heads : [];
  const groups = [...found.groups, ...heads, ...(attests ? [attests.witness] : [])];
  const broken = firstBroken(groups) !== null;
  return {
    ok: !broken && (found.convicts || found.holds),
    convicts: !broken && found.convicts,
    verdict: broken ? "fails" : found.convicts ? "convicts" : found.holds ? "finding" : "open",
    kind: `evidence of kind “${wire.kind}”`,
    enclave: wire.enclave,
    sequencer: wire.sequencer,
    message: wire.message,
    groups,
    proved: broken ? [] : [...found.proved, ...(attests ? [attests.says] : [])],
    notProved: broken ? [] : found.notProved,
  };
}

const wordsForm = struct({ answer: text });

/** An unsigned answer, as reported by the client that stored it. */
function inspectWords({ parts }) {
  wordsForm(parts, "");
  return { groups: [], notProved: ["anything: a client states that it received this answer, and nothing in it is signed"] };
}

function inspectLog({ sequencer }) {
  throw new Unsupported(
    "Evidence of kind “log” holds a whole log, which must be replayed by all rules of the protocol. This page does not " +
      `do that, and so says nothing about it. Check it with: enc verify FILE${sequencer.length ? ` --sequencer ${hex(sequencer)}` : ""}`,
  );
}
