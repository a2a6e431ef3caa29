/** H() and the shapes built from it (docs/protocol.md, section 3). */

import { sha256 } from "../../vendor/noble-hashes/sha2.js";
import { utf8 } from "./bytes.js";
import { cbor } from "./cbor.js";
import { Refused } from "./refusal.js";

export { sha256 };

/** Root of an empty log, and every empty node of a sparse tree. */
export const EMPTY = sha256(new Uint8Array());

export const H = (...fields) => sha256(cbor(fields));

export const contentHash = (content) => sha256(utf8(content));

export const commitHash = (version, { enclave, from, type, contentHash, exp, tags }) =>
  H(0x10, enclave, from, type, contentHash, exp, hashedTags(version, tags));

export const enclaveId = (version, { from, contentHash, tags }) =>
  H(0x12, from, "Manifest", contentHash, hashedTags(version, tags));

/** Returns the hash that the sequencer signs. */
export const eventHash = ({ timestamp, seq, sequencer, sig }) => H(0x11, timestamp, seq, sequencer, sig);

export const logLeaf = (eventsRoot, stateHash) => H(0x00, eventsRoot, stateHash);

/** An inner node of the log, and of a bundle's tree. */
export const logNode = (left, right) => H(0x01, left, right);

export const treeLeaf = (key, value) => H(0x20, key, value);

export const treeNode = (left, right) => H(0x21, left, right);

function hashedTags(version, tags) {
  if (version !== 1) return tags;
  if (tags.flat().some((text) => /[,[\]]/.test(text))) {
    throw new Refused("tags: a version 1 tag may not contain ',', '[' or ']'");
  }
  return tags.map((tag) => `[${tag.join(",")}]`).join(",");
}
