"""The file that holds a private key: JSON, plain, or sealed with a passphrase.

    {"format": "enc-key", "version": 1, "public": hex64, "secret": hex64}

    {"format": "enc-key", "version": 1, "public": hex64,
     "kdf": {"name": "scrypt", "n": …, "r": …, "p": …, "salt": 32 hex digits},
     "sealed": base64 of nonce || ciphertext || tag}

The passphrase, normalised to Unicode NFC, goes through scrypt (RFC 7914); the derived key seals the
32 bytes of the secret with XChaCha20-Poly1305. No error message shows any content of a file.
"""

import re
import secrets
import unicodedata
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import asdict

from enc.core.errors import DecryptFailed, InvalidCommit, MisuseError, PeerError
from enc.core.primitives.encoding import b64, compact_json, decode_json, unb64, unhex
from enc.core.primitives.sealing import NONCE_SIZE, TAG_SIZE, open_sealed, seal
from enc.core.primitives.signing import PrivateKey
from enc.runtime.private_file import refuse

FORMAT, VERSION = "enc-key", 1
MAX_SIZE = 4096
COST = (1 << 17, 8, 1)
"""n, r and p of scrypt in the files that we write: 128 MiB and a third of a second."""
MAX_BLOCKS, MIN_R, MAX_R, MAX_P = 1 << 21, 8, 32, 4
"""Limits for a file: n·r blocks of 128 bytes, so 256 MiB, and p passes: eight times our own cost."""
SALT_SIZE = 16

_BARE = re.compile(rb"[0-9a-fA-F]{64}\s*")


class PassphraseNeeded(MisuseError):
    """The key file is sealed and no passphrase was given: ask for it. `context["public"]`: the public
    key that the file names, in hex.
    """

    fields = ("public",)


class WrongPassphrase(MisuseError):
    """The key file is sealed with another passphrase."""


class _Header(Struct):
    format: str
    version: int


class _Kdf(Struct, frozen=True):
    name: str
    n: int
    r: int
    p: int
    salt: str


class _Body(Struct):
    public: str
    secret: str | None = None
    kdf: _Kdf | None = None
    sealed: str | None = None


_header, _body = Decoder(_Header), Decoder(_Body)


def format_key(key: PrivateKey, passphrase: str | None) -> bytes:
    """Return the content of a new key file."""
    if passphrase == "":
        raise MisuseError("the passphrase is empty; give one, or none to save the key unsealed")
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "public": key.public.hex()}
    if passphrase is None:
        content["secret"] = key.secret.hex()
    else:
        n, r, p = COST
        kdf = _Kdf("scrypt", n, r, p, secrets.token_hex(SALT_SIZE))
        nonce = secrets.token_bytes(NONCE_SIZE)
        content |= {"kdf": asdict(kdf), "sealed": b64(seal(_derive(kdf, passphrase), key.secret, nonce))}
    return compact_json(content).encode() + b"\n"


def parse_key(path: Path, raw: bytes, passphrase: str | None) -> PrivateKey:
    """Return the key in a key file. Ignores a passphrase that a plain file does not need."""
    if _BARE.fullmatch(raw):
        refuse(
            path,
            "is a bare private key, as nodes store theirs; to use that key, import it and save it as a key file",
        )
    try:
        body = _read(raw)
        secret = _unseal(path, body, body.kdf, passphrase) if body.kdf else unhex(body.secret, 32, "secret")
    except PeerError as e:
        refuse(path, f"is not a complete key file, restore it from a copy: {e.message}")
    key = _key(secret)
    if key is None or key.public.hex() != body.public:
        refuse(path, "its public key is not that of its secret; restore it from a copy")
    return key


def public_key(path: Path, raw: bytes) -> bytes:
    """Return the public key that a key file names, without its passphrase."""
    try:
        return unhex(_read(raw).public, 32, "public")
    except PeerError as e:
        refuse(path, f"is not a complete key file, restore it from a copy: {e.message}")


def _read(raw: bytes) -> _Body:
    header = decode_json(raw, _header, InvalidCommit)
    if header.format != FORMAT:
        raise InvalidCommit(f"format: expected {FORMAT}")
    if header.version != VERSION:
        raise InvalidCommit(f"version: only {VERSION} is supported")
    body = decode_json(raw, _body, InvalidCommit)
    if (body.secret is None) == (body.kdf is None) or (body.kdf is None) != (body.sealed is None):
        raise InvalidCommit("expected either secret, or kdf and sealed")
    return body


def _unseal(path: Path, body: _Body, kdf: _Kdf, passphrase: str | None) -> bytes:
    """Return the secret. Does every cheap check before it needs the passphrase and runs scrypt."""
    _check_cost(kdf)
    box = unb64(body.sealed, "sealed")
    if len(box) != NONCE_SIZE + 32 + TAG_SIZE:
        raise InvalidCommit("sealed: not the length of a sealed secret")
    if passphrase is None:
        public = unhex(body.public, 32, "public").hex()
        raise PassphraseNeeded(f"{path}: is sealed; give its passphrase", public=public)
    try:
        return open_sealed(_derive(kdf, passphrase), box)
    except DecryptFailed:
        raise WrongPassphrase(f"{path}: does not open with this passphrase; give the one it was saved with") from None


def _check_cost(kdf: _Kdf) -> None:
    """Bound the cost of opening a file, since the file's author chooses the parameters."""
    unhex(kdf.salt, SALT_SIZE, "kdf.salt")
    if kdf.name != "scrypt":
        raise InvalidCommit("kdf.name: only scrypt is supported")
    if not (MIN_R <= kdf.r <= MAX_R and 1 <= kdf.p <= MAX_P):
        raise InvalidCommit(f"kdf: r must be {MIN_R} to {MAX_R}, p must be 1 to {MAX_P}")
    if not 2 <= kdf.n <= MAX_BLOCKS // kdf.r or kdf.n & (kdf.n - 1):
        raise InvalidCommit(f"kdf.n: must be a power of two, n·r at most {MAX_BLOCKS}")


def _derive(kdf: _Kdf, passphrase: str) -> bytes:
    text = unicodedata.normalize("NFC", passphrase).encode("utf-8", "surrogatepass")
    return Scrypt(salt=bytes.fromhex(kdf.salt), length=32, n=kdf.n, r=kdf.r, p=kdf.p).derive(text)


def _key(secret: bytes) -> PrivateKey | None:
    try:
        return PrivateKey(secret)
    except MisuseError:
        return None
