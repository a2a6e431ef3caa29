"""Views, made: in order, then tested, then published."""

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from msgspec import Struct
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from enc.core.errors import MisuseError
from enc.dataview.held import Limits
from enc.dataview.lake import Lake
from enc.dataview.publishing import Progress, Publishing
from enc.dataview.session import SparkFault, spark_says
from enc.dataview.tables import Spec, Table
from enc.dataview.view_check import checks, failures
from enc.dataview.view_feed import Feeds
from enc.dataview.view_file import View
from enc.dataview.view_refresh import Made, Refreshing
from enc.dataview.views import all_views, readable


class Built(Struct, frozen=True):
    """What became of a view. `failures`: why it could not be made, or tests that it does not pass; then it is not
    published."""

    name: str
    changed: bool
    failures: tuple[str, ...] = ()


class Views:
    """The views over one lake: the built-in ones, and the user's own."""

    def __init__(
        self,
        lake: Lake,
        views: Iterable[View] = (),
        publishing: Publishing | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.lake, self.publishing, self._limits = lake, publishing, limits or Limits()
        self.views = {view.name: view for view in all_views(tuple(views))}
        tables = [name for name in readable() if name not in self.views]
        self._refreshing = Refreshing(tuple(self.views), tables, self.table, self._limits)
        self._own: tuple[SparkSession, SparkSession] | None = None
        self._told: dict[str, Progress] = {}
        """What was said last of how far a view is."""
        self._failed: dict[str, tuple[str, ...]] = {}
        """The tests that a view does not pass, for as long as nothing has changed."""

    def table(self, name: str, schema: StructType | None = None) -> Table:
        """A view's table, or one of the pipeline's."""
        if name not in self.views:
            return self.lake[name]
        view = self.views[name]
        schema, key = schema or StructType([]), view.key
        return Table(
            self.lake.root, Spec(name=name, layer=view.layer, schema=schema, key=key, stats=key, cluster=key[:2])
        )

    def build(
        self,
        spark: SparkSession,
        names: Sequence[str] = (),
        progress: Progress | None = None,
        enough: Callable[[], bool] = lambda: False,
    ) -> list[Built]:
        """Make the views that are behind what they read; `names`: only these. Once it is `enough`, no further one."""
        self._check(names)
        own, wanted = self._session(spark), [view for view in self.views.values() if not names or view.name in names]
        feeds = Feeds(own, wanted, self._limits)
        return [self._build(own, view, feeds, progress or {}) for view in takewhile(lambda _: not enough(), wanted)]

    def rebuild(self, spark: SparkSession, name: str, progress: Progress | None = None) -> Built:
        """Make one from the beginning, also with other columns or types; readers see the old one until then."""
        self._check([name])
        own, view = self._session(spark), self.views[name]
        return self._build(own, view, Feeds(own, [view], self._limits), progress or {}, anew=True)

    def test(self, spark: SparkSession, names: Sequence[str] = ()) -> list[Built]:
        """Test the views that are there."""
        self._check(names)
        own, found = self._session(spark), list[Built]()
        for view in self.views.values():
            table = self.table(view.name)
            if (not names or view.name in names) and table.exists(own):
                found.append(Built(view.name, False, tuple(failures(table.read(own), checks(view)))))
        return found

    def _check(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.views:
                raise MisuseError(f"{name[:60]}: no such view; there are {', '.join(self.views)}")

    def _session(self, spark: SparkSession) -> SparkSession:
        """One in which the names of tables mean what a view reads, and nobody else's."""
        if self._own is None or self._own[0] is not spark:
            self._own = spark, spark.newSession()
        return self._own[1]

    def _build(self, spark: SparkSession, view: View, feeds: Feeds, progress: Progress, *, anew: bool = False) -> Built:
        """A view that cannot be made, whatever stands in it or in an event that it reads, keeps no other from it."""
        changed = False
        try:
            made = self._refreshing.refresh(spark, view, feeds, anew=anew)
            changed = made.changed
            found = tuple(made.failures or self._publish(spark, view, made, progress, anew=anew))
        except (*SparkFault, MisuseError) as e:
            self._told.pop(view.name, None)  # what it has by now is looked at again, and told whole
            return Built(view.name, changed, (_said(e),))
        if found:
            self._failed[view.name] = found
        return Built(view.name, changed, found)

    # Publishing

    def _publish(self, spark: SparkSession, view: View, made: Made, progress: Progress, *, anew: bool) -> Sequence[str]:
        """Say what is new, also that nothing is. The answer: why it is not published."""
        table = self.table(view.name)
        if made.looked:
            self._failed.pop(view.name, None)
        if view.name in self._failed:
            return self._failed[view.name]
        if self.publishing is None:
            return ()
        if not made.changed and self._told.get(view.name) == progress:
            return ()
        if not made.changed and view.name not in self._told:
            # Whoever made it last may have died before it was tested.
            found = failures(table.read(spark), checks(view))
            if found:
                return found
        if anew:
            self.publishing.forget(view.name)
        if made.rows is not None and view.name in self._told:
            self.publishing.push_batch(made.rows.sparkSession, table, made.rows, made.gone, progress, made.before)
        else:
            self.publishing.push(spark, table, progress, view.description)
        self._told[view.name] = dict(progress)
        return ()


def _said(error: Exception) -> str:
    """What is wrong, in a line; of a type that changed, what to do."""
    text = error.message if isinstance(error, MisuseError) else spark_says(error)
    return f"{text}; if its columns changed, rebuild it" if "MERGE_FIELDS" in text else text
