"""Moves events from the outbox into batches of each recipient's queue, in one transaction.

Queues with the same events get the same batches, which are put together only once.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from enc.node.store.push_interface import BatchLimits, Right
from enc.node.store.sqlite.push.batching import BatchDraft, OutboxRun, batches_of

MAX_EVENTS = 65_536
"""Approximate number of events that one fan-out takes."""
MAX_AUDIENCES = 1024
"""Rows of `audiences` that are kept even if the outbox no longer refers to them."""

_encode = Encoder().encode
_sizes = Decoder(list[int]).decode
_types = Decoder(dict[str, int]).decode
_members = Decoder(tuple[list[int], list[int]]).decode

Part = tuple[int, Right]
"""The number of a recipient list, and the right that a queue has in it."""


class FanOutResult(Struct, frozen=True):
    """The result of one fan-out."""

    is_more: bool = False
    """Whether the outbox has rows left."""
    has_forgotten: bool = False
    """Whether cached numbers of recipient lists are now invalid."""


class _Row(Struct, frozen=True):
    o: int
    e: int
    first_seq: int
    a: int
    ends: Sequence[int]
    types: dict[str, int] | None


def fan_out(db: sqlite3.Connection, now: int, limits: BatchLimits) -> FanOutResult:
    rows = _read(db, limits.rows)
    if not rows:
        return FanOutResult()
    db.execute("UPDATE node SET clock = max(clock, ?)", (now,))
    # Never earlier than a previous batch's, so that untried batches are due in order.
    (made_at,) = db.execute("SELECT clock FROM node").fetchone()
    by_audience = defaultdict[int, list[int]](list)
    for at, row in enumerate(rows):
        by_audience[row.a].append(at)
    for parts, queues in _groups(db, by_audience).items():
        rights = dict(parts)
        chosen = (rows[at] for at in sorted(at for a in rights for at in by_audience[a]))
        waiting = (OutboxRun(row.e, row.first_seq, row.ends, rights[row.a], row.types) for row in chosen)
        _add(db, queues, batches_of(waiting, limits), made_at)
    db.execute("DELETE FROM outbox WHERE o <= ?", (rows[-1].o,))
    is_more = db.execute("SELECT 1 FROM outbox LIMIT 1").fetchone() is not None
    return FanOutResult(is_more, not is_more and _forget_audiences(db))


def _read(db: sqlite3.Connection, limit: int) -> list[_Row]:
    query = "SELECT o, e, first_seq, a, sizes, types FROM outbox ORDER BY o LIMIT ?"
    rows, events = list[_Row](), 0
    for o, e, first_seq, a, sizes, types in db.execute(query, (limit,)):
        ends = list(accumulate(_sizes(sizes)))
        rows.append(_Row(o, e, first_seq, a, ends, None if types is None else _types(types)))
        events += len(ends)
        if events >= MAX_EVENTS:
            break
    return rows


def _groups(db: sqlite3.Connection, audiences: Iterable[int]) -> dict[tuple[Part, ...], list[int]]:
    """Return the queues of these recipient lists, grouped by their parts in them."""
    parts = defaultdict[int, list[Part]](list)
    for a in audiences:
        (members,) = db.execute("SELECT members FROM audiences WHERE a = ?", (a,)).fetchone()
        pushed, notified = _members(members)
        for q in pushed:
            parts[q].append((a, "P"))
        for q in notified:
            parts[q].append((a, "N"))
    groups = defaultdict[tuple[Part, ...], list[int]](list)
    for q, part in parts.items():
        groups[tuple(part)].append(q)
    return groups


def _add(db: sqlite3.Connection, queues: list[int], drafts: list[BatchDraft[int]], made_at: int) -> None:
    """Add the same batches to each of these queues."""
    rows = [
        (i, made_at, _encode((draft.runs, draft.notices)), draft.events, draft.bytes, made_at)
        for i, draft in enumerate(drafts, 1)
    ]
    db.executemany(
        "INSERT INTO batches (q, push_seq, made_at, runs, events, bytes, next_try) "
        "SELECT q, push_seq + ?, ?, ?, ?, ?, ? FROM queues WHERE q = ?",
        ((*row, q) for q in queues for row in rows),
    )
    count, events = len(drafts), sum(draft.events for draft in drafts)
    db.executemany(
        "UPDATE queues SET push_seq = push_seq + ?, waiting = waiting + ?, waiting_events = waiting_events + ? "
        "WHERE q = ?",
        ((count, count, events, q) for q in queues),
    )


def _forget_audiences(db: sqlite3.Connection) -> bool:
    """Delete recipient lists once there are many: each change of rights leaves some unused.

    Returns whether they were deleted.
    """
    (count,) = db.execute("SELECT count(*) FROM audiences").fetchone()
    if count > MAX_AUDIENCES:
        db.execute("DELETE FROM audiences")
    return bool(count > MAX_AUDIENCES)
