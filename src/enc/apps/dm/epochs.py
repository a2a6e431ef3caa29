"""Epoch secrets of one contact: those that the mailbox's owner made, and the newest that the contact gave."""

from collections.abc import Iterator

from msgspec import Struct

from enc.apps.dm.errors import EpochForeign, EpochReplayed, EpochUnknown, Truncated, WrongKey
from enc.core import dm
from enc.core.encoding import unb64
from enc.core.errors import DecryptFailed
from enc.core.sealing import NONCE_SIZE, TAG_SIZE
from enc.core.signing import PrivateKey


class OwnEpochs:
    """Every secret that was made for a contact, by number: what it seals opens with them. Numbers rise from 0."""

    def __init__(self) -> None:
        self._chains: dict[int, dm.Chain] = {}
        self._secrets: dict[int, bytes] = {}

    @property
    def n(self) -> int:
        """The current one; -1: there is none."""
        return max(self._secrets, default=-1)

    @property
    def secret(self) -> bytes:
        return self._secrets[self.n]

    def __repr__(self) -> str:
        return f"OwnEpochs(n={self.n})"

    def check_next(self, n: int) -> None:
        if n <= self.n:
            raise EpochReplayed(f"epoch {n}: there is number {self.n} already")
        if self.n < 0 < n:
            raise EpochReplayed(f"epoch {n}: a contact's first has number 0")

    def add(self, n: int, secret: bytes) -> None:
        self.check_next(n)
        self._secrets[n] = secret

    def chain(self, n: int) -> dm.Chain:
        """The keys of an epoch. Each chain is kept, so that reading n messages derives n keys."""
        if n not in self._secrets:
            raise EpochUnknown(f"epoch {n}: none of this contact's")
        if n not in self._chains:
            self._chains[n] = dm.Chain(self._secrets[n])
        return self._chains[n]

    def __contains__(self, n: int) -> bool:
        return n in self._secrets

    def derived(self) -> Iterator[bytes]:
        """Every message key that was derived so far, those of the newest epoch first."""
        for n in sorted(self._chains, reverse=True):
            yield from reversed(self._chains[n].derived)


class GivenEpoch(Struct, frozen=True):
    """The secret of a contact's mailbox that one seals with."""

    n: int
    secret: bytes

    def __repr__(self) -> str:
        return f"GivenEpoch(n={self.n})"


def next_given(before: GivenEpoch | None, n: int, secret: bytes) -> GivenEpoch:
    """A contact's new epoch. The current one may be said again, as it is after an unblocking; no other may."""
    if before is None or n > before.n:
        return GivenEpoch(n, secret)
    if (n, secret) != (before.n, before.secret):
        raise EpochReplayed(f"epoch {n}: number {before.n} was given already")
    return before


def open_epoch(key: PrivateKey, author: bytes, epoch: dm.Epoch) -> bytes:
    """The secret that `author` sealed, to itself or to the holder of `key`."""
    if epoch.ecdh_pub != author.hex():
        raise EpochForeign("ecdh_pub: not its author's key")
    check_whole(epoch.encrypted_secret)
    try:
        return dm.open_epoch(key, epoch)
    except DecryptFailed as e:
        raise WrongKey(f"epoch {epoch.n}: {e.message}") from None


def check_whole(sealed: str) -> bytes:
    """What is sealed, as bytes; Truncated if it cannot be all of it."""
    raw = unb64(sealed, "sealed", Truncated)
    if len(raw) < NONCE_SIZE + TAG_SIZE:
        raise Truncated("less than a nonce and a tag")
    return raw
