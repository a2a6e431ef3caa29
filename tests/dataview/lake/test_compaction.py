"""Compaction leaves what is large enough alone; a purge rewrites only files with deleted rows."""

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from enc.dataview.lake import compaction
from enc.dataview.lake.compaction import compact, group_sizes, purge
from enc.dataview.lake.tables import Table, TableSpec, Txn
from tests.dataview.things import SCHEMA, rows

RANDOM = Random(1)
BOUND = 16_000


@pytest.fixture
def table(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Table:
    monkeypatch.setattr(compaction, "TIERS", (BOUND,))
    spec = TableSpec(
        name="things", layer="gold", schema=SCHEMA, key=("k",), cluster=request.param, stats=("k",), large=True
    )
    made = Table(str(tmp_path), spec)
    made.create(spark)
    return made


CLUSTERED = pytest.mark.parametrize("table", [("k",)], indirect=True, ids=["clustered"])
BOTH = pytest.mark.parametrize("table", [("k",), ()], indirect=True, ids=["clustered", "not clustered"])


def add(spark: SparkSession, table: Table, files: int = 3) -> None:
    """Add files of about half the bound."""
    for _ in range(files):
        found = {RANDOM.randbytes(16).hex(): RANDOM.getrandbits(60) for _ in range(300)}
        table.append(rows(spark, **found).coalesce(1), Txn(RANDOM.randbytes(8).hex(), 0))


def paths(spark: SparkSession, table: Table) -> set[str]:
    return {row["path"] for row in table.files(spark).select("path").collect()}


@BOTH
def test_a_large_group_is_not_rewritten(spark: SparkSession, table: Table) -> None:
    add(spark, table)
    [old] = table.delta(spark).detail().select("createdAt").collect()
    assert all(size < BOUND for size in group_sizes(spark, table))
    compact(spark, table, 3)
    assert len(paths(spark, table)) == 3, "not more than allowed"
    compact(spark, table, 1)
    first = paths(spark, table)
    assert len(first) == 1
    [size] = group_sizes(spark, table)
    assert size > BOUND
    add(spark, table)
    compact(spark, table, 1)
    second = paths(spark, table)
    assert first < second
    assert len(second) == 2
    assert table.read(spark).count() == 6 * 300
    [detail] = table.delta(spark).detail().collect()
    assert detail["createdAt"] == old["createdAt"]
    assert list(detail["clusteringColumns"]) == list(table.spec.cluster)


@CLUSTERED
def test_tables_of_an_older_lake_and_overwritten_views_become_clustered(spark: SparkSession, table: Table) -> None:
    def clustering() -> list[str]:
        [detail] = table.delta(spark).detail().collect()
        return list(detail["clusteringColumns"])

    add(spark, table, 2)
    table.delta(spark).optimize().executeZOrderBy("k")
    add(spark, table, 2)
    compact(spark, table, 1)
    assert clustering() == ["k"]
    table.overwrite(table.read(spark).limit(2), Txn("w", 1), new_schema=True)
    add(spark, table, 2)
    compact(spark, table, 1)
    assert clustering() == ["k"]
    assert len(paths(spark, table)) == 1
    assert table.read(spark).count() == 602


@BOTH
def test_a_purge_rewrites_only_files_with_deleted_rows(spark: SparkSession, table: Table) -> None:
    add(spark, table, 2)
    [row] = table.read(spark).limit(1).collect()
    table.delta(spark).delete(f"k = '{row.k}'")
    marked = table.files(spark).where("deletionVector IS NOT NULL")
    [gone] = [each["path"] for each in marked.collect()]
    before = paths(spark, table)
    purge(spark, table)
    after = paths(spark, table)
    assert before - after == {gone}
    assert table.files(spark).where("deletionVector IS NOT NULL").isEmpty()
    assert table.read(spark).count() == 599
    version = table.version(spark)
    purge(spark, table)
    assert table.version(spark) == version
