"""What the operator of a node forbids, as its store keeps it."""

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

RestrictionKind = Literal["ban", "suspension", "purge"]


class Restriction(Struct, frozen=True, kw_only=True):
    """A ban of an identity or a network, a suspended enclave, or one that was purged by order."""

    kind: RestrictionKind
    target: str
    """An identity or an enclave in hex digits, or a network."""
    made_at: int
    until: int | None = None
    """When a ban ends; None: never."""
    reason: str = ""
    is_full: bool = False
    """Of a suspension: nobody gets content, not even an owner who leaves."""


class RestrictionStore(Protocol):
    """Every method may raise Unavailable; one thread at a time may write."""

    def read_all(self) -> list[Restriction]: ...

    def find(self, kind: RestrictionKind, target: str) -> Restriction | None: ...

    def put(self, restriction: Restriction) -> None:
        """Store it durably, in place of one of the same kind and target."""
        ...

    def remove(self, kind: RestrictionKind, targets: Sequence[str]) -> None: ...
