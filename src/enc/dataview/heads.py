"""What ingest knows of each enclave: how far `events` is with it, and whether that can be relied on.

`heads` is written after `events`. Where a process died or a batch failed between the two it is behind, and another
source that brings the same events would add them a second time. So whoever starts, or goes on after a failure, looks
once whether that may be; if it may, nothing is taken for granted of an enclave until its head was counted anew.
"""

from collections.abc import Collection, Sequence
from typing import Any

from msgspec import Struct
from pyspark.sql import SparkSession

from enc.dataview.held import Limits
from enc.dataview.kept import Kept
from enc.dataview.lake import Lake
from enc.dataview.sequencers import History
from enc.dataview.tables import Txn

WRITERS = "ingest"
"""How the names of all begin that write events."""


class Known(Struct):
    """What `heads` says of an enclave."""

    next_seq: int = 0
    events: int = 0
    sequencers: History = []


class Heads:
    """Of all queries that take turns, so that what one has written need not be read by another."""

    def __init__(self, lake: Lake, limits: Limits) -> None:
        self._events, self._rows = lake["events"], Kept(lake["heads"], limits)
        self._is_behind: bool | None = None
        self._counted: set[str] = set()

    def of(self, spark: SparkSession, enclaves: Collection[str]) -> dict[str, Known]:
        found = {enclave: Known() for enclave in enclaves}
        for row in self._rows.of(spark, found) if found else ():
            history = [(each["sequencer"], each["from_seq"]) for each in row["sequencers"] or ()]
            found[row["enclave"]] = Known(row["next_seq"], row["events"], history)
        return found

    def unsure(self, spark: SparkSession, enclaves: Collection[str]) -> list[str]:
        """Those of which `events` may have more than is known here."""
        if self._is_behind is None:
            told = self._rows.table.transactions(spark)
            written = self._events.transactions(spark).items()
            self._is_behind = any(app.startswith(WRITERS) and told.get(app, -1) < batch for app, batch in written)
        return [enclave for enclave in enclaves if enclave not in self._counted] if self._is_behind else []

    def doubt(self) -> None:
        """A batch failed, and nobody knows how far it came."""
        self._is_behind = None
        self._counted.clear()

    def put(self, spark: SparkSession, rows: Sequence[tuple[Any, ...]], txn: Txn) -> None:
        """New heads; those of enclaves that were unsure are counted from `events`."""
        self._rows.put(spark, rows, txn)
        if self._is_behind:
            self._counted.update(row[0] for row in rows)
