"""Epoch secrets of one contact: those the mailbox's owner made, and the newest the contact gave."""

from collections.abc import Iterator

from msgspec import Struct

from enc.apps.dm.errors import EpochForeign, EpochReplayed, EpochUnknown, TruncatedMessage, WrongKey
from enc.core.errors import DecryptFailed
from enc.core.primitives.encoding import unb64
from enc.core.primitives.sealing import NONCE_SIZE, TAG_SIZE
from enc.core.primitives.signer import Signer
from enc.core.sealed_forms import dm


class OwnEpochs:
    """Every secret the owner made for a contact, by number from 0: they open what it seals."""

    def __init__(self) -> None:
        self._chains: dict[int, dm.EpochChain] = {}
        self._secrets: dict[int, bytes] = {}

    @property
    def n(self) -> int:
        """The current epoch's number; -1 if there is none."""
        return max(self._secrets, default=-1)

    @property
    def secret(self) -> bytes:
        return self._secrets[self.n]

    def __repr__(self) -> str:
        return f"OwnEpochs(n={self.n})"

    def check_next(self, n: int) -> None:
        if n <= self.n:
            raise EpochReplayed(f"epoch {n}: not newer than epoch {self.n}")
        if self.n < 0 < n:
            raise EpochReplayed(f"epoch {n}: a contact's first epoch must have number 0")

    def add(self, n: int, secret: bytes) -> None:
        self.check_next(n)
        self._secrets[n] = secret

    def chain(self, n: int) -> dm.EpochChain:
        """Return an epoch's key chain. Chains are cached, so that reading n messages derives n
        keys.
        """
        if n not in self._secrets:
            raise EpochUnknown(f"epoch {n}: not made for this contact")
        if n not in self._chains:
            self._chains[n] = dm.EpochChain(self._secrets[n])
        return self._chains[n]

    def __contains__(self, n: int) -> bool:
        return n in self._secrets

    def derived(self) -> Iterator[bytes]:
        """Yield every message key derived so far, those of the newest epoch first."""
        for n in sorted(self._chains, reverse=True):
            yield from reversed(self._chains[n].derived)


class GivenEpoch(Struct, frozen=True):
    """The secret of a contact's mailbox to seal with."""

    n: int
    secret: bytes

    def __repr__(self) -> str:
        return f"GivenEpoch(n={self.n})"


def next_given(before: GivenEpoch | None, n: int, secret: bytes) -> GivenEpoch:
    """Accept a contact's new epoch. Only the current one may be repeated, as after an
    unblocking.
    """
    if before is None or n > before.n:
        return GivenEpoch(n, secret)
    if (n, secret) != (before.n, before.secret):
        raise EpochReplayed(f"epoch {n}: the contact gave epoch {before.n} already; expected a higher number")
    return before


def open_epoch(key: Signer, author: bytes, epoch: dm.SealedEpoch) -> bytes:
    """Open a secret that `author` sealed, to itself or to the holder of `key`."""
    if epoch.ecdh_pub != author.hex():
        raise EpochForeign("ecdh_pub: not the author's key")
    check_whole(epoch.encrypted_secret)
    try:
        return dm.open_epoch(key, epoch)
    except DecryptFailed as e:
        raise WrongKey(f"epoch {epoch.n}: {e.message}") from None


def check_whole(sealed: str) -> bytes:
    """Decode a sealed text; raise Truncated if it is shorter than a nonce and a tag."""
    raw = unb64(sealed, "sealed", TruncatedMessage)
    if len(raw) < NONCE_SIZE + TAG_SIZE:
        raise TruncatedMessage("sealed: shorter than a nonce and a tag")
    return raw
