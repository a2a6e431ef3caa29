"""From a real Spark to the serving database."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from enc.core.errors import MisuseError
from enc.dataview.publish.serving_writer import ServingWriter, schema_of
from enc.dataview.serving.database import ServingDatabase
from tests.dataview.serving.rows import A, ask

SCHEMA = """name string, small int, n bigint, x double, money decimal(10,2), whole decimal(18,0), yes boolean,
 day date, at timestamp, raw binary, tags array<array<string>>, more struct<a:int,b:string>, map map<string,int>"""
AT = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
MOON = datetime(1969, 7, 20, 20, 17, 40, tzinfo=UTC)


def row(name: str, at: datetime = AT) -> tuple[Any, ...]:
    whole = (Decimal("1.50"), Decimal(7), True, date(2026, 1, 31), at, bytearray(b"\x00"))
    return (name, 1, 1 << 62, 0.5, *whole, [["r", "x"], []], (1, "b"), {"k": 2})


@pytest.fixture
def writer(tmp_path: Path) -> Any:
    writer = ServingWriter(str(tmp_path / "serving.db"))
    yield writer
    writer.close()


@pytest.fixture
def database(tmp_path: Path) -> Any:
    database = ServingDatabase(str(tmp_path / "serving.db"))
    yield database
    database.close()


def frame(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA)


def test_every_type_of_spark_arrives(spark: SparkSession, writer: ServingWriter, database: ServingDatabase) -> None:
    rows = frame(spark, row("anna"), row("old", MOON), ("none", *[None] * 12))
    writer.publish("people", ["name"], rows, None, {A: 3}, 0, index=["n"], description="People.")
    found = ask(database, "people", name="anna")[0]
    assert found == {
        "name": "anna",
        "small": 1,
        "n": 1 << 62,
        "x": 0.5,
        "money": 1.5,
        "whole": 7,
        "yes": True,
        "day": "2026-01-31",
        "at": 1_769_860_800_123_456,
        "raw": b"\x00",
        "tags": '[["r","x"],[]]',
        "more": '{"a":1,"b":"b"}',
        "map": found["map"],
    }
    assert ask(database, "people", name="old")[0]["at"] == int(MOON.timestamp()) * 1_000_000
    assert set(ask(database, "people", name="none", select="small,at,tags,raw,day")[0].values()) == {None}
    with database.reading() as snapshot:
        stored = snapshot.view("people")
    assert stored is not None
    assert (stored.schema.description, stored.batch_id) == ("People.", 0)


def test_a_batch_changes_and_deletes_and_may_come_again(
    spark: SparkSession, writer: ServingWriter, database: ServingDatabase
) -> None:
    writer.publish("people", ["name"], frame(spark, row("anna"), row("bob"), row("carol")), None, {A: 3}, 0)
    gone = spark.createDataFrame([("bob", 1), ("nobody", 2)], "name string, why int")
    for _ in range(2):
        writer.publish("people", ["name"], frame(spark, row("anna", MOON)), gone, {A: 5}, 1)
    found = ask(database, "people", select="name,at")
    assert [(each["name"], each["at"] < 0) for each in found] == [("anna", True), ("carol", False)]


def test_a_view_anew_comes_partition_by_partition(
    spark: SparkSession, writer: ServingWriter, database: ServingDatabase
) -> None:
    writer.publish("people", ["name"], frame(spark, row("anna")), None, {A: 3}, 0)
    numbers = spark.range(0, 12_000, 1, 3).selectExpr("id", "cast(id % 7 as string) AS name", "array(id) AS many")
    writer.republish("people", ["id"], numbers, {A: 9}, index=["name"])
    found = ask(database, "people", limit="10000", order="-id")
    assert (len(found), found[0]) == (10_000, {"id": 11_999, "name": "1", "many": "[11999]"})
    with database.reading() as snapshot:
        assert snapshot.progress("people", 9) == [(A, 9)]
    writer.republish("people", ["id"], numbers.where("id < 0"), {})
    assert ask(database, "people") == []
    writer.drop("people")


def test_a_type_that_cannot_be_served_is_named(spark: SparkSession) -> None:
    odd = spark.sql("SELECT 1 AS id, INTERVAL 1 DAY AS odd")
    with pytest.raises(MisuseError, match="view x: odd: a interval day cannot be served"):
        schema_of("x", ["id"], odd)
