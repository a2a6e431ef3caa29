"""How new rows of a view are merged into the existing ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce

from msgspec import Struct
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql.functions import col, count, lit, to_json, when
from pyspark.sql.types import DataType

from enc.dataview.lake.driver_rows import DriverLimits, driver_frame_if_few
from enc.dataview.views.change_feeds import ChangedGroups
from enc.dataview.views.view_file import View

_NAMED = 200
"""Most values of a column that a merge condition lists, so that Delta can skip files."""


class ReusedRows(Struct, frozen=True):
    """Rows that are used more than once, and whether the driver holds them."""

    rows: DataFrame
    on_driver: bool
    empty: bool


@contextmanager
def reused(rows: DataFrame, limits: DriverLimits) -> Iterator[ReusedRows]:
    """Hold rows for repeated use: on the driver if they are few, else cached by Spark."""
    few = driver_frame_if_few(rows, limits)
    if few is not None:
        yield ReusedRows(few, True, not few.head(1))
        return
    many = rows.persist()
    try:
        yield ReusedRows(many, False, False)
    finally:
        many.unpersist()


def update(view: View, columns: list[str]) -> dict[str, str]:
    """Return the SET expressions for an existing row when a row with the same key arrives."""
    others = {name: f"s.`{name}`" for name in columns if name not in (*view.combined, *view.key)}
    added = {name: f"coalesce(t.`{name}`, 0) + s.`{name}`" for name in view.add}
    ends = {"least": view.least, "greatest": view.greatest}
    return others | added | {name: f"{end}(t.`{name}`, s.`{name}`)" for end, names in ends.items() for name in names}


def among(groups: ChangedGroups) -> Column | None:
    """Return a condition on the rows of t in these groups; None if there are too many values."""
    named = (groups.named or {}).items()
    few = [col(f"t.`{name}`").isin(values) for name, values in named if len(values) <= _NAMED and None not in values]
    return reduce(Column.__and__, few) if few else None


def difference(rows: DataFrame, there: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Return new and changed rows, and the keys of removed rows with `_gone` set."""
    times = count("*").over(Window.partitionBy(*key))  # a duplicate key must not look like a changed row
    new, old = rows.withColumn("_new", times).alias("s"), there.withColumn("_old", lit(True)).alias("t")
    alike = reduce(Column.__and__, (col(f"s.`{name}`").eqNullSafe(col(f"t.`{name}`")) for name in key))
    gone = col("s._new").isNull()
    same = [
        _comparable(f"s.`{f.name}`", f.dataType).eqNullSafe(_comparable(f"t.`{f.name}`", f.dataType))
        for f in rows.schema
    ]
    other = gone | col("t._old").isNull() | (col("s._new") > 1) | ~reduce(Column.__and__, same)
    ours = {name: col(f"s.`{name}`") for name in rows.columns}
    ours |= {name: when(gone, col(f"t.`{name}`")).otherwise(ours[name]) for name in key}
    columns = [column.alias(name) for name, column in ours.items()]
    return new.join(old, alike, "full").where(other).select(*columns, gone.alias("_gone"))


def _comparable(name: str, type_: DataType) -> Column:
    """Return a comparable form of the column: Spark cannot compare maps."""
    return to_json(col(name)) if "map<" in type_.simpleString() else col(name)
