// Steps as a list, each with its verdict as word and colour, its inputs, and its path.

import { h } from "../dom.js";
import { clip, short, visible } from "../format.js";
import { copy } from "../table.js";
import { drawPath } from "./path.js";

const HEX = /^[0-9a-f]{40,}$/;

export function steps(all) {
  return h("ol", { class: "steps" }, all.map(one));
}

function one(step) {
  const tone = step.why !== null ? "bad" : step.computed ? "none" : "good";
  const word = { good: "Holds", bad: "Broken", none: "Computed" }[tone];
  const trouble =
    step.why !== null &&
    h(
      "div",
      { class: "trouble" },
      h("p", {}, h("b", {}, "Why: "), clip(step.why, 600)),
      step.means && h("p", {}, h("b", {}, "What this means: "), step.means),
    );
  return h(
    "li",
    { class: `step is-${tone}`, "data-step": step.id },
    h(
      "div",
      { class: "step-head" },
      h("h3", {}, step.title),
      h(
        "span",
        { class: `badge ${tone}` },
        h("span", { "aria-hidden": "true" }, { good: "✓ ", bad: "✗ ", none: "• " }[tone]),
        word,
      ),
    ),
    h("p", {}, step.says),
    trouble,
    step.path && drawPath(step.path),
    inputs(step),
  );
}

function inputs({ title, inputs: pairs }) {
  if (!pairs.length) return null;
  const rows = pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, valueOf(name, value))));
  return h(
    "details",
    { class: "inputs" },
    h("summary", {}, "Inputs of this check", h("span", { class: "hidden" }, `: ${title}`)),
    h("dl", {}, rows),
  );
}

function valueOf(name, value) {
  if (HEX.test(value))
    return h("span", { class: "hexes" }, h("code", {}, value), copy(value, `Copy ${name}, ${short(value)}`));
  return visible(value);
}
