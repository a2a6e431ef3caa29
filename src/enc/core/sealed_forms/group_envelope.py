"""The wire form of a group's epoch (docs/protocol.md, section 26.3), and how it seals a secret to a
key."""

from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from msgspec import UNSET, Struct, UnsetType

from enc.core.errors import DecryptFailed, InvalidCommit, MisuseError
from enc.core.primitives.encoding import MAX_INT, b64, convert_json, unb64
from enc.core.primitives.sealing import TAG_SIZE, shared_key
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import PrivateKey

NONCE12 = 12
SECRET = 32


class Wrap(Struct, frozen=True):
    """A secret sealed to one key."""

    to: str
    ct: str


class Fill(Struct, frozen=True):
    """A new key of a node without one, with its secret sealed to both children."""

    pub: str
    wraps: tuple[Wrap, Wrap]


class PathNode(Struct, frozen=True):
    """One node of the committer's path."""

    pub: str
    wrap: Wrap


class Envelope(Struct, frozen=True, rename={"self_": "self"}, omit_defaults=True):
    """The field `epoch` of a Move, an AC_Bundle or a rotate."""

    n: int
    eph: str
    members: str
    self_: Wrap
    fill: tuple[Fill, ...]
    path: tuple[PathNode, ...]
    or_wraps: tuple[Wrap, ...] | UnsetType = UNSET


def parse_envelope(value: Any) -> Envelope:
    """Parse an envelope; raise InvalidCommit if it is malformed."""
    found = convert_json(value, Envelope, InvalidCommit)
    if not 0 <= found.n <= MAX_INT:
        raise InvalidCommit("epoch.n: must be 0 to 2^53 - 1")
    return found


def wrap_secret(eph: PrivateKey, to: bytes, secret: bytes, nonce: bytes) -> Wrap:
    if len(nonce) != NONCE12 or len(secret) != SECRET:
        raise MisuseError("a wrap needs a 12-byte nonce and a 32-byte secret")
    sealed = ChaCha20Poly1305(shared_key(eph, to, "enc:mls:wrap")).encrypt(nonce, secret, None)
    return Wrap(to.hex(), b64(nonce + sealed))


def unwrap(key: Signer, eph: bytes, wrap: Wrap) -> bytes:
    """Return the secret, or raise DecryptFailed."""
    return open_short(shared_key(key, eph, "enc:mls:wrap"), wrap.ct, "ct", SECRET)


def open_short(key: bytes, text: str, field: str, size: int | None = None) -> bytes:
    """Return the plaintext of base64 `nonce12 || ciphertext || tag` under ChaCha20-Poly1305, or
    raise DecryptFailed."""
    raw = unb64(text, field, DecryptFailed)
    if len(raw) < NONCE12 + TAG_SIZE or (size is not None and len(raw) != NONCE12 + size + TAG_SIZE):
        raise DecryptFailed(f"{field}: wrong size")
    try:
        return ChaCha20Poly1305(key).decrypt(raw[:NONCE12], raw[NONCE12:], None)
    except InvalidTag:
        raise DecryptFailed(f"{field}: does not open with this key") from None


def seal_short(key: bytes, plaintext: bytes, nonce: bytes) -> str:
    if len(nonce) != NONCE12:
        raise MisuseError("a ChaCha20-Poly1305 nonce must be 12 bytes")
    return b64(nonce + ChaCha20Poly1305(key).encrypt(nonce, plaintext, None))
