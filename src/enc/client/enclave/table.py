"""A table: the events of some types as rows by id, with their Updates and Deletes applied."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock
from types import MappingProxyType
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from enc.client.verify.items import Item
from enc.core.errors import MisuseError
from enc.core.primitives.types import Tags, Withheld, event_text, json_of
from enc.core.rules.manifest_schemas import ContentSchemas

FOLDED = ("Update", "Delete")
"""Types that change rows."""


class Row(Struct, frozen=True, kw_only=True):
    """An event with its current content."""

    id: bytes
    seq: int
    type: str
    author: bytes
    timestamp: int
    """Unix milliseconds, by the node's clock."""
    tags: Tags = ()
    content: str | None
    """None: erased, withheld, or replaced by an Update that you may not read."""
    withheld: Withheld | None = None
    """The verified statement of a node that it withholds the current content, as of the time of the
    read."""
    changed_seq: int
    """The seq of the last Update that was folded; else the event's own. With `changed_by` and
    `changed`, its author and time.
    """
    changed_by: bytes
    changed: int
    violations: tuple[str, ...] = ()
    """In a table of valid rows: why the content violates its schema, or has none to judge."""

    @property
    def json(self) -> Any:
        """The content, parsed as JSON; None if it is missing or is not JSON."""
        return json_of(self.content)

    def __repr__(self) -> str:
        return f"Row({event_text(self)})"


class Change(Struct, frozen=True):
    """What an event did to a row. `row`: the row after the change, or a deleted row before it."""

    kind: Literal["added", "updated", "deleted"]
    row: Row


Staged = Mapping[bytes, Row | None]
"""Changed rows by id; None: deleted."""


class RowStore(Protocol):
    """Stores rows and the seq of the last folded event beyond the life of the process."""

    def load(self) -> tuple[list[Row], int]: ...

    def save(self, staged: Staged, before: int, seq: int) -> None:
        """Save changes and the new seq together; raise an error if `before` is not the saved seq."""

    def close(self) -> None: ...


class _Rows(Mapping[bytes, Row]):
    """A view of all rows but the invalid ones."""

    def __init__(self, all_: Mapping[bytes, Row], invalid: Mapping[bytes, Row]) -> None:
        self._all, self._invalid = all_, invalid

    def __getitem__(self, id_: bytes) -> Row:
        if id_ in self._invalid:
            raise KeyError(id_)
        return self._all[id_]

    def __iter__(self) -> Iterator[bytes]:
        return (id_ for id_ in self._all if id_ not in self._invalid)

    def __len__(self) -> int:
        return len(self._all) - len(self._invalid)


class TableState:
    """The rows of one table. `take` folds events; threads may share it.

    With `valid`, set `schemas` before `take`.
    """

    def __init__(
        self,
        type_: str | Sequence[str],
        rows: Iterable[Row],
        after: int,
        store: RowStore | None = None,
        *,
        valid: bool = False,
    ) -> None:
        self.types, self.valid = table_types(type_), valid
        self.schemas: ContentSchemas | None = None
        loaded, self.seq = (list(rows), after) if store is None else store.load()
        self._all = {row.id: row for row in loaded}
        self._invalid = {row.id: row for row in loaded if row.violations}
        self.rows: Mapping[bytes, Row] = _Rows(self._all, self._invalid)
        """By id."""
        self.invalid: Mapping[bytes, Row] = MappingProxyType(self._invalid)
        self._store, self._lock, self._is_closed = store, Lock(), False

    @property
    def all_types(self) -> list[str]:
        """The types of the events to fold."""
        return [*self.types, *FOLDED]

    def take(self, items: Sequence[Item]) -> list[Change]:
        """Fold the next events, save the result, and return what has changed."""
        with self._lock:
            staged, changes, seq = dict[bytes, Row | None](), list[Change](), self.seq
            for item in items:
                if item.seq > seq:
                    changes += self._fold(item, staged)
                    seq = item.seq
            if self._store is not None and seq > self.seq:
                self.check_is_open()
                self._store.save(staged, self.seq, seq)
            for id_, row in staged.items():
                self._put(id_, row)
            self.seq = seq
        return changes

    def _put(self, id_: bytes, row: Row | None) -> None:
        self._invalid.pop(id_, None)
        if row is None:
            self._all.pop(id_, None)
            return
        self._all[id_] = row
        if row.violations:
            self._invalid[id_] = row

    def _fold(self, item: Item, staged: dict[bytes, Row | None]) -> list[Change]:
        if item.type in self.types:
            staged[item.id] = row = self._judged(_row(item))
            return _changes(None, row)
        target = item.target or b""
        row_before = staged[target] if target in staged else self._all.get(target)
        if row_before is None or item.type not in FOLDED:
            return []
        if item.type == "Delete":
            staged[target] = None
            return _changes(row_before, None)
        current = {"content": item.content, "withheld": item.withheld}
        changed = {"changed_seq": item.seq, "changed_by": item.author, "changed": item.timestamp}
        staged[target] = row = self._judged(replace(row_before, **current, **changed))
        return _changes(row_before, row)

    def _judged(self, row: Row) -> Row:
        """Return the row of a table of valid rows with its violations."""
        if self.schemas is None:
            return row
        found = self.schemas.violations(row.type, row.content)
        return replace(row, violations=(_missing(row),) if found is None else found)

    def check_is_open(self) -> None:
        if self._is_closed:
            raise MisuseError("the table is closed")

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._store is not None:
                self._store.close()


def _changes(before: Row | None, after: Row | None) -> list[Change]:
    """Return the change of the rows that the table shows; none if only a row changed that it hides."""
    was = before if before and not before.violations else None
    if after is None or after.violations:
        return [Change("deleted", was)] if was else []
    return [Change("updated" if was else "added", after)]


def table_types(type_: str | Sequence[str]) -> tuple[str, ...]:
    """Return the types of a table's rows; raise MisuseError for none, or for Update and Delete."""
    types = (type_,) if isinstance(type_, str) else tuple(type_)
    if not types or set(types) & set(FOLDED):
        raise MisuseError(f"type: expected types of content events, such as 'message', not {type_!r}")
    return types


def _missing(row: Row) -> str:
    if row.withheld is not None:
        return f"the node withholds the content ({row.withheld.reason})"
    return "the content was erased, or you may not read it"


def _row(item: Item) -> Row:
    return Row(
        id=item.id,
        seq=item.seq,
        type=item.type,
        author=item.author,
        timestamp=item.timestamp,
        tags=item.tags,
        content=item.content,
        withheld=item.withheld if item.updated_by is None else None,  # else the Update's content is the current one
        changed_seq=item.seq,
        changed_by=item.author,
        changed=item.timestamp,
    )
