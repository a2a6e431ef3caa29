// One view: its columns, filters, order, rows page by page, and downloads.

import { absent, fetched, Refused, rows, views } from "./api.js";
import { h, notice, say } from "./dom.js";
import { many } from "./format.js";
import { about } from "./views.js";
import { linked, pager, table } from "./table.js";

const PAGE = 50, MOST = 10_000;
const PLAIN = ["select", "order", "cursor"];
const OPS = { eq: "is", ne: "is not", lt: "is below", le: "is at most", gt: "is above", ge: "is at least", in: "is one of", null: "has no value", prefix: "begins with", contains: "contains" };
const ORDERED = ["eq", "ne", "lt", "le", "gt", "ge", "in", "null"];
const ALLOWED = {
  string: ["eq", "prefix", "contains", "ne", "in", "null", "lt", "le", "gt", "ge"],
  integer: ORDERED, double: ORDERED, timestamp: ["ge", "lt", "eq", "ne", "le", "gt", "null"], date: ORDERED,
  boolean: ["eq", "null"], binary: ["eq", "ne", "null"], json: ["contains", "null"],
};
const HINTS = { timestamp: "2026-01-31T12:00:00Z", date: "2026-01-31", boolean: "true or false", binary: "hex" };

export async function view(root, { id: name, query, signal }) {
  const found = (await views({ signal })).get(name);
  root.append(h("p", { class: "crumbs" }, h("a", { href: "#/views" }, "Views")), h("h1", {}, name));
  if (!found) {
    root.append(notice(absent(name)));
    return;
  }
  const asked = Object.fromEntries(query);
  root.append(h("p", { class: "lead" }, found.description || about(name)), columnsOf(found));
  root.append(h("div", { class: "card controls" }, filterForm(found, query), chips(found, query), orderForm(found, query)));
  const place = h("div", {});
  root.append(place);
  try {
    const page = await rows(name, { ...asked, limit: PAGE }, { signal });
    const shown = asked.select ? found.columns.filter((column) => asked.select.split(",").includes(column.name)) : found.columns;
    const columns = shown.map((column) => ({ name: column.name, kind: column.type, cell: (row) => linked(row, column) }));
    place.append(h("div", { class: "row between" }, h("p", { class: "soft" }, page.rows.length ? `${many(page.rows.length, "row")} on this page${page.next ? "; there are more." : "."}` : ""), downloads(found, asked)),
      table(`Rows of ${name}`, columns, page.rows, { empty: filtersOf(query).length ? "No row matches these filters." : "This view has no rows yet." }), pager(`views/${name}`, query, page.next) ?? "");
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    place.append(notice(error.message, "bad"));
  }
}

function columnsOf(found) {
  const columns = [
    { label: "Column", cell: (column) => h("span", { class: "mono" }, column.name) },
    { label: "Type", cell: (column) => column.type },
    { label: "Key", cell: (column) => (found.key.includes(column.name) ? "yes" : "") },
  ];
  return h("details", { class: "fold" }, h("summary", {}, `${many(found.columns.length, "column")}, key: ${found.key.join(", ")}`), table("Columns", columns, found.columns, { compact: true }));
}

// Filters

export function filtersOf(query) {
  return [...query].filter(([name]) => !PLAIN.includes(name)).map(([name, value]) => {
    const [column, op = "eq"] = name.split(".");
    return { name, column, op, value };
  });
}

function to(name, query, change) {
  const next = new URLSearchParams(query);
  next.delete("cursor");
  change(next);
  location.hash = `#/views/${name}${next.size ? `?${next}` : ""}`;
}

function chips(found, query) {
  const given = filtersOf(query);
  if (given.length === 0) return null;
  const made = given.map(({ name, column, op, value }) => {
    const text = op === "null" ? `${column} ${value === "true" ? "has no value" : "has a value"}` : `${column} ${OPS[op] ?? op} ${value}`;
    return h("li", {}, h("button", { type: "button", class: "chip", "aria-label": `Remove the filter: ${text}`, onclick: () => to(found.name, query, (next) => next.delete(name)) }, text, h("span", { "aria-hidden": "true" }, " ×")));
  });
  return h("ul", { class: "chips", "aria-label": "Filters" }, made);
}

function filterForm(found, query) {
  const column = h("select", { id: "column" }, found.columns.map((each) => h("option", { value: each.name }, each.name)));
  const op = h("select", { id: "op" });
  const value = h("input", { id: "value", maxlength: 4096, spellcheck: "false", class: "grow" });
  const type = () => found.columns.find((each) => each.name === column.value).type;
  function fit() {
    op.replaceChildren(...ALLOWED[type()].map((name) => h("option", { value: name }, OPS[name])));
    fitValue();
  }
  function fitValue() {
    value.placeholder = op.value === "null" ? "true or false" : (HINTS[type()] ?? "");
    if (op.value === "null" && !value.value) value.value = "true";
  }
  column.addEventListener("change", fit);
  op.addEventListener("change", fitValue);
  fit();
  function go(event) {
    event.preventDefault();
    const name = op.value === "eq" && ![...PLAIN, "limit", "format", "verify"].includes(column.value) ? column.value : `${column.value}.${op.value}`;
    to(found.name, query, (next) => next.set(name, value.value.trim()));
  }
  return h("form", { class: "row", onsubmit: go },
    h("div", { class: "field" }, h("label", { for: "column" }, "Column"), column), h("div", { class: "field" }, h("label", { for: "op" }, "How"), op),
    h("div", { class: "field grow" }, h("label", { for: "value" }, "Value"), value), h("button", { type: "submit" }, "Add filter"));
}

function orderForm(found, query) {
  const [first = ""] = (query.get("order") ?? "").split(",");
  const sortable = found.columns.filter((each) => each.type !== "json");
  const by = h("select", { id: "order" }, h("option", { value: "" }, "the key"), sortable.map((each) => h("option", { value: each.name, selected: first.replace(/^-/, "") === each.name }, each.name)));
  const way = h("select", { id: "way" }, h("option", { value: "" }, "from the lowest up"), h("option", { value: "-", selected: first.startsWith("-") }, "from the highest down"));
  function go(event) {
    event.preventDefault();
    const order = by.value ? `${way.value}${by.value}` : way.value ? `-${found.key[0]}` : "";
    to(found.name, query, (next) => (order ? next.set("order", order) : next.delete("order")));
  }
  return h("form", { class: "row", onsubmit: go }, h("div", { class: "field" }, h("label", { for: "order" }, "Order by"), by),
    h("div", { class: "field" }, h("label", { for: "way" }, "Direction"), way), h("button", { type: "submit", class: "quiet" }, "Order"));
}

// Downloads, fetched with the reader's rights

function downloads(found, asked) {
  const place = h("span", { class: "soft", role: "status" });
  const { cursor: _, ...rest } = asked;
  async function save(format, cursor, part) {
    place.textContent = "Asking…";
    try {
      const answer = await fetched(`views/${found.name}`, { ...rest, cursor, format, limit: MOST });
      const next = /[?&]cursor=([^&>]+)>; rel="next"/.exec(answer.headers.get("link") ?? "")?.[1];
      hand(await answer.blob(), `${found.name}${part > 1 ? `-${part}` : ""}.${format}`);
      tell(format, next && decodeURIComponent(next), part);
    } catch (error) {
      place.textContent = error instanceof Refused ? error.message : "The download was interrupted.";
    }
  }
  function tell(format, next, part) {
    const text = next ? "Saved; there are more rows." : part > 1 ? "Saved: that was the last part." : "Saved.";
    place.replaceChildren(text, next ? h("button", { type: "button", class: "quiet", onclick: () => save(format, next, part + 1) }, "Save the next part") : "");
    say(text);
  }
  const button = (format, label) => h("button", { type: "button", class: "quiet", onclick: () => save(format, null, 1) }, label);
  return h("div", { class: "row" }, place, h("span", { class: "soft" }, "Download"), h("div", { class: "segments", role: "group", "aria-label": `Download up to ${MOST} rows with these filters` }, button("csv", "CSV"), button("json", "JSON"), button("arrow", "Arrow")));
}

function hand(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
