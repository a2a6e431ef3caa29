/** Signed heads, and their co-signatures by witnesses (docs/protocol.md, sections 9.4 and 27). */

import { concat, eight, equal, unhex, utf8 } from "./bytes.js";
import { exact, integer, optional, orNull, struct, text } from "./form.js";
import { sha256 } from "./hashing.js";
import { isSchnorr } from "./schnorr.js";

export const headForm = struct({
  t: integer,
  ts: integer,
  r: text,
  sig: text,
  bound_sig: optional(orNull(text), null),
});

export const readHead = ({ t, ts, r, sig, bound_sig: bound }) => ({
  time: exact(t, "t"),
  size: exact(ts, "ts"),
  root: unhex(r, 32, "r"),
  sig: unhex(sig, 64, "sig"),
  boundSig: bound === null ? null : unhex(bound, 64, "bound_sig"),
});

const message = (domain, enclave, { time, size, root }) =>
  sha256(concat(utf8(domain), enclave, eight(time), eight(size), root));

/** Returns why the head is not this sequencer's; null if it is. The signature names no enclave. */
export const wrongHead = (head, sequencer) =>
  isSchnorr(sequencer, message("enc:sth:", new Uint8Array(), head), head.sig)
    ? null
    : "sth: not signed by this sequencer";

/** Returns why the head is not this sequencer's for this enclave; null if it is. */
export function wrongBound(head, sequencer, enclave) {
  if (head.boundSig === null) return "sth: bound_sig is missing";
  return isSchnorr(sequencer, message("enc:head:", enclave, head), head.boundSig)
    ? null
    : "sth: bound_sig is not this sequencer's for this enclave";
}

export const sameHead = (a, b) =>
  a.time === b.time &&
  a.size === b.size &&
  equal(a.root, b.root) &&
  equal(a.sig, b.sig) &&
  (a.boundSig === null ? b.boundSig === null : b.boundSig !== null && equal(a.boundSig, b.boundSig));

export const cosignedForm = struct({
  enclave: text,
  sequencer: text,
  sth: headForm,
  seen: integer,
  witness: text,
  cosig: text,
});

export const readCosigned = (wire) => ({
  seen: exact(wire.seen, "seen"),
  enclave: unhex(wire.enclave, 32, "enclave"),
  sequencer: unhex(wire.sequencer, 32, "sequencer"),
  head: readHead(wire.sth),
  witness: unhex(wire.witness, 32, "witness"),
  sig: unhex(wire.cosig, 64, "cosig"),
});

/** Returns why a witness did not co-sign its head for this enclave; null if it did. */
export function wrongCosigned({ enclave: named, sequencer, head, seen, witness, sig }, enclave) {
  if (!equal(named, enclave)) return "cosigned: by another witness, or of another enclave";
  if (head.size < 1) return "cosigned: a head of no bundles";
  const wrong = wrongHead(head, sequencer) ?? wrongBound(head, sequencer, enclave);
  if (wrong !== null) return wrong;
  const numbers = concat(eight(head.time), eight(head.size));
  const signed = [utf8("enc:witness:"), enclave, sequencer, numbers, head.root, head.sig, head.boundSig, eight(seen)];
  return isSchnorr(witness, sha256(concat(...signed)), sig) ? null : "cosigned: not signed by this witness";
}
