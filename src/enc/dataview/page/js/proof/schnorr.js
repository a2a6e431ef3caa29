/** Signatures over secp256k1 (docs/protocol.md, section 4). */

import { schnorr, secp256k1 } from "../../vendor/noble-curves/secp256k1.js";
import { concat, hex } from "./bytes.js";

const MAX_KNOWN = 512;
const known = new Map();

/** BIP-340. */
export const isSchnorr = (key, digest, sig) => remembered(schnorr.verify, sig, digest, key);

/** ECDSA against 0x02 || key: compact r || s, low s only. */
export const isEcdsa = (key, digest, sig) => remembered(ecdsa, sig, digest, key);

/** Checks the signature by the algorithm that `alg` names, without falling back to the other. */
export const isSigned = (alg, key, digest, sig) => (alg === "schnorr" ? isSchnorr : isEcdsa)(key, digest, sig);

/** Whether these 32 bytes are the x-coordinate of a point on the curve. */
export function isPublicKey(key) {
  try {
    secp256k1.Point.fromBytes(concat(Uint8Array.of(2), key)).assertValidity();
    return true;
  } catch {
    return false;
  }
}

function ecdsa(sig, digest, key) {
  try {
    return secp256k1.verify(sig, digest, concat(Uint8Array.of(2), key), {
      prehash: false,
      lowS: true,
      format: "compact",
    });
  } catch {
    return false;
  }
}

/** Checks each signature once: many parts of a file share one head. */
function remembered(check, sig, digest, key) {
  const name = `${check === ecdsa} ${hex(sig)} ${hex(digest)} ${hex(key)}`;
  if (!known.has(name)) {
    if (known.size >= MAX_KNOWN) known.clear();
    known.set(name, check(sig, digest, key));
  }
  return known.get(name);
}
