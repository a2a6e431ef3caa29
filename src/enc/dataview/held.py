"""Rows that the driver holds, as a DataFrame: Spark plans with them as with constants, and computes them no more."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from enc.dataview.schema import arrow

FEW = 5000
"""Rows of a batch that are held; more stay with the executors."""


def held(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: StructType) -> DataFrame:
    """Times in `rows` have their zone."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    fields = arrow(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=fields), schema)


def held_if_few(rows: DataFrame) -> DataFrame | None:
    """The same rows with the driver, if they are few."""
    found = rows.limit(FEW + 1).toArrow()
    return rows.sparkSession.createDataFrame(found, rows.schema) if found.num_rows <= FEW else None
