/** Commits: what an author signed (docs/protocol.md, section 5). */

import { equal } from "./bytes.js";
import { isObject } from "./form.js";
import { commitHash, enclaveId } from "./hashing.js";
import { parseJson } from "./json.js";
import { Refused, named } from "./refusal.js";
import { isSigned } from "./schnorr.js";

const DECIMAL = /^(?:0|[1-9][0-9]{0,15})$/;

/** Parses the JSON of a content that all parsers read alike. */
export const strictContent = (content) => named("content", () => parseJson(content ?? "", { strict: true }));

/** Checks ranges and the form of tags, before anything is hashed. */
export function checkShape({ type, exp, tags }) {
  if (type === "") throw new Refused("type: must be at least 1 byte");
  if (typeof exp !== "number" || exp < 0) throw new Refused("exp: must be Unix milliseconds, 0 to 2^53 - 1");
  tags.forEach((tag, i) => {
    if (tag.length < 1) throw new Refused(`tags[${i}]: must have at least 1 string`);
  });
  checkAutoDelete(tags, exp);
}

function checkAutoDelete(tags, exp) {
  const found = tags.filter((tag) => tag[0] === "auto-delete");
  if (!found.length) return;
  if (found.length > 1) throw new Refused("tags: more than one auto-delete");
  const when = DECIMAL.test(found[0][1] ?? "") ? Number(found[0][1]) : Number.NaN;
  if (!Number.isSafeInteger(when)) throw new Refused("tags: auto-delete takes a decimal timestamp in milliseconds");
  if (when <= exp) throw new Refused("tags: auto-delete must be after exp");
}

/** Returns the version by which a commit was hashed: a Manifest states its own; other hashes match only one version. */
export function versionOf(commit) {
  if (commit.type === "Manifest") return manifestVersion(commit);
  return wrongHash(commit, 2) !== null && wrongHash(commit, 1) === null ? 1 : 2;
}

function manifestVersion(commit) {
  const content = strictContent(commit.content);
  const version = isObject(content) ? content.enc_v : null;
  if (version !== 1 && version !== 2) throw new Refused("enc_v: must be 1 or 2");
  return version;
}

/** Returns why the hash does not match the fields, or `enclave` is not the id that a Manifest creates; else null. */
export function wrongHash(commit, version) {
  if (version === 1 && commit.alg !== "schnorr") return "alg: version 1 supports schnorr only";
  try {
    if (!equal(commitHash(version, commit), commit.hash)) return "hash: not the hash of this commit's fields";
    const creates = commit.type !== "Manifest" || equal(enclaveId(version, commit), commit.enclave);
    return creates ? null : "enclave: not the id of the enclave that this Manifest creates";
  } catch (error) {
    if (error instanceof Refused) return error.message;
    throw error;
  }
}

/** Returns why the signature is not the author's over the hash; null if it is. */
export function wrongAuthor({ alg, from, hash, sig }) {
  if (isSigned(alg, from, hash, sig)) return null;
  return `the ${alg === "schnorr" ? "Schnorr" : "ECDSA"} signature is invalid`;
}
