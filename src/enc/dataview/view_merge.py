"""What a view's new rows change in those that are there, and how they are merged."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce

from msgspec import Struct
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql.functions import col, count, lit, to_json, when
from pyspark.sql.types import DataType

from enc.dataview.held import Limits, held_if_few
from enc.dataview.view_feed import Groups
from enc.dataview.view_file import View

_NAMED = 200
"""Values of a column that a merge names, to skip files by."""


class Kept(Struct, frozen=True):
    """Rows, and whether the driver has them."""

    rows: DataFrame
    held: bool
    empty: bool


@contextmanager
def kept(rows: DataFrame, limits: Limits) -> Iterator[Kept]:
    """Rows that are used more than once: with the driver if they are few."""
    few = held_if_few(rows, limits)
    if few is not None:
        yield Kept(few, True, not few.head(1))
        return
    many = rows.persist()
    try:
        yield Kept(many, False, False)
    finally:
        many.unpersist()


def update(view: View, columns: list[str]) -> dict[str, str]:
    """What becomes of a row that is there, when one of the same key comes."""
    others = {name: f"s.`{name}`" for name in columns if name not in (*view.combined, *view.key)}
    added = {name: f"coalesce(t.`{name}`, 0) + s.`{name}`" for name in view.add}
    ends = {"least": view.least, "greatest": view.greatest}
    return others | added | {name: f"{end}(t.`{name}`, s.`{name}`)" for end, names in ends.items() for name in names}


def among(groups: Groups) -> Column | None:
    """What is known of the rows of t that are in these groups."""
    named = (groups.named or {}).items()
    few = [col(f"t.`{name}`").isin(values) for name, values in named if len(values) <= _NAMED and None not in values]
    return reduce(Column.__and__, few) if few else None


def difference(rows: DataFrame, there: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """The rows that are new or other than those that are there, and the keys of those that are no more: `_gone`."""
    times = count("*").over(Window.partitionBy(*key))  # a key that comes twice must not look like one that changed
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
    """Spark compares no maps."""
    return to_json(col(name)) if "map<" in type_.simpleString() else col(name)
