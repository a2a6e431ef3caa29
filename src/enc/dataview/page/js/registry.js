// The entries of the registries that this DataView reads: nodes, enclaves and identities.

import { absent, rowsIf, views } from "./api.js";
import { h, notice } from "./dom.js";
import { cell, id, pager, table } from "./table.js";

const PAGE = 50;
const OF = {
  nodes: { label: "Nodes", view: "registry_nodes", key: "seq_pub", find: "Sequencer’s key begins with", empty: "No node is in a registry that this DataView reads." },
  enclaves: { label: "Enclaves", view: "registry_enclaves", key: "enclave_id", find: "Enclave’s id begins with", empty: "No enclave is in a registry that this DataView reads." },
  identities: { label: "Identities", view: "registry_identities", key: "id_pub", find: "Identity begins with", empty: "No identity is in a registry that this DataView reads." },
};

export async function registry(root, { query, signal }) {
  const known = await views({ signal });
  const which = Object.hasOwn(OF, query.get("of") ?? "") ? query.get("of") : "nodes";
  const of = OF[which];
  root.append(h("h1", {}, "Registry"));
  root.append(h("nav", { class: "tabs", "aria-label": "Kinds of entries" }, Object.entries(OF).map(([name, each]) => h("a", { href: `#/registry?of=${name}`, "aria-current": name === which ? "page" : null }, each.label))));
  if (!known.has(of.view)) {
    root.append(notice(absent(of.view)));
    return;
  }
  const q = query.get("q") ?? "";
  root.append(search(which, of, q));
  const found = await rowsIf(of.view, { [`${of.key}.prefix`]: q || null, order: of.key, limit: PAGE, cursor: query.get("cursor") }, { signal });
  root.append(table(of.label, COLUMNS[which], found.rows, { empty: q ? "No entry matches this search." : of.empty }), pager("registry", query, found.next) ?? "");
}

function search(which, of, q) {
  const text = h("input", { id: "q", type: "search", value: q, maxlength: 64, spellcheck: "false", class: "mono grow" });
  function go(event) {
    event.preventDefault();
    const to = new URLSearchParams({ of: which });
    if (text.value.trim()) to.set("q", text.value.trim().toLowerCase());
    location.hash = `#/registry?${to}`;
  }
  return h("form", { class: "row", role: "search", onsubmit: go }, h("div", { class: "field grow" }, h("label", { for: "q" }, of.find), text), h("button", { type: "submit" }, "Search"),
    q ? h("a", { class: "button quiet", href: `#/registry?of=${which}` }, "Show all") : null);
}

const entry = [
  { label: "Registered", cell: (row) => cell(row.timestamp, "time") },
  { label: "Entry", cell: (row) => id(row.event, `#/proof/${row.event}`) },
];

const COLUMNS = {
  nodes: [
    { label: "Sequencer’s key", cell: (row) => id(row.seq_pub) },
    { label: "Addresses", cell: (row) => list(row.endpoints) },
    { label: "Protocols", cell: (row) => list(row.protocols) },
    { label: "Version", kind: "number", cell: (row) => cell(row.enc_v, "number") },
    ...entry,
  ],
  enclaves: [
    { label: "Enclave", cell: (row) => id(row.enclave_id, `#/enclaves/${row.enclave_id}`) },
    { label: "App", cell: (row) => cell(row.app) },
    { label: "Description", cell: (row) => cell(row.description) },
    { label: "Creator", cell: (row) => cell(row.creator) },
    { label: "Sequencer", cell: (row) => cell(row.sequencer) },
    ...entry,
  ],
  identities: [
    { label: "Identity", cell: (row) => id(row.id_pub) },
    { label: "Enclaves", cell: (row) => owned(row.enclaves) },
    ...entry,
  ],
};

function list(values) {
  if (!Array.isArray(values) || values.length === 0) return cell(null);
  return h("ul", { class: "plain" }, values.slice(0, 10).map((each) => h("li", { class: "mono" }, String(each))));
}

function owned(enclaves) {
  const pairs = enclaves && typeof enclaves === "object" ? Object.entries(enclaves) : [];
  if (pairs.length === 0) return cell(null);
  return h("ul", { class: "plain" }, pairs.slice(0, 10).map(([label, enclave]) => h("li", {}, `${label} `, /^[0-9a-f]{64}$/.test(enclave) ? id(enclave, `#/enclaves/${enclave}`) : String(enclave))));
}
