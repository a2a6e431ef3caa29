"""Searches in a caller's terms, and the pages that they need."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict

from enc.client.link.enclave_reader import ItemPage
from enc.client.verify.items import Item
from enc.core.errors import MisuseError, PeerError
from enc.core.log.filter import MAX_LIMIT, parse_filter


class Between(TypedDict, total=False):
    """A range of numbers; each end with or without the number itself."""

    start_at: int
    start_after: int
    end_at: int
    end_before: int


Ids = bytes | str | Sequence[bytes | str]
"""Each: 32 bytes, or 64 hex digits."""
Seqs = int | Sequence[int] | Between
Names = str | Sequence[str]
TagValues = Mapping[str, str | Sequence[str] | bool]
"""Values by name of the tag; True: any value."""

FIELDS = ("id", "seq", "type", "author", "tags", "timestamp")


def as_filter(search: Mapping[str, Any]) -> dict[str, Any]:
    """Return the wire filter for `id`, `seq`, `type`, `author`, `tags` and `timestamp`.

    Ids and authors may be bytes or hex; each field except `tags` and `timestamp` may be a list;
    `seq` and `timestamp` may be ranges: `{"start_at", "start_after", "end_at", "end_before"}`.
    """
    unknown = search.keys() - set(FIELDS)
    if unknown:
        raise MisuseError(f"cannot search by {', '.join(sorted(unknown))}; choose from {', '.join(FIELDS)}")
    wire = {name: _plain(value) for name, value in search.items() if value is not None}
    if "author" in wire:
        wire["from"] = wire.pop("author")
    try:
        parse_filter(wire)
    except PeerError as e:
        raise MisuseError(f"search: {e.message}") from None
    return wire


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return [_plain(each) for each in value] if isinstance(value, list | tuple | set | frozenset) else value


def beyond(seq: Any, last: int, reverse: bool = False) -> Any:
    """Return the part of a filter's `seq` that lies beyond the last seq received."""
    if not isinstance(seq, dict):
        listed = seq if isinstance(seq, list) else [seq]
        return [each for each in listed if (each < last if reverse else each > last)]
    if reverse:
        return {**seq, "end_before": min(last, seq.get("end_before", last))}
    return {**seq, "start_after": max(last, seq.get("start_after", last))}


class PagedSearch:
    """`wire`: the filter of the next page, None after the last; `advance` consumes a page."""

    def __init__(self, search: Mapping[str, Any], limit: int | None, reverse: bool) -> None:
        self._filter, self._left, self._reverse = as_filter(search), limit, reverse
        if limit is not None and limit < 0:
            raise MisuseError("limit: expected a number of events")
        self.wire: dict[str, Any] | None = self._page(None) if limit != 0 else None

    def _page(self, last: int | None) -> dict[str, Any]:
        most = MAX_LIMIT if self._left is None else min(self._left, MAX_LIMIT)
        wire = {**self._filter, "limit": most, "reverse": self._reverse}
        if last is not None:
            wire["seq"] = beyond(self._filter.get("seq", {}), last, self._reverse)
        return wire

    def advance(self, page: ItemPage) -> Iterator[Item]:
        yield from page.items
        if self._left is not None:
            self._left -= len(page.items)
        is_over = not page.more or not page.items or self._left == 0
        self.wire = None if is_over else self._page(page.items[-1].seq)
