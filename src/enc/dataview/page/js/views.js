// Every view that this reader may read.

import { holder, views as known } from "./api.js";
import { h, notice } from "./dom.js";
import { number } from "./format.js";
import { table } from "./table.js";

export async function views(root, { signal }) {
  const found = [...(await known({ signal })).values()];
  root.append(h("h1", {}, "Views"));
  if (found.length === 0) {
    root.append(notice(holder() ? "This token gives access to no view here, or none has been published yet." : "No view here is public, or none has been published yet. A token may give access to some."));
    return;
  }
  root.append(h("p", { class: "lead" }, "Tables derived from the events, as far as you may read them. Each can be filtered, sorted and downloaded."));
  const columns = [
    { label: "View", cell: (view) => h("a", { href: `#/views/${view.name}`, class: "strong" }, view.name) },
    { label: "What it is", cell: (view) => view.description || about(view.name) },
    { label: "Key", cell: (view) => h("span", { class: "mono" }, view.key.join(", ")) },
    { label: "Columns", kind: "number", cell: (view) => number(view.columns.length) },
    { label: "Access", cell: (view) => (view.public ? h("span", { class: "badge" }, "anybody") : h("span", { class: "badge warn" }, "with rights")) },
    { label: "Proofs", cell: (view) => (view.verifiable ? "for each row" : h("span", { class: "nil" }, "–")) },
  ];
  root.append(table("Views", columns, found));
}

// Tables of the pipeline itself have no description of their own.
const ABOUT = {
  events: "Every valid event, typed.",
  content_status: "The current content of each content event: active, updated or deleted.",
  access: "Roles of identities, each from one event to another.",
  slots: "The current value of each slot.",
  enclaves: "Every enclave: its Manifest, lifecycle and sequencers.",
  heads: "The head of each enclave, and how many events are missing.",
};

export function about(name) {
  return ABOUT[name] ?? "A custom view of this DataView.";
}
