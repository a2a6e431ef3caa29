"""Filters: which events a Query asks for.

Fields are joined by AND, the values of a list by OR; an absent field matches everything. Unknown
fields are rejected, so that a misspelt filter does not silently match everything.
"""

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from enc.core.errors import InvalidFilter
from enc.core.primitives.encoding import MAX_INT, convert_json, unhex
from enc.core.primitives.types import Commit, Event

MAX_IDS = MAX_SEQS = MAX_AUTHORS = 100
MAX_TYPES = MAX_TAG_VALUES = 20
MAX_TAGS = 10
MAX_LIMIT = 1000
DEFAULT_LIMIT = 100


class Range(Struct, frozen=True):
    """Numbers from `low` to `high`, both included."""

    low: int = 0
    high: int = MAX_INT

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.low <= number <= self.high


class Filter(Struct, frozen=True, kw_only=True):
    """A parsed filter; None matches everything. For a tag, None matches any value."""

    ids: frozenset[bytes] | None = None
    seqs: frozenset[int] | Range | None = None
    types: frozenset[str] | None = None
    authors: frozenset[bytes] | None = None
    tags: tuple[tuple[str, frozenset[str] | None], ...] = ()
    timestamps: Range | None = None
    limit: int = DEFAULT_LIMIT
    reverse: bool = False

    def matches(self, event: Event) -> bool:
        return (
            (self.ids is None or event.id in self.ids)
            and (self.seqs is None or event.seq in self.seqs)
            and (self.types is None or event.type in self.types)
            and (self.authors is None or event.from_ in self.authors)
            and (self.timestamps is None or event.timestamp in self.timestamps)
            and all(_has_tag(event, name, values) for name, values in self.tags)
        )


def _has_tag(event: Commit, name: str, values: frozenset[str] | None) -> bool:
    return any(tag[0] == name and (values is None or (len(tag) > 1 and tag[1] in values)) for tag in event.tags)


class WireRange(Struct, forbid_unknown_fields=True):
    start_at: int | UnsetType = UNSET
    start_after: int | UnsetType = UNSET
    end_at: int | UnsetType = UNSET
    end_before: int | UnsetType = UNSET


class WireFilter(Struct, forbid_unknown_fields=True):
    id: str | list[str] | UnsetType = UNSET
    seq: int | list[int] | WireRange | UnsetType = UNSET
    type: str | list[str] | UnsetType = UNSET
    from_: str | list[str] | UnsetType = field(default=UNSET, name="from")
    tags: dict[str, str | list[str] | bool] | UnsetType = UNSET
    timestamp: WireRange | UnsetType = UNSET
    limit: int = DEFAULT_LIMIT
    reverse: bool = False


def parse_filter(wire: Any) -> Filter:
    """Parse a filter from decoded JSON; raise InvalidFilter, naming the field, if malformed or over
    a maximum."""
    found = convert_json(wire, WireFilter, InvalidFilter)
    if not 1 <= found.limit <= MAX_LIMIT:
        raise InvalidFilter(f"limit: must be 1 to {MAX_LIMIT}")
    return Filter(
        ids=_hexes(found.id, "id", MAX_IDS),
        seqs=_seqs(found.seq),
        types=None if found.type is UNSET else frozenset(_listed(found.type, "type", MAX_TYPES)),
        authors=_hexes(found.from_, "from", MAX_AUTHORS),
        tags=_tags(found.tags),
        timestamps=None if found.timestamp is UNSET else _range(found.timestamp, "timestamp"),
        limit=found.limit,
        reverse=found.reverse,
    )


def _listed(value: Any, name: str, most: int) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if len(values) > most:
        raise InvalidFilter(f"{name}: over {most} values")
    return values


def _hexes(value: str | list[str] | UnsetType, name: str, most: int) -> frozenset[bytes] | None:
    if value is UNSET:
        return None
    return frozenset(unhex(text, 32, name, InvalidFilter) for text in _listed(value, name, most))


def _seqs(value: int | list[int] | WireRange | UnsetType) -> frozenset[int] | Range | None:
    if value is UNSET:
        return None
    if isinstance(value, WireRange):
        return _range(value, "seq")
    return frozenset(_number(number, "seq") for number in _listed(value, "seq", MAX_SEQS))


def _number(number: int, name: str) -> int:
    if not 0 <= number <= MAX_INT:
        raise InvalidFilter(f"{name}: must be 0 to 2^53 - 1")
    return number


def _range(wire: WireRange, name: str) -> Range:
    lows, highs = [0], [MAX_INT]
    if wire.start_at is not UNSET:
        lows.append(_number(wire.start_at, f"{name}.start_at"))
    if wire.start_after is not UNSET:
        lows.append(_number(wire.start_after, f"{name}.start_after") + 1)
    if wire.end_at is not UNSET:
        highs.append(_number(wire.end_at, f"{name}.end_at"))
    if wire.end_before is not UNSET:
        highs.append(_number(wire.end_before, f"{name}.end_before") - 1)
    return Range(max(lows), min(highs))


def _tags(
    wire: dict[str, str | list[str] | bool] | UnsetType,
) -> tuple[tuple[str, frozenset[str] | None], ...]:
    if wire is UNSET:
        return ()
    if len(wire) > MAX_TAGS:
        raise InvalidFilter(f"tags: over {MAX_TAGS} names")
    found: list[tuple[str, frozenset[str] | None]] = []
    for name, value in wire.items():
        if value is False:
            raise InvalidFilter(f"tags.{name}: expected a value, a list of values, or true")
        found.append((name, None if value is True else frozenset(_listed(value, f"tags.{name}", MAX_TAG_VALUES))))
    return tuple(found)
