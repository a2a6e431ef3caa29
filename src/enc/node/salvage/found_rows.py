"""A database of the rows that were found in a damaged store.

The rows of one page all belong to one table, and each table that is needed has a form of its own:
the number and the types of its columns. A page that is free has no rows: the node overwrites what it
deletes. Small rows are copied; of an event only its place is, so that contents are not stored twice.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from enc.node.salvage.pages import Pages
from enc.node.salvage.records import INNER_KEYS, KEYS, ROWS, BadRecord, RecordPage, Value
from enc.node.store.sqlite.event_rows import SqlRow

ScanProgress = Callable[[int], None]
"""Called with the number of further pages that were read."""

CACHED_PAGES = 64
TRIED = 3
"""Rows by which the table of a page is recognised: the first ones may be damaged."""


class Form(Struct, frozen=True):
    """The form of a table's rows. `types` has a letter for each column; a capital one allows NULL."""

    table: str
    columns: str
    types: str
    least: int
    """Columns that a row has at least: one that was stored before an upgrade has not all of them."""
    kinds: tuple[int, ...] = (ROWS,)

    def fits(self, values: Sequence[Value]) -> bool:
        if not self.least <= len(values) <= len(self.types):
            return False
        return all(_IS[type_](value) for type_, value in zip(self.types, values, strict=False))


_IS: dict[str, Callable[[Value], bool]] = {
    "n": lambda value: value is None,  # a column that stands for the rowid
    "h": lambda value: isinstance(value, bytes) and len(value) == 32,
    "l": lambda value: isinstance(value, bytes) and len(value) > 32,
    "b": lambda value: isinstance(value, bytes),
    "i": lambda value: isinstance(value, int),
    "t": lambda value: isinstance(value, str),
    "I": lambda value: value is None or isinstance(value, int),
    "B": lambda value: value is None or isinstance(value, bytes),
    "T": lambda value: value is None or isinstance(value, str),
}

_WITHOUT_ROWID = (KEYS, INNER_KEYS)
EVENTS = Form(
    "events",
    "k c from8 hash8 exp timestamp auto_delete target updated_by content_hash head content withheld",
    "niiiiiIIBhbTB",
    12,
)
FORMS = (
    EVENTS,
    Form("node", "clock enclaves ids_until ids_moved endpoints_due records_due writes shown", "iiibiiii", 4),
    Form("enclaves", "e enclave manifest terminated_at purged became", "nhtIiI", 5),
    Form("states", "e state deadline", "nlI", 3),
    Form("kinds", "c e type subject live total", "nittii", 6),
    Form("bundles", "e i first_seq count events_root state_hash head", "iiiihhb", 7, _WITHOUT_ROWID),
    Form("charges", "e first_seq last_seq identity", "iiih", 4, _WITHOUT_ROWID),  # and `log_nodes`, of the same form
    Form("spent_requests", "digest identity until", "hhi", 3, _WITHOUT_ROWID),
    Form("restrictions", "kind target made_at until reason is_full", "ttiIti", 6, _WITHOUT_ROWID),
    Form("withheld_contents", "k content note", "nTt", 3),
    Form("audiences", "a members", "nb", 2),
    Form("outbox", "o e first_seq a sizes types", "niiibB", 6),
    Form("batches", "b q push_seq made_at runs events bytes state tries next_try settled_at", "niiibiiiiiI", 11),
    Form(
        "queues",
        "q identity url push_seq waiting waiting_events dead delivered forgotten last_error last_error_at "
        "confirmed_at challenges held_until missing suspended registrar failures confirmed_to renew_at",
        "nhtiiiiiitIIiiiiiiti",
        11,
    ),
)


class FoundRows:
    """The rows of one store. `db` has the tables of FORMS, without constraints; of events, the places."""

    def __init__(self, pages: Pages, path: Path) -> None:
        """`path`: where to write the database; it must not exist."""
        self._pages = pages
        self._cache: OrderedDict[int, RecordPage] = OrderedDict()
        self.unreadable = 0
        """Pages that the disk could not read."""
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = OFF")
        self.db.execute("PRAGMA synchronous = OFF")
        self.db.execute("CREATE TABLE events (k, page, cell)")
        for form in FORMS[1:]:
            self.db.execute(f"CREATE TABLE {form.table} ({', '.join(form.columns.split())})")

    def scan(self, progress: ScanProgress) -> None:
        """Find the rows in all pages."""
        self.db.execute("BEGIN")
        for number in range(1, self._pages.count + 1):
            page = self._page(number)
            if page is None:
                self.unreadable += 1
            elif page.cells:
                self._add(page, number)
            if number % 1000 == 0:
                progress(1000)
        progress(self._pages.count % 1000)
        for table, columns in ("events", "k"), ("bundles", "e, i"), ("charges", "e"), ("kinds", "e"), ("batches", "q"):
            self.db.execute(f"CREATE INDEX {table}_found ON {table} ({columns})")
        self.db.execute("COMMIT")

    def _page(self, number: int) -> RecordPage | None:
        data = self._pages.read(number)
        if data is None:
            return None
        return RecordPage(data, number, self._pages.size, self._pages.count, self._pages.read)

    def _add(self, page: RecordPage, number: int) -> None:
        form = _form(page)
        if form is EVENTS:
            for cell in range(len(page.cells)):
                with suppress(BadRecord):
                    self.db.execute("INSERT INTO events VALUES (?, ?, ?)", (page.rowid(cell), number, cell))
        elif form is not None:
            for values in _rows(page, form):
                marks = ",".join("?" * len(values))
                columns = ", ".join(form.columns.split()[: len(values)])
                self.db.execute(f"INSERT INTO {form.table} ({columns}) VALUES ({marks})", values)  # noqa: S608

    def event(self, page: int, cell: int) -> SqlRow | None:
        """Return the columns of an event at a place; None if it cannot be read."""
        found = self._cache.get(page)
        if found is None:
            found = self._page(page)
            if found is None:
                return None
            self._cache[page] = found
            if len(self._cache) > CACHED_PAGES:
                self._cache.popitem(last=False)
        try:
            values = found.record(cell)
        except (BadRecord, IndexError):
            return None
        return tuple(values) if EVENTS.fits(values) else None

    def rows(self, query: str, *args: Any) -> list[SqlRow]:
        return self.db.execute(query, args).fetchall()

    def close(self) -> None:
        self.db.close()


def _form(page: RecordPage) -> Form | None:
    """Return the form of the table that a page belongs to; None if it is not needed or not recognised."""
    for cell in range(min(TRIED, len(page.cells))):
        with suppress(BadRecord):
            values = page.record(cell)
            for form in FORMS:
                if page.kind in form.kinds and form.fits(values):
                    return form
    return None


def _rows(page: RecordPage, form: Form) -> Iterator[list[Value]]:
    for cell in range(len(page.cells)):
        with suppress(BadRecord):
            values = page.record(cell)
            if form.fits(values):
                if form.types[0] == "n":
                    values[0] = page.rowid(cell)
                yield values
