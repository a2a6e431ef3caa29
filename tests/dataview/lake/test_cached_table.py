"""A small table that the driver caches and writes as one file."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from enc.dataview.lake.cached_table import CachedTable
from enc.dataview.lake.compaction import compact
from enc.dataview.lake.driver_rows import DriverLimits
from enc.dataview.lake.lake import FOLD
from enc.dataview.lake.tables import Table, TableSpec, Txn
from enc.dataview.pipeline.batch_context import Batches


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    made = Table(
        str(tmp_path), TableSpec(name="fold", layer="state", schema=FOLD, key=("enclave",), stats=("enclave",))
    )
    made.create(spark)
    return made


def row(enclave: str, n: int) -> tuple[str, int, int, str]:
    return enclave, n, n, f"state {n}"


def there(spark: SparkSession, table: Table) -> dict[str, int]:
    """Return the rows that other readers see."""
    found = table.read(spark).collect()
    assert len({each.enclave for each in found}) == len(found)
    return {each.enclave: each.next_seq for each in found}


@pytest.mark.parametrize("most", [1 << 20, 0])
def test_rows_take_the_place_of_those_of_the_same_enclaves(spark: SparkSession, table: Table, most: int) -> None:
    """Cached, or too large to be."""
    kept = CachedTable(table, DriverLimits(), most)
    kept.replace_rows(spark, [row("a", 1), row("b", 1)], Txn("w", 0))
    kept.replace_rows(spark, [row("b", 2), row("c", 2)], Txn("w", 1))
    assert there(spark, table) == {"a": 1, "b": 2, "c": 2}
    assert {each["enclave"]: each["state"] for each in kept.rows_for(spark, ["b", "d"])} == {"b": "state 2"}
    assert table.is_written(spark, Txn("w", 1))
    assert not table.is_written(spark, Txn("w", 2))


def test_what_is_too_large_is_never_all_with_the_driver(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = CachedTable(table, DriverLimits(), 0)
    kept.replace_rows(spark, [row("a", 1)], Txn("w", 0))
    with monkeypatch.context() as patch:
        patch.setattr(table, "read", None)
        for n in (1, 2, 3):
            kept.replace_rows(spark, [row("b", n)], Txn("w", n))
    assert there(spark, table) == {"a": 1, "b": 3}
    assert [each["next_seq"] for each in kept.rows_for(spark, ["b"])] == [3]


def test_what_another_has_written_is_read_again(spark: SparkSession, table: Table) -> None:
    kept, other = CachedTable(table, DriverLimits()), CachedTable(table, DriverLimits())
    kept.replace_rows(spark, [row("a", 1)], Txn("w", 0))
    other.replace_rows(spark, [row("b", 1)], Txn("o", 0))
    compact(spark, table, 1)
    kept.replace_rows(spark, [row("c", 1)], Txn("w", 1))
    assert there(spark, table) == {"a": 1, "b": 1, "c": 1}
    # Another table at the same path, with the same version.
    version = table.version(spark)
    shutil.rmtree(table.path)
    table.create(spark)
    while (now := table.version(spark)) < version:
        CachedTable(table, DriverLimits()).replace_rows(spark, [row("z", now)], Txn("w", now))
    assert [each["enclave"] for each in kept.rows_for(spark, ["a", "z"])] == ["z"]


def test_only_a_batch_that_may_have_been_begun_before_is_looked_for(spark: SparkSession, table: Table) -> None:
    batches = Batches("w")
    first, second, again = batches.txn(4), batches.txn(5), batches.txn(5)
    assert [each.new for each in (first, second, again)] == [False, True, False]
    assert second.step("late").new
    table.append(spark.createDataFrame([row("a", 1)], FOLD), Txn("w", 5))
    assert [table.is_written(spark, each) for each in (first, second, again)] == [True, False, True]
