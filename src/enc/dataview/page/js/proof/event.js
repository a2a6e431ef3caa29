/** Events: commits that a sequencer has ordered and signed (docs/protocol.md, section 6). */

import { concat, eight, equal, unhex, utf8 } from "./bytes.js";
import { checkShape, versionOf, wrongAuthor, wrongHash } from "./commit.js";
import { exact, integer, list, oneOf, optional, orNull, struct, text } from "./form.js";
import { contentHash, eventHash, sha256 } from "./hashing.js";
import { Refused } from "./refusal.js";
import { isSchnorr } from "./schnorr.js";

const withheldForm = struct({ reason: text, ts: integer, node: text, sig: text });

export const eventForm = struct({
  hash: text,
  enclave: text,
  from: text,
  type: text,
  content: orNull(text),
  exp: integer,
  tags: optional(list(list(text)), []),
  alg: optional(oneOf("schnorr", "ecdsa"), "schnorr"),
  sig: text,
  id: text,
  timestamp: integer,
  sequencer: text,
  seq: integer,
  seq_sig: text,
  content_hash: optional(orNull(text), null),
  withheld: optional(orNull(withheldForm), null),
});

/** Parses an event from its wire form, with or without its content; verifies nothing. */
export function readEvent(wire) {
  const event = {
    contentHash: readContentHash(wire),
    withheld: readWithheld(wire),
    hash: unhex(wire.hash, 32, "hash"),
    enclave: unhex(wire.enclave, 32, "enclave"),
    from: unhex(wire.from, 32, "from"),
    sig: unhex(wire.sig, 64, "sig"),
    id: unhex(wire.id, 32, "id"),
    sequencer: unhex(wire.sequencer, 32, "sequencer"),
    seqSig: unhex(wire.seq_sig, 64, "seq_sig"),
    timestamp: exact(wire.timestamp, "timestamp"),
    seq: exact(wire.seq, "seq"),
    type: wire.type,
    content: wire.content,
    exp: wire.exp,
    tags: wire.tags,
    alg: wire.alg,
  };
  checkShape(event);
  return event;
}

function readContentHash({ content, content_hash: told }) {
  if (content === null && told === null) throw new Refused("content_hash: missing beside a null content");
  const said = told === null ? null : unhex(told, 32, "content_hash");
  if (content === null) return said;
  const found = contentHash(content);
  if (said !== null && !equal(said, found)) throw new Refused("content_hash: not the hash of content");
  return found;
}

function readWithheld({ content, withheld }) {
  if (withheld === null) return null;
  if (content !== null) throw new Refused("withheld: stands beside a content");
  if (!/^[a-z_]{1,32}$/.test(withheld.reason)) {
    throw new Refused("withheld.reason: expected 1 to 32 characters of a to z and _");
  }
  return {
    reason: withheld.reason,
    ts: exact(withheld.ts, "withheld.ts"),
    node: unhex(withheld.node, 32, "withheld.node"),
    sig: unhex(withheld.sig, 64, "withheld.sig"),
  };
}

/** Returns the statement with which one of the nodes withholds the content (section 6.5); null if there is none. */
export function withheldBy({ enclave, id, withheld }, nodes) {
  if (withheld === null || !nodes.some((key) => equal(key, withheld.node))) return null;
  const signed = concat(utf8("enc:withheld:"), enclave, id, eight(withheld.ts), utf8(withheld.reason));
  return isSchnorr(withheld.node, sha256(signed), withheld.sig) ? withheld : null;
}

/** Returns why this is not the sequencer's signature over time, place and author's signature. Also for receipts. */
export const wrongOrder = (event) =>
  isSchnorr(event.sequencer, eventHash(event), event.seqSig)
    ? null
    : "seq_sig: not the sequencer's signature over this event";

export const wrongId = (event) => (equal(sha256(event.seqSig), event.id) ? null : "id: not the hash of seq_sig");

export const wrongPlace = (event) =>
  event.type === "Manifest" && event.seq !== 0 ? "seq: a Manifest is event 0" : null;

/** Follows the rules of either version. */
export const eitherVersion = (event) => (wrongHash(event, 2) !== null && wrongHash(event, 1) === null ? 1 : 2);

/** Returns the first fault of an event by itself, and whether it is a signature; null if there is none. */
export function firstWrong(event, version) {
  const checks = [
    [wrongPlace(event), false],
    [wrongHash(event, version), false],
    [wrongAuthor(event), true],
    [wrongOrder(event), true],
    [wrongId(event), false],
  ];
  const [why, signature] = checks.find(([found]) => found !== null) ?? [null, false];
  return why === null ? null : { why, signature };
}

/** Throws Refused if an event does not verify by itself. */
export function checkEvent(event) {
  const wrong = firstWrong(event, versionOf(event));
  if (wrong) throw new Refused(wrong.why);
}
