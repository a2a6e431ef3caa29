"""Filters rows by the values of a column: few are listed in the query, for many a table is joined."""

from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast, col

from enc.dataview.lake.driver_rows import DriverLimits


def rows_with(rows: DataFrame, column: str, values: Collection[str], limits: DriverLimits) -> DataFrame:
    """Return the rows whose column has one of these values."""
    if len(values) <= limits.max_listed_values:
        return rows.where(col(column).isin(*values))
    return rows.join(_listed(rows, column, values), column, "left_semi").select(*rows.columns)


def rows_of_enclaves(rows: DataFrame, enclaves: Collection[str], limits: DriverLimits) -> DataFrame:
    """Return the rows of these enclaves."""
    return rows_with(rows, "enclave", enclaves, limits)


def rows_of_others(rows: DataFrame, enclaves: Collection[str], limits: DriverLimits) -> DataFrame:
    """Return the rows of all other enclaves, and rows without an enclave."""
    if len(enclaves) <= limits.max_listed_values:
        return rows.where(col("enclave").isNull() | ~col("enclave").isin(*enclaves)) if enclaves else rows
    return rows.join(_listed(rows, "enclave", enclaves), "enclave", "left_anti").select(*rows.columns)


def _listed(rows: DataFrame, column: str, values: Collection[str]) -> DataFrame:
    return broadcast(rows.sparkSession.createDataFrame([(value,) for value in values], f"{column} string"))
