"""How people's words become contents, and whom a content is about: each version of the protocol has its own dialect.

Whoever writes says what is meant, once: give somebody a role, take it away, pass it on. A dialect knows the type and
the fields of the event that says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from enc.core.signing import Alg
from enc.core.types import Commit

TypedContent = tuple[str, dict[str, Any]]
"""An event's type, and the object that is its content."""
StateOrRoles = str | Sequence[str]
"""What somebody is, in words: a State; or roles, as a list, as names with commas between, or as a bitmask 0x…"""


class RolesUnknownError(Exception):
    """Names of roles were said, and their bits stand in a Manifest that is not known here. Never leaves a program."""


class Dialect(Protocol):
    """Identities are in hex. Whatever has no words in a version raises MisuseError."""

    @property
    def enc_v(self) -> int: ...
    @property
    def predefined(self) -> frozenset[str]:
        """The types with rules of their own."""
        ...

    @property
    def access_types(self) -> tuple[str, ...]:
        """The types of events that change who is what, but for the Manifest."""
        ...

    def alg(self, wanted: Alg) -> Alg:
        """How commits are signed."""
        ...

    # Writing

    def move(self, target: str, from_: StateOrRoles, to: StateOrRoles, *, force: bool) -> TypedContent: ...
    def grant(self, target: str, trait: str, endpoint: str | None) -> TypedContent: ...
    def revoke(self, target: str, trait: str) -> TypedContent: ...
    def revoke_self(self, actor: str, trait: str) -> TypedContent: ...
    def transfer(self, target: str, trait: str) -> TypedContent: ...
    def gate(self, alias: str, state: str) -> TypedContent: ...
    def slot(self, type_: str, key: str, value: Any) -> TypedContent: ...
    def operation(self, words: Mapping[str, Any]) -> dict[str, Any]:
        """One operation of an AC_Bundle, from its `type`, `target`, `trait`, `from`, `to` and `endpoint`."""
        ...

    # Reading

    def affected_identities(self, commit: Commit) -> Iterator[bytes]:
        """Whose bitmask a commit of `access_types` may change; raises InvalidCommit where its form is none."""
        ...

    def endpoints(self, commit: Commit) -> list[str]:
        """The URLs that it would register, Manifests apart. A content without form registers none."""
        ...
