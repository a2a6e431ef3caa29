"""Rows that the driver holds, as a DataFrame: Spark plans with them as with constants, and computes them no more."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, lit, octet_length, when
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

from enc.dataview.schema import arrow

_WIDE = (StringType, BinaryType, ArrayType, MapType, StructType)
_SIZE = "_enc_bytes"


class Limits(Struct, frozen=True, kw_only=True):
    """What the driver does by itself, since it is faster so; of more, the executors do it."""

    held: int = 20_000
    """Rows of a batch that the driver takes."""
    bytes: int = 128 << 20
    """But no more than these: a content may be a mebibyte."""
    row: int = 16 << 10
    """Bytes of a row that come without asking first how many all of them are."""
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


def held_if_few(rows: DataFrame, limits: Limits) -> DataFrame | None:
    """The same rows with the driver, if they are so few."""
    found = few(rows, limits)
    return None if found is None else rows.sparkSession.createDataFrame(found, rows.schema)


def few(rows: DataFrame, limits: Limits) -> pa.Table | None:
    """The rows, if they are few and small: in one job, and in two where some are large.

    A job's result is whole in memory before Spark measures it. So what is large comes as its size only, at first.
    """
    wide = {field.name for field in rows.schema if isinstance(field.dataType, _WIDE)}
    size = reduce(Column.__add__, (_bytes(name) for name in rows.columns if name in wide), lit(0).cast("bigint"))
    sized, most = rows.withColumn(_SIZE, size), limits.held + 1
    is_small = col(_SIZE) <= limits.row
    slim = [when(is_small, _of(name)).alias(name) if name in wide else _of(name) for name in rows.columns]
    found = sized.select(*slim, _SIZE).limit(most).toArrow()
    sizes = found[_SIZE]
    if found.num_rows == most or (pc.sum(sizes).as_py() or 0) > limits.bytes:
        return None
    return rows.limit(most).toArrow() if (pc.max(sizes).as_py() or 0) > limits.row else found.drop_columns([_SIZE])


def _of(name: str) -> Column:
    return col(f"`{name}`")


def _bytes(name: str) -> Column:
    return coalesce(octet_length(_of(name).cast("string")), lit(0)).cast("bigint")
