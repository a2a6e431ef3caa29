// Renders the result of a check: the verdict, the chain of parts, every step, and what is not proved.

import { h } from "../dom.js";
import { clip, short, visible } from "../format.js";
import { copy } from "../table.js";
import { steps } from "./steps.js";

const HEADLINES = {
  holds: ["good", "The proof holds"],
  convicts: ["good", "The evidence convicts the sequencer"],
  finding: ["part", "The finding holds; the evidence convicts nobody"],
  open: ["part", "The evidence convicts nobody"],
  signatures: ["part", "The signatures hold; nothing shows that it is in the log"],
  fails: ["bad", "Nothing is proved: a step is broken"],
  unreadable: ["bad", "This cannot be checked"],
  unsupported: ["none", "This page cannot judge this file"],
};
const EVIDENCE = ["convicts", "finding", "open"];
const MARKS = { good: "✓", part: "◐", bad: "✗", none: "?" };

export function report(found, { source = "", value = null } = {}) {
  const [tone, title] = HEADLINES[found.verdict];
  const parts = [banner(found, tone, title, source), ...(found.groups.length ? [chain(found.groups)] : [])];
  if (found.event) parts.push(about(found.event, found.missing));
  parts.push(shows(found), save(found, value), ...found.groups.map((group, i) => section(group, i)));
  return h("div", { class: "report", "data-verdict": found.verdict }, parts);
}

function banner(found, tone, title, source) {
  const broken = found.groups.flatMap((group) => group.steps).find((step) => step.why !== null);
  const lines = [
    source && found.kind ? `From ${source}: ${found.kind}.` : "",
    found.why ?? "",
    broken ? `${broken.title}: ${broken.why}. ${broken.means}` : "",
    found.message ? `Message stored with it: ${clip(found.message, 400)}` : "",
    found.said ? `The server says: ${clip(found.said, 400)}` : "",
  ];
  return h(
    "section",
    { class: `verdict is-${tone}`, "aria-labelledby": "verdict" },
    h("span", { class: "mark", "aria-hidden": "true" }, MARKS[tone]),
    h(
      "div",
      {},
      h("h2", { id: "verdict", tabindex: "-1" }, title),
      lines.filter(Boolean).map((line) => h("p", {}, line)),
      trust(found, broken),
    ),
  );
}

// The signing key: without a key to compare with, green only means that the file is consistent.
function trust(found, broken) {
  if (!found.sequencer || broken) return null;
  const pinned = found.groups.some((group) => group.steps.some((step) => step.id === "pin"));
  const whose = EVIDENCE.includes(found.verdict) ? "It is about" : "It was signed by";
  const says = pinned
    ? `${whose} the key that you entered:`
    : `${whose} this key. Compare it with the key that you know the node by, or enter that above:`;
  return h(
    "p",
    { class: "trust" },
    says,
    " ",
    h("code", { class: "key" }, found.sequencer),
    copy(found.sequencer, "Copy the sequencer's key"),
  );
}

const isWhole = (group) => group.steps.every((step) => step.why === null);

function chain(groups) {
  const items = groups.map((group, i) => {
    const good = isWhole(group);
    const go = () => {
      const heading = document.getElementById(`proof-part-${i}`);
      heading.scrollIntoView();
      heading.focus({ preventScroll: true });
    };
    const inside = [
      h("span", { class: "name" }, group.title),
      h("span", { class: "word" }, good ? "✓ holds" : "✗ broken"),
    ];
    return h("li", { class: good ? "is-good" : "is-bad" }, h("button", { type: "button", onclick: go }, inside));
  });
  return h("nav", { class: "chain", "aria-label": "From the beginning to the end" }, h("ol", {}, items));
}

function section(group, i) {
  const good = isWhole(group);
  const id = `proof-part-${i}`;
  return h(
    "section",
    { class: `card part ${good ? "is-good" : "is-bad"}`, "aria-labelledby": id },
    h("h2", { id, tabindex: "-1" }, group.title),
    steps(group.steps),
  );
}

// Describes the event; its content is untrusted text.
function about(event, missing) {
  const when =
    event.timestamp <= 8.64e15
      ? new Date(event.timestamp).toISOString().slice(0, 19).replace("T", " ")
      : String(event.timestamp);
  const facts = [
    ["Type", event.type],
    ["Place (seq)", event.seq],
    ["Time (UTC, by the sequencer)", when],
  ];
  const content =
    event.content === null
      ? h("p", { class: "soft" }, `Its content ${missing ?? "is not in this file: it was erased or is withheld"}.`)
      : h("pre", { tabindex: "0", role: "region", "aria-label": "Content" }, clip(event.content, 20_000));
  return h(
    "section",
    { class: "card", "aria-labelledby": "proof-about" },
    h("h2", { id: "proof-about" }, "What it says"),
    h(
      "dl",
      { class: "facts" },
      facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, visible(value, 200)))),
    ),
    content,
  );
}

function shows({ verdict, proved, notProved }) {
  if (!proved.length && !notProved.length) return null;
  const list = (id, title, items, kind) =>
    items.length > 0 &&
    h(
      "div",
      { class: kind },
      h("h3", { id }, title),
      h(
        "ul",
        { "aria-labelledby": id },
        items.map((item) => h("li", {}, worded(visible(item)))),
      ),
    );
  return h(
    "section",
    { class: "card says", "aria-labelledby": "proof-says" },
    h("h2", { id: "proof-says" }, verdict === "holds" ? "What this proves" : "What this shows"),
    h(
      "div",
      { class: "columns" },
      list("proof-shown", "Shown", proved, "shown"),
      list("proof-not", "Not shown", notProved, "not-shown"),
    ),
  );
}

// A sentence with shortened ids and keys; the full ones are in the title.
function worded(text) {
  return text.split(/([0-9a-f]{64})/).map((part, i) => (i % 2 ? h("code", { title: part }, short(part)) : part));
}

// Saves the server's proof, so that it can be checked again without the server.
function save({ verdict, event }, value) {
  if (verdict !== "holds" || value === null) return null;
  const button = h("button", { type: "button", class: "quiet" }, "Save the proof as a file");
  button.addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([`${JSON.stringify(value, null, 2)}\n`], { type: "application/json" }));
    h("a", { href: url, download: `proof-${event ? event.seq : "state"}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  });
  return h(
    "div",
    { class: "row" },
    button,
    h("span", { class: "soft" }, "“enc verify FILE” checks it as well, offline."),
  );
}
