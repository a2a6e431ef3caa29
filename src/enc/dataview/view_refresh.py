"""How a view's table follows what it is made from: whole, by what is new, or by the groups that have changed.

Up to where it is made stands in the table's own log, in the same commit as the rows (Mark): whoever dies anywhere
begins again from there.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from enc.core.errors import MisuseError
from enc.dataview.held import Limits
from enc.dataview.session import SparkFault, spark_says
from enc.dataview.tables import Table
from enc.dataview.view_check import checks, failures, is_local
from enc.dataview.view_feed import Feeds, Groups, check_source
from enc.dataview.view_file import View
from enc.dataview.view_mark import Mark, read_mark
from enc.dataview.view_merge import among, difference, kept, update

logger = logging.getLogger("enc.dataview")

STRIDE = 100
"""A view that nothing concerned for so many versions of its source notes that it is up to date."""


class Made(Struct, frozen=True, kw_only=True):
    """What became of a view's table.

    `rows` and `gone`: the one change that followed the table's version `before`, if the driver has it.
    """

    looked: bool = True
    changed: bool = False
    failures: tuple[str, ...] = ()
    before: int = -1
    rows: DataFrame | None = None
    gone: DataFrame | None = None


class Refreshing:
    """One lake's views. Nobody else writes them: what was seen of their logs holds for good."""

    def __init__(
        self, views: Collection[str], tables: Collection[str], table: Callable[..., Table], limits: Limits
    ) -> None:
        """`tables`: what views may read besides. `table`: by name; of a view that is to be written, with a schema."""
        self._views, self._known, self._table, self._limits = views, (*tables, *views), table, limits
        self._marks: dict[str, Mark] = {}
        self._seen: dict[str, Mark] = {}
        """What was looked at last, also where it led to nothing."""
        self._idle: dict[str, int] = {}
        """The version of its source up to which nothing more concerns a view."""

    def refresh(self, spark: SparkSession, view: View, feeds: Feeds, *, anew: bool = False) -> Made:
        mark = self._mark(spark, view.name)
        basis = self._basis(spark, view)
        if not anew and self._seen.get(view.name, mark) == replace(basis, generation=mark.generation if mark else 0):
            return Made(looked=False)
        made = self._refresh(spark, view, feeds, mark, basis, anew)
        known = self._marks.get(view.name)
        self._seen[view.name] = replace(basis, generation=known.generation if known else 0)
        return made

    def _refresh(
        self, spark: SparkSession, view: View, feeds: Feeds, mark: Mark | None, basis: Mark, anew: bool
    ) -> Made:
        if view.refresh.kind == "full":
            return self._full(spark, view, mark, basis, anew)
        if anew or mark is None or not _follows(view, mark, basis):
            return self._whole(spark, view, basis, anew)
        if max(mark.version, self._idle.get(view.name, -1)) == basis.version:
            return Made()
        try:
            return self._follow(spark, view, feeds, mark, basis.version)
        except SparkFault as e:
            said = spark_says(e)
            logger.warning("view %s is made from the beginning, since what is new cannot be taken: %s", view.name, said)
            return self._whole(spark, view, basis, anew)

    def _mark(self, spark: SparkSession, name: str) -> Mark | None:
        if name not in self._marks:
            table = self._table(name)
            found = read_mark(spark, table) if table.exists(spark) else None
            if found is None:
                return None
            self._marks[name] = found
        return self._marks[name]

    def _basis(self, spark: SparkSession, view: View) -> Mark:
        """What the view is to be made from, as it is now."""
        text = sha256(view.text.encode()).hexdigest()[:16]
        if view.refresh.kind == "full":
            tables = [self._table(name) for name in view.inputs(self._known)]
            return Mark(0, "", text, sum(table.version(spark) + 1 for table in tables if table.exists(spark)))
        source = self._table(view.refresh.source)
        if not source.exists(spark):
            raise MisuseError(f"view {view.name}: reads {source.name}, which has not been made yet")
        made = self._mark(spark, source.name) if source.name in self._views else None
        return Mark(0, f"{source.identity(spark)}-{made.generation if made else 0}", text, source.version(spark))

    # Whole

    def _full(self, spark: SparkSession, view: View, mark: Mark | None, basis: Mark, anew: bool) -> Made:
        again = mark is not None and not anew and mark.text == basis.text and mark.version < basis.version
        self._write(spark, view, self.result(spark, view, {}), basis, anew=anew, again=again)
        found = failures(self._table(view.name).read(spark), checks(view))
        return Made(changed=True, failures=tuple(found))

    def _whole(self, spark: SparkSession, view: View, basis: Mark, anew: bool) -> Made:
        """From all of the source. Tested before it is written: later only what changes is."""
        source = self._table(view.refresh.source).at(spark, basis.version)
        check_source(view, source.columns)
        source = source.where(view.where) if view.where else source
        rows = self.result(spark, view, {view.refresh.source: source}).persist()
        try:
            found = failures(rows, checks(view))
            if found:
                return Made(failures=tuple(found))
            self._write(spark, view, rows, basis, anew=anew, again=False)
        finally:
            rows.unpersist()
        return Made(changed=True)

    def _write(self, spark: SparkSession, view: View, rows: DataFrame, basis: Mark, *, anew: bool, again: bool) -> None:
        """`again`: as the same writer as the last time."""
        last, table = self._marks.get(view.name), self._table(view.name, rows.schema)
        generation = 0 if last is None else last.generation + (not again)
        mark = replace(basis, generation=generation)
        table.overwrite(rows, mark.txn(view.name), new_schema=anew)
        self._marks[view.name] = mark
        self._idle.pop(view.name, None)

    def result(self, spark: SparkSession, view: View, instead: Mapping[str, DataFrame]) -> DataFrame:
        """The view's rows. What it reads are tables, or other rows `instead`."""
        inputs = {
            name: instead[name] if name in instead else self._input(spark, view, name)
            for name in view.inputs(self._known)
        }
        if view.function is not None:
            rows = _called(view, inputs)
        else:
            for name, frame in inputs.items():
                frame.createOrReplaceTempView(name)
            rows = spark.sql(view.sql or "")
        missing = [name for name in (*view.key, *view.combined) if name not in rows.columns]
        if missing:
            raise MisuseError(f"view {view.name}: its rows have no column {', '.join(missing)}")
        return rows

    def _input(self, spark: SparkSession, view: View, name: str) -> DataFrame:
        table = self._table(name)
        if not table.exists(spark):
            raise MisuseError(f"view {view.name}: reads {name}, which has not been made yet")
        return table.read(spark)

    # From what is new

    def _follow(self, spark: SparkSession, view: View, feeds: Feeds, mark: Mark, now: int) -> Made:
        source, last = self._table(view.refresh.source), max(mark.version, self._idle.get(view.name, -1))
        mark = replace(mark, version=now)
        if view.refresh.kind == "by":
            groups = feeds.groups(view, source, last, now)
            return self._rest(spark, view, mark) if groups is None else self._regroup(spark, view, groups, mark)
        rows = self.result(spark, view, {source.name: feeds.added(view, source, last, now)})
        return self._take(spark, view, rows, mark)

    def _rest(self, spark: SparkSession, view: View, mark: Mark) -> Made:
        """Nothing concerns the view up to here."""
        if mark.version - self._marks[view.name].version < STRIDE:
            self._idle[view.name] = mark.version
            return Made()
        table = self._table(view.name)
        table.append(table.read(spark).limit(0), mark.txn(view.name))
        self._marks[view.name] = mark
        return Made()

    def _take(self, spark: SparkSession, view: View, rows: DataFrame, mark: Mark) -> Made:
        """Merge or add what the new rows of the source make."""
        with kept(rows, self._limits) as some:
            if some.empty:
                return self._rest(spark, view, mark)
            found = failures(some.rows, [check for check in checks(view) if is_local(view, check)])
            if found:
                return Made(failures=tuple(found))
            table = self._grown(spark, view, rows.schema)
            before, txn = table.version(spark), mark.txn(view.name)
            if view.refresh.kind == "append":
                table.append(some.rows, txn)
            else:
                table.upsert(some.rows, txn, update=update(view, rows.columns), held=some.held)
            known = some.rows if some.held and view.refresh.kind == "append" else None
            return self._done(spark, view, mark, Made(changed=True, before=before, rows=known))

    def _regroup(self, spark: SparkSession, view: View, groups: Groups, mark: Mark) -> Made:
        """Make the groups anew, and merge what is different from what is there."""
        source, table, by = self._table(view.refresh.source), self._table(view.name), view.refresh.by
        rows = source.read(spark).where(view.where) if view.where else source.read(spark)
        rows = self.result(spark, view, {source.name: groups.of(rows, by)})
        there = groups.of(table.read(spark), [(name, name) for _, name in by])
        with kept(difference(rows, there, view.key), self._limits) as some:
            if some.empty:
                return self._rest(spark, view, mark)
            changed, before = some.rows.where("NOT _gone").drop("_gone"), table.version(spark)
            found = failures(changed, [check for check in checks(view) if is_local(view, check)])
            if found:
                return Made(failures=tuple(found))
            how = {"delete_if": "s._gone", "among": among(groups), "held": some.held}
            table.upsert(some.rows, mark.txn(view.name), **how)  # type: ignore[arg-type]
            made = Made(changed=True, before=before)
            if some.held:
                made = replace(made, rows=changed, gone=some.rows.where("_gone").select(*view.key))
            return self._done(spark, view, mark, made)

    def _done(self, spark: SparkSession, view: View, mark: Mark, made: Made) -> Made:
        self._marks[view.name] = mark
        rest = [check for check in checks(view) if not is_local(view, check)]
        return replace(made, failures=tuple(failures(self._table(view.name).read(spark), rest)) if rest else ())

    def _grown(self, spark: SparkSession, view: View, schema: StructType) -> Table:
        """The view's table with all columns that its rows have by now."""
        table = self._table(view.name, schema)
        table.create(spark)
        return table


def _called(view: View, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """What the user's own function makes of them; it may raise anything."""
    try:
        rows = view.function(**inputs)  # type: ignore[misc]
    except SparkFault:
        raise
    except Exception as e:
        raise MisuseError(f"view {view.name}: its function raised {type(e).__name__}: {e}") from e
    if not isinstance(rows, DataFrame):
        raise MisuseError(f"view {view.name}: its function returned a {type(rows).__name__}, and not a DataFrame")
    return rows


def _follows(view: View, mark: Mark, basis: Mark) -> bool:
    """Whether what is there can be gone on with. What an incremental view took in stays, whatever its SQL is now."""
    same = mark.source == basis.source and mark.version <= basis.version
    return same and (view.refresh.kind != "by" or mark.text == basis.text)
