"""Tests of a view's rows, all tests of one view in one query."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, count, count_distinct, count_if, struct

from enc.dataview.views.view_file import Check, View

_MAX_SHOWN = 5


def checks(view: View) -> list[Check]:
    """Return the view's own tests and those every view has: its key is unique and not null."""
    found = [Check("unique", view.key), *(Check("not_null", (name,)) for name in view.key), *view.tests]
    return list(dict.fromkeys(found))


def is_local(view: View, check: Check) -> bool:
    """Return True if merging rows that pass into rows that pass gives a table that passes."""
    if check.kind == "unique":
        return set(view.key) <= set(check.words)
    return check.words[0] not in view.combined


def failures(rows: DataFrame, which: Sequence[Check]) -> list[str]:
    """Run the tests and return a description of each failure."""
    there = [check for check in which if not _missing(rows, check)]
    found = rows.agg(*map(_faults, there)).first() if there else None
    faults = dict(zip(map(str, there), found or (), strict=True))
    return [_describe(rows, check) for check in which if faults.get(str(check), 1)]


def _missing(rows: DataFrame, check: Check) -> list[str]:
    return [name for name in _columns(check) if name not in rows.columns]


def _columns(check: Check) -> Sequence[str]:
    return check.words[:1] if check.kind == "accepted" else check.words


def _faults(check: Check) -> Column:
    """Count the rows that fail."""
    if check.kind == "unique":
        return count("*") - count_distinct(struct(*check.words))
    return count_if(_bad(check))


def _bad(check: Check) -> Column:
    if check.kind == "accepted":
        return ~col(check.words[0]).cast("string").isin(*check.words[1:])
    return reduce(Column.__or__, (col(name).isNull() for name in check.words))


def _describe(rows: DataFrame, check: Check) -> str:
    missing = _missing(rows, check)
    if missing:
        return f"{check}: column {', '.join(missing)} is missing"
    if check.kind == "not_null":
        return f"{check}: there are nulls"
    if check.kind == "unique":
        bad = rows.groupBy(*check.words).agg(count("*").alias("_rows")).where(col("_rows") > 1)
    else:
        bad = rows.where(_bad(check))
    found = bad.limit(_MAX_SHOWN).collect()
    shown = "; ".join(", ".join(str(row[name])[:40] for name in _columns(check)) for row in found)
    return f"{check}: fails for {shown}"
