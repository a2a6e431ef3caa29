/** Proof files (`enc prove`): an event or a piece of state under a signed head. */

import { equal, hex, unhex } from "./bytes.js";
import { eventForm, readEvent, withheldBy } from "./event.js";
import { eventSteps } from "./event_steps.js";
import {
  eventFactForm,
  headSteps,
  logSteps,
  membershipStep,
  readEventFact,
  readState,
  stateForm,
  stateSteps,
  statusOf,
  statusStep,
  updateStep,
} from "./fact.js";
import { list, oneOf, optional, orNull, struct, text } from "./form.js";
import { historyOf, moveText, sequencerAt } from "./migrate.js";
import { Refused, named } from "./refusal.js";
import { valueText } from "./smt.js";
import { firstBroken, group, step } from "./step.js";
import { line, timeText } from "./words.js";

const NOT_PROVED = [
  "that this key is the enclave's sequencer: compare it with what you know",
  "that nothing has changed since: a proof shows one point in time",
  "that everyone sees this log: compare heads with others",
];

const fileForm = struct({
  format: oneOf("enc-proof"),
  version: oneOf(1),
  enclave: text,
  sequencer: text,
  event: optional(orNull(eventFactForm), null),
  state: optional(orNull(stateForm), null),
  migrates: optional(list(eventForm), []),
});

function readFile(value) {
  const wire = fileForm(value);
  if ((wire.event === null) === (wire.state === null)) throw new Refused("proof: expected one of event and state");
  return {
    event: wire.event === null ? null : readEventFact(wire.event),
    state: wire.state === null ? null : readState(wire.state),
    enclave: unhex(wire.enclave, 32, "enclave"),
    sequencer: unhex(wire.sequencer, 32, "sequencer"),
    migrates: named("migrates", () => wire.migrates.map(readEvent)),
  };
}

/** Returns what a proof file shows, given its parsed JSON. */
export function inspectProof(value) {
  const proof = readFile(value);
  const history = historyOf(proof.migrates, proof.enclave);
  const groups = [...(proof.event ? eventGroups(proof) : stateGroups(proof)), ...moveGroups(proof, history)];
  const ok = firstBroken(groups) === null;
  return {
    ok,
    verdict: ok ? "holds" : "fails",
    kind: proof.event ? "proof of an event" : "proof of a piece of state",
    enclave: hex(proof.enclave),
    sequencer: hex(proof.sequencer),
    event: proof.event?.event ?? null,
    missing: ok ? missingContent(proof, history) : null,
    groups,
    proved: ok ? says(proof, history) : [],
    notProved: ok ? NOT_PROVED : [],
  };
}

function eventGroups({ event: fact, enclave, sequencer }) {
  const { event, anchor, status, update } = fact;
  const groups = [
    group("event", "The event", [...eventSteps(event), enclaveStep(event, enclave)]),
    group("bundle", "Its bundle", [membershipStep(fact)]),
    group("log", "The log", logSteps(anchor)),
    group("head", "The signed head", headSteps(anchor.head, sequencer, enclave)),
  ];
  if (status !== null) {
    const steps = [
      statusStep(fact),
      ...stateSteps(status),
      ...logSteps(status.anchor),
      ...headSteps(status.anchor.head, sequencer, enclave),
    ];
    groups.push(
      group(
        "status",
        `Its status: ${statusOf(status)}`,
        steps.map((each) => ({ ...each, id: `status-${each.id}` })),
      ),
    );
  }
  if (update !== null) {
    const steps = [updateStep(fact), ...eventSteps(update)];
    groups.push(
      group(
        "update",
        "The Update that replaced it",
        steps.map((each) => ({ ...each, id: `update-${each.id}` })),
      ),
    );
  }
  return groups;
}

function stateGroups({ state, enclave, sequencer }) {
  return [
    group("state", "The state", stateSteps(state)),
    group("log", "The log", logSteps(state.anchor)),
    group("head", "The signed head", headSteps(state.anchor.head, sequencer, enclave)),
  ];
}

function enclaveStep(event, enclave) {
  const why = equal(event.enclave, enclave) ? null : "event: belongs to another enclave";
  const inputs = [
    ["enclave of the event", event.enclave],
    ["enclave of the proof", enclave],
  ];
  const says = "The event was written for the enclave that the proof is about.";
  return step("enclave", "Enclave", says, why, { inputs, means: "The event belongs to another enclave." });
}

const MIGRATES = "The Migrates in the file do not make this key the enclave's sequencer.";

function moveGroups({ migrates, enclave, sequencer, event }, history) {
  if (!migrates.length) return [];
  const steps = history.moves.map((move, i) => {
    const inputs = [
      ["event id", move.event.id],
      ["signed by", move.event.from],
      ["finalised by", move.event.sequencer],
      ["new sequencer", move.newSequencer],
    ];
    const how = move.forced ? "Taken over by the new sequencer" : "Handed over by the old sequencer";
    const says = `${how}: all of its hashes and signatures hold.`;
    return step(`move-${i}`, `Migrate ${move.event.seq}`, says, null, { inputs });
  });
  if (history.why !== null) {
    const says = "Each Migrate verifies by itself and follows from the one before.";
    steps.push(
      step("migrates", "Migrates", says, `migrates: ${history.why}`, {
        inputs: [["enclave", enclave]],
        means: MIGRATES,
      }),
    );
  } else if (history.moves.length) {
    steps.push(lineStep(history, sequencer));
    if (event) steps.push(placeStep(history, event.event, "event"));
    if (event?.update) steps.push({ ...placeStep(history, event.update, "update"), id: "update-place" });
  }
  return [group("moves", "How this key became the sequencer", steps)];
}

function lineStep({ moves }, sequencer) {
  const last = moves[moves.length - 1].newSequencer;
  const why = equal(last, sequencer) ? null : "migrates: they lead to another sequencer";
  const inputs = [
    ["last sequencer by the Migrates", last],
    ["sequencer of the proof", sequencer],
  ];
  return step("line", "Present sequencer", "The Migrates lead to the key that signed the head.", why, {
    inputs,
    means: MIGRATES,
  });
}

function placeStep(history, event, name) {
  const key = sequencerAt(history, event.seq);
  const why =
    key === null || equal(key, event.sequencer)
      ? null
      : `${name}: not signed by the sequencer that the Migrates give for its seq`;
  const inputs = [
    ["place (seq)", event.seq],
    ["sequencer there", key === null ? "unknown" : key],
    ["sequencer of the event", event.sequencer],
  ];
  const says = "The event was signed by the sequencer of its position.";
  return step("place", "Sequencer of its place", says, why, {
    inputs,
    means: "Another key than the sequencer of that time signed it.",
  });
}

// Sentences

function says({ event, state, sequencer }, { moves }) {
  const { anchor } = event ?? state;
  return [
    ...(event ? eventSays(event, nodesOf(event, sequencer, moves)) : [stateSays(state)]),
    ...moves.map(moveText),
    `all of it is under a head of ${anchor.head.size} bundles that ${hex(sequencer)} signed for this enclave` +
      ` at ${timeText(anchor.head.time)}`,
  ];
}

/** Returns the keys that may withhold contents of this log, as far as the proof names them. */
const nodesOf = ({ event, update }, sequencer, moves) => [
  sequencer,
  event.sequencer,
  ...(update ? [update.sequencer] : []),
  ...moves.map((move) => move.newSequencer),
];

function eventSays({ event, anchor, status, update }, nodes) {
  return [
    `${hex(event.from)} signed an event of type ${event.type} for enclave ${hex(event.enclave)}`,
    `${hex(event.sequencer)} made it event ${event.seq} at ${timeText(event.timestamp)}`,
    `it is in bundle ${anchor.inclusion.index} of the log`,
    event.content === null
      ? `its content ${missing(event, nodes)}; a copy can be checked against content_hash`
      : `its content is: ${line(event.content)}`,
    ...(status === null ? [] : [`after bundle ${status.anchor.inclusion.index} it is ${statusOf(status)}`]),
    ...(update === null ? [] : [updateSays(update, nodes)]),
  ];
}

/** Returns why the content of a proved event is missing; null if it is not. */
function missingContent({ event, sequencer }, { moves }) {
  return event && event.event.content === null ? missing(event.event, nodesOf(event, sequencer, moves)) : null;
}

function missing(event, nodes) {
  const withheld = withheldBy(event, nodes);
  if (withheld === null) return "was erased";
  return `is withheld by ${hex(withheld.node)} since ${timeText(withheld.ts)} (${withheld.reason})`;
}

const updateSays = (update, nodes) =>
  `${hex(update.from)} replaced it with Update ${update.seq} at ${timeText(update.timestamp)}, whose content ` +
  (update.content === null ? missing(update, nodes) : `is: ${line(update.content)}`);

const stateSays = ({ namespace, raw, proof, anchor }) =>
  `after bundle ${anchor.inclusion.index} the value at ${namespace} ${hex(raw)} is ${valueText(proof.value)}`;
