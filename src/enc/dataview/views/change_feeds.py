"""Changes of the tables that views follow, read once for all views that start at the same version."""

import re
from collections.abc import Iterable

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from enc.core.errors import MisuseError
from enc.dataview.lake.driver_rows import DriverLimits, driver_frame_if_few
from enc.dataview.lake.tables import Table
from enc.dataview.views.view_file import View, sql_words

_FEED = ("_change_type", "_commit_version", "_commit_timestamp")
_COUNT = re.compile(r"count\(\s*\*\s*\)", re.IGNORECASE)


class ChangedGroups(Struct, frozen=True):
    """Groups of rows to recompute: for each group a value of every column. A few groups are listed
    as values.
    """

    frame: DataFrame
    """Columns have the view's names."""
    named: dict[str, list[object]] | None

    def select_from(self, rows: DataFrame, names: Iterable[tuple[str, str]]) -> DataFrame:
        """Return the rows of these groups, and possibly other whole groups. `names`: column names
        in `rows`, and here.
        """
        if self.named is None:
            alike = [rows[here].eqNullSafe(self.frame[name]) for here, name in names]
            return rows.join(self.frame, alike, "left_semi")
        for here, name in names:
            if None not in self.named[name]:
                rows = rows.where(col(here).isin(self.named[name]))
        return rows


class ChangeFeeds:
    """The change feeds of one round of building."""

    def __init__(self, spark: SparkSession, views: Iterable[View], limits: DriverLimits) -> None:
        self._spark, self._views, self._limits = spark, tuple(views), limits
        self._few: dict[tuple[str, int, int], DataFrame | None] = {}

    def added(self, view: View, source: Table, last: int, now: int) -> DataFrame:
        """Return the rows that commits after `last` added."""
        rows = self._read(source, last, now).where("_change_type = 'insert'").drop(*_FEED)
        return rows.where(view.where) if view.where else rows

    def groups(self, view: View, source: Table, last: int, now: int) -> ChangedGroups | None:
        """Return the groups with a row that was added, removed or changed; None if there are none."""
        rows = self._read(source, last, now)
        rows = rows.where(view.where) if view.where else rows
        touched = rows.select(*(col(here).alias(name) for here, name in view.refresh.by))
        if self._few[source.name, last, now] is None:
            touched = touched.distinct()
        found = touched.limit(self._limits.max_listed_values + 1).collect()
        if not found:
            return None
        if len(found) > self._limits.max_listed_values:
            return ChangedGroups(touched, None)
        return ChangedGroups(touched, {name: list({row[name] for row in found}) for name in touched.columns})

    def _read(self, source: Table, last: int, now: int) -> DataFrame:
        place = source.name, last, now
        if place not in self._few:
            feed = source.changes(self._spark, last, now)
            self._few[place] = driver_frame_if_few(feed.select(*self._columns(source, feed.columns)), self._limits)
        few = self._few[place]
        return source.changes(self._spark, last, now) if few is None else few

    def _columns(self, source: Table, names: Iterable[str]) -> list[str]:
        """Return the columns of the source that its views need."""
        words: set[str] = {"_change_type"}
        for view in self._views:
            if view.refresh.source == source.name:
                words |= _words(view) or {name.lower() for name in names}
        return [name for name in names if name.lower() in words]


def _words(view: View) -> set[str]:
    """Return the names that the view uses; empty if it may use all."""
    here = {name for name, _ in view.refresh.by}
    if view.refresh.kind != "by":
        sql = _COUNT.sub(" ", view.sql or "*")
        if "*" in "".join(line for line in sql.splitlines() if not line.lstrip().startswith("--")):
            return set()
        here |= sql_words(sql)
    return {name.lower() for name in here | sql_words(view.where)}


def check_source(view: View, columns: Iterable[str]) -> None:
    there = list(columns)
    missing = [here for here, _ in view.refresh.by if here not in there]
    if missing:
        source, known = view.refresh.source, ", ".join(there)
        raise MisuseError(f"view {view.name}: refresh: by {', '.join(missing)}: {source} has {known}")
