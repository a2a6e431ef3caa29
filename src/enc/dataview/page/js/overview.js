// Totals, sources, and how far the views are behind.

import { absent, ask, holder, rows, rowsIf, views } from "./api.js";
import { bars, shares } from "./chart.js";
import { h, notice, section } from "./dom.js";
import { ago, day, duration, hour, many, millis, number, origin } from "./format.js";
import { cell, id, table } from "./table.js";

const HOUR = 3_600_000;
const RECENT = 25; // enclaves whose views are compared with their heads
const RANGES = [
  { hours: 24, label: "24 hours" },
  { hours: 168, label: "7 days" },
  { hours: 720, label: "30 days" },
];

// The sequencer dates events: one dated in the year 9000 would leave the charts with only its own hour. So charts
// end one hour after the last event was received, to allow for clocks that are ahead.
const arrived = (total) => (total ? { "name.ge": "1970", "name.le": new Date(millis(total.received_at) + HOUR).toISOString() } : {});

export async function overview(root, { signal }) {
  const options = { signal };
  const known = await views(options);
  root.append(h("h1", {}, "Overview"));
  if (known.size === 0) {
    root.append(nothing());
    return;
  }
  const all = await rowsIf("figures", { kind: "all" }, options);
  const total = all?.rows[0];
  const [hours, types, origins, roles, refusals, gaps, parts, lag] = await Promise.all([
    rowsIf("figures", { kind: "hour", ...arrived(total), order: "-name", limit: 720 }, options),
    rowsIf("figures", { kind: "type", order: "-events", limit: 10 }, options),
    rowsIf("figures", { kind: "origin", order: "-events", limit: 20 }, options),
    rowsIf("roles", { order: "-members", limit: 100 }, options),
    rowsIf("refusals", { order: "-latest", limit: 100 }, options),
    rowsIf("heads", { "missing.gt": 0, order: "-missing", limit: 6, select: "enclave,missing,next_seq,timestamp" }, options),
    rowsIf("pipeline", { limit: 10 }, options),
    lagOf(known, options),
  ]);
  root.append(h("p", { class: "lead" }, lead(total, parts)));
  root.append(tiles(total, roles, refusals, lag, { all }));
  if (all !== null && !total) root.append(notice("No events have been ingested yet. They appear here once the pipeline runs."));
  root.append(
    activity(hours),
    h("div", { class: "two" }, growth(hours), delays(hours)),
    h("div", { class: "two" }, byType(types), members(roles)),
    deliveries(origins, refusals),
    h("div", { class: "two" }, missing(gaps), pipeline(parts, lag)),
  );
}

function nothing() {
  const how = holder()
    ? "This token gives access to no view here, or no view has been published yet."
    : "No view here is public, or none has been published yet. A token may give access to some; the server's operator makes views public with --public VIEW.";
  return notice(how);
}

function lead(total, parts) {
  const told = parts?.rows.map((row) => row.told_at).sort().at(-1);
  const latest = total ? `Latest event ${ago(total.latest)}. ` : "";
  return `${latest}${told ? `The pipeline reported ${ago(told)}.` : "Times are in UTC."}`;
}

// Figures

function tiles(total, roles, refusals, lag, { all }) {
  const refused = refusals === null ? null : refusals.rows.reduce((sum, row) => sum + row.refused, 0);
  const memberships = roles === null ? null : roles.rows.reduce((sum, row) => sum + row.members, 0);
  const owners = roles === null ? 0 : roles.rows.reduce((sum, row) => sum + row.owners, 0);
  const figure = (value) => (all === null ? null : (value ?? 0));
  const share = total && refused ? `${percent(refused / (refused + total.events))} of all events` : "";
  const late = lag.behind;
  return h("dl", { class: "tiles" },
    tile("Events", figure(total?.events), total ? `Latest ${ago(total.latest)}` : ""),
    tile("Enclaves", figure(total?.enclaves), "Created"),
    tile("Members", memberships, memberships === null ? "" : many(owners, "owner")),
    tile("Refused", refused, refused ? share : "Every event is valid", refused ? "warn" : ""),
    tile("Events behind", late, late === null ? "Unknown" : late ? "Views are catching up" : "Views are up to date", late ? "warn" : ""));
}

function percent(share) {
  return share < 0.001 ? "< 0.1 %" : `${number(share * 100)} %`;
}

function tile(label, value, more, kind = "") {
  return h("div", { class: `tile ${kind}` }, h("dt", {}, label), h("dd", {}, h("b", {}, value === null ? "–" : number(value)), h("span", {}, value === null ? "Not readable" : more)));
}

// Activity

function series(hours, span, value) {
  const known = new Map(hours.map((row) => [Date.parse(row.name), row]));
  const end = Math.max(...known.keys());
  const daily = span > 168;
  const step = daily ? 24 * HOUR : HOUR;
  const last = daily ? Math.floor(end / step) * step : end;
  const found = [];
  for (let at = last - (span / (step / HOUR) - 1) * step; at <= last; at += step) {
    const inside = [];
    for (let each = at; each < at + step; each += HOUR) if (known.has(each)) inside.push(known.get(each));
    const label = daily ? day(at) : hour(at);
    found.push({ label, tick: daily ? label.slice(5) : span <= 24 ? label.slice(11) : label.slice(5), value: value(inside) });
  }
  return found;
}

const events = (some) => some.reduce((sum, row) => sum + row.events, 0);
const began = (some) => some.reduce((sum, row) => sum + row.enclaves, 0);
const delay = (some) => (events(some) ? some.reduce((sum, row) => sum + row.delay_ms, 0) / events(some) : null);

function usual(hours) {
  const times = hours.map((row) => Date.parse(row.name));
  return Math.max(...times) - Math.min(...times) < 24 * HOUR ? 24 : 168;
}

function activity(hours) {
  const made = section("Activity");
  if (!filled(made, hours, "figures", "No events yet.")) return made;
  const place = h("div", {});
  const buttons = RANGES.map((range) => h("button", { type: "button", class: "quiet", onclick: () => show(range.hours) }, range.label));
  function show(span) {
    RANGES.forEach((range, n) => buttons[n].setAttribute("aria-pressed", String(range.hours === span)));
    place.replaceChildren(bars(span > 168 ? "Events per day" : "Events per hour", series(hours.rows, span, events), { columns: [span > 168 ? "Day" : "Hour (UTC)", "Events"] }));
  }
  made.append(h("div", { class: "row between" }, h("p", { class: "soft" }, "Events by the sequencer’s time, up to the latest hour."), h("div", { class: "segments", role: "group", "aria-label": "Time shown" }, buttons)), place);
  show(usual(hours.rows));
  return made;
}

function growth(hours) {
  const made = section("New enclaves");
  if (!filled(made, hours, "figures", "No enclaves yet.")) return made;
  const span = usual(hours.rows) === 24 ? 24 : 720;
  made.append(h("p", { class: "soft" }, span === 24 ? "Created in each hour." : "Created on each day."), bars("New enclaves", series(hours.rows, span, began), { columns: [span === 24 ? "Hour (UTC)" : "Day", "Enclaves"] }));
  return made;
}

function byType(types) {
  const made = section("Events by type");
  if (!filled(made, types, "figures", "No events yet.")) return made;
  made.append(shares("Events by type", types.rows.map((row) => ({ label: row.name, value: row.events })), { label: "Type" }));
  if (types.next) made.append(h("p", { class: "soft" }, h("a", { href: "#/views/figures?kind=type&order=-events" }, "All types")));
  return made;
}

function members(roles) {
  const made = section("Members by state");
  if (!filled(made, roles, "roles", "No members yet.")) return made;
  made.append(shares("Members by state", roles.rows.slice(0, 10).map((row) => ({ label: row.state || "no state", value: row.members })), { label: "State" }));
  if (roles.rows.length > 10) made.append(h("p", { class: "soft" }, h("a", { href: "#/views/roles?order=-members" }, "All states")));
  return made;
}

function delays(hours) {
  const made = section("Time from node to table");
  if (!filled(made, hours, "figures", "No events yet.")) return made;
  const span = usual(hours.rows) === 24 ? 24 : 720;
  made.append(h("p", { class: "soft" }, `Average of each ${span === 24 ? "hour" : "day"}. Archives of old events raise it.`),
    bars("Average delay", series(hours.rows, span, delay), { unit: "ms", show: duration, columns: [span === 24 ? "Hour (UTC)" : "Day", "Average delay"] }));
  return made;
}

// How events arrive

function deliveries(origins, refusals) {
  const made = section("Deliveries");
  if (!filled(made, origins, "figures", "Nothing has arrived yet.", refusals?.rows.length)) return made;
  const refused = new Map();
  for (const row of refusals?.rows ?? []) refused.set(row.origin, (refused.get(row.origin) ?? 0) + row.refused);
  const known = new Set(origins.rows.map((row) => row.name));
  const only = [...refused].filter(([name]) => !known.has(name)).map(([name]) => ({ name, events: 0, delay_ms: 0, received_at: null }));
  const columns = [
    { label: "Source", cell: (row) => h("span", { title: row.name }, way(row.name), " ", h("span", { class: "mono" }, origin(row.name))) },
    { label: "Accepted", kind: "number", cell: (row) => number(row.events) },
    { label: "Refused", kind: "number", cell: (row) => (refusals === null ? "–" : number(refused.get(row.name) ?? 0)) },
    { label: "Average delay", kind: "number", cell: (row) => (row.events ? duration(row.delay_ms / row.events) : "–") },
    { label: "Last received", cell: (row) => cell(row.received_at, "time") },
    { label: "Health", cell: (row) => health(row, refused.get(row.name) ?? 0) },
  ];
  made.append(table("Sources", columns, [...origins.rows, ...only]));
  if (refusals === null) made.append(h("p", { class: "soft" }, absent("refusals")));
  else if (refusals.rows.length) made.append(h("h3", {}, "Why events were refused"), reasons(refusals));
  return made;
}

function health(row, refused) {
  if (refused === 0) return h("span", { class: "badge good" }, "✓ all accepted");
  return h("span", { class: "badge bad" }, row.events ? "! some refused" : "✗ all refused");
}

function way(name) {
  const kinds = { node: "pull", registry: "pull", push: "push", archive: "archive" };
  return h("span", { class: "badge" }, kinds[name.split(":")[0]] ?? "other");
}

function reasons(refusals) {
  const columns = [
    { label: "Code", cell: (row) => h("span", { class: "mono" }, row.code || "–") },
    { label: "Times", kind: "number", cell: (row) => number(row.refused) },
    { label: "Latest", cell: (row) => cell(row.latest, "time") },
    { label: "Source", cell: (row) => h("span", { class: "mono", title: row.example ?? "" }, origin(row.origin)) },
    { label: "Latest reason", cell: (row) => cell(row.reason) },
  ];
  return table("Why events were refused", columns, refusals.rows.slice(0, 10));
}

function missing(gaps) {
  const made = section("Gaps");
  if (gaps === null) {
    made.append(h("p", { class: "soft" }, absent("heads")));
    return made;
  }
  if (gaps.rows.length === 0) {
    made.append(h("p", { class: "good" }, "✓ No enclave has gaps: every event up to its newest is here."));
    return made;
  }
  const columns = [
    { label: "Enclave", cell: (row) => id(row.enclave, `#/enclaves/${row.enclave}`) },
    { label: "Missing", kind: "number", cell: (row) => number(row.missing) },
    { label: "Newest", kind: "number", cell: (row) => number(row.next_seq - 1) },
  ];
  made.append(h("p", { class: "soft" }, "Events that are not readable, or have not arrived yet."), table("Enclaves with gaps", columns, gaps.rows.slice(0, 5), { compact: true }));
  if (gaps.rows.length > 5) made.append(h("p", { class: "soft" }, h("a", { href: "#/views/heads?missing.gt=0&order=-missing" }, "All enclaves with gaps")));
  return made;
}

// How far behind

async function lagOf(known, options) {
  if (!known.has("heads")) return { behind: null, views: [] };
  const heads = (await rows("heads", { order: "-timestamp", limit: RECENT, select: "enclave,next_seq" }, options)).rows;
  if (heads.length === 0) return { behind: 0, views: [], enclaves: 0 };
  const names = [...known.keys()].filter((name) => name !== "pipeline");
  const which = heads.map((row) => row.enclave).join(",");
  const found = await Promise.all(names.map((name) => ask(`views/${name}/progress`, { "enclave.in": which }, options)));
  const told = found.map(({ view, complete }) => ({
    name: view,
    behind: Object.keys(complete).length === 0 ? null : heads.reduce((sum, row) => sum + Math.max(0, row.next_seq - (complete[row.enclave] ?? 0)), 0),
  }));
  const counts = told.map((each) => each.behind).filter((count) => count !== null);
  return { behind: counts.length ? Math.max(...counts) : null, views: told, enclaves: heads.length };
}

const PARTS = { ingest: "Taking in", derive: "Deriving", views: "Making views" };
const QUIET_MS = 120_000;

function pipeline(parts, lag) {
  const made = section("Pipeline");
  if (parts === null) made.append(h("p", { class: "soft" }, absent("pipeline")));
  else if (parts.rows.length === 0) made.append(h("p", { class: "soft" }, "The pipeline has not reported anything yet."));
  else made.append(...said(parts.rows));
  made.append(h("h3", {}, "How far views are behind"), behind(lag));
  return made;
}

function said(states) {
  const last = Math.max(...states.map((row) => millis(row.told_at)));
  const quiet = Date.now() - last > QUIET_MS;
  const sentence = quiet
    ? h("p", { class: "warn" }, `! It last reported ${duration(Date.now() - last)} ago: it may not be running.`)
    : h("p", { class: "good" }, "✓ It is running.");
  const order = Object.keys(PARTS);
  const columns = [
    { label: "Part", cell: (row) => PARTS[row.part] ?? row.part },
    { label: "Last batch", kind: "number", cell: (row) => (row.rows === null ? "–" : many(row.rows, row.part === "views" ? "view" : "row")) },
    { label: "Took", kind: "number", cell: (row) => duration(row.took_ms) },
    { label: "Not read yet", kind: "number", cell: (row) => (row.behind === null ? "–" : number(row.behind)) },
  ];
  const errors = states.filter((row) => row.error).map((row) => h("p", { class: "warn" }, `! ${row.error}`));
  const sorted = [...states].sort((a, b) => order.indexOf(a.part) - order.indexOf(b.part));
  return [sentence, ...errors, table("Parts of the pipeline", columns, sorted, { compact: true })];
}

function behind(lag) {
  if (lag.behind === null) return h("p", { class: "soft" }, absent("heads"));
  if (lag.behind === 0) return h("p", { class: "good" }, lag.enclaves ? `✓ Every view is up to date with the ${many(lag.enclaves, "enclave")} that changed last.` : "Nothing has been ingested yet.");
  const late = lag.views.filter((each) => each.behind).sort((a, b) => b.behind - a.behind).slice(0, 8);
  return h("div", {}, h("p", { class: "soft" }, `Events that are in “heads” but not in the view yet, for the ${many(lag.enclaves, "enclave")} that changed last.`),
    shares("How far views are behind", late.map((each) => ({ label: each.name, value: each.behind })), { label: "View" }));
}

// Returns true if there is data to draw; otherwise explains in the section why not.
function filled(made, answer, view, empty, more = 0) {
  if (answer === null) made.append(h("p", { class: "soft" }, absent(view)));
  else if (answer.rows.length === 0 && !more) made.append(h("p", { class: "soft" }, empty));
  return answer !== null && (answer.rows.length > 0 || more > 0);
}
