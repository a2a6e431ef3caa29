"""What the protocol does with a long-lived private key, as four operations.

A `PrivateKey` holds the key in this process. Other signers hold it elsewhere: in another process,
on another machine, in a device. Only signatures, shared points and derived keys leave those.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from enc.core.errors import Unavailable
from enc.core.primitives.signing import Alg


class SignerUnavailable(Unavailable):
    """A signer outside this process does not answer. Has its parent's code on the wire."""


class Signer(Protocol):
    """Holds a private key and uses it for its owner. Every method may raise SignerUnavailable."""

    @property
    def public(self) -> bytes:
        """The x-only public key, 32 bytes: the identity, or the sequencer's key."""
        ...

    def sign(self, alg: Alg, digest: bytes, /) -> bytes:
        """Sign a 32-byte digest: `schnorr` by BIP-340 with zero auxiliary randomness, `ecdsa` by
        RFC 6979 with low s. One digest always gives one signature.
        """
        ...

    def ecdh(self, public: bytes, /) -> bytes:
        """Return the x-coordinate of the point shared with an x-only or compressed public key."""
        ...

    def derive(self, label: str, /) -> bytes:
        """Return HKDF-SHA256 of the private key with `label` as info, 32 bytes: a secret for one
        purpose. It does not reveal the private key.
        """
        ...


@runtime_checkable
class BatchSigner(Signer, Protocol):
    """A signer for which one request with many digests costs less than many requests."""

    def sign_all(self, alg: Alg, digests: Sequence[bytes], /) -> list[bytes]:
        """Sign each digest; return the signatures in the same order."""
        ...
