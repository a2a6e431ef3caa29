"""Events as a store returns them: with their status, as search results, and as raw JSON."""

from typing import Literal

from msgspec import Struct
from msgspec.json import Decoder, encode

from enc.core.log.event import wire_event
from enc.core.primitives.types import Event

Status = Literal["active", "updated", "deleted"]


class EventWithStatus(Struct, frozen=True):
    """An event and its current status."""

    event: Event
    status: Status
    updated_by: bytes | None = None


class _Id(Struct):
    id: str


_id = Decoder(_Id).decode


class SearchItem(Struct, frozen=True, gc=False):
    """A search result, already in JSON for the wire, in two parts as it is stored."""

    seq: int
    updated_by: bytes | None
    head: bytes
    """The event's JSON up to the content."""
    rest: bytes
    """The content and everything after it, up to but without the last brace."""

    @property
    def event(self) -> bytes:
        """Wire JSON of the event: the fields of `enc.core.log.event.wire_event`, in any order."""
        return b"%b%b}" % (self.head, self.rest)

    @property
    def json(self) -> bytes:
        """`{"event": …, "status": …, "updated_by": …}`, as in the answer to a Query."""
        return b"".join((ITEM_START, self.head, self.rest, item_end(self.updated_by)))

    @property
    def id(self) -> bytes:
        return bytes.fromhex(_id(self.event).id)

    @property
    def status(self) -> Literal["active", "updated"]:
        return "active" if self.updated_by is None else "updated"


ITEM_START = b'{"event":'
_ACTIVE = b'},"status":"active"}'


def item_end(updated_by: bytes | None) -> bytes:
    """Return the end of an item's JSON: the event's last brace, and the event's status."""
    if updated_by is None:
        return _ACTIVE
    return b'},"status":"updated","updated_by":"%b"}' % updated_by.hex().encode()


def search_item(event: Event, updated_by: bytes | None = None) -> SearchItem:
    """Return an event that is in memory as a search result."""
    return SearchItem(event.seq, updated_by, b"", encode(wire_event(event))[:-1])


class RawEvent(Struct, frozen=True, gc=False):
    """A stored event of any status: its wire JSON in two parts, and the fields that decide rights."""

    seq: int
    type: str
    subject: str
    """Type that decides the rights R, P and N."""
    author: bytes
    head: bytes
    rest: bytes

    @property
    def event(self) -> bytes:
        """The wire JSON of the event."""
        return b"%b%b}" % (self.head, self.rest)
