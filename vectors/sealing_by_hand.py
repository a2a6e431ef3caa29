"""Key agreement, derivation and sealing by their definitions, for the scripts here that make
examples of sealed forms.

This module shares neither code nor libraries with the kernel's sealing: it adds points with
Python's integers (SEC 1), HKDF is two lines of HMAC (RFC 5869), and XChaCha20-Poly1305 is HChaCha20
by hand (draft-irtf-cfrg-xchacha) in front of another library's ChaCha20-Poly1305 (RFC 8439).
"""

import hmac
import json
import struct
from hashlib import sha256 as _sha256
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

FOLDER = Path(__file__).parent
P = 2**256 - 2**32 - 977
N = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
G = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)
Point = tuple[int, int] | None


def sha256(data: bytes) -> bytes:
    return _sha256(data).digest()


def nonce(label: str) -> bytes:
    """Return 24 bytes that are the same in every run."""
    return sha256(f"nonce: {label}".encode())[:24]


# The curve


def add(a: Point, b: Point) -> Point:
    if a is None or b is None:
        return a or b
    if a[0] == b[0]:
        if (a[1] + b[1]) % P == 0:
            return None
        slope = 3 * a[0] * a[0] * pow(2 * a[1], -1, P) % P
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, P) % P
    x = (slope * slope - a[0] - b[0]) % P
    return x, (slope * (a[0] - x) - a[1]) % P


def multiply(k: int, point: Point) -> tuple[int, int]:
    found: Point = None
    while k:
        if k & 1:
            found = add(found, point)
        point, k = add(point, point), k >> 1
    assert found is not None  # noqa: S101
    return found


def lift(x: bytes) -> Point:
    """Return the point with even y."""
    number = int.from_bytes(x, "big")
    y = pow((number**3 + 7) % P, (P + 1) // 4, P)
    return number, y if y % 2 == 0 else P - y


class Key:
    """Return a private key in the form whose public point has even y."""

    def __init__(self, secret: bytes) -> None:
        k = int.from_bytes(secret, "big") % N
        x, y = multiply(k, G)
        self.k = k if y % 2 == 0 else N - k
        self.secret, self.pub = self.k.to_bytes(32, "big"), x.to_bytes(32, "big")
        self.hex = self.pub.hex()

    def ecdh(self, public: bytes) -> bytes:
        return multiply(self.k, lift(public))[0].to_bytes(32, "big")

    def sub_key(self) -> "Key":
        return Key(hkdf(self.secret, "enc:sub-key"))


KEYS = {name: Key(bytes.fromhex(pair["priv"])) for name, pair in json.loads((FOLDER / "keys.json").read_text()).items()}


# Derivation and sealing


def hkdf(secret: bytes, label: str) -> bytes:
    """Derive 32 bytes: one block of the expansion is enough."""
    extracted = hmac.new(bytes(32), secret, _sha256).digest()
    return hmac.new(extracted, label.encode() + b"\x01", _sha256).digest()


def rotate(value: int, by: int) -> int:
    return (value << by | value >> 32 - by) & 0xFFFFFFFF


def quarter(s: list[int], a: int, b: int, c: int, d: int) -> None:
    for x, y, z, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[x] = s[x] + s[y] & 0xFFFFFFFF
        s[z] = rotate(s[z] ^ s[x], by)


def hchacha20(key: bytes, start: bytes) -> bytes:
    s = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), *struct.unpack("<4I", start)]
    for _ in range(10):
        for column in range(4):
            quarter(s, column, 4 + column, 8 + column, 12 + column)
        for i in range(4):
            quarter(s, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<8I", *s[:4], *s[12:])


def encrypt(key: bytes, plaintext: bytes, number: bytes) -> bytes:
    """Return ciphertext and tag, without the nonce."""
    return ChaCha20Poly1305(hchacha20(key, number[:16])).encrypt(bytes(4) + number[16:], plaintext, None)
