"""How a view's table follows its inputs: in full, by new rows, or by changed groups.

The version it was built from is stored in the table's own log, in the same commit as the rows
(ViewVersion). A process that dies anywhere continues from there.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from enc.core.errors import MisuseError
from enc.dataview.lake.driver_rows import DriverLimits
from enc.dataview.lake.session import SPARK_ERRORS, spark_message
from enc.dataview.lake.tables import Table
from enc.dataview.views.change_feeds import ChangedGroups, ChangeFeeds, check_source
from enc.dataview.views.merge import among, difference, reused, update
from enc.dataview.views.row_tests import checks, failures, is_local
from enc.dataview.views.version import ViewVersion, read_view_version
from enc.dataview.views.view_file import RETAINED, View

logger = logging.getLogger("enc.dataview")

_OLD_ROWS = (
    "the definition of view %s has changed. Its rows so far stay as they are, because %s may no longer hold the rows "
    "that they were computed from: `enc dataview rebuild %s` computes all from what is there"
)
STRIDE = 100
"""After this many versions of the source without a relevant change, a view records that it is
current.
"""


class RefreshResult(Struct, frozen=True, kw_only=True):
    """Result of refreshing a view's table.

    `rows` and `gone` are the single change that followed the table's version `before`, if the
    driver holds it.
    """

    is_checked: bool = True
    changed: bool = False
    failures: tuple[str, ...] = ()
    before: int = -1
    rows: DataFrame | None = None
    gone: DataFrame | None = None


class ViewRefresher:
    """Refreshes the views of one lake. No other process writes them, so cached versions stay valid."""

    def __init__(
        self, views: Collection[str], tables: Collection[str], table: Callable[..., Table], limits: DriverLimits
    ) -> None:
        """`tables`: other names that views may read. `table`: returns a table by name; with a
        schema for a view to be written.
        """
        self._views, self._known, self._table, self._limits = views, (*tables, *views), table, limits
        self._versions: dict[str, ViewVersion] = {}
        self._last_basis: dict[str, ViewVersion] = {}
        """The basis that was examined last, even if it led to no change."""
        self._unaffected_until: dict[str, int] = {}
        """The version of its source up to which no further change concerns a view."""

    def refresh(self, spark: SparkSession, view: View, feeds: ChangeFeeds, *, rebuild: bool = False) -> RefreshResult:
        built = self._version(spark, view.name)
        basis = self._basis(spark, view)
        if not rebuild and self._last_basis.get(view.name, built) == replace(
            basis, generation=built.generation if built else 0
        ):
            return RefreshResult(is_checked=False)
        made = self._refresh(spark, view, feeds, built, basis, rebuild)
        known = self._versions.get(view.name)
        self._last_basis[view.name] = replace(basis, generation=known.generation if known else 0)
        return made

    def _refresh(
        self,
        spark: SparkSession,
        view: View,
        feeds: ChangeFeeds,
        built: ViewVersion | None,
        basis: ViewVersion,
        rebuild: bool,
    ) -> RefreshResult:
        if view.refresh.kind == "full":
            return self._full(spark, view, built, basis, rebuild)
        if rebuild or built is None or not _follows(view, built, basis):
            return self._whole(spark, view, basis, rebuild)
        is_current = max(built.version, self._unaffected_until.get(view.name, -1)) == basis.version
        if built.text != basis.text:
            logger.warning(_OLD_ROWS, view.name, view.refresh.source, view.name)
            built = replace(built, text=basis.text, generation=built.generation + 1)
            if is_current:
                return self._note_current(spark, view, replace(built, version=basis.version))
        if is_current:
            return RefreshResult()
        try:
            return self._follow(spark, view, feeds, built, basis.version)
        except SPARK_ERRORS as e:
            said = spark_message(e)
            logger.warning(
                "view %s is rebuilt from the beginning, because its new rows cannot be merged: %s", view.name, said
            )
            return self._whole(spark, view, basis, rebuild)

    def _version(self, spark: SparkSession, name: str) -> ViewVersion | None:
        if name not in self._versions:
            table = self._table(name)
            found = read_view_version(spark, table) if table.exists(spark) else None
            if found is None:
                return None
            self._versions[name] = found
        return self._versions[name]

    def _basis(self, spark: SparkSession, view: View) -> ViewVersion:
        """Return the current version of the view's inputs."""
        text = sha256(view.definition.encode()).hexdigest()[:16]
        if view.refresh.kind == "full":
            tables = [self._table(name) for name in view.inputs(self._known)]
            return ViewVersion(0, "", text, sum(table.version(spark) + 1 for table in tables if table.exists(spark)))
        source = self._table(view.refresh.source)
        if not source.exists(spark):
            raise MisuseError(f"view {view.name}: reads {source.name}, which has not been built yet")
        made = self._version(spark, source.name) if source.name in self._views else None
        return ViewVersion(0, f"{source.identity(spark)}-{made.generation if made else 0}", text, source.version(spark))

    # Whole

    def _full(
        self, spark: SparkSession, view: View, built: ViewVersion | None, basis: ViewVersion, rebuild: bool
    ) -> RefreshResult:
        again = built is not None and not rebuild and built.text == basis.text and built.version < basis.version
        self._write(spark, view, self.result(spark, view, {}), basis, rebuild=rebuild, again=again)
        found = failures(self._table(view.name).read(spark), checks(view))
        return RefreshResult(changed=True, failures=tuple(found))

    def _whole(self, spark: SparkSession, view: View, basis: ViewVersion, rebuild: bool) -> RefreshResult:
        """Build the view from its whole source. It is tested before it is written; later, only
        changes are.
        """
        source = self._table(view.refresh.source).read_version(spark, basis.version)
        check_source(view, source.columns)
        source = source.where(view.where) if view.where else source
        rows = self.result(spark, view, {view.refresh.source: source}).persist()
        try:
            found = failures(rows, checks(view))
            if found:
                return RefreshResult(failures=tuple(found))
            self._write(spark, view, rows, basis, rebuild=rebuild, again=False)
        finally:
            rows.unpersist()
        return RefreshResult(changed=True)

    def _write(
        self, spark: SparkSession, view: View, rows: DataFrame, basis: ViewVersion, *, rebuild: bool, again: bool
    ) -> None:
        """Overwrite the table. `again`: with the same generation as last time."""
        last, table = self._versions.get(view.name), self._table(view.name, rows.schema)
        generation = 0 if last is None else last.generation + (not again)
        built = replace(basis, generation=generation)
        table.overwrite(rows, built.txn(view.name), new_schema=rebuild)
        self._versions[view.name] = built
        self._unaffected_until.pop(view.name, None)

    def result(self, spark: SparkSession, view: View, instead: Mapping[str, DataFrame]) -> DataFrame:
        """Return the view's rows, reading tables, or other rows from `instead`."""
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
            raise MisuseError(f"view {view.name}: its rows lack column {', '.join(missing)}")
        return rows

    def _input(self, spark: SparkSession, view: View, name: str) -> DataFrame:
        table = self._table(name)
        if not table.exists(spark):
            raise MisuseError(f"view {view.name}: reads {name}, which has not been built yet")
        return table.read(spark)

    # From changes

    def _follow(
        self, spark: SparkSession, view: View, feeds: ChangeFeeds, built: ViewVersion, now: int
    ) -> RefreshResult:
        source, last = self._table(view.refresh.source), max(built.version, self._unaffected_until.get(view.name, -1))
        built = replace(built, version=now)
        if view.refresh.kind == "by":
            groups = feeds.groups(view, source, last, now)
            return (
                self._note_current(spark, view, built)
                if groups is None
                else self._rebuild_groups(spark, view, groups, built)
            )
        rows = self.result(spark, view, {source.name: feeds.added(view, source, last, now)})
        return self._merge_new(spark, view, rows, built)

    def _note_current(self, spark: SparkSession, view: View, built: ViewVersion) -> RefreshResult:
        """Record that no change concerns the view up to this version."""
        known = self._versions[view.name]
        if built.text == known.text and built.version - known.version < STRIDE:
            self._unaffected_until[view.name] = built.version
            return RefreshResult()
        table = self._table(view.name)
        table.append(table.read(spark).limit(0), built.txn(view.name))
        self._versions[view.name] = built
        return RefreshResult()

    def _merge_new(self, spark: SparkSession, view: View, rows: DataFrame, built: ViewVersion) -> RefreshResult:
        """Merge or append the rows computed from the source's new rows."""
        with reused(rows, self._limits) as some:
            if some.empty:
                return self._note_current(spark, view, built)
            found = failures(some.rows, [check for check in checks(view) if is_local(view, check)])
            if found:
                return RefreshResult(failures=tuple(found))
            table = self._with_columns(spark, view, rows.schema)
            before, txn = table.version(spark), built.txn(view.name)
            if view.refresh.kind == "append":
                table.append(some.rows, txn)
            else:
                table.upsert(some.rows, txn, update=update(view, rows.columns), on_driver=some.on_driver)
            known = some.rows if some.on_driver and view.refresh.kind == "append" else None
            return self._finish(spark, view, built, RefreshResult(changed=True, before=before, rows=known))

    def _rebuild_groups(
        self, spark: SparkSession, view: View, groups: ChangedGroups, built: ViewVersion
    ) -> RefreshResult:
        """Recompute the groups and merge the differences."""
        source, table, by = self._table(view.refresh.source), self._table(view.name), view.refresh.by
        rows = source.read(spark).where(view.where) if view.where else source.read(spark)
        rows = self.result(spark, view, {source.name: groups.select_from(rows, by)})
        there = groups.select_from(table.read(spark), [(name, name) for _, name in by])
        with reused(difference(rows, there, view.key), self._limits) as some:
            if some.empty:
                return self._note_current(spark, view, built)
            changed, before = some.rows.where("NOT _gone").drop("_gone"), table.version(spark)
            found = failures(changed, [check for check in checks(view) if is_local(view, check)])
            if found:
                return RefreshResult(failures=tuple(found))
            txn = built.txn(view.name)
            table.upsert(some.rows, txn, delete_if="s._gone", among=among(groups), on_driver=some.on_driver)
            made = RefreshResult(changed=True, before=before)
            if some.on_driver:
                made = replace(made, rows=changed, gone=some.rows.where("_gone").select(*view.key))
            return self._finish(spark, view, built, made)

    def _finish(self, spark: SparkSession, view: View, built: ViewVersion, made: RefreshResult) -> RefreshResult:
        self._versions[view.name] = built
        rest = [check for check in checks(view) if not is_local(view, check)]
        return replace(made, failures=tuple(failures(self._table(view.name).read(spark), rest)) if rest else ())

    def _with_columns(self, spark: SparkSession, view: View, schema: StructType) -> Table:
        """Return the view's table, with all columns of the new rows."""
        table = self._table(view.name, schema)
        table.create(spark)
        return table


def _called(view: View, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Call the user's function. It may raise anything."""
    try:
        rows = view.function(**inputs)  # type: ignore[misc]
    except SPARK_ERRORS:
        raise
    except MisuseError as e:
        raise MisuseError(f"view {view.name}: {e.message}") from None
    except Exception as e:
        raise MisuseError(f"view {view.name}: its function raised {type(e).__name__}: {e}") from e
    if not isinstance(rows, DataFrame):
        raise MisuseError(f"view {view.name}: its function returned a {type(rows).__name__}, not a DataFrame")
    return rows


def _follows(view: View, built: ViewVersion, basis: ViewVersion) -> bool:
    """Return True if the existing rows can be updated."""
    same = built.source == basis.source and built.version <= basis.version
    return same and (built.text == basis.text or _outlives_source(view))


def _outlives_source(view: View) -> bool:
    """Return True if the view may hold results of rows that its source no longer has."""
    return view.refresh.kind in ("incremental", "append") and view.refresh.source in RETAINED
