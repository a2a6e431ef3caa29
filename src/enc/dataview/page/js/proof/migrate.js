/** Migrates: the events that appoint an enclave's next sequencer (docs/protocol.md, section 16). */

import { equal, hex, unhex } from "./bytes.js";
import { strictContent } from "./commit.js";
import { checkEvent } from "./event.js";
import { isObject } from "./form.js";
import { Refused, named } from "./refusal.js";
import { isPublicKey } from "./schnorr.js";

export const MAX_MOVES = 64;
/** Most characters of a Migrate's content. */
const MAX_CONTENT = 16 * 1024;

/** Returns the next sequencer, and the last seq before the Migrate, from its content. */
export function parseMigrate(event) {
  if (event.content === null) throw new Refused(`content: a ${event.type} is never erased`);
  const content = strictContent(event.content);
  if (!isObject(content)) throw new Refused("content: expected a JSON object");
  const newSequencer = unhex(content.new_sequencer, 32, "content.new_sequencer");
  if (!isPublicKey(newSequencer)) {
    throw new Refused("content.new_sequencer: not the x-coordinate of a point on secp256k1");
  }
  const prevSeq = content.prev_seq;
  if (typeof prevSeq !== "number" || prevSeq < 0) throw new Refused("content.prev_seq: expected a sequence number");
  unhex(content.ct_root, 32, "content.ct_root");
  return { newSequencer, prevSeq };
}

/** Checks a Migrate in full that hands over from `before` (null: unknown). */
function moveOf(event, before, enclave) {
  return named(`Migrate ${event.seq}`, () => {
    checkEvent(event);
    if (event.type !== "Migrate" || !equal(event.enclave, enclave)) throw new Refused("not a Migrate of this enclave");
    if ([...(event.content ?? "")].length > MAX_CONTENT) {
      throw new Refused(`the content has more than ${MAX_CONTENT} characters`);
    }
    const { newSequencer, prevSeq } = parseMigrate(event);
    if (prevSeq !== event.seq - 1) throw new Refused("prev_seq: not the seq of the event before it");
    if (before !== null && !equal(event.sequencer, before) && !equal(event.sequencer, newSequencer)) {
      throw new Refused("finalised neither by the old sequencer nor by the new one");
    }
    const forced = equal(event.sequencer, newSequencer);
    return { event, newSequencer, forced, fromSeq: event.seq + (forced ? 0 : 1) };
  });
}

/** Returns the history that the Migrates prove: the moves, the first sequencer if it is known, and why the rest is
 * rejected. */
export function historyOf(events, enclave) {
  const moves = [];
  let [before, last] = [null, -1];
  const done = (why) => ({ why, moves, first: moves.length && !moves[0].forced ? moves[0].event.sequencer : null });
  if (events.length > MAX_MOVES) {
    return done(`the enclave has ${events.length} Migrates; a client follows at most ${MAX_MOVES}`);
  }
  for (const event of events) {
    try {
      const move = moveOf(event, before, enclave);
      if (event.seq <= last) return done(`Migrate ${event.seq}: not after the previous Migrate`);
      if (before === null || !equal(move.newSequencer, before)) moves.push(move); // a sequencer that names itself stays
      [before, last] = [move.newSequencer, event.seq];
    } catch (error) {
      if (error instanceof Refused) return done(error.message);
      throw error;
    }
  }
  return done(null);
}

/** Returns the key that signs an event in this place; null if it is unknown. */
export function sequencerAt({ moves, first }, seq) {
  const before = moves.filter((move) => move.fromSeq <= seq);
  return before.length ? before[before.length - 1].newSequencer : first;
}

export const moveText = ({ event, newSequencer }) =>
  `Migrate ${event.seq}, signed by ${hex(event.from)}, hands over to ${hex(newSequencer)}`;
