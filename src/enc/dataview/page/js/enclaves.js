// All enclaves, newest first, or the results of a search.

import { absent, rows, rowsIf, views } from "./api.js";
import { h, notice } from "./dom.js";
import { number, short } from "./format.js";
import { cell, id, minute, pager, table } from "./table.js";

export const PAGE = 50;
const WHAT = "enclave,enc_v,creator,created,meta,lifecycle,registry";

// Ways to search for an enclave: the view to query, and the query.
const WAYS = {
  id: { label: "Id begins with", view: "enclaves", asked: (q) => ({ "enclave.prefix": q.toLowerCase() }) },
  creator: { label: "Creator begins with", view: "enclaves", asked: (q) => ({ "creator.prefix": q.toLowerCase(), order: "creator" }) },
  app: { label: "App is", view: "registry_enclaves", of: "enclave_id", asked: (q) => ({ app: q }) },
  owner: { label: "Owner begins with", view: "members", of: "enclave", asked: (q) => ({ "identity.prefix": q.toLowerCase(), owner: "true", order: "identity" }) },
  member: { label: "Member begins with", view: "members", of: "enclave", asked: (q) => ({ "identity.prefix": q.toLowerCase(), order: "identity" }) },
};

export async function enclaves(root, { query, signal }) {
  const options = { signal };
  const known = await views(options);
  root.append(h("h1", {}, "Enclaves"));
  if (!known.has("enclaves") && !known.has("heads")) {
    root.append(notice(absent("enclaves")));
    return;
  }
  root.append(search(known, query));
  const found = await page(known, query, options);
  const named = await about(found.rows, options);
  root.append(list(found.rows, named, query), pager("enclaves", query, found.next) ?? "");
}

function search(known, query) {
  const ways = Object.entries(WAYS).filter(([, way]) => known.has(way.view));
  const by = h("select", { id: "by" }, ways.map(([name, way]) => h("option", { value: name, selected: query.get("by") === name }, way.label)));
  const text = h("input", { id: "q", type: "search", value: query.get("q") ?? "", maxlength: 128, spellcheck: "false", class: "mono grow" });
  function go(event) {
    event.preventDefault();
    const to = new URLSearchParams();
    if (text.value.trim()) {
      to.set("by", by.value);
      to.set("q", text.value.trim());
    }
    location.hash = `#/enclaves${to.size ? `?${to}` : ""}`;
  }
  return h("form", { class: "row search", role: "search", onsubmit: go },
    h("label", { for: "by", class: "hidden" }, "Search by"), by, h("label", { for: "q", class: "hidden" }, "Search for"), text,
    h("button", { type: "submit" }, "Search"), query.get("q") ? h("a", { class: "button quiet", href: "#/enclaves" }, "All enclaves") : null);
}

// Returns {rows, next}: rows of `enclaves`, possibly partial.
async function page(known, query, options) {
  const q = query.get("q"), way = Object.hasOwn(WAYS, query.get("by") ?? "") ? WAYS[query.get("by")] : WAYS.id, cursor = query.get("cursor");
  const main = known.has("enclaves");
  if (!q) {
    const [view, order, select] = main ? ["enclaves", "-created", WHAT] : ["heads", "-timestamp", "enclave"];
    return rows(view, { order, limit: PAGE, cursor, select }, options);
  }
  if (!way.of) return rows("enclaves", { ...way.asked(q), limit: PAGE, cursor, select: WHAT }, options);
  const there = await rows(way.view, { ...way.asked(q), limit: PAGE, cursor, select: way.of }, options);
  const ids = [...new Set(there.rows.map((row) => row[way.of]))];
  if (!main || ids.length === 0) return { rows: ids.map((enclave) => ({ enclave })), next: there.next };
  const known_ = await rows("enclaves", { "enclave.in": ids.join(","), limit: PAGE, select: WHAT }, options);
  const by = new Map(known_.rows.map((row) => [row.enclave, row]));
  return { rows: ids.map((enclave) => by.get(enclave) ?? { enclave }), next: there.next };
}

// Rows of other views about these enclaves, by id.
async function about(found, options) {
  const ids = found.map((row) => row.enclave).join(",");
  if (!ids) return { heads: new Map(), entries: new Map() };
  const [heads, entries] = await Promise.all([
    rowsIf("heads", { "enclave.in": ids, limit: PAGE, select: "enclave,next_seq,events,missing,timestamp" }, options),
    rowsIf("registry_enclaves", { "enclave_id.in": ids, limit: 4 * PAGE, select: "enclave_id,app,description" }, options),
  ]);
  return { heads: new Map(heads?.rows.map((row) => [row.enclave, row])), entries: new Map(entries?.rows.map((row) => [row.enclave_id, row])) };
}

function list(found, { heads, entries }, query) {
  const columns = [
    { label: "Enclave", cell: (row) => named(row, entries.get(row.enclave)) },
    { label: "Id", cell: (row) => id(row.enclave, `#/enclaves/${row.enclave}`) },
    { label: "App", cell: (row) => cell(entries.get(row.enclave)?.app) },
    { label: "State", cell: (row) => (row.lifecycle ? badge(row.lifecycle) : cell(null)) },
    { label: "Events", kind: "number", cell: (row) => number(heads.get(row.enclave)?.events) },
    { label: "Missing", kind: "number", cell: (row) => number(heads.get(row.enclave)?.missing) },
    { label: "Last event", cell: (row) => minute(heads.get(row.enclave)?.timestamp) },
    { label: "Created", cell: (row) => minute(row.created) },
  ];
  return table("Enclaves", columns, found, { empty: query.get("q") ? "No enclave matches this search." : "No enclaves have been ingested yet." });
}

function named(row, entry) {
  const label = titleOf(row, entry);
  return h("a", { href: `#/enclaves/${row.enclave}`, class: label ? "strong" : "soft" }, label || "without a name");
}

// An enclave's own description, from its Manifest or its registry entry. It is an unverified claim.
export function titleOf(row, entry) {
  const meta = parsed(row?.meta);
  const said = meta && typeof meta === "object" ? (meta.name ?? meta.title ?? meta.description ?? meta.desc) : null;
  const label = typeof said === "string" && said ? said : (entry?.description ?? "");
  if (typeof label === "string" && label) return label.length > 60 ? `${label.slice(0, 60)}…` : label;
  return row?.registry ? "Registry" : "";
}

export function parsed(text) {
  if (typeof text !== "string") return text ?? null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export function badge(lifecycle) {
  const kinds = { active: "good", running: "good", paused: "warn", terminated: "bad" };
  return h("span", { class: `badge ${kinds[lifecycle.toLowerCase()] ?? ""}` }, lifecycle.toLowerCase());
}

export function shortTitle(row, entry) {
  return titleOf(row, entry) || `Enclave ${short(row.enclave)}`;
}
