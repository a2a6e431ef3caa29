/** The log's Merkle tree: inclusion and consistency by RFC 9162, with H() (docs/protocol.md, section 9). */

import { failed, readHashes } from "./bundle.js";
import { equal } from "./bytes.js";
import { exact, integer, list, struct, text } from "./form.js";
import { logNode } from "./hashing.js";

export const inclusionForm = struct({ ts: integer, li: integer, p: list(text) });
export const consistencyForm = struct({ ts1: integer, ts2: integer, p: list(text) });

export const readInclusion = ({ ts, li, p }) => ({
  size: exact(ts, "ts"),
  index: exact(li, "li"),
  path: readHashes(p, "p"),
});

export const readConsistency = ({ ts1, ts2, p }) => ({
  first: exact(ts1, "ts1"),
  second: exact(ts2, "ts2"),
  path: readHashes(p, "p"),
});

const isOdd = (number) => number % 2 === 1;
const half = (number) => Math.floor(number / 2);

/** Section 2.1.3.2, level by level. `side`: whether the sibling is to the left or to the right. */
export function walkInclusion({ size, index, path }, leaf, root) {
  if (index >= size) return failed("inclusion: the leaf index is not below the tree size");
  let [fn, sn, found] = [index, size - 1, leaf];
  const levels = [];
  for (const sibling of path) {
    if (sn === 0) return failed("inclusion: the path is too long", levels, found);
    const isLeft = isOdd(fn) || fn === sn;
    found = isLeft ? logNode(sibling, found) : logNode(found, sibling);
    levels.push({ side: isLeft ? "left" : "right", sibling, found });
    while (isLeft && !isOdd(fn) && fn !== 0) [fn, sn] = [half(fn), half(sn)];
    [fn, sn] = [half(fn), half(sn)];
  }
  if (sn !== 0) return failed("inclusion: the path is too short", levels, found);
  const why = equal(found, root) ? null : "inclusion: the path leads to another root";
  return { why, levels, found };
}

/** Section 2.1.4.2. A level has two results: one for the smaller log, one for the larger log. */
export function walkConsistency({ first, second, path }, firstRoot, secondRoot) {
  if (first < 1 || first > second) return failed("consistency: the sizes are out of order or zero");
  if (first === second) {
    const same = path.length === 1 && equal(path[0], firstRoot) && equal(firstRoot, secondRoot);
    return same ? { why: null, levels: [], found: firstRoot } : failed("consistency: equal sizes with different roots");
  }
  const whole = isPower(first) ? [firstRoot, ...path] : path;
  if (!whole.length) return failed("consistency: the path is too short");
  return { ...foldConsistency(first, second, whole, firstRoot, secondRoot), start: whole[0] };
}

function foldConsistency(first, second, [start, ...path], firstRoot, secondRoot) {
  let [fn, sn, fr, sr] = [first - 1, second - 1, start, start];
  while (isOdd(fn)) [fn, sn] = [half(fn), half(sn)];
  const levels = [];
  for (const sibling of path) {
    if (sn === 0) return failed("consistency: the path is too long", levels, sr);
    const isLeft = isOdd(fn) || fn === sn;
    if (isLeft) fr = logNode(sibling, fr);
    sr = isLeft ? logNode(sibling, sr) : logNode(sr, sibling);
    levels.push({ side: isLeft ? "left" : "right", sibling, found: sr, first: fr });
    while (isLeft && !isOdd(fn) && fn !== 0) [fn, sn] = [half(fn), half(sn)];
    [fn, sn] = [half(fn), half(sn)];
  }
  if (sn !== 0) return failed("consistency: the path is too short", levels, sr);
  if (!equal(fr, firstRoot)) return failed("consistency: the path does not lead to the first root", levels, sr);
  const why = equal(sr, secondRoot) ? null : "consistency: the path does not lead to the second root";
  return { why, levels, found: sr };
}

function isPower(number) {
  let left = number;
  while (left > 1 && !isOdd(left)) left = half(left);
  return left === 1;
}
