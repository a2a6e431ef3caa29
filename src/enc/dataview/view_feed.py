"""What has changed in the tables that views follow: read once for all that follow one from the same version."""

import re
from collections.abc import Iterable

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from enc.core.errors import MisuseError
from enc.dataview.held import Limits, held_if_few
from enc.dataview.tables import Table
from enc.dataview.view_file import View, words_of

_FEED = ("_change_type", "_commit_version", "_commit_timestamp")
_COUNT = re.compile(r"count\(\s*\*\s*\)", re.IGNORECASE)


class Groups(Struct, frozen=True):
    """Groups of rows to be made anew: a value of each column, for each group. Few are named one by one."""

    frame: DataFrame
    """With the view's names of the columns."""
    named: dict[str, list[object]] | None

    def of(self, rows: DataFrame, names: Iterable[tuple[str, str]]) -> DataFrame:
        """The rows of these groups, and maybe whole groups beside them. `names`: of the columns in rows, and here."""
        if self.named is None:
            alike = [rows[here].eqNullSafe(self.frame[name]) for here, name in names]
            return rows.join(self.frame, alike, "left_semi")
        for here, name in names:
            if None not in self.named[name]:
                rows = rows.where(col(here).isin(self.named[name]))
        return rows


class Feeds:
    """Of one round of building."""

    def __init__(self, spark: SparkSession, views: Iterable[View], limits: Limits) -> None:
        self._spark, self._views, self._limits = spark, tuple(views), limits
        self._few: dict[tuple[str, int, int], DataFrame | None] = {}

    def added(self, view: View, source: Table, last: int, now: int) -> DataFrame:
        """The rows that commits after `last` added."""
        rows = self._read(source, last, now).where("_change_type = 'insert'").drop(*_FEED)
        return rows.where(view.where) if view.where else rows

    def groups(self, view: View, source: Table, last: int, now: int) -> Groups | None:
        """The groups of which a row has come, gone or changed; None if there are none."""
        rows = self._read(source, last, now)
        rows = rows.where(view.where) if view.where else rows
        touched = rows.select(*(col(here).alias(name) for here, name in view.refresh.by))
        if self._few[source.name, last, now] is None:
            touched = touched.distinct()
        found = touched.limit(self._limits.named + 1).collect()
        if not found:
            return None
        if len(found) > self._limits.named:
            return Groups(touched, None)
        return Groups(touched, {name: list({row[name] for row in found}) for name in touched.columns})

    def _read(self, source: Table, last: int, now: int) -> DataFrame:
        place = source.name, last, now
        if place not in self._few:
            feed = source.changes(self._spark, last, now)
            self._few[place] = held_if_few(feed.select(*self._columns(source, feed.columns)), self._limits)
        few = self._few[place]
        return source.changes(self._spark, last, now) if few is None else few

    def _columns(self, source: Table, names: Iterable[str]) -> list[str]:
        """What the views that follow the source need of it."""
        words: set[str] = {"_change_type"}
        for view in self._views:
            if view.refresh.source == source.name:
                words |= _words(view) or {name.lower() for name in names}
        return [name for name in names if name.lower() in words]


def _words(view: View) -> set[str]:
    """The names that the view uses; nothing where it may use all."""
    here = {name for name, _ in view.refresh.by}
    if view.refresh.kind != "by":
        sql = _COUNT.sub(" ", view.sql or "*")
        if "*" in "".join(line for line in sql.splitlines() if not line.lstrip().startswith("--")):
            return set()
        here |= words_of(sql)
    return {name.lower() for name in here | words_of(view.where)}


def check_source(view: View, columns: Iterable[str]) -> None:
    there = list(columns)
    missing = [here for here, _ in view.refresh.by if here not in there]
    if missing:
        source, known = view.refresh.source, ", ".join(there)
        raise MisuseError(f"view {view.name}: refresh: by {', '.join(missing)}: {source} has {known}")
