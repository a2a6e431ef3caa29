/** Facts: what a signed head proves, with the complete proof. Parses them and checks them step by step. */

import { membershipForm, readMembership, walkMembership } from "./bundle.js";
import { equal, hex, unhex } from "./bytes.js";
import { inclusionForm, readInclusion, walkInclusion } from "./ct.js";
import { eventForm, readEvent } from "./event.js";
import { oneOf, optional, orNull, struct, text } from "./form.js";
import { headForm, readHead, wrongBound, wrongHead } from "./head.js";
import { logLeaf, treeLeaf } from "./hashing.js";
import { Refused, named } from "./refusal.js";
import {
  NAMESPACES,
  isDeleted,
  readStateProof,
  stateProofForm,
  treeKey,
  valueText,
  walkState,
  wrongForm,
} from "./smt.js";
import { pathOf, step } from "./step.js";

const leafForm = struct({ events_root: text, state_hash: text, sth: optional(orNull(headForm), null) });
const anchorForm = (value, path) => ({ ...inclusionForm(value, path), ...leafForm(value, path) });

export const stateForm = struct({
  namespace: oneOf(...NAMESPACES),
  key: text,
  proof: stateProofForm,
  anchor: anchorForm,
});

export const eventFactForm = struct({
  event: eventForm,
  membership: membershipForm,
  anchor: anchorForm,
  status: optional(orNull(stateForm), null),
  update: optional(orNull(eventForm), null),
});

function readAnchor(wire) {
  if (wire.sth === null) throw new Refused("sth: missing");
  return {
    head: readHead(wire.sth),
    eventsRoot: unhex(wire.events_root, 32, "events_root"),
    stateHash: unhex(wire.state_hash, 32, "state_hash"),
    inclusion: readInclusion(wire),
  };
}

export const readState = (wire) => ({
  namespace: wire.namespace,
  raw: unhex(wire.key, 32, "key"),
  proof: readStateProof(wire.proof),
  anchor: readAnchor(wire.anchor),
});

export const readEventFact = (wire) => ({
  event: named("event", () => readEvent(wire.event)),
  membership: readMembership(wire.membership),
  anchor: readAnchor(wire.anchor),
  status: wire.status === null ? null : readState(wire.status),
  update: wire.update === null ? null : named("update", () => readEvent(wire.update)),
});

/** Returns the status of an existing event according to a state fact. */
export function statusOf({ proof: { value } }) {
  if (value === null) return "active";
  return isDeleted(value) ? "deleted" : "updated";
}

// Steps

const MEANS = {
  bundle: "The event is not one of this bundle's: the file joins parts that do not belong together.",
  inclusion: "This bundle is not in the log that the head was signed for.",
  head: "The head was not signed by this key: the file does not show that the sequencer vouches for it.",
  bound: "The key did not sign this head for this enclave: it may be another log's.",
  state: "The state tree whose root is in the log does not contain this.",
};

export function membershipStep({ event, membership, anchor }) {
  const walk = walkMembership(membership, event.id, anchor.eventsRoot);
  const place = `The event is number ${membership.index} of its bundle`;
  const says = `${place}: its id, hashed with its siblings, leads to the bundle's root.`;
  const inputs = [
    ["event id", event.id],
    ["number in the bundle", membership.index],
    ["events of the bundle", membership.size],
    ["events_root", anchor.eventsRoot],
  ];
  const path = pathOf("bundle", walk, ["event id", event.id], ["events_root", anchor.eventsRoot]);
  return step("bundle", "Place in its bundle", says, walk.why, { inputs, path, means: MEANS.bundle });
}

/** Checks the leaf and its path through the log. */
export function logSteps({ eventsRoot, stateHash, inclusion, head }) {
  const leaf = logLeaf(eventsRoot, stateHash);
  const walk = walkInclusion(inclusion, leaf, head.root);
  const why = inclusion.size === head.size ? walk.why : "inclusion: for another tree size than the head's";
  const inputs = [
    ["events_root", eventsRoot],
    ["state_hash", stateHash],
    ["leaf", leaf],
  ];
  const says = `The events of bundle ${inclusion.index} and the state after it hash to one leaf of the log.`;
  const about =
    `Leaf ${inclusion.index}, hashed with its siblings level by level, leads to the root of the log ` +
    `of ${head.size} bundles.`;
  const sizes = [
    ["leaf", leaf],
    ["bundle", inclusion.index],
    ["size of the log that the path is for", inclusion.size],
    ["size of the head", head.size],
    ["root in the head", head.root],
  ];
  const path = pathOf("log", walk, ["leaf", leaf], ["root in the head", head.root]);
  return [
    { ...step("leaf", "Leaf of the log", says, null, { inputs }), computed: why !== null },
    step("inclusion", "Path through the log", about, why, { inputs: sizes, path, means: MEANS.inclusion }),
  ];
}

export function headSteps(head, sequencer, enclave) {
  const said = [
    ["time (Unix ms)", head.time],
    ["size in bundles", head.size],
    ["root", head.root],
    ["sequencer's key", sequencer],
  ];
  return [
    step(
      "head",
      "Signed head",
      "The sequencer's key signed the root, the size and the time of the log.",
      wrongHead(head, sequencer),
      {
        inputs: [...said, ["signature", head.sig]],
        means: MEANS.head,
      },
    ),
    step(
      "bound",
      "Head of this enclave",
      "The same key signed the same head together with the enclave's id.",
      wrongBound(head, sequencer, enclave),
      {
        inputs: [["enclave", enclave], ...said, ["signature", head.boundSig]],
        means: MEANS.bound,
      },
    ),
  ];
}

/** Checks the path from a key's value to the state's root. */
export function stateSteps({ namespace, raw, proof, anchor }) {
  const key = treeKey(namespace, raw);
  const walk = walkState(proof, key, anchor.stateHash);
  const inputs = [
    ["namespace", namespace],
    ["raw key", raw],
    ["key in the tree", key],
    ["key in the proof", proof.key],
    ["value", valueText(proof.value)],
    ["state_hash", anchor.stateHash],
  ];
  const what = proof.value === null ? "Nothing stands" : "A value stands";
  const says = `${what} at this key of the state's tree: 168 levels lead from there to its root.`;
  const from =
    proof.value === null ? ["nothing at this key", null] : ["leaf of key and value", treeLeaf(proof.key, proof.value)];
  const path = pathOf("state", walk, from, ["state_hash", anchor.stateHash]);
  return [
    step("state", "Path through the state", says, wrongForm(proof) ?? walk.why, { inputs, path, means: MEANS.state }),
  ];
}

/** Checks that the status belongs to this event and is not older than the event. */
export function statusStep({ event, anchor, status }) {
  const same = status.namespace === "event_status" && equal(status.raw, event.id);
  const early = status.anchor.inclusion.index < anchor.inclusion.index;
  const why = !same ? "status: belongs to another event" : early ? "status: older than the event" : null;
  const inputs = [
    ["event id", event.id],
    ["status of", status.raw],
    ["namespace", status.namespace],
    ["after bundle", status.anchor.inclusion.index],
    ["event is in bundle", anchor.inclusion.index],
  ];
  const says = "The proof is about this event, after the bundle that it is in.";
  return step("status", "Status of this event", says, why, {
    inputs,
    means: "This does not show the status of the event.",
  });
}

/** Checks that the Update is the one that the status names, and replaces this event. */
export function updateStep({ event, status, update }) {
  const value = status?.proof.value ?? null;
  const replaces = update.tags.some(([name, id]) => name === "r" && id === hex(event.id));
  let why = null;
  if (value === null || !equal(value, update.id)) why = "update: not the Update that the status names";
  else if (update.type !== "Update" || !equal(update.enclave, event.enclave)) {
    why = "update: not an Update in this enclave";
  } else if (!replaces) why = "update: replaces another event";
  const inputs = [
    ["event id", event.id],
    ["id of the Update", update.id],
    ["value of the status", valueText(value)],
  ];
  const says = "The proved status names this Update, and the Update names the event.";
  return step("update", "Update of this event", says, why, { inputs, means: "Another event replaced the content." });
}
