/** Bytes, and the one accepted spelling in hex. */

import { Refused } from "./refusal.js";

const HEX = /^(?:[0-9a-f]{2})*$/;
const encoder = new TextEncoder();

export const utf8 = (text) => encoder.encode(text);

export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export const isHex = (text, size) => typeof text === "string" && text.length === 2 * size && HEX.test(text);

/** Returns the `size` bytes that `text` spells in lower-case hex; throws Refused, naming `field`, for anything else. */
export function unhex(text, size, field) {
  if (!isHex(text, size)) throw new Refused(`${field}: expected ${2 * size} lower-case hex characters`);
  return Uint8Array.from({ length: size }, (_, i) => Number.parseInt(text.slice(2 * i, 2 * i + 2), 16));
}

export const equal = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);

export const concat = (...parts) => joined(parts);

/** `concat` of a list: browsers do not accept a hundred thousand parts as arguments. */
export function joined(parts) {
  const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Returns a number of 0 to 2^53 - 1 as eight bytes, the highest first. */
export function eight(number) {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(number));
  return bytes;
}
