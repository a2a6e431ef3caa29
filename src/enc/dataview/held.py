"""Rows that the driver holds, as a DataFrame: Spark plans with them as with constants, and computes them no more."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from enc.dataview.schema import arrow


class Limits(Struct, frozen=True, kw_only=True):
    """What the driver does by itself, since it is faster so; of more, the executors do it."""

    held: int = 20_000
    """Rows of a batch that the driver takes."""
    named: int = 500
    """Values that are named in a query one by one; of more, a table is joined."""


def held(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: StructType) -> DataFrame:
    """Times in `rows` have their zone."""
    return spark.createDataFrame(arrow_of(rows, schema), schema)


def arrow_of(rows: Sequence[tuple[Any, ...]], schema: StructType) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    fields = arrow(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=fields)


def held_if_few(rows: DataFrame, most: int) -> DataFrame | None:
    """The same rows with the driver, if they are so few."""
    found = few(rows, most)
    return None if found is None else rows.sparkSession.createDataFrame(found, rows.schema)


def few(rows: DataFrame, most: int) -> pa.Table | None:
    found = rows.limit(most + 1).toArrow()
    return found if found.num_rows <= most else None
