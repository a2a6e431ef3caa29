"""Rows held by the driver, as a DataFrame that Spark treats as constants and never recomputes."""

from collections.abc import Sequence
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, lit, octet_length, when
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

from enc.dataview.rows.schema import arrow_schema

Rows: TypeAlias = DataFrame | pa.Table
"""Rows in Spark, or rows that the driver holds already."""

_WIDE = (StringType, BinaryType, ArrayType, MapType, StructType)
_SIZE = "_enc_bytes"


class DriverLimits(Struct, frozen=True, kw_only=True):
    """Up to which size the driver handles rows by itself, which is faster; executors handle more."""

    max_rows: int = 20_000
    """Most rows of a batch that the driver collects."""
    max_bytes: int = 128 << 20
    """Most bytes of those rows: a single content may be a mebibyte."""
    max_row_bytes: int = 16 << 10
    """Rows up to this many bytes are fetched without first measuring the total size."""
    max_listed_values: int = 500
    """Most values listed in a query one by one; for more, a table is joined."""


def driver_frame(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: StructType) -> DataFrame:
    """Return a DataFrame of these rows. Times in `rows` must have a time zone."""
    return spark.createDataFrame(arrow_table(rows, schema), schema)


def arrow_table(rows: Sequence[tuple[Any, ...]], schema: StructType) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    fields = arrow_schema(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=fields)


def driver_frame_if_few(rows: DataFrame, limits: DriverLimits) -> DataFrame | None:
    """Return the same rows held by the driver; None if they are too many or too large."""
    found = collect_if_few(rows, limits)
    return None if found is None else rows.sparkSession.createDataFrame(found, rows.schema)


def collect_if_few(rows: DataFrame, limits: DriverLimits) -> pa.Table | None:
    """Collect the rows if they are few and small: in one job, or in two if some rows are large.

    Spark holds a job's whole result in memory before it measures it. So the first job fetches only
    the size of a large value.
    """
    wide = {field.name for field in rows.schema if isinstance(field.dataType, _WIDE)}
    size = reduce(Column.__add__, (_bytes(name) for name in rows.columns if name in wide), lit(0).cast("bigint"))
    sized, most = rows.withColumn(_SIZE, size), limits.max_rows + 1
    is_small = col(_SIZE) <= limits.max_row_bytes
    slim = [when(is_small, _of(name)).alias(name) if name in wide else _of(name) for name in rows.columns]
    found = sized.select(*slim, _SIZE).limit(most).toArrow()
    sizes = found[_SIZE]
    if found.num_rows == most or (pc.sum(sizes).as_py() or 0) > limits.max_bytes:
        return None
    return (
        rows.limit(most).toArrow()
        if (pc.max(sizes).as_py() or 0) > limits.max_row_bytes
        else found.drop_columns([_SIZE])
    )


def _of(name: str) -> Column:
    return col(f"`{name}`")


def _bytes(name: str) -> Column:
    return coalesce(octet_length(_of(name).cast("string")), lit(0)).cast("bigint")
