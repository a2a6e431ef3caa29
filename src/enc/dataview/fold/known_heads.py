"""Ingest's knowledge of each enclave: how much `events` holds, and whether that is reliable.

`heads` is written after `events`. If a process dies or a batch fails between the two, `heads` is
behind, and another source with the same events would add them again. So after a start or a failure,
ingest checks once whether this may have happened. If so, an enclave's head is not trusted until it
has been recounted from `events`.
"""

from collections.abc import Collection, Sequence
from typing import Any

from msgspec import Struct
from pyspark.sql import SparkSession

from enc.dataview.fold.sequencers import SignerHistory
from enc.dataview.lake.cached_table import CachedTable
from enc.dataview.lake.driver_rows import DriverLimits
from enc.dataview.lake.lake import Lake
from enc.dataview.lake.tables import Txn

WRITERS = "ingest"
"""Prefix of the names of all writers of `events`."""


class KnownHead(Struct):
    """The head of an enclave, as stored in `heads`."""

    next_seq: int = 0
    events: int = 0
    sequencers: SignerHistory = []


class Heads:
    """The heads shared by all queries that take turns, so that one need not read what another
    wrote.
    """

    def __init__(self, lake: Lake, limits: DriverLimits) -> None:
        self._events, self._rows = lake["events"], CachedTable(lake["heads"], limits)
        self._is_behind: bool | None = None
        self._recounted: set[str] = set()

    def get(self, spark: SparkSession, enclaves: Collection[str]) -> dict[str, KnownHead]:
        found = {enclave: KnownHead() for enclave in enclaves}
        for row in self._rows.rows_for(spark, found) if found else ():
            history = [(each["sequencer"], each["from_seq"]) for each in row["sequencers"] or ()]
            found[row["enclave"]] = KnownHead(row["next_seq"], row["events"], history)
        return found

    def uncertain(self, spark: SparkSession, enclaves: Collection[str]) -> list[str]:
        """Return the enclaves of which `events` may hold more than is known here."""
        if self._is_behind is None:
            completed = self._rows.table.transactions(spark)
            written = self._events.transactions(spark).items()
            self._is_behind = any(app.startswith(WRITERS) and completed.get(app, -1) < batch for app, batch in written)
        return [enclave for enclave in enclaves if enclave not in self._recounted] if self._is_behind else []

    def invalidate(self) -> None:
        """Forget the recounts after a batch failed at an unknown point."""
        self._is_behind = None
        self._recounted.clear()

    def write(self, spark: SparkSession, rows: Sequence[tuple[Any, ...]], txn: Txn) -> None:
        """Write new heads. Heads of uncertain enclaves were recounted from `events`."""
        self._rows.replace_rows(spark, rows, txn)
        if self._is_behind:
            self._recounted.update(row[0] for row in rows)
