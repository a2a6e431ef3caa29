// One enclave: its description, state, events, members and bundles.

import { absent, Refused, rows, rowsIf, views } from "./api.js";
import { Bundles, bundling } from "./bundles.js";
import { h, notice, section } from "./dom.js";
import { badge, parsed, shortTitle } from "./enclaves.js";
import { day, duration, many, millis, number, short } from "./format.js";
import { cell, copy, id, pager, scrolling, table } from "./table.js";

const PAGE = 50;
const STEP = 2000; // events that are read at once to find the bundles
const LAST_TIME = 253_402_300_799_999; // the end of the year 9999
const TABS = { about: "About", events: "Events", members: "Members", bundles: "Bundles" };
const SHOWN = { about, events, members, bundles };

export async function enclave(root, { id: which, query, signal }) {
  if (!/^[0-9a-f]{64}$/.test(which)) throw new Refused("An enclave’s id has 64 hexadecimal digits, in lower case.");
  const options = { signal };
  const [row, head, entries, known] = await Promise.all([
    rowsIf("enclaves", { enclave: which, limit: 1 }, options),
    rowsIf("heads", { enclave: which, limit: 1 }, options),
    rowsIf("registry_enclaves", { enclave_id: which, limit: 20 }, options),
    views(options),
  ]);
  const it = { id: which, row: row?.rows[0], head: head?.rows[0], entries: entries?.rows ?? null, known };
  const tab = Object.hasOwn(TABS, query.get("tab") ?? "") ? query.get("tab") : "about";
  root.append(h("p", { class: "crumbs" }, h("a", { href: "#/enclaves" }, "Enclaves")));
  root.append(h("h1", {}, shortTitle(it.row ?? { enclave: which }, it.entries?.[0])));
  root.append(h("p", { class: "mono whole" }, which, copy(which)));
  if (!it.row && !it.head && !it.entries?.length) {
    root.append(notice(known.has("enclaves") || known.has("heads") ? "No enclave with this id is known here." : absent("enclaves")));
    return;
  }
  root.append(facts(it), tabs(which, tab));
  await SHOWN[tab](root, it, query, options);
}

function facts({ row, head }) {
  const pairs = [
    ["State", row?.lifecycle ? [badge(row.lifecycle), row.lifecycle_seq ? ` since event ${number(row.lifecycle_seq)}` : ""] : null],
    ["Newest event", head ? number(head.next_seq - 1) : null],
    ["Events here", head ? number(head.events) : null],
    ["Missing", head ? (head.missing ? h("span", { class: "warn" }, `! ${number(head.missing)}`) : "none") : null],
    ["Last event", head ? cell(head.timestamp, "time") : null],
    ["Created", row ? cell(row.created, "time") : null],
    ["Creator", row?.creator ? id(row.creator) : null],
    ["Sequencer", head?.sequencer ? id(head.sequencer) : null],
    ["Protocol", row?.enc_v ? `version ${row.enc_v}` : null],
    ["Closed gates", row?.closed_gates?.length ? row.closed_gates.join(", ") : row ? "none" : null],
    ["Refused by its rules", row?.refused ? h("span", { class: "warn" }, `! ${many(row.refused, "event")}`) : row ? "none" : null],
  ];
  return h("dl", { class: "facts card" }, pairs.filter(([, value]) => value !== null).map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value))));
}

function tabs(which, tab) {
  const link = (name) => h("a", { href: `#/enclaves/${which}?tab=${name}`, "aria-current": name === tab ? "page" : null }, TABS[name]);
  return h("nav", { class: "tabs", "aria-label": "Parts of this enclave" }, Object.keys(TABS).map(link));
}

// About

async function about(root, it) {
  root.append(headPart(it), sequencers(it), registryPart(it), manifestPart(it));
}

function headPart({ head, known }) {
  const made = section("Head");
  if (!head) {
    made.append(h("p", { class: "soft" }, known.has("heads") ? "No event of this enclave has been ingested yet." : absent("heads")));
    return made;
  }
  made.append(h("p", {}, "The newest ingested event is number ", number(head.next_seq - 1), ": ", id(head.id, `#/proof/${head.id}`)),
    h("p", { class: "soft" }, "A proof shows the head of the log that the sequencer signed: open the event to check it in the browser."));
  return made;
}

function sequencers({ row, head }) {
  const made = section("Sequencers");
  const history = row?.sequencers?.length ? row.sequencers : (head?.sequencers ?? []);
  const columns = [
    { label: "From event", kind: "number", cell: (each) => number(each.from_seq) },
    { label: "Sequencer’s key", cell: (each) => id(each.sequencer) },
    { label: "When", cell: (each) => (each === history.at(-1) ? h("span", { class: "badge good" }, "now") : h("span", { class: "badge" }, "before")) },
  ];
  made.append(table("Sequencers", columns, history, { empty: "Its sequencers are unknown.", compact: true }));
  return made;
}

function registryPart({ entries }) {
  const made = section("Registry entry");
  if (entries === null) {
    made.append(h("p", { class: "soft" }, absent("registry_enclaves")));
    return made;
  }
  const columns = [
    { label: "Registry", cell: (each) => id(each.enclave, `#/enclaves/${each.enclave}`) },
    { label: "App", cell: (each) => cell(each.app) },
    { label: "Description", cell: (each) => cell(each.description) },
    { label: "Registered", cell: (each) => cell(each.timestamp, "time") },
    { label: "By", cell: (each) => cell(each.author) },
    { label: "Entry", cell: (each) => id(each.event, `#/proof/${each.event}`) },
  ];
  made.append(table("Registry entries", columns, entries, { empty: "It is not in any registry that this DataView reads." }));
  return made;
}

function manifestPart({ row, known }) {
  const made = section("Manifest");
  const manifest = parsed(row?.manifest);
  if (!row) made.append(h("p", { class: "soft" }, known.has("enclaves") ? "Its Manifest has not been ingested." : absent("enclaves")));
  else if (manifest === null) made.append(h("p", { class: "soft" }, "Its Manifest is not readable here."));
  else made.append(scrolling(h("pre", {}, JSON.stringify(manifest, null, 2).slice(0, 200_000)), "Manifest"));
  return made;
}

// Events

async function events(root, it, query, options) {
  const made = section("Events");
  root.append(made);
  if (!it.known.has("events")) {
    made.append(h("p", { class: "soft" }, absent("events")));
    return;
  }
  const type = query.get("type") ?? "", author = query.get("author") ?? "";
  made.append(filters(it.id, type, author));
  // A database that an earlier version wrote may lack this column.
  const statement = it.known.get("events").columns.some((column) => column.name === "withheld") ? ",withheld" : "";
  const found = await rows("events", {
    enclave: it.id, type: type || null, author: author || null, order: "-seq", limit: PAGE, cursor: query.get("cursor"), select: `seq,id,type,author,timestamp,content${statement}`,
  }, options);
  const columns = [
    { label: "Number", kind: "number", cell: (row) => number(row.seq) },
    { label: "Type", cell: (row) => cell(row.type) },
    { label: "Author", cell: (row) => id(row.author) },
    { label: "Time", cell: (row) => cell(row.timestamp, "time") },
    { label: "Proof", cell: (row) => h("a", { href: `#/proof/${row.id}`, "aria-label": `Check event ${row.seq}` }, "check") },
    { label: "Content", cell: (row) => (row.content === null ? h("span", { class: "nil" }, noContent(row)) : cell(row.content)) },
  ];
  made.append(table("Events", columns, found.rows, { empty: type || author ? "No event matches these filters." : "No events of this enclave have been ingested." }), pager(`enclaves/${it.id}`, query, found.next) ?? "");
}

function noContent({ withheld }) {
  if (!withheld) return "erased, or missing without a statement";
  return `withheld by the node since ${day(Math.min(withheld.ts, LAST_TIME))}: ${withheld.reason}`;
}

function filters(which, type, author) {
  const typed = h("input", { id: "type", value: type, maxlength: 128, spellcheck: "false" });
  const by = h("input", { id: "author", value: author, maxlength: 64, spellcheck: "false", class: "mono grow" });
  function go(event) {
    event.preventDefault();
    const to = new URLSearchParams({ tab: "events" });
    if (typed.value.trim()) to.set("type", typed.value.trim());
    if (by.value.trim()) to.set("author", by.value.trim().toLowerCase());
    location.hash = `#/enclaves/${which}?${to}`;
  }
  return h("form", { class: "row", onsubmit: go }, h("div", { class: "field" }, h("label", { for: "type" }, "Type"), typed),
    h("div", { class: "field grow" }, h("label", { for: "author" }, "Author’s key"), by), h("button", { type: "submit" }, "Filter"),
    type || author ? h("a", { class: "button quiet", href: `#/enclaves/${which}?tab=events` }, "Show all") : null);
}

// Members

async function members(root, it, query, options) {
  const made = section("Members");
  root.append(made);
  const found = await rowsIf("members", { enclave: it.id, limit: PAGE, cursor: query.get("cursor") }, options);
  if (found === null) {
    made.append(h("p", { class: "soft" }, absent("members")));
    return;
  }
  const columns = [
    { label: "Identity", cell: (row) => id(row.identity) },
    { label: "State", cell: (row) => h("span", {}, row.state ?? "–", row.owner ? h("span", { class: "badge good after" }, "owner") : null) },
    { label: "Traits", cell: (row) => (row.traits?.length ? row.traits.join(", ") : cell(null)) },
    { label: "Since event", kind: "number", cell: (row) => number(row.since_seq) },
    { label: "Since", cell: (row) => cell(row.since, "time") },
  ];
  made.append(table("Members", columns, found.rows, { empty: "No members are known here. They cannot be determined if only some events are readable." }), pager(`enclaves/${it.id}`, query, found.next) ?? "");
}

// Bundles, derived from the events as every node and every reader does

async function bundles(root, it, _query, options) {
  const made = section("Bundles");
  root.append(made);
  if (!it.known.has("events")) {
    made.append(h("p", { class: "soft" }, absent("events")));
    return;
  }
  const manifest = parsed(it.row?.manifest);
  if (manifest === null) {
    made.append(h("p", { class: "soft" }, "Its bundling rules are in its Manifest, which has not been ingested."));
    return;
  }
  const how = bundling(manifest);
  made.append(h("p", { class: "soft" }, `A bundle closes after ${many(how.size, "event")}, ${duration(how.timeout)} after its first one, or with a Migrate. Each is one leaf of the log. Computed in the browser from the events.`));
  const reader = new Bundles(how);
  const place = h("div", {}), more = h("button", { type: "button", onclick: () => go() }, `Read the next ${number(STEP)} events`);
  made.append(place, h("div", { class: "row" }, more));
  async function go() {
    more.disabled = true;
    try {
      const whole = await readOn(reader, it.id, options);
      place.replaceChildren(shown(reader, whole));
      more.hidden = whole !== "more";
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      place.append(notice(error.message, "bad"));
    } finally {
      more.disabled = false;
    }
  }
  await go();
}

// Returns "more", "whole", or "gap" if an event is missing.
async function readOn(reader, which, options) {
  const found = await rows("events", { enclave: which, "seq.ge": reader.next, order: "seq", limit: STEP, select: "seq,type,timestamp,sequencer" }, options);
  for (const row of found.rows) {
    if (!reader.take({ seq: row.seq, ms: millis(row.timestamp), type: row.type, sequencer: row.sequencer })) return "gap";
  }
  return found.next ? "more" : "whole";
}

function shown(reader, whole) {
  const all = [...reader.closed, ...(reader.open ? [{ ...reader.open, by: whole === "whole" ? null : "not read to its end" }] : [])].reverse();
  const columns = [
    { label: "Bundle", kind: "number", cell: (row) => number(row.index) },
    { label: "Events", cell: (row) => (row.count === 1 ? number(row.first) : `${number(row.first)} to ${number(row.last)}`) },
    { label: "Count", kind: "number", cell: (row) => number(row.count) },
    { label: "Took", kind: "number", cell: (row) => duration(row.last_ms - row.first_ms) },
    { label: "Closed by", cell: (row) => row.by ?? h("span", { class: "badge" }, "open, or sealed by its node") },
    { label: "Sequencer", cell: (row) => h("span", { class: "mono", title: row.sequencer }, short(row.sequencer)) },
  ];
  const said = whole === "gap" ? notice(`Event ${number(reader.next)} is missing: later bundles cannot be determined.`, "bad") : null;
  return h("div", {}, said, h("p", {}, `${many(reader.closed.length, "closed bundle")} in the first ${many(reader.next, "event")}.`), table("Bundles", columns, all.slice(0, 500), { empty: "No bundles yet." }),
    all.length > 500 ? h("p", { class: "soft" }, "The latest 500 are shown.") : null);
}
