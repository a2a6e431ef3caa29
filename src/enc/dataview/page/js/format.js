// Formats values for people.

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const HEX = /^[0-9a-f]{40,}$/;

export function number(value) {
  return value === null || value === undefined ? "–" : NUMBER.format(value);
}

export function compact(value) {
  return value < 10_000 ? NUMBER.format(value) : SHORT.format(value);
}

export function isHex(value) {
  return typeof value === "string" && HEX.test(value);
}

export function short(id) {
  return isHex(id) ? `${id.slice(0, 8)}…${id.slice(-4)}` : clip(id, 40);
}

export function clip(text, most) {
  const found = String(text);
  return found.length > most ? `${found.slice(0, most)}…` : found;
}

// Quotes untrusted text inside a sentence: characters that could reverse or hide the rest are made visible.
export function visible(text, most = 2000) {
  return clip(text, most).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (each) => `\\u{${each.codePointAt(0).toString(16)}}`);
}

// "2026-01-31T12:00:00.000000Z" as "2026-01-31 12:00:00": all times on this page are UTC.
export function time(text) {
  return text ? text.slice(0, 19).replace("T", " ") : "–";
}

export function millis(text) {
  return Date.parse(text.replace(/(\.\d{3})\d+/, "$1"));
}

export function hour(ms) {
  return new Date(ms).toISOString().slice(0, 16).replace("T", " ");
}

export function day(ms) {
  return new Date(ms).toISOString().slice(0, 10);
}

const UNITS = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]];

export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  const [size, unit] = UNITS.find(([least]) => ms >= least) ?? [1, "ms"];
  const count = ms / size;
  return `${count >= 10 || unit === "ms" ? Math.round(count) : Math.round(count * 10) / 10} ${unit}`;
}

export function ago(text, now = Date.now()) {
  if (!text) return "never";
  const past = now - millis(text);
  const [size, unit] = UNITS.find(([least]) => past >= least) ?? [0, ""];
  return size ? `${Math.floor(past / size)} ${unit} ago` : "just now";
}

export function many(count, one, more = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : more}`;
}

// A folder without its parents; a node's address without its scheme.
export function origin(text) {
  if (!text) return "unknown";
  const [kind, rest] = text.includes(":") ? [text.slice(0, text.indexOf(":")), text.slice(text.indexOf(":") + 1)] : ["", text];
  if (kind === "archive") return `${rest.replace(/\/$/, "").split("/").pop()}${rest.endsWith("/") ? "/" : ""}`;
  return rest.replace(/^https?:\/\//, "") || text;
}
