"""The start of a purge that the operator orders, of an enclave in any state.

It leaves no state and no Manifest, so nothing can load the enclave any more. Its rows are deleted in
slices by the retention sweeper, as those of a terminated enclave are: for the sweeper it was
terminated at time 0.
"""

import sqlite3
from contextlib import suppress

from enc.node.store.restrictions import Restriction
from enc.node.store.sqlite import purge
from enc.node.store.sqlite.restrictions import rows

_MARK = (
    "UPDATE enclaves SET manifest = '', purged = max(purged, ?), terminated_at = coalesce(terminated_at, 0) WHERE e = ?"
)


def begin(db: sqlite3.Connection, e: int, order: Restriction) -> None:
    """Make the enclave unreadable and unloadable, and keep the order as its tombstone."""
    (purged,) = db.execute("SELECT purged FROM enclaves WHERE e = ?", (e,)).fetchone()
    if not purged:
        with suppress(sqlite3.DatabaseError, TypeError, ValueError):  # of a damaged log its creator is unknown
            purge.credit_creator(db, e)
        db.execute("UPDATE node SET enclaves = enclaves - 1")
    db.execute(_MARK, (purge.BEGUN, e))
    db.execute("DELETE FROM states WHERE e = ?", (e,))
    rows.put(db, order)
