"""Reads events by seq, whatever their status, as JSON: pushes are put together from them."""

import sqlite3

from msgspec.json import encode

from enc.node.store.events import RawEvent
from enc.node.store.sqlite.event_rows import MAX_SEQ, author_of, key_of, missing

_STORED = (
    "SELECT k, type, subject, iif(content IS NULL, content_hash, NULL), head, content, withheld "
    "FROM events CROSS JOIN kinds ON kinds.c = abs(events.c) WHERE k BETWEEN ? AND ? ORDER BY k"
)


def read_raw_events(db: sqlite3.Connection, enclave: bytes, first_seq: int, count: int) -> list[RawEvent]:
    """Return the events from `first_seq` on; nothing for an enclave that is missing or purged."""
    row = db.execute("SELECT e FROM enclaves WHERE enclave = ? AND purged = 0", (enclave,)).fetchone()
    if row is None or first_seq > MAX_SEQ:
        return []
    ends = key_of(row[0], first_seq), key_of(row[0], min(first_seq + count - 1, MAX_SEQ))
    return [
        RawEvent(
            k & MAX_SEQ,
            type_,
            subject,
            author_of(head),
            head,
            encode(content) if content is not None else missing(content_hash, withheld),
        )
        for k, type_, subject, content_hash, head, content, withheld in db.execute(_STORED, ends)
    ]
