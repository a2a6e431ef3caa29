"""Official test data of other projects: BIP-340, and Wycheproof's ECDSA, ECDH, HKDF and XChaCha20-Poly1305.

The files are beside the checkout, or in the folder that ENC_EXTERNAL_VECTORS names. Cases that do not apply to this
protocol are skipped one by one, with the reason.
"""

import csv
import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import pytest

from enc.core.errors import DecryptFailed, InvalidCommit, InvalidSignature
from enc.core.primitives.derivation import hkdf
from enc.core.primitives.sealing import open_sealed, seal
from enc.core.primitives.signing import CURVE_ORDER, PrivateKey, check_ecdsa_point, check_schnorr
from tests.core.vectors import EXTERNAL


def cases(name: str, read: Callable[[str], Iterator[tuple[str, Any]]]) -> pytest.MarkDecorator:
    """Return one test for each case of a file, or a single skipped one if the file is missing."""
    path = EXTERNAL / name
    if not path.is_file():
        reason = f"{name} is neither beside the checkout nor in the folder that ENC_EXTERNAL_VECTORS names"
        return pytest.mark.parametrize("case", [pytest.param(None, marks=pytest.mark.skip(reason=reason))])
    return pytest.mark.parametrize("case", [pytest.param(case, id=key) for key, case in read(path.read_text())])


def rows(text: str) -> Iterator[tuple[str, Any]]:
    for row in csv.DictReader(text.splitlines()):
        yield row["index"], row


def signing_rows(text: str) -> Iterator[tuple[str, Any]]:
    return ((index, row) for index, row in rows(text) if row["secret key"])


def wycheproof(text: str) -> Iterator[tuple[str, Any]]:
    for group in json.loads(text)["testGroups"]:
        for test in group["tests"]:
            yield f"{test['tcId']}-{test['result']}", {**test, "group": group}


# BIP-340


@cases("bip340.csv", rows)
def test_bip340_verification(case: dict[str, str]) -> None:
    public, message, sig = (bytes.fromhex(case[name]) for name in ("public key", "message", "signature"))
    if len(message) != 32:
        pytest.skip(f"a message of {len(message)} bytes: only 32-byte digests are signed here")
    if case["verification result"] == "TRUE":
        check_schnorr(public, message, sig)
    else:
        with pytest.raises(InvalidSignature):
            check_schnorr(public, message, sig)


@cases("bip340.csv", signing_rows)
def test_bip340_signing(case: dict[str, str]) -> None:
    key, message = PrivateKey(bytes.fromhex(case["secret key"])), bytes.fromhex(case["message"])
    assert key.public == bytes.fromhex(case["public key"])
    if any(bytes.fromhex(case["aux_rand"])):
        pytest.skip("auxiliary randomness other than zeros is not used here")
    if len(message) != 32:
        pytest.skip("only 32-byte digests are signed here")
    assert key.sign_schnorr(message) == bytes.fromhex(case["signature"])


# ECDSA


@cases("ecdsa_secp256k1_sha256_p1363_test.json", wycheproof)
def test_ecdsa(case: dict[str, Any]) -> None:
    point = bytes.fromhex(case["group"]["publicKey"]["uncompressed"])
    public = bytes([2 + (point[64] & 1)]) + point[1:33]
    digest, sig = sha256(bytes.fromhex(case["msg"])).digest(), bytes.fromhex(case["sig"])
    low = len(sig) == 64 and int.from_bytes(sig[32:], "big") <= CURVE_ORDER // 2
    if case["result"] == "valid" and low:
        check_ecdsa_point(public, digest, sig)
    else:
        with pytest.raises(InvalidSignature):
            check_ecdsa_point(public, digest, sig)
    if case["result"] == "valid" and not low:
        twin = CURVE_ORDER - int.from_bytes(sig[32:], "big")
        check_ecdsa_point(public, digest, sig[:32] + twin.to_bytes(32, "big"))


# ECDH

P = 2**256 - 2**32 - 977
SPKI = bytes.fromhex("301006072a8648ce3d020106052b8104000a")
UNCOMPRESSED, COMPRESSED = b"\x30\x56" + SPKI + b"\x03\x42\x00", b"\x30\x36" + SPKI + b"\x03\x22\x00"


def point_of(der: bytes) -> bytes:
    """Return the compressed point in a standard SubjectPublicKeyInfo of secp256k1; skip anything else."""
    if der.startswith(COMPRESSED) and len(der) == len(COMPRESSED) + 33:
        return der[len(COMPRESSED) :]
    if not der.startswith(UNCOMPRESSED + b"\x04") or len(der) != len(UNCOMPRESSED) + 65:
        pytest.skip("not the standard encoding of a point on secp256k1: the protocol knows bare x-coordinates only")
    x, y = der[-64:-32], der[-32:]
    left, right = pow(int.from_bytes(y, "big"), 2, P), pow(int.from_bytes(x, "big"), 3, P) + 7
    if (left - right) % P and pow(right % P, (P - 1) // 2, P) == 1:
        pytest.skip("only the y-coordinate is wrong: the protocol carries none")
    return bytes([2 + (y[-1] & 1)]) + x


@cases("ecdh_secp256k1_test.json", wycheproof)
def test_ecdh(case: dict[str, Any]) -> None:
    point = point_of(bytes.fromhex(case["public"]))
    scalar = int(case["private"], 16)
    assert 0 < scalar < CURVE_ORDER
    key = PrivateKey(scalar.to_bytes(32, "big"))
    if case["result"] == "invalid":
        with pytest.raises(InvalidCommit):
            key.ecdh(point)
        with pytest.raises(InvalidCommit):
            key.ecdh(point[1:])
    else:
        assert key.ecdh(point).hex() == case["shared"]
        assert key.ecdh(point[1:]).hex() == case["shared"]


# HKDF


class Label(str):
    """A label whose bytes are given: Wycheproof's are not all UTF-8."""

    raw: bytes

    def encode(self, *_: object) -> bytes:  # type: ignore[override]
        return self.raw


@cases("hkdf_sha256_test.json", wycheproof)
def test_hkdf(case: dict[str, Any]) -> None:
    label = Label()
    label.raw = bytes.fromhex(case["info"])
    secret, salt = bytes.fromhex(case["ikm"]), bytes.fromhex(case["salt"])
    if case["result"] == "invalid":
        with pytest.raises(ValueError, match="larger"):
            hkdf(secret, label, case["size"], salt=salt)
    else:
        assert hkdf(secret, label, case["size"], salt=salt).hex() == case["okm"]


# XChaCha20-Poly1305


@cases("xchacha20_poly1305_test.json", wycheproof)
def test_xchacha20_poly1305(case: dict[str, Any]) -> None:
    key, nonce, message, ciphertext, tag = (bytes.fromhex(case[name]) for name in ("key", "iv", "msg", "ct", "tag"))
    if case["aad"]:
        pytest.skip("associated data is not used here")
    if len(nonce) != 24:
        pytest.skip(f"a nonce of {len(nonce)} bytes: sealed contents always begin with 24")
    sealed = nonce + ciphertext + tag
    if case["result"] == "valid":
        assert open_sealed(key, sealed) == message
        assert seal(key, message, nonce) == sealed
    else:
        with pytest.raises(DecryptFailed):
            open_sealed(key, sealed)
