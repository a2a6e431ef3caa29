"""Contents that the node's operator withholds (docs/protocol.md, 6.5): the part of the store that
keeps them aside.

An erasure of the event, by an Update, a Delete, its time or a purge, erases a content kept aside,
too. An import that brings the content back withholds it again.
"""

from typing import Protocol

from msgspec import Struct

from enc.core.primitives.types import Withheld


class WithheldContent(Struct, frozen=True):
    """What the operator withholds of one event."""

    content: str | None
    """None: destroyed."""
    note: str
    """The operator's, for themselves."""


class WithheldEvent(Struct, frozen=True):
    """An event with a node's statement that it withholds the content."""

    enclave: bytes
    seq: int
    id: bytes
    statement: Withheld
    own: WithheldContent | None
    """None: the statement came with an import, and the content did not."""


class WithheldStore(Protocol):
    """`withhold` and `unwithhold` write; each is one transaction."""

    def enclave_of(self, event_id: bytes) -> bytes | None:
        """Return the enclave with this event; None if there is none, or it is purged."""
        ...

    def withhold(self, enclave: bytes, event_id: bytes, statement: Withheld, note: str, *, keep: bool) -> None:
        """Replace the content of an event by a statement, and keep the content aside or destroy it.

        If it is withheld already, replace the statement and the note; `keep` says whether the
        content that is aside stays there.
        """
        ...

    def unwithhold(self, enclave: bytes, event_id: bytes) -> None:
        """Put the content that is kept aside back in place of the statement."""
        ...

    def withheld_content(self, enclave: bytes, event_id: bytes) -> WithheldContent | None:
        """Return what the operator withholds of the event; None if it withholds nothing."""
        ...

    def withheld_events(self, skip: int, limit: int) -> list[WithheldEvent]:
        """Return all events with a statement, without those of purged enclaves, in a fixed order."""
        ...
