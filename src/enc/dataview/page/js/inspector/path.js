// A path through a tree, bottom up: at each level the left and the right node, and the hash of both.

import { h, svg } from "../dom.js";
import { short } from "../format.js";

const OPEN = 24; // rows shown by default

export function drawPath(path) {
  const holds = path.leads;
  const rows = runs(path.levels);
  if (!rows.length && path.ends[0].found === null) return null;
  const list = h(
    "ol",
    { class: "levels" },
    rows.map((row, i) => (row.run ? skipped(row) : level(row, i, rows, path))),
  );
  const drawn = h(
    "div",
    { class: `path ${holds ? "is-good" : "is-bad"}` },
    (!rows.length || rows[0].run) && node(path.from[0], path.from[1], "start"),
    rows.length > 0 && list,
    path.ends.map((each) => end(each, holds)),
  );
  const count = path.levels.length;
  const name =
    count === 0
      ? "The path has no levels: both are the same"
      : `The path, ${count} ${count === 1 ? "level" : "levels"}`;
  const isOpen = path.kind !== "state" && rows.length <= OPEN;
  return h("details", { class: "path-place", open: isOpen }, h("summary", {}, name), drawn);
}

// Consecutive levels without a sibling become one row.
function runs(levels) {
  const rows = [];
  for (const level of levels) {
    const last = rows[rows.length - 1];
    if (level.sibling !== null) rows.push(level);
    else if (last?.run) Object.assign(last, { run: last.run + 1, found: level.found });
    else rows.push({ run: 1, found: level.found });
  }
  return rows;
}

function level(row, i, rows, path) {
  const ours = i === 0 ? path.from[1] : rows[i - 1].found;
  const mine = node(i === 0 ? path.from[0] : "on the path", ours === "none" ? null : ours, "ours");
  const other = node(`sibling, ${row.side}`, row.sibling, "sibling");
  const pair = row.side === "left" ? [other, mine] : [mine, other];
  const name = row.depth === undefined ? `Level ${i + 1}` : `Depth ${row.depth}`;
  const next = rows[i + 1];
  const to = next?.side === "left" ? "right" : "left";
  return h(
    "li",
    {},
    h("span", { class: "level-name" }, name),
    h("div", { class: "pair" }, pair),
    joint(to),
    h("span", { class: "hidden" }, `Together they hash to ${short(row.found)}.`),
  );
}

function skipped({ run, found }) {
  return h(
    "li",
    { class: "skipped" },
    h("span", { class: "level-name" }, `${run} ${run === 1 ? "level" : "levels"}`),
    h("p", {}, "without a sibling, hashed to ", h("code", { title: found }, short(found))),
  );
}

function node(label, hash, kind) {
  return h(
    "div",
    { class: `node ${kind}` },
    h("span", { class: "label" }, label),
    h("code", { title: hash }, hash === null || hash === "none" ? "empty" : short(hash)),
  );
}

// The two nodes join, and continue to the next level.
function joint(to) {
  const x = to === "left" ? 25 : 75;
  const line = (x1, y1, x2, y2) => svg("line", { x1, y1, x2, y2, "vector-effect": "non-scaling-stroke" });
  return svg(
    "svg",
    { class: "joint", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    line(25, 0, 25, 10),
    line(75, 0, 75, 10),
    line(25, 10, 75, 10),
    line(x, 10, x, 24),
  );
}

function end({ name, found, label, expected }, holds) {
  const same = found === expected;
  const result =
    found === null ? "it leads nowhere" : !same ? "another" : holds ? "the same" : "the same, but that is not enough";
  return h(
    "div",
    { class: `ends ${same && holds ? "is-good" : "is-bad"}` },
    node(name, found, "result"),
    h("span", { class: "same" }, same ? "= " : "≠ ", h("span", { class: "word" }, result)),
    node(label, expected, "expected"),
  );
}
