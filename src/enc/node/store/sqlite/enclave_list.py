"""Lists the enclaves of a store that another process writes: for tools on the node's machine."""

import sqlite3
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from enc.node.store.sqlite.connection import open_existing, unavailable
from enc.node.store.sqlite.event_rows import MAX_SEQ, key_of

_LARGEST = (
    "SELECT e, enclave, bytes, terminated_at IS NOT NULL FROM sizes JOIN enclaves USING (e) WHERE purged = 0 "
    "ORDER BY bytes DESC, enclave LIMIT ?"
)


class EnclaveSize(Struct, frozen=True):
    """How much a node stores of one enclave."""

    enclave: bytes
    events: int
    bytes: int
    """Of its events and tree nodes, without erased contents."""
    terminated: bool


def read_largest(path: Path, limit: int) -> list[EnclaveSize]:
    """Return the enclaves with the most bytes, the largest first, without purged ones."""
    last = "SELECT max(k) FROM events WHERE k BETWEEN ? AND ?"
    with closing(open_existing(path)) as db:
        try:
            return [
                EnclaveSize(bytes(enclave), (db.execute(last, _keys(e)).fetchone()[0] & MAX_SEQ) + 1, size, bool(ended))
                for e, enclave, size, ended in db.execute(_LARGEST, (limit,)).fetchall()
            ]
        except sqlite3.Error as e:
            raise unavailable("read", e) from None


def _keys(e: int) -> tuple[int, int]:
    return key_of(e, 0), key_of(e, MAX_SEQ)


def read_enclaves(path: Path, limit: int) -> list[bytes]:
    """Return the ids of the first `limit` enclaves in ascending order, without purged ones."""
    query = "SELECT enclave FROM enclaves WHERE purged = 0 ORDER BY enclave LIMIT ?"
    with closing(open_existing(path)) as db:
        try:
            return [bytes(enclave) for (enclave,) in db.execute(query, (limit,))]
        except sqlite3.Error as e:
            raise unavailable("read", e) from None
