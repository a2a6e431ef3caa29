/** Steps: one thing that was checked, in words, with what it was checked on and what came out. */

import { hex } from "./bytes.js";

/** `why` is null where it holds. `inputs` are pairs of a name and a text; `levels` a path, from below. */
export function step(id, title, says, why, { inputs = [], path = null, means = "" } = {}) {
  return { id, title, says, why, inputs: inputs.map(([name, value]) => [name, spelled(value)]), path, means };
}

function spelled(value) {
  if (value === null) return "none";
  return value instanceof Uint8Array ? hex(value) : String(value);
}

/** A walk through a tree, to be drawn: from what, over which levels, and at the end where it leads and where it should.
 * `also`: another end of the same walk. */
export const pathOf = (kind, walk, from, to, also = null) => ({
  kind,
  leads: walk.why === null,
  from: [from[0], spelled(from[1])],
  ends: [ending("where the path leads", walk.found, to), ...(also ? [ending(...also)] : [])],
  levels: walk.levels.map(({ side, sibling, found, depth }) => ({
    side,
    sibling: sibling === null ? null : hex(sibling),
    found: hex(found),
    ...(depth === undefined ? {} : { depth }),
  })),
});

const ending = (name, found, [label, expected]) => ({
  name,
  found: found === null ? null : hex(found),
  label,
  expected: spelled(expected),
});

export const group = (id, title, steps) => ({ id, title, steps });

/** The first step that does not hold, in the order in which they are drawn. */
export const firstBroken = (groups) => groups.flatMap(({ steps }) => steps).find(({ why }) => why !== null) ?? null;
