/** The sparse Merkle tree of an enclave's state: 168 levels, almost all empty (docs/protocol.md, section 10). */

import { failed, readHashes } from "./bundle.js";
import { concat, equal, hex, unhex } from "./bytes.js";
import { list, orNull, struct, text } from "./form.js";
import { EMPTY, sha256, treeLeaf, treeNode } from "./hashing.js";

export const DEPTH = 168;
const KEY_SIZE = 21;
const PREFIX = { rbac: 0, event_status: 1, kv: 2 };
export const NAMESPACES = Object.keys(PREFIX);

export const stateProofForm = struct({ k: text, v: orNull(text), b: text, s: list(text) });

export const readStateProof = ({ k, v, b, s }) => ({
  value: v === null ? null : unhex(v, v.length === 2 ? 1 : 32, "v"),
  key: unhex(k, KEY_SIZE, "k"),
  bitmap: unhex(b, KEY_SIZE, "b"),
  siblings: readHashes(s, "s", DEPTH),
});

/** Returns the tree key of a raw key of 32 bytes. */
export const treeKey = (namespace, raw) => concat(Uint8Array.of(PREFIX[namespace]), sha256(raw).slice(0, 20));

export const isDeleted = (value) => value !== null && value.length === 1 && value[0] === 0;

/** Returns why a value does not have its namespace's form; an honest tree has no such value. */
export function wrongForm({ key, value }) {
  if (value === null || (key[0] === PREFIX.event_status && isDeleted(value))) return null;
  const noBits = key[0] === PREFIX.rbac && value.every((byte) => byte === 0);
  return value.length === 32 && !noBits ? null : "state: the value does not have its namespace's form";
}

/** Returns the path from the value at a key to the root, from the lowest depth up. A null sibling is empty. */
export function walkState(proof, key, root) {
  if (!equal(proof.key, key)) return failed("state: the proof is for another key");
  if (proof.siblings.some((sibling) => equal(sibling, EMPTY))) return failed("state: an empty sibling is listed");
  if (countBits(proof.bitmap) !== proof.siblings.length) {
    return failed("state: the bitmap and the siblings differ in number");
  }
  let found = proof.value === null ? EMPTY : treeLeaf(key, proof.value);
  const levels = [];
  const siblings = [...proof.siblings];
  for (let depth = DEPTH - 1; depth >= 0; depth -= 1) {
    const sibling = bit(proof.bitmap, depth >> 3, depth % 8) ? siblings.pop() : null;
    const isRight = bit(key, depth >> 3, 7 - (depth % 8));
    if (sibling !== null || !equal(found, EMPTY)) {
      const beside = sibling ?? EMPTY;
      found = isRight ? treeNode(beside, found) : treeNode(found, beside);
    }
    levels.push({ side: isRight ? "left" : "right", sibling, found, depth });
  }
  const why = equal(found, root) ? null : "state: the path leads to another root";
  return { why, levels, found };
}

const bit = (bytes, at, shift) => ((bytes[at] >> shift) & 1) === 1;

const countBits = (bytes) => bytes.reduce((sum, byte) => sum + byte.toString(2).replaceAll("0", "").length, 0);

/** Describes the value at a key. */
export const valueText = (value) => (value === null ? "nothing" : hex(value));
