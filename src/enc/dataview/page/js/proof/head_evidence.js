/** Evidence of two heads: a fork, a rollback, two logs that no proof connects; and a witness that saw one of them. */

import { equal, hex, unhex } from "./bytes.js";
import { consistencyForm, readConsistency, walkConsistency } from "./ct.js";
import { headSteps } from "./fact.js";
import { list, optional, orNull, struct, text } from "./form.js";
import { cosignedForm, headForm, readCosigned, readHead, sameHead, wrongCosigned } from "./head.js";
import { Refused } from "./refusal.js";
import { group, pathOf, step } from "./step.js";

export const HONEST = "that this key belongs to the node you used: compare the key";

const headsForm = struct({
  heads: list(headForm, 2),
  proof: optional(orNull(consistencyForm), null),
  signer: optional(orNull(text), null),
  cosigned: optional(orNull(cosignedForm), null),
});

function readHeads({ parts, enclave, sequencer }) {
  const wire = headsForm(parts, "");
  const [first, then] = wire.heads.map(readHead);
  const signer = wire.signer === null ? sequencer : unhex(wire.signer, 32, "signer");
  const part = (id, title, head, key) =>
    group(
      id,
      title,
      headSteps(head, key, enclave).map((each) => ({ ...each, id: `${id}-${each.id}` })),
    );
  const groups = [part("first", "The first head", first, signer), part("second", "The second head", then, sequencer)];
  return { first, then, wire, groups };
}

function signed({ sequencer }, { first, then, wire }) {
  if (wire.signer !== null) {
    return `${wire.signer} signed a head of ${first.size} bundles, and ${hex(sequencer)} one of ${then.size}, for this enclave`;
  }
  return `${hex(sequencer)} signed a head of ${first.size} bundles and one of ${then.size} for this enclave`;
}

const NOTHING = "The two heads contradict nothing: an honest node may have signed both.";

const against = (title, says, why, { first, then }, more = {}) =>
  group("against", "Comparison of the heads", [
    step("against", title, says, why, {
      inputs: [
        ["size of the first", first.size],
        ["root of the first", first.root],
        ["time of the first", first.time],
        ["size of the second", then.size],
        ["root of the second", then.root],
        ["time of the second", then.time],
      ],
      means: NOTHING,
      ...more,
    }),
  ]);

export function inspectFork(evidence) {
  const heads = readHeads(evidence);
  const { first, then, wire } = heads;
  const differ = first.size === then.size && !equal(first.root, then.root);
  const says = "Both heads are of logs of one size, and their roots are different.";
  const groups = [
    ...heads.groups,
    against("Two roots", says, differ ? null : "evidence: the heads do not contradict each other", heads),
  ];
  if (wire.signer !== null) {
    const proved = [signed(evidence, heads), "their roots are different: no log has both"];
    return { groups, proved, notProved: ["which of the two rewrote the log"] };
  }
  const proved = [
    `${hex(evidence.sequencer)} signed two heads of ${first.size} bundles with different roots for this enclave`,
    "no log has both roots: the sequencer showed different logs to different clients, or rewrote one",
  ];
  return { groups, convicts: true, proved, notProved: [HONEST, "which of the two others saw"] };
}

export function inspectRollback(evidence) {
  const heads = readHeads(evidence);
  const { first, then, wire } = heads;
  const why =
    then.size >= first.size || wire.signer !== null
      ? "evidence: the second head is not older, or not of the same sequencer"
      : null;
  const says = "The second head is of a smaller log than the first, and of the same sequencer.";
  const groups = [...heads.groups, against("A smaller log", says, why, heads)];
  const both = signed(evidence, heads);
  if (then.time > first.time) {
    return {
      groups,
      convicts: true,
      proved: [both, "the smaller one is dated later: the log was cut"],
      notProved: [HONEST],
    };
  }
  return {
    groups,
    proved: [both],
    notProved: ["that the older head was served after the newer one: only the client states this"],
  };
}

export function inspectInconsistent(evidence) {
  const heads = readHeads(evidence);
  const { first, then, wire } = heads;
  const { why: apart, path } = connection(wire.proof, first, then);
  const rising = 0 < first.size && first.size < then.size;
  const why = !rising
    ? "evidence: the heads are not of a smaller log and a larger one"
    : apart === null
      ? "evidence: the heads are consistent"
      : null;
  const how = apart?.replace("consistency: ", "") ?? "but the proof does";
  const says = `Nothing in the file shows that the larger log begins with the smaller one: ${how}.`;
  const missing = "that no such proof exists: ask the node for one; if it has none, it has forked the log";
  return {
    groups: [...heads.groups, against("No connection", says, why, heads, { path })],
    proved: [signed(evidence, heads), "no valid consistency proof came with them"],
    notProved: [missing, HONEST],
  };
}

/** Returns why the proof does not connect the heads, null if it does; and its path. */
function connection(wire, first, then) {
  if (wire === null) return { why: "no proof came", path: null };
  try {
    const proof = readConsistency(wire);
    if (proof.first !== first.size || proof.second !== then.size)
      return { why: "the proof is for other sizes", path: null };
    const walk = walkConsistency(proof, first.root, then.root);
    return { why: walk.why, path: walk.levels.length ? connectionPath(walk, first, then) : null };
  } catch (error) {
    if (error instanceof Refused) return { why: error.message, path: null };
    throw error;
  }
}

function connectionPath(walk, first, then) {
  const smaller = walk.levels[walk.levels.length - 1].first;
  const also = ["what it makes of the smaller log", smaller, ["root of the smaller log", first.root]];
  return pathOf("consistency", walk, ["start", walk.start], ["root of the larger log", then.root], also);
}

/** Checks the heads, and a witness's statement of when it saw one of them. */
export function attested(evidence) {
  const { first, then, wire, groups } = readHeads(evidence);
  const cosigned = readCosigned(wire.cosigned);
  const isFirst = sameHead(cosigned.head, first);
  const known = isFirst || sameHead(cosigned.head, then);
  const why = known
    ? wrongCosigned(cosigned, evidence.enclave)
    : "evidence: the witness co-signed neither of the heads";
  const inputs = [
    ["witness", cosigned.witness],
    ["seen (Unix ms)", cosigned.seen],
    ["size of the head", cosigned.head.size],
    ["co-signature", cosigned.sig],
  ];
  const says = "A witness co-signed one of the two heads.";
  return {
    heads: groups,
    witness: group("witness", "The witness", [
      step("witness", "Co-signature", says, why, { inputs, means: "No witness saw these heads." }),
    ]),
    says:
      `the witness ${hex(cosigned.witness)} co-signed the ${isFirst ? "first" : "second"}, of ${cosigned.head.size} bundles, ` +
      `and says that it saw it at ${cosigned.seen}`,
  };
}
