"""A small table of keys and numbers, for tests of tables and of publishing."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

SCHEMA = StructType([StructField("k", StringType()), StructField("n", LongType())])


def rows(spark: SparkSession, **values: int) -> DataFrame:
    """Return rows of these keys and numbers."""
    return spark.createDataFrame(list(values.items()), SCHEMA)
