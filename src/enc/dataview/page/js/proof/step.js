/** Steps: a single check, described in words, with its inputs and its result. */

import { hex } from "./bytes.js";

/** `why` is null if the step holds. `inputs` are pairs of a name and a text; `levels` a path, from below. */
export function step(id, title, says, why, { inputs = [], path = null, means = "" } = {}) {
  return { id, title, says, why, inputs: inputs.map(([name, value]) => [name, spelled(value)]), path, means };
}

function spelled(value) {
  if (value === null) return "none";
  return value instanceof Uint8Array ? hex(value) : String(value);
}

/** A path through a tree, to be drawn: its start, its levels, and the actual and the expected end. `also`: another end
 * of the same path. */
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

/** Returns the first step that does not hold, in the order in which they are drawn. */
export const firstBroken = (groups) => groups.flatMap(({ steps }) => steps).find(({ why }) => why !== null) ?? null;
