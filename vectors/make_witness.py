"""Makes witness.json: heads that a sequencer signs and a witness co-signs, and forms that clients
must reject.

The script shares no code with the kernel: sealing_by_hand.py adds points with Python's integers,
and BIP-340 is written out here. Every run gives the same bytes.
"""

import json
from pathlib import Path
from runpy import run_path
from typing import Any

FOLDER = Path(__file__).parent
HAND = run_path(str(FOLDER / "sealing_by_hand.py"))
KEYS, G, N, multiply, sha256 = (HAND[name] for name in ("KEYS", "G", "N", "multiply", "sha256"))

Json = dict[str, Any]
ENCLAVE, OTHER = sha256(b"enclave"), sha256(b"another enclave")
T, SEEN = 1_790_000_000_123, 1_790_000_004_567


def tagged(tag: str, data: bytes) -> bytes:
    return sha256(sha256(tag.encode()) * 2 + data)


def schnorr(name: str, digest: bytes) -> bytes:
    """Sign by BIP-340 with auxiliary data of 32 zero bytes; a Key here already has the even
    form."""
    key = KEYS[name]
    mask = tagged("BIP0340/aux", bytes(32))
    nonce = (key.k ^ int.from_bytes(mask, "big")).to_bytes(32, "big")
    k = int.from_bytes(tagged("BIP0340/nonce", nonce + key.pub + digest), "big") % N
    x, y = multiply(k, G)
    k, r = k if y % 2 == 0 else N - k, x.to_bytes(32, "big")
    e = int.from_bytes(tagged("BIP0340/challenge", r + key.pub + digest), "big") % N
    return r + ((k + e * key.k) % N).to_bytes(32, "big")


def be64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def head(sequencer: str, enclave: bytes, size: int, root: bytes, t: int = T) -> Json:
    tail = be64(t) + be64(size) + root
    plain, bound = (schnorr(sequencer, sha256(start + tail)) for start in (b"enc:sth:", b"enc:head:" + enclave))
    return {"t": t, "ts": size, "r": root.hex(), "sig": plain.hex(), "bound_sig": bound.hex()}


def message(enclave: bytes, sequencer: str, sth: Json, seen: int) -> bytes:
    parts = [b"enc:witness:", enclave, KEYS[sequencer].pub, be64(sth["t"]), be64(sth["ts"])]
    parts += [bytes.fromhex(sth[name]) for name in ("r", "sig", "bound_sig")]
    return b"".join([*parts, be64(seen)])


def cosigned(witness: str, sequencer: str, size: int, label: str, seen: int = SEEN, enclave: bytes = ENCLAVE) -> Json:
    sth = head(sequencer, enclave, size, sha256(label.encode()))
    signed = message(enclave, sequencer, sth, seen)
    wire = {
        "enclave": enclave.hex(),
        "sequencer": KEYS[sequencer].hex,
        "sth": sth,
        "seen": seen,
        "witness": KEYS[witness].hex,
        "cosig": schnorr(witness, sha256(signed)).hex(),
    }
    return {"witness": witness, "sequencer": sequencer, "signed": signed.hex(), "wire": wire}


COSIGNED = [
    cosigned("carol", "node", 1, "the first bundle"),
    cosigned("carol", "node", 19, "nineteen bundles"),
    cosigned("bob", "node", 19, "nineteen bundles", SEEN + 9000),
    cosigned("carol", "node2", 20, "after a move"),
    cosigned("carol", "node", 2**53 - 1, "the largest", 2**53 - 1),
]


# Forms that must not be accepted as carol's co-signature about ENCLAVE


def refused(why: str, **changes: Any) -> Json:
    return {"why": why, "wire": {**COSIGNED[1]["wire"], **changes}}


def bent(**changes: Any) -> Json:
    return {**COSIGNED[1]["wire"]["sth"], **changes}


WIRE = COSIGNED[1]["wire"]
REFUSED = [
    refused("another witness's signature", cosig=COSIGNED[2]["wire"]["cosig"]),
    refused("another witness", **{name: COSIGNED[2]["wire"][name] for name in ("witness", "cosig", "seen")}),
    refused("another head's co-signature", cosig=COSIGNED[0]["wire"]["cosig"]),
    refused("another time", seen=SEEN + 1),
    refused("another sequencer", sequencer=KEYS["node2"].hex),
    refused("another enclave", enclave=OTHER.hex()),
    {"why": "co-signed for another enclave", "wire": cosigned("carol", "node", 19, "there", enclave=OTHER)["wire"]},
    refused("another root", sth=bent(r=sha256(b"another").hex())),
    refused("another size", sth=bent(ts=18)),
    refused("another date", sth=bent(t=T + 1)),
    refused("a head that names no enclave", sth={name: WIRE["sth"][name] for name in ("t", "ts", "r", "sig")}),
    refused("the sequencer's signatures, changed about", sth=bent(sig=WIRE["sth"]["bound_sig"])),
    refused("the sequencer's own signature", cosig=WIRE["sth"]["bound_sig"]),
    {"why": "no bundles", "wire": cosigned("carol", "node", 0, "")["wire"]},
    refused("a time below zero", seen=-1),
]


def text() -> str:
    found = {"enclave": ENCLAVE.hex(), "cosigned": COSIGNED, "refused": REFUSED}
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    (FOLDER / "witness.json").write_text(text())
