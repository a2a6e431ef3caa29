"""A client's identity: a public key, and a signer that uses its private key."""

import re
import secrets
from pathlib import Path
from typing import get_args

from enc.core.errors import MisuseError
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import CURVE_ORDER, Alg, PrivateKey
from enc.runtime import private_file
from enc.runtime.keys.key_file import MAX_SIZE, PassphraseNeeded, WrongPassphrase, format_key, parse_key
from enc.runtime.keys.socket_signer import SocketSigner

__all__ = ["Identity", "PassphraseNeeded", "Signer", "SocketSigner", "WrongPassphrase"]

SUB_KEY = "enc:sub-key"

_HEX = re.compile(r"[0-9a-fA-F]{64}")


class Identity:
    """A public key, and the signer that uses its private key: by default one that holds the key in
    this process, as in a key file.

    Identities with one public key are equal; repr shows only it.
    """

    __slots__ = ("_key",)

    def __init__(self, key: Signer) -> None:
        self._key = key

    @classmethod
    def new(cls) -> "Identity":
        return cls(PrivateKey(secrets.token_bytes(32)))

    @classmethod
    def from_secret(cls, secret: bytes | str) -> "Identity":
        """Return the identity of an existing private key: 32 bytes, or 64 hex digits."""
        if isinstance(secret, str):
            if not _HEX.fullmatch(secret):
                raise MisuseError("a private key must be 64 hex digits, or 32 bytes")
            secret = bytes.fromhex(secret)
        return cls(PrivateKey(secret))

    @classmethod
    def load(cls, path: Path | str, passphrase: str | None = None) -> "Identity":
        """Load the identity in a key file, or of the signer that listens on a Unix socket.

        Raises PassphraseNeeded, WrongPassphrase, or MisuseError for any other fault. Rejects a file
        that anyone except its owner could have read or changed. Raises SignerUnavailable if nothing
        answers at a socket.
        """
        path = Path(path)
        if path.is_socket():
            return cls(SocketSigner(path))
        raw = private_file.read(path, MAX_SIZE)
        if raw is None:
            private_file.refuse(path, "there is no such file; give the path of a key file, or save a new key there")
        return cls(parse_key(path, raw, passphrase))

    def save(self, path: Path | str, passphrase: str | None = None, overwrite: bool = False) -> None:
        """Write a key file that only its owner can read, sealed if a passphrase is given, and sync
        it.
        """
        private_file.write(Path(path), format_key(self.private_key(), passphrase), overwrite=overwrite)

    @property
    def key(self) -> Signer:
        """The signer, which signs and opens for this identity."""
        return self._key

    def private_key(self) -> PrivateKey:
        """Return the private key itself; raises MisuseError if a signer holds it elsewhere."""
        if not isinstance(self._key, PrivateKey):
            raise MisuseError(f"{self.hex}: its signer does not reveal the private key; use the key file itself")
        return self._key

    @property
    def public(self) -> bytes:
        return self._key.public

    @property
    def hex(self) -> str:
        """The public key in hex, as on the wire."""
        return self.public.hex()

    def sub_key(self) -> PrivateKey:
        """Return the key that others seal to (`sub_pub` in a registry), derived for this purpose
        only.
        """
        secret = int.from_bytes(self._key.derive(SUB_KEY), "big") % CURVE_ORDER
        return PrivateKey(secret.to_bytes(32, "big"))

    def sign(self, alg: Alg, digest: bytes) -> bytes:
        if alg not in get_args(Alg):
            raise MisuseError(f"alg: expected one of {', '.join(get_args(Alg))}")
        return self._key.sign(alg, digest)

    def __repr__(self) -> str:
        return f"Identity({self.hex})"

    def __eq__(self, other: object) -> bool:
        return self.public == other.public if isinstance(other, Identity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.public)
