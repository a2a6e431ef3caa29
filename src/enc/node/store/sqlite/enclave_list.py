"""Lists the enclaves of a store that another process writes: for tools on the node's machine."""

import sqlite3
from contextlib import closing
from pathlib import Path

from enc.node.store.sqlite.connection import open_existing, unavailable


def read_enclaves(path: Path, limit: int) -> list[bytes]:
    """Return the ids of the first `limit` enclaves in ascending order, without purged ones."""
    query = "SELECT enclave FROM enclaves WHERE purged = 0 ORDER BY enclave LIMIT ?"
    with closing(open_existing(path)) as db:
        try:
            return [bytes(enclave) for (enclave,) in db.execute(query, (limit,))]
        except sqlite3.Error as e:
            raise unavailable("read", e) from None
