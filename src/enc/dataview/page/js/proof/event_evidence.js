/** Evidence of events: two in one place, one after the enclave had moved, falling times, one that does not verify. */

import { equal, hex } from "./bytes.js";
import { eitherVersion, eventForm, firstWrong, readEvent } from "./event.js";
import { eventSteps } from "./event_steps.js";
import { headSteps } from "./fact.js";
import { integer, list, oneOf, optional, orNull, struct, text } from "./form.js";
import { headForm, readHead } from "./head.js";
import { HONEST } from "./head_evidence.js";
import { Doubtful, parseJson } from "./json.js";
import { parseMigrate } from "./migrate.js";
import { Refused, Unsupported } from "./refusal.js";
import { group, step } from "./step.js";

const FAULTS = [
  ..."invalid_signature altered_content unauthorised_event gap reordering falling_timestamp".split(" "),
  ..."wrong_bundle_boundary wrong_state_root wrong_log_root head_not_on_log equivocation".split(" "),
  ..."broken_consistency sequencer_change old_sequencer erasure_without_cause".split(" "),
];
const pairForm = struct({ events: list(eventForm, 2) });
const FOREIGN = "evidence: event: belongs to another enclave or sequencer";

/** Returns an event's own steps, and one that checks its enclave and, if one is named, its sequencer. */
function eventGroup(id, title, event, { enclave, sequencer = null }, judge) {
  const isHere = equal(event.enclave, enclave) && (sequencer === null || equal(event.sequencer, sequencer));
  const inputs = [
    ["enclave of the event", event.enclave],
    ["enclave of the file", enclave],
    ["sequencer of the event", event.sequencer],
    ...(sequencer ? [["sequencer of the file", sequencer]] : []),
  ];
  const says = `The event belongs to the enclave${sequencer ? " and the sequencer" : ""} that the file names.`;
  const whose = step("whose", "Whose event", says, isHere ? null : FOREIGN, {
    inputs,
    means: "The event belongs to another enclave or sequencer.",
  });
  return group(
    id,
    title,
    [...eventSteps(event, judge), whose].map((each) => ({ ...each, id: `${id}-${each.id}` })),
  );
}

const against = (title, says, why, inputs, means) =>
  group("against", "What they show together", [step("against", title, says, why, { inputs, means })]);

export function inspectEquivocation({ parts, enclave, sequencer }) {
  const [first, then] = pairForm(parts, "").events.map(readEvent);
  const one = first.seq === then.seq && !equal(first.id, then.id);
  const inputs = [
    ["place of the first", first.seq],
    ["id of the first", first.id],
    ["place of the second", then.seq],
    ["id of the second", then.id],
  ];
  const says = "Two different events have the same place in the log.";
  return {
    groups: [
      eventGroup("first", "The first event", first, { enclave, sequencer }, eitherVersion),
      eventGroup("second", "The second event", then, { enclave, sequencer }, eitherVersion),
      against(
        "One place",
        says,
        one ? null : "evidence: the events do not have the same seq",
        inputs,
        "The two events contradict nothing.",
      ),
    ],
    convicts: true,
    proved: [
      `${hex(sequencer)} signed two different events as event ${first.seq} of this enclave`,
      "a log has one event per seq: the sequencer showed different logs to different clients, or rewrote one",
    ],
    notProved: [HONEST],
  };
}

export function inspectOrder({ parts, enclave, sequencer }) {
  const [first, then] = pairForm(parts, "").events.map(readEvent);
  const falls = equal(then.sequencer, sequencer) && first.seq < then.seq && first.timestamp > then.timestamp;
  const inputs = [
    ["place of the first", first.seq],
    ["time of the first", first.timestamp],
    ["place of the second", then.seq],
    ["time of the second", then.timestamp],
    ["sequencer of the second", then.sequencer],
  ];
  const says = "The event with the higher number has an earlier time.";
  const why = falls ? null : "evidence: the times do not fall, or the later event is another sequencer's";
  const isOwn = equal(first.sequencer, sequencer);
  return {
    groups: [
      eventGroup("first", "The first event", first, { enclave }),
      eventGroup("second", "The second event", then, { enclave }),
      against("Decreasing times", says, why, inputs, "The two events contradict nothing."),
    ],
    convicts: isOwn,
    holds: true,
    proved: [
      `${hex(first.sequencer)} signed event ${first.seq} of this enclave with time ${first.timestamp}`,
      `${hex(sequencer)} signed event ${then.seq} with time ${then.timestamp}, ` +
        `${first.timestamp - then.timestamp} ms before it: no honest sequencer does`,
    ],
    notProved: [isOwn ? HONEST : "that the first event is in the log: anyone can sign one"],
  };
}

// Something that a former sequencer signed, with the Migrate by which the enclave had left it

const splitForm = struct({
  migrate: eventForm,
  event: optional(orNull(eventForm), null),
  head: optional(orNull(headForm), null),
  size: optional(integer, 0),
});

export function inspectSplit(evidence) {
  const wire = splitForm(evidence.parts, "");
  const { enclave, sequencer } = evidence;
  const migrate = readEvent(wire.migrate);
  if (migrate.type !== "Migrate") throw new Refused("evidence: not a Migrate of this enclave");
  const to = parseMigrate(migrate).newSequencer;
  if (equal(to, sequencer) || (wire.event === null) === (wire.head === null)) {
    throw new Refused("evidence: expected one of event and head, of another sequencer than the Migrate names");
  }
  const isOwn = equal(migrate.sequencer, sequencer);
  const found =
    wire.event === null
      ? splitHead(evidence, migrate, wire)
      : splitEvent(evidence, migrate, readEvent(wire.event), isOwn);
  const moved = `${hex(migrate.from)} signed a Migrate to ${hex(to)}; ${hex(migrate.sequencer)} made it event ${migrate.seq}`;
  const left = isOwn ? ["its own signature handed the enclave over"] : [];
  const owner = isOwn ? [] : ["that the Migrate's author was the owner", "that the old sequencer knew of it"];
  return {
    groups: [eventGroup("migrate", "The Migrate", migrate, { enclave }, eitherVersion), ...found.groups],
    convicts: found.convicts,
    proved: [moved, `${hex(sequencer)} ${found.what}`, ...left],
    notProved: [...found.open, ...owner, HONEST],
  };
}

const LATER = "that no later Migrate gave the enclave back to it";

function splitEvent({ enclave, sequencer }, migrate, event, isOwn) {
  const before = event.seq < migrate.seq + (isOwn ? 1 : 0) || equal(event.id, migrate.id);
  const inputs = [
    ["place of the Migrate", migrate.seq],
    ["place of the event", event.seq],
  ];
  const says = "The event is after the Migrate, where this key is not the sequencer.";
  const why = before ? "evidence: the event is before the Migrate" : null;
  const groups = [
    eventGroup("after", "The event after it", event, { enclave, sequencer }, eitherVersion),
    against("After the Migrate", says, why, inputs, "The key was still the sequencer there."),
  ];
  const returned = event.type === "Migrate" && equal(parseMigrate(event).newSequencer, event.sequencer);
  const convicts = isOwn && event.seq === migrate.seq + 1 && !returned;
  return {
    groups,
    convicts,
    what: `signed event ${event.seq}, of type ${event.type}, where it was not the sequencer`,
    open: convicts ? [] : [LATER],
  };
}

function splitHead({ enclave, sequencer }, migrate, { head: wire, size }) {
  const head = readHead(wire);
  const larger = 0 <= size && size < head.size;
  const inputs = [
    ["bundles when it moved, as the client says", size],
    ["bundles of the head", head.size],
  ];
  const says = "The head covers a larger log than the one that this key left.";
  const why = larger ? null : "evidence: the head is of the log before the Migrate";
  const groups = [
    group("head", "The head after it", headSteps(head, sequencer, enclave)),
    against("After the Migrate", says, why, inputs, "The key was still the sequencer there."),
  ];
  const place = `that the log had ${size} bundles when event ${migrate.seq} was made: that is the client's word`;
  return { groups, convicts: false, what: `signed a head of ${head.size} bundles`, open: [place, LATER] };
}

// One event that does not verify by itself

const singleForm = struct({ fault: oneOf(...FAULTS), enc_v: integer, line: text });
const WHO =
  "who did it: the sequencer signs an author's signature, not the content, so anyone who held this copy of the log " +
  "may have altered it; compare it with another copy";

export function inspectSingle({ parts, enclave, sequencer }) {
  const { fault, enc_v: version, line } = singleForm(parts, "");
  const { event, why: unread } = readLine(line);
  if (event === null) {
    const why = fault === "altered_content" ? null : "evidence: the event cannot be read";
    return finding([["fault that it names", fault]], "The line cannot be read as an event", why, [
      `a line of the log cannot be read as an event: ${unread}`,
    ]);
  }
  const wrong = firstWrong(event, version);
  const named = wrong === null ? null : wrong.signature ? "invalid_signature" : "altered_content";
  const isHere = equal(event.enclave, enclave) && equal(event.sequencer, sequencer);
  const why = !isHere
    ? FOREIGN
    : named === fault
      ? null
      : "evidence: the event is valid, or has another fault than claimed";
  const shown = `in the given log, event ${event.seq} of this enclave is an event that does not verify`;
  const inputs = [
    ["fault that it names", fault],
    ["fault found", named ?? "none"],
    ["place (seq)", event.seq],
    ["event id", event.id],
    ["author", event.from],
    ["sequencer", event.sequencer],
  ];
  return finding(inputs, wrong === null ? "The event verifies" : `The event does not verify: ${wrong.why}`, why, [
    shown,
    wrong?.why,
  ]);
}

function finding(inputs, says, why, proved) {
  const steps = [
    step("finding", "The fault that the file names", `${says}.`, why, {
      inputs,
      means: "The file does not show the fault that it names.",
    }),
  ];
  return { groups: [group("finding", "What an audit found", steps)], holds: true, proved, notProved: [WHO] };
}

function readLine(line) {
  try {
    return { event: readEvent(eventForm(parseJson(line, { vast: true }))), why: null };
  } catch (error) {
    if (error instanceof Doubtful) {
      throw new Unsupported(
        `The event in this evidence is one that programs may read differently (${error.message}). Check it with enc verify.`,
      );
    }
    if (error instanceof Refused) return { event: null, why: error.message };
    throw error;
  }
}
