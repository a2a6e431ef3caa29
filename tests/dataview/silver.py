"""Silver tables filled by hand, row by row, as input of views."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from enc.dataview.lake.driver_rows import driver_frame
from enc.dataview.lake.lake import Lake
from enc.dataview.lake.tables import Table, Txn

FILLED = ("events", "quarantine", "content_status", "access", "slots", "enclaves")
Row = Mapping[str, Any]


def at(hours: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hours)


class Silver:
    """A lake of these tables."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.lake, self._batch = spark, Lake(str(root)), 0

    def create(self) -> "Silver":
        for name in FILLED:
            self.lake[name].create(self.spark)
        return self

    def add(self, name: str, *rows: Row) -> None:
        self.lake[name].append(self._rows(name, rows), self._txn())

    def put(self, name: str, *rows: Row) -> None:
        """Replace the rows of the same key."""
        self.lake[name].upsert(self._rows(name, rows), self._txn(), on_driver=True)

    def remove(self, name: str, where: str) -> None:
        self.lake[name].delta(self.spark).delete(where)

    def _txn(self) -> Txn:
        self._batch += 1
        return Txn("test", self._batch)

    def _rows(self, name: str, rows: Iterable[Row]) -> DataFrame:
        schema = self.lake[name].spec.schema
        return driver_frame(self.spark, [tuple(row.get(field.name) for field in schema) for row in rows], schema)


def content(spark: SparkSession, table: Table) -> list[tuple[Any, ...]]:
    """Return all rows in order of the key."""
    return [tuple(row) for row in table.read(spark).orderBy(*table.key).collect()]


def jobs(spark: SparkSession) -> int:
    """Return how many jobs Spark has run so far."""
    return int(spark._jsc.sc().dagScheduler().numTotalJobs())


def post(seq: int, **more: Any) -> Row:
    """Return a row of content_status."""
    return {
        "enclave": "e1",
        "id": f"p{seq}",
        "seq": seq,
        "type": "public",
        "author": "ann",
        "timestamp": at(seq),
        "status": "active",
        "content": f"post {seq}",
        **more,
    }


def event(seq: int, **more: Any) -> Row:
    return {"enclave": "e1", "seq": seq, "id": f"p{seq}", "type": "public", "timestamp": at(seq / 2), **more}


def entry(seq: int, type_: str, text: str, **more: Any) -> Row:
    """Return an entry of the registry `reg`."""
    return post(seq, enclave="reg", type=type_, content=text, **more)


def interval(identity: str, from_seq: int, **more: Any) -> Row:
    """Return a row of access."""
    row = {"enclave": "e1", "identity": identity, "state": "MEMBER", "traits": ["a"], "owner": False}
    return {**row, "from_seq": from_seq, "since": at(from_seq), **more}


def slot(owner: str, value: str, **more: Any) -> Row:
    row = {"enclave": "e1", "kind": "Own", "owner": owner, "key": "profile", "value": value, "author": owner}
    return {**row, "seq": 1, "timestamp": at(1), **more}
