"""Readers of Delta other than Spark read every table that is meant for others."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType

from enc.dataview.lake.lake import PUBLIC
from enc.dataview.lake.tables import Table
from enc.dataview.pipeline.upkeep import LakeRetention, Upkeep
from tests.dataview.flow import Flow, rows_of, rows_of_logs
from tests.dataview.random_logs import RandomLog

Rows = Sequence[tuple[Any, ...]]
VIEWS = ("timeline",)


def by_deltalake(path: str, names: list[str]) -> Rows:
    import deltalake

    # Not `to_pyarrow_table`, which reads no table with deletion vectors.
    tables = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
    found = tables.execute(f"SELECT {', '.join(names)} FROM t").read_all()  # noqa: S608
    return [tuple(row.values()) for row in pa.table(found).to_pylist()]


def by_polars(path: str, names: list[str]) -> Rows:
    import polars

    return polars.scan_delta(path).select(names).collect().rows()


def by_duckdb(path: str, names: list[str]) -> Rows:
    import duckdb

    extension = files("duckdb_extension_delta") / "extensions" / f"v{duckdb.__version__}" / "delta.duckdb_extension"
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        return connection.execute(f"SELECT {', '.join(names)} FROM delta_scan(?)", [path]).fetchall()  # noqa: S608


READERS: list[Callable[[str, list[str]], Rows]] = [by_deltalake, by_polars, by_duckdb]


def test_every_table(spark: SparkSession, flow: Flow) -> None:
    """With deletion vectors, and once they are purged and the tables are clustered."""
    made = RandomLog(8, "v1").grow(40)
    flow.feed(rows_of_logs(spark, [(made.log(), slice(0, 30))]).unionByName(rows_of(spark, [b"garbage"])))
    flow.feed(rows_of_logs(spark, [(made.log(), slice(30, 40))]))
    upkeep = Upkeep(flow.lake, LakeRetention(small_files=1, vacuum_hours=0))
    upkeep.erase(spark)
    assert not [each.failures for each in flow.views.build(spark, VIEWS) if each.failures]
    tables = [flow.lake[name] for name in PUBLIC] + [flow.views.table(name) for name in VIEWS]
    assert _marked(spark, tables)
    check(spark, tables)
    upkeep.clean_files(spark, tables)
    assert not _marked(spark, tables)
    check(spark, tables)


def _marked(spark: SparkSession, tables: list[Table]) -> list[str]:
    """Return the tables that have deletion vectors."""
    return [each.name for each in tables if not each.files(spark).where("deletionVector IS NOT NULL").isEmpty()]


def check(spark: SparkSession, tables: list[Table]) -> None:
    """Check that all readers see the texts that Spark sees."""
    for table in tables:
        frame = table.read(spark)
        names = [field.name for field in frame.schema if isinstance(field.dataType, StringType)]
        expected = _sorted(frame.select(*names).collect())
        for reader in READERS:
            assert _sorted(reader(table.path, names)) == expected, (table.name, reader.__name__)


def _sorted(rows: Rows) -> list[list[str]]:
    return sorted([str(value) for value in row] for row in rows)
