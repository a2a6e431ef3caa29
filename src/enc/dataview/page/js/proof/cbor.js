/** Deterministic CBOR (RFC 8949, section 4.2) of hashed data: integers, bytes, texts and lists of them. */

import { concat, joined, utf8 } from "./bytes.js";

export function cbor(value) {
  if (typeof value === "number") return head(0, value);
  if (value instanceof Uint8Array) return concat(head(2, value.length), value);
  if (typeof value === "string") {
    const raw = utf8(value);
    return concat(head(3, raw.length), raw);
  }
  return joined([head(4, value.length), ...value.map(cbor)]);
}

/** Returns the shortest prefix that encodes the kind and a number. */
function head(kind, number) {
  const width = number < 24 ? 0 : number < 0x100 ? 1 : number < 0x10000 ? 2 : number < 0x100000000 ? 4 : 8;
  const bytes = new Uint8Array(1 + width);
  bytes[0] = (kind << 5) | (width ? 24 + Math.log2(width) : number);
  for (let i = width, left = number; i > 0; i -= 1, left = Math.floor(left / 256)) bytes[i] = left % 256;
  return bytes;
}
