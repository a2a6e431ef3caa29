// Tables of rows, with cells formatted by column kind, and pages by cursor.

import { h, svg } from "./dom.js";
import { clip, isHex, number, short, time } from "./format.js";

// columns: [{name, label, kind, cell(row)}]; `kind`: number, time, id, text, json. A cell may be an element or a text.
export function table(caption, columns, rows, { empty = "Nothing here.", compact = false } = {}) {
  if (rows.length === 0) return h("p", { class: "empty" }, empty);
  const head = columns.map((column) => h("th", { scope: "col", class: right(column) }, column.label ?? column.name));
  const body = rows.map((row) => h("tr", {}, columns.map((column) => h("td", { class: right(column) }, column.cell ? column.cell(row) : cell(row[column.name], column.kind)))));
  const made = h("table", { class: compact ? "compact" : "" }, h("caption", { class: "hidden" }, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
  return scrolling(made, caption);
}

// A wide table scrolls in its box, by keyboard too.
export function scrolling(inside, label) {
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, inside);
}

function right(column) {
  return column.kind === "number" || column.kind === "integer" || column.kind === "double" ? "num" : null;
}

export function cell(value, kind = "text") {
  if (value === null || value === undefined) return h("span", { class: "nil" }, "–");
  if (kind === "integer" || kind === "double" || kind === "number") return number(value);
  if (kind === "time" || kind === "timestamp") return h("time", { datetime: value, class: "when" }, time(value));
  if (kind === "boolean" || typeof value === "boolean") return value ? "yes" : "no";
  if (kind === "json" || typeof value === "object") return json(value);
  if (isHex(value)) return id(value);
  return text(value);
}

// A time to the minute for lists; the full time is in the title.
export function minute(value) {
  return value ? h("time", { datetime: value, class: "when", title: time(value) }, time(value).slice(0, 16)) : cell(null);
}

// A shortened id; the full id is in the title and is what gets copied.
export function id(value, href = null) {
  const inside = href ? h("a", { href, title: value }, short(value)) : h("span", { title: value }, short(value));
  return h("span", { class: "mono id" }, inside, copy(value));
}

export function copy(value, label = `Copy ${short(value)}`) {
  const button = h("button", { type: "button", class: "copy", "aria-label": label, title: "Copy" }, icon());
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(value);
      button.replaceChildren("✓");
    } catch {
      button.replaceChildren("✗"); // the browser forbids copying
    }
    setTimeout(() => button.replaceChildren(icon()), 1500);
  });
  return button;
}

function icon() {
  return svg("svg", { viewBox: "0 0 16 16", width: 13, height: 13, "aria-hidden": "true" },
    svg("rect", { x: 5.5, y: 5.5, width: 8, height: 8, rx: 1.5, fill: "none", stroke: "currentColor", "stroke-width": 1.4 }),
    svg("path", { d: "M3.5 10.5h-1v-8h8v1", fill: "none", stroke: "currentColor", "stroke-width": 1.4, "stroke-linejoin": "round" }));
}

const MOST = 160;

function text(value) {
  if (value.length <= MOST) return h("span", { class: /\S{24}/.test(value) ? "text split" : "text" }, value);
  return long(clip(value, MOST - 40), value);
}

function json(value) {
  const flat = JSON.stringify(value);
  if (flat.length <= 80) return h("code", { class: "text" }, flat);
  return long(clip(flat, 60), JSON.stringify(value, null, 2));
}

function long(summary, whole) {
  return h("details", { class: "long" }, h("summary", {}, summary), h("pre", { tabindex: "0" }, clip(whole, 100_000)));
}

// The cell of a view's column, with links for ids.
export function linked(row, column) {
  const value = row[column.name];
  const isEnclave = column.name === "enclave" || column.name === "enclave_id";
  const isEvent = (column.name === "id" && "seq" in row && "enclave" in row) || (column.name === "event" && isHex(value));
  if (isEnclave && isHex(value)) return id(value, `#/enclaves/${value}`);
  if (isEvent && isHex(value)) return id(value, `#/proof/${value}`);
  if (column.type === "integer" && value !== null) return String(value); // unformatted, so that it can be copied
  return cell(value, column.type);
}

// Pages: forward by the cursor of an answer, back by this tab's history.
const before = new Map();

export function pager(path, query, next) {
  const here = query.get("cursor") ?? "";
  const link = (cursor) => {
    const to = new URLSearchParams(query);
    if (cursor) to.set("cursor", cursor);
    else to.delete("cursor");
    const text = to.toString();
    return `#/${path}${text ? `?${text}` : ""}`;
  };
  if (next) before.set(next, here);
  if (before.size > 10_000) before.clear();
  const first = here ? h("a", { class: "button quiet", href: link("") }, "First page") : null;
  const back = here && before.get(here) ? h("a", { class: "button quiet", href: link(before.get(here)) }, "Back") : null;
  const on = next ? h("a", { class: "button", href: link(next) }, "Next page") : null;
  if (!first && !on) return null;
  return h("nav", { class: "row pager", "aria-label": "Pages of rows" }, first, back, on ?? h("span", { class: "soft" }, "That was the last page."));
}
