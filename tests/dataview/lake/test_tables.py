"""Tables on Delta: every write happens exactly once."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from enc.core.errors import MisuseError
from enc.dataview.lake.lake import Lake
from enc.dataview.lake.tables import Table, TableSpec, Txn
from tests.dataview.things import SCHEMA, rows


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    made = Table(str(tmp_path), TableSpec(name="things", layer="gold", schema=SCHEMA, key=("k",)))
    made.create(spark)
    return made


def content(spark: SparkSession, table: Table) -> dict[str, int]:
    found = table.read(spark).collect()
    assert len({row.k for row in found}) == len(found)
    return {row.k: row.n for row in found}


def test_every_write_once(spark: SparkSession, table: Table) -> None:
    """An append, a merge that adds, one that deletes, a replacement: repeating each changes
    nothing.
    """
    for _ in range(2):
        table.append(rows(spark, a=1, b=2), Txn("w", 0))
    assert content(spark, table) == {"a": 1, "b": 2}
    for _ in range(2):
        table.upsert(rows(spark, a=10, c=3), Txn("w", 1), update={"n": "t.n + s.n"})
    assert content(spark, table) == {"a": 11, "b": 2, "c": 3}
    version = table.version(spark)
    for _ in range(2):
        table.upsert(rows(spark, b=0, d=0, c=5), Txn("w", 2), delete_if="s.n = 0")
    assert content(spark, table) == {"a": 11, "c": 5}
    for _ in range(2):
        table.replace(rows(spark, a=7), "k = 'a'", Txn("w", 2).step("late"))
    assert content(spark, table) == {"a": 7, "c": 5}
    assert table.version(spark) == version + 2
    assert table.is_written(spark, Txn("w", 2))
    assert not table.is_written(spark, Txn("w", 3))
    assert not table.is_written(spark, Txn("other", 0))
    # Batches of another writer have their own numbers.
    table.upsert(rows(spark, a=1), Txn("other", 0), update={"n": "t.n + s.n"})
    assert content(spark, table)["a"] == 8


@pytest.mark.parametrize(
    ("every", "after", "expected"), [(30, 3, [2, 5]), (4, 1, [1, 2, 3, 5, 6])], ids=["seldom", "at others' versions"]
)
def test_a_log_is_written_down_once_it_has_grown(
    spark: SparkSession, table: Table, every: int, after: int, expected: list[int]
) -> None:
    """After this many commits, not sooner, and not where the committing writer does it. The content
    stays the same.
    """
    table = Table(table.path.removesuffix("/gold/things"), replace(table.spec, checkpoint_every=every))
    for n in range(6):
        table.append(rows(spark, **{f"k{n}": n}), Txn("w", n))
        table.checkpoint_log(spark, after)
    written = (Path(table.path) / "_delta_log").glob("*.checkpoint.parquet")
    assert sorted(int(each.name.partition(".")[0]) for each in written) == expected
    assert content(spark, table) == {f"k{n}": n for n in range(6)}
    assert table.is_written(spark, Txn("w", 5))


def test_a_table_gets_the_columns_that_it_lacks(spark: SparkSession, table: Table) -> None:
    table.append(rows(spark, a=1), Txn("w", 0))
    more = StructType([*SCHEMA.fields, StructField("note", StringType())])
    wider = Table(
        table.path.removesuffix("/gold/things"), TableSpec(name="things", layer="gold", schema=more, key=("k",))
    )
    wider.create(spark)
    assert wider.read(spark).columns == ["k", "n", "note"]
    assert content(spark, wider) == {"a": 1}


def test_a_name_that_is_no_table() -> None:
    with pytest.raises(MisuseError, match="nothing: not a table"):
        Lake("x")["nothing"]


def test_a_lake_is_where_it_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Lake("lake").root == str(tmp_path / "lake")
    assert Lake("/a/b/").root == "/a/b"
    assert Lake("s3a://bucket/lake/").root == "s3a://bucket/lake"
    assert Lake("file:///a/b").root == "file:///a/b"
