/** Membership in a bundle: checks that an event is under an `events_root` (docs/protocol.md, section 8). */

import { equal, unhex } from "./bytes.js";
import { exact, integer, list, struct, text } from "./form.js";
import { logNode } from "./hashing.js";
import { Refused } from "./refusal.js";

/** No log of fewer than 2^53 leaves has a longer path. */
export const MAX_PATH = 64;

export const membershipForm = struct({ ei: integer, s: list(text), size: integer });

export const readMembership = ({ ei, s, size }) => ({
  index: exact(ei, "ei"),
  siblings: readHashes(s, "s"),
  size: exact(size, "size"),
});

export function readHashes(items, field, most = MAX_PATH) {
  if (items.length > most) throw new Refused(`${field}: over ${most} hashes`);
  return items.map((item, i) => unhex(item, 32, `${field}[${i}]`));
}

/** Returns the levels from an id to the root; `why` if the path leads to another root. */
export function walkMembership({ index, siblings, size }, id, eventsRoot) {
  if (index >= size) return failed("bundle: the event index is not below the bundle's size");
  if (siblings.length !== bitLength(size - 1)) return failed("bundle: the wrong number of siblings for this size");
  let found = id;
  const levels = [];
  siblings.forEach((sibling, i) => {
    const isRight = Math.floor(index / 2 ** i) % 2 === 1;
    found = isRight ? logNode(sibling, found) : logNode(found, sibling);
    levels.push({ side: isRight ? "left" : "right", sibling, found });
  });
  const why = equal(found, eventsRoot) ? null : "bundle: the siblings lead to another root";
  return { why, levels, found };
}

export const failed = (why, levels = [], found = null) => ({ why, levels, found });

function bitLength(number) {
  let bits = 0;
  for (let left = number; left > 0; left = Math.floor(left / 2)) bits += 1;
  return bits;
}
