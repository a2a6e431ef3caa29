"""Builds the views in order, tests and publishes them."""

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from msgspec import Struct
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from enc.core.errors import MisuseError
from enc.dataview.lake.driver_rows import DriverLimits
from enc.dataview.lake.lake import Lake
from enc.dataview.lake.session import SPARK_ERRORS, spark_message
from enc.dataview.lake.tables import Table, TableSpec
from enc.dataview.publish.changes import ChangePublisher, NextSeqs
from enc.dataview.views.catalog import STATUS_VIEWS, all_views, readable
from enc.dataview.views.change_feeds import ChangeFeeds
from enc.dataview.views.orphans import Orphans
from enc.dataview.views.refresh import RefreshResult, ViewRefresher
from enc.dataview.views.row_tests import checks, failures
from enc.dataview.views.view_file import View


class BuildResult(Struct, frozen=True):
    """Result of building a view.

    `failures`: why it could not be built, or which tests failed; in both cases it is not published.
    """

    name: str
    changed: bool
    failures: tuple[str, ...] = ()


class Views:
    """The views over one lake: the built-in ones and the user's own."""

    def __init__(
        self,
        lake: Lake,
        views: Iterable[View] = (),
        publisher: ChangePublisher | None = None,
        limits: DriverLimits | None = None,
    ) -> None:
        self.lake, self.publisher, self._limits = lake, publisher, limits or DriverLimits()
        self.views = {view.name: view for view in all_views(tuple(views))}
        tables = [name for name in readable() if name not in self.views]
        self.orphans = Orphans(lake, {*self.views, *readable(), *STATUS_VIEWS, *lake.names})
        self._refresher = ViewRefresher(tuple(self.views), tables, self.table, self._limits)
        self._session_pair: tuple[SparkSession, SparkSession] | None = None
        self._published_progress: dict[str, NextSeqs] = {}
        """The progress that was published last, by view."""
        self._failed: dict[str, tuple[str, ...]] = {}
        """The failing tests of a view, as long as nothing has changed."""

    def table(self, name: str, schema: StructType | None = None) -> Table:
        """Return a view's table, or one of the pipeline's."""
        if name not in self.views:
            return self.lake[name]
        view = self.views[name]
        schema, key = schema or StructType([]), view.key
        spec = TableSpec(name=name, layer=view.layer, schema=schema, key=key, stats=key, cluster=key[:2])
        return Table(self.lake.root, spec, self.lake.claim)

    def build(
        self,
        spark: SparkSession,
        names: Sequence[str] = (),
        progress: NextSeqs | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[BuildResult]:
        """Build the views whose inputs have changed; with `names`, only these. Stops once
        `should_stop` is True.
        """
        self._check(names)
        own, wanted = self._session(spark), [view for view in self.views.values() if not names or view.name in names]
        feeds = ChangeFeeds(own, wanted, self._limits)
        return [
            self._build(own, view, feeds, progress or {}) for view in takewhile(lambda _: not should_stop(), wanted)
        ]

    def rebuild(self, spark: SparkSession, name: str, progress: NextSeqs | None = None) -> BuildResult:
        """Rebuild a view from scratch, possibly with other columns or types. Readers see the old
        one until then.
        """
        self._check([name])
        own, view = self._session(spark), self.views[name]
        return self._build(own, view, ChangeFeeds(own, [view], self._limits), progress or {}, rebuild=True)

    def test(self, spark: SparkSession, names: Sequence[str] = ()) -> list[BuildResult]:
        """Test the views that exist."""
        self._check(names)
        own, found = self._session(spark), list[BuildResult]()
        for view in self.views.values():
            table = self.table(view.name)
            if (not names or view.name in names) and table.exists(own):
                found.append(BuildResult(view.name, False, tuple(failures(table.read(own), checks(view)))))
        return found

    def _check(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.views:
                raise MisuseError(f"{name[:60]}: no such view; expected one of {', '.join(self.views)}")

    def _session(self, spark: SparkSession) -> SparkSession:
        """Return a session of its own, whose temporary views belong to this object alone."""
        if self._session_pair is None or self._session_pair[0] is not spark:
            self._session_pair = spark, spark.newSession()
        return self._session_pair[1]

    def _build(
        self, spark: SparkSession, view: View, feeds: ChangeFeeds, progress: NextSeqs, *, rebuild: bool = False
    ) -> BuildResult:
        """Build one view. A view that fails does not stop the others."""
        changed = False
        try:
            made = self._refresher.refresh(spark, view, feeds, rebuild=rebuild)
            changed = made.changed
            found = tuple(made.failures or self._publish(spark, view, made, progress, rebuild=rebuild))
        except (*SPARK_ERRORS, MisuseError) as e:
            self._published_progress.pop(view.name, None)  # its table is tested and published in full again
            return BuildResult(view.name, changed, (_failure_text(e),))
        if found:
            self._failed[view.name] = found
        return BuildResult(view.name, changed, found)

    # Publishing

    def _publish(
        self, spark: SparkSession, view: View, made: RefreshResult, progress: NextSeqs, *, rebuild: bool
    ) -> Sequence[str]:
        """Publish the changes, or that there are none. Returns why the view is not published."""
        table = self.table(view.name)
        if made.is_checked:
            self._failed.pop(view.name, None)
        if view.name in self._failed:
            return self._failed[view.name]
        if self.publisher is None:
            return ()
        if not made.changed and self._published_progress.get(view.name) == progress:
            return ()
        if not made.changed and view.name not in self._published_progress:
            # The process that built it may have died before testing it.
            found = failures(table.read(spark), checks(view))
            if found:
                return found
        if rebuild:
            self.publisher.remove(view.name)
        if made.rows is not None and view.name in self._published_progress:
            self.publisher.push_batch(made.rows.sparkSession, table, made.rows, made.gone, progress, made.before)
        else:
            self.publisher.push(spark, table, progress, view.description)
        self._published_progress[view.name] = dict(progress)
        return ()


def _failure_text(error: Exception) -> str:
    """Return the error in one line; for a changed column type, with advice."""
    text = error.message if isinstance(error, MisuseError) else spark_message(error)
    return f"{text}; if its columns changed, rebuild it" if "MERGE_FIELDS" in text else text
