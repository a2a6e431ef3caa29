"""Dialects: how each version of the protocol spells access changes as events, and whom an event
concerns.

Callers state an intention in one form for both versions: grant a role, revoke it, transfer it. A
dialect returns the type and the content of the event that expresses it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from enc.core.primitives.signing import Alg
from enc.core.primitives.types import Commit

TypedContent = tuple[str, dict[str, Any]]
"""An event's type, and the object that is its content."""
StateOrRoles = str | Sequence[str]
"""What an identity is: the name of a State; or roles, as a list, as comma-separated names, or as a
bitmask 0x…"""


class RolesUnknownError(Exception):
    """Role names were given, but the Manifest that assigns their bits is not known. Internal:
    callers catch it."""


class Dialect(Protocol):
    """Identities are in hex. An operation that a version does not have raises MisuseError."""

    @property
    def enc_v(self) -> int: ...
    @property
    def predefined(self) -> frozenset[str]:
        """The types with rules of their own."""
        ...

    @property
    def access_types(self) -> tuple[str, ...]:
        """The types of events that change access rights, except the Manifest."""
        ...

    def alg(self, wanted: Alg) -> Alg:
        """Return the algorithm that signs commits, given the one that is wanted."""
        ...

    # Writing

    def move(self, target: str, from_: StateOrRoles, to: StateOrRoles, *, force: bool) -> TypedContent: ...
    def grant(self, target: str, trait: str, endpoint: str | None) -> TypedContent: ...
    def revoke(self, target: str, trait: str) -> TypedContent: ...
    def revoke_self(self, actor: str, trait: str) -> TypedContent: ...
    def transfer(self, target: str, trait: str) -> TypedContent: ...
    def gate(self, alias: str, state: str) -> TypedContent: ...
    def slot(self, type_: str, key: str, value: Any) -> TypedContent: ...
    def operation(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return one operation of an AC_Bundle, from its `type`, `target`, `trait`, `from`, `to`
        and `endpoint`."""
        ...

    # Reading

    def affected_identities(self, commit: Commit) -> Iterator[bytes]:
        """Yield the identities whose bitmask a commit of `access_types` may change; raise
        InvalidCommit if malformed."""
        ...

    def endpoints(self, commit: Commit) -> list[str]:
        """Return the URLs that the commit would register, Manifests excepted; none if its content
        is malformed."""
        ...
