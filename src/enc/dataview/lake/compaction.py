"""Compaction of a table's small files: its cost follows the new data, not the size of the table.

Files belong to tiers by size. A tier with too many files is merged into one larger group of files,
and leaves the tier with that. So each row is rewritten about once for each tier, and a group of the
last tier is never compacted again. Tables with `cluster` columns use Delta's liquid clustering: the
rows of a group are sorted along these columns, and its files share a tag.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession
from pyspark.sql.functions import coalesce, col
from pyspark.sql.functions import sum as sum_of
from pyspark.sql.types import DateType, NumericType, StringType, TimestampType

from enc.dataview.lake.tables import Table

TIERS = (64 << 10, 1 << 20, 16 << 20, 256 << 20)
"""Upper bounds of the tiers, in bytes."""
MAX_FILE_BYTES = 128 << 20
"""Purging one row rewrites its file, so files are smaller than Delta's default, a gibibyte."""
_OPTIMIZE = "spark.databricks.delta.optimize"
_SORTABLE = (StringType, NumericType, DateType, TimestampType)


def compact(spark: SparkSession, table: Table, most: int) -> None:
    """Merge the files of each tier that has more than `most` of them."""
    table.check_claim(spark)
    sizes = group_sizes(spark, table)
    for bound in TIERS:
        if sum(size < bound for size in sizes) > most:
            _cluster(spark, table)
            with _settings(spark, bound):
                table.delta(spark).optimize().executeCompaction()
            sizes = group_sizes(spark, table)


def group_sizes(spark: SparkSession, table: Table) -> list[int]:
    """Return the bytes of each group: of files that were clustered together, or of a single file."""
    group = coalesce(col("tags").getItem("ZCUBE_ID"), col("path"))
    rows = table.files(spark).groupBy(group).agg(sum_of("size").alias("bytes")).collect()
    return [int(row["bytes"]) for row in rows]


def purge(spark: SparkSession, table: Table) -> None:
    """Rewrite the files that still hold deleted rows: a deletion only marks them."""
    table.check_claim(spark)
    if not table.files(spark).where("deletionVector IS NOT NULL").isEmpty():
        with _settings(spark, TIERS[-1]):
            spark.sql(f"REORG TABLE {_sql_name(table)} APPLY (PURGE)")


def _cluster(spark: SparkSession, table: Table) -> None:
    """Set the table's clustering columns, unless it has them: an older lake's tables do not, and a
    view loses them when it is overwritten.
    """
    types = {field.name: field.dataType for field in table.read(spark).schema}
    columns = [name for name in table.spec.cluster if isinstance(types.get(name), _SORTABLE)]
    detail = table.delta(spark).detail().select("clusteringColumns").first()
    if columns and detail is not None and list(detail[0]) != columns:
        names = ", ".join(f"`{name}`" for name in columns)
        spark.sql(f"ALTER TABLE {_sql_name(table)} CLUSTER BY ({names})")


def _sql_name(table: Table) -> str:
    return "delta.`{}`".format(table.path.replace("`", "``"))


@contextmanager
def _settings(spark: SparkSession, bound: int) -> Iterator[None]:
    """Limit Delta's OPTIMIZE to files and groups of files that are smaller than `bound`."""
    settings: Mapping[str, int] = {
        f"{_OPTIMIZE}.minFileSize": bound,
        f"{_OPTIMIZE}.maxFileSize": MAX_FILE_BYTES,
        f"{_OPTIMIZE}.clustering.mergeStrategy.minCubeSize.threshold": bound,
    }
    for name, value in settings.items():
        spark.conf.set(name, str(value))
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)
