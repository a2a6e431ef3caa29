"""Collects the events of one transaction that have recipients, and writes them as rows of the
outbox.
"""

import sqlite3
from collections.abc import Callable

from msgspec.json import encode as encode_json
from msgspec.msgpack import Encoder

from enc.core.primitives.types import Event
from enc.core.rules.policy_types import Effects, EndpointChange
from enc.node.store.push_interface import Recipient, Recipients
from enc.node.store.sqlite.bulk_insert import bulk_insert
from enc.node.store.sqlite.push.endpoint_state import open_queue, register_endpoint

_encode = Encoder().encode

Counter = Callable[[int, str], int]
"""Returns how many events of a type an enclave has had so far, including those of the transaction.
"""


class AudienceNumbers:
    """A cache of the row numbers of recipient lists in table `audiences`.

    Lists are compared by object identity: comparing their members would cost more. It contains only
    committed rows; call `clear` once a transaction has deleted them.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[int, Recipients]] = {}  # keeps the list alive, so that no other gets its address

    def get(self, audience: Recipients) -> int | None:
        found = self._numbers.get(id(audience))
        return found[0] if found else None

    def put(self, numbers: dict[int, tuple[int, Recipients]]) -> None:
        self._numbers.update(numbers)

    def clear(self) -> None:
        self._numbers = {}


class _Run:
    """Consecutive events of one enclave with the same recipients."""

    def __init__(self, e: int, first_seq: int, audience: Recipients, counts: bool) -> None:
        self.e, self.first_seq, self.audience = e, first_seq, audience
        self.sizes: list[int] = []
        self.types: dict[str, int] | None = {} if counts else None


class OutboxRows:
    """Outbox rows of one transaction, collected while it is put together and written with it."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._latest: dict[int, _Run] = {}
        self._changes: list[tuple[int, Effects]] = []
        self._told: dict[int, bool] = {}

    def change(self, e: int, effects: Effects) -> None:
        """Record what an event changes about the endpoints of its enclave."""
        self._changes.append((e, effects))

    def add(self, e: int, event: Event, head: bytes | str, audience: Recipients, count: Counter) -> None:
        run = self._latest.get(e)
        if run is None or run.audience is not audience or run.first_seq + len(run.sizes) != event.seq:
            run = self._latest[e] = _Run(e, event.seq, audience, self._is_told(audience))
            self._runs.append(run)
        size = len(head) if isinstance(head, bytes) or head.isascii() else len(head.encode())
        run.sizes.append(size + len(encode_json(event.content)) + 1)
        if run.types is not None:
            run.types[event.type] = count(e, event.type)

    def _is_told(self, audience: Recipients) -> bool:
        """Return whether a recipient only gets a notice, which contains type_seq. Cached by object."""
        found = self._told.get(id(audience))
        if found is None:
            found = self._told[id(audience)] = any(each.right == "N" for each in audience)
        return found

    def write(self, db: sqlite3.Connection, audiences: AudienceNumbers) -> Callable[[], None]:
        """Write the rows. Call the returned function after the commit."""
        for e, effects in self._changes:
            _change(db, e, effects)
        new = dict[int, tuple[int, Recipients]]()
        rows = [
            (
                run.e,
                run.first_seq,
                _number(db, run, audiences, new),
                _encode(run.sizes),
                None if run.types is None else _encode(run.types),
            )
            for run in self._runs
        ]
        bulk_insert(db, "INSERT INTO outbox (e, first_seq, a, sizes, types)", rows)
        return lambda: audiences.put(new)


def _number(db: sqlite3.Connection, run: _Run, known: AudienceNumbers, new: dict[int, tuple[int, Recipients]]) -> int:
    audience = run.audience
    a = known.get(audience)
    if a is None and id(audience) in new:
        a = new[id(audience)][0]
    if a is None:
        members = [[_queue(db, each, run.e) for each in audience if each.right == right] for right in "PN"]
        a = db.execute("INSERT INTO audiences (members) VALUES (?)", (_encode(members),)).lastrowid or 0
        new[id(audience)] = a, audience
    return a


def _queue(db: sqlite3.Connection, to: Recipient, e: int) -> int:
    row = db.execute("SELECT q FROM queues WHERE identity = ? AND url = ?", (to.identity, to.url)).fetchone()
    return int(row[0] if row else open_queue(db, to.identity, to.url, e))


def _change(db: sqlite3.Connection, e: int, effects: Effects) -> None:
    """Apply the same changes as enc.node.store.push_interface.register."""
    for change in effects.endpoints:
        if change.url is None:
            _end(db, e, change)
            continue
        rows = [(e, change.identity, trait, change.url) for trait in change.traits]
        db.executemany("INSERT OR REPLACE INTO endpoints VALUES (?, ?, ?, ?)", rows)
        register_endpoint(db, change.identity, change.url, e)
    if effects.lifecycle == "terminated":
        db.execute("DELETE FROM endpoints WHERE e = ?", (e,))


def _end(db: sqlite3.Connection, e: int, change: EndpointChange) -> None:
    """Delete the endpoints of these traits. Most traits have none."""
    stored = db.execute("SELECT trait FROM endpoints WHERE e = ? AND identity = ?", (e, change.identity)).fetchall()
    ended = {trait for (trait,) in stored}.intersection(change.traits)
    keys = [(e, change.identity, trait) for trait in ended]
    db.executemany("DELETE FROM endpoints WHERE e = ? AND identity = ? AND trait = ?", keys)
