"""What the operator of this node forbids: banned identities and addresses, suspended enclaves, and
enclaves that were purged by order. Safe to use from any thread; one changes it.

The right to leave stays: an owner that is banned, or whose enclave is suspended, may still export the
enclave, ask for its checkpoint, and commit its Migrate, unless the suspension is full.
"""

from collections.abc import Callable, Iterable
from typing import Literal

from enc.core.errors import EnclavePurged, EnclaveSuspended
from enc.core.primitives.types import Commit
from enc.core.session.envelope import RequestType
from enc.node.limits.ban_list import BanList
from enc.node.store.restrictions import Restriction
from enc.runtime.clock import now_ms
from enc.runtime.rate_limit import RateLimiter

EndReason = Literal["banned", "enclave_suspended", "enclave_purged"]

LEAVING: frozenset[RequestType] = frozenset(("Export", "Checkpoint"))
"""Requests that an owner needs to leave the node."""
PROOFS: frozenset[RequestType] = frozenset(("Inclusion_Proof",))
"""Requests about a log that contain nothing of its events."""


class Restrictions:
    def __init__(self, known: Iterable[Restriction] = (), now: Callable[[], int] = now_ms) -> None:
        self.bans = BanList(now)
        self._suspended: dict[bytes, Restriction] = {}
        self._purged: dict[bytes, Restriction] = {}
        for each in known:
            self.add(each)

    def add(self, one: Restriction) -> None:
        if one.kind == "ban":
            self.bans.add(one)
        else:
            (self._suspended if one.kind == "suspension" else self._purged)[bytes.fromhex(one.target)] = one

    def end_suspension(self, enclave: bytes) -> None:
        self._suspended.pop(enclave, None)

    @property
    def suspended(self) -> list[Restriction]:
        return list(self._suspended.values())

    @property
    def purged(self) -> list[Restriction]:
        return list(self._purged.values())

    def is_suspended(self, enclave: bytes) -> bool:
        return enclave in self._suspended

    def is_purged(self, enclave: bytes) -> bool:
        return enclave in self._purged

    # Checks

    def check_not_purged(self, enclave: bytes) -> None:
        """Raise EnclavePurged if the operator has purged the enclave."""
        if self.is_purged(enclave):
            raise EnclavePurged("the operator of this node has deleted this enclave; the node never serves it again")

    def check_enclave(self, enclave: bytes, *, is_leaving: bool = False) -> None:
        """Raise EnclavePurged or EnclaveSuspended. `is_leaving`: for what an owner needs to leave."""
        self.check_not_purged(enclave)
        found = self._suspended.get(enclave)
        if found is not None and (found.is_full or not is_leaving):
            raise EnclaveSuspended(
                f"the operator of this node has suspended this enclave: {found.reason}", reason=found.reason
            )

    def check_commit_enclave(self, commit: Commit) -> None:
        """Raise what `check_enclave` raises for a commit, whoever its author is."""
        if self._suspended or self._purged:
            self.check_enclave(commit.enclave, is_leaving=commit.type == "Migrate")

    def check_author(self, commit: Commit) -> None:
        """Raise Banned if the author of a signed commit is banned, unless it is a Migrate."""
        if self.bans and commit.type != "Migrate":
            self.bans.check_identity(commit.from_)

    def check_commit(self, commit: Commit) -> None:
        """Raise what the two checks above raise. The commit is signed."""
        self.check_commit_enclave(commit)
        self.check_author(commit)

    def check_request(self, enclave: bytes, type_: RequestType) -> None:
        """Raise EnclavePurged, or EnclaveSuspended unless the request contains no content."""
        if type_ in PROOFS:
            self.check_not_purged(enclave)
        else:
            self.check_enclave(enclave, is_leaving=type_ in LEAVING)

    def check_sender(self, identity: bytes, type_: RequestType) -> None:
        """Raise Banned unless the identity may send such a request. Its session is proved."""
        if type_ not in LEAVING:
            self.bans.check_identity(identity)

    def end_reason(self, enclave: bytes, identity: bytes) -> EndReason | None:
        """Return why a subscription must end; None if it may continue."""
        if enclave in self._purged:
            return "enclave_purged"
        if enclave in self._suspended:
            return "enclave_suspended"
        return "banned" if self.bans.is_identity_banned(identity) else None


NO_RESTRICTIONS = Restrictions()
"""Restrictions for parts of a node that run without an operator: always empty."""


class AddressRates(RateLimiter):
    """The rates of addresses, of which banned ones may do nothing."""

    def __init__(self, bans: BanList, per_s: float, burst: float, clock: Callable[[], float]) -> None:
        super().__init__(per_s, burst, clock)
        self._bans = bans

    def take(self, key: bytes | str, cost: float = 1) -> None:
        """Raise Banned for a banned address; otherwise take tokens."""
        if self._bans.has_networks:
            self._bans.check_address(str(key))
        super().take(key, cost)
