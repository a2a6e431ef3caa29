"""Checks what a Query finds: each event that is not deleted by each of its values, and no other
event.
"""

from collections import defaultdict
from typing import Any

import msgspec
from msgspec import Struct

from enc.core.log.event import wire_event
from enc.core.log.filter import MAX_LIMIT, Filter, Range
from enc.core.rules.policy_types import ReadScope
from enc.core.trees.state_key import DELETED
from enc.node.fsck.difference import Difference
from enc.node.store.events import SearchItem
from enc.node.store.sqlite.check import WRONG, CheckedEvent
from enc.node.store.store_interface import ReadRights, Store

BLOCK = 4000
"""Events per block: more than a store would scan rather than look up in an index."""
BLOCK_SEARCHES = 16_000
"""Maximum number of searches per block."""
EVERYTHING = ReadRights(b"", ReadScope({}, "all"), lambda event, subject: True)


class SearchBy(Struct, frozen=True):
    """A search by one value of one field."""

    type: str | None = None
    author: bytes | None = None
    tag: tuple[str, str | None] | None = None
    subject: str | None = None
    """The type that decides read rights."""

    @property
    def by(self) -> str:
        names = {"type": self.type, "author": self.author, "tag": self.tag, "read rights": self.subject}
        return next((name for name, value in names.items() if value is not None), "seq")

    def filter(self, here: Range) -> Filter:
        return Filter(
            seqs=here,
            types=None if self.type is None else frozenset([self.type]),
            authors=None if self.author is None else frozenset([self.author]),
            tags=()
            if self.tag is None
            else ((self.tag[0], None if self.tag[1] is None else frozenset([self.tag[1]])),),
            limit=MAX_LIMIT,
        )

    def readable(self) -> ReadRights:
        if self.subject is None:
            return EVERYTHING
        return ReadRights(b"", ReadScope({self.subject: "all"}, "none"), lambda event, subject: False)


class SearchCheck:
    """The expected results of each search in a block of events. Deleted events are not found."""

    def __init__(self, store: Store, enclave: bytes) -> None:
        self._store, self._enclave = store, enclave
        self._begin()

    def _begin(self) -> None:
        self._seqs: defaultdict[SearchBy, list[int]] = defaultdict(list)
        self._here = Range(0, -1)

    def check_items(self, lines: list[CheckedEvent]) -> None:
        """Check that a search returns each event of the page that is not deleted, with its status."""
        live = [line for line in lines if line.status != DELETED]
        here = Range(lines[0].event.seq, lines[-1].event.seq)
        items = self._check_found(SearchBy(), here, [line.event.seq for line in live])
        for item, line in zip(items, live, strict=True):
            wire = msgspec.json.decode(msgspec.json.encode(wire_event(line.event)))
            found = msgspec.json.decode(item.json)
            if (item.updated_by, found) != (line.status, _item(wire, line.status)):
                raise Difference(self._enclave, item.seq, f"a search by seq: {WRONG}")

    def add(self, lines: list[CheckedEvent]) -> None:
        """Add a page to the block; check a full block."""
        first, last = lines[0].event.seq, lines[-1].event.seq
        self._here = Range(self._here.low if self._seqs else first, last)
        for line in lines:
            event, seqs = line.event, [] if line.status == DELETED else [line.event.seq]
            for by in (SearchBy(type=event.type), SearchBy(author=event.from_), SearchBy(subject=line.subject)):
                self._seqs[by] += seqs
            for pair in {(tag[0], value) for tag in event.tags for value in (None, *tag[1:2])}:
                self._seqs[SearchBy(tag=pair)] += seqs
        if self._here.high - self._here.low >= BLOCK or len(self._seqs) >= BLOCK_SEARCHES:
            self.finish()

    def finish(self) -> None:
        """Check that each search finds the block's events with its value, and no others."""
        for search, expected in self._seqs.items():
            self._check_found(search, self._here, expected)
        self._begin()

    def _check_found(self, search: SearchBy, here: Range, expected: list[int]) -> list[SearchItem]:
        try:
            items = list(self._store.find(self._enclave, search.filter(here), search.readable()))
        except Exception as e:
            what = f"a search by {search.by} fails: {type(e).__name__}: {e}"
            raise Difference(self._enclave, None, what) from e
        found = [item.seq for item in items]
        if found != expected:
            seq = min(set(found) ^ set(expected), default=None)
            what = "finds it but must not" if seq in found else "does not find it"
            what = f"a search by {search.by} {'returns a wrong order' if seq is None else what}"
            raise Difference(self._enclave, seq, what)
        return items


def _item(event: Any, updated_by: bytes | None) -> dict[str, Any]:
    """Return the expected search result."""
    if updated_by is None:
        return {"event": event, "status": "active"}
    return {"event": event, "status": "updated", "updated_by": updated_by.hex()}
