"""`enc dataview build|test|list|rebuild|drop|upkeep`: views over the pipeline's tables, and maintenance."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.common.command import LOCAL, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import fields
from enc.cli.dataview.commands import MISSING, app
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.dataview.lake.lock import LakeLock
    from enc.dataview.pipeline.job import Job
    from enc.dataview.views.build_views import BuildResult

Lake = Annotated[str, typer.Option("--lake", metavar="DIR", help="Folder of the tables.")]
Views = Annotated[Path | None, typer.Option("--views", metavar="DIR", help="Folder of views, in SQL and Python.")]
Database = Annotated[
    str | None, typer.Option("--database", metavar="PLACE", help="Where to publish: a file, or postgresql://….")
]
Master = Annotated[str, typer.Option("--master", metavar="URL", help="Spark's master.")]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting; may be repeated.")
]
Names = Annotated[list[str] | None, typer.Argument(metavar="[VIEW]...", help="Only these views. Default: all.")]


@contextmanager
def lake_lock(lake: str, what: str) -> Iterator["LakeLock"]:
    """Lock the lake for writing. Fails before Spark starts if another process holds the lock."""
    try:
        from enc.dataview.lake.lock import LakeLock
    except ModuleNotFoundError as e:
        raise MisuseError(f"{MISSING}: {e.name} is not installed") from None
    with LakeLock(lake).locked(f"enc dataview {what}") as writer:
        yield writer


@contextmanager
def open_job(
    lake: str, master: str, conf: list[str] | None, writer: "LakeLock | None" = None, **settings: Any
) -> Iterator["Job"]:
    """Yield a job with its own Spark session, which stops with it."""
    try:
        from enc.dataview.lake.session import SPARK_ERRORS, spark_message, spark_session
        from enc.dataview.pipeline.job import JobSettings
        from enc.dataview.pipeline.job import open_job as open_pipeline
        from enc.dataview.views.catalog import load_views
    except ModuleNotFoundError as e:
        raise MisuseError(f"{MISSING}: {e.name} is not installed") from None
    views = settings.pop("views", None)
    if views:
        load_views(views)  # so that faulty views are reported before Spark starts
    found = JobSettings(root=lake, views=str(views) if views else None, **settings)
    spark = spark_session("enc dataview", master, dict(parse_pair(text, "--conf") for text in conf or ()))
    try:
        with open_pipeline(found, spark, lock=writer) as job:
            yield job
    except SPARK_ERRORS as e:
        raise MisuseError(f"Spark reports: {spark_message(e)}") from e
    finally:
        spark.stop()


def parse_pair(text: str, flag: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise MisuseError(f"{flag}: expected NAME=VALUE")
    return name, value


def print_built(ctx: CommandContext, built: "list[BuildResult]") -> None:
    rows = []
    for each in built:
        wire = {"view": each.name, "made": each.changed, "failures": list(each.failures)}
        rows.append((wire, (each.name, "yes" if each.changed else "no", "; ".join(each.failures))))
    ctx.rows(("view", "made", "failures"), rows)
    if any(each.failures for each in built):
        raise typer.Exit(1)


@command(app, "enc dataview build --views views --lake lake", flags=LOCAL)
def build(
    ctx: CommandContext,
    names: Names = None,
    lake: Lake = "lake",
    views: Views = None,
    database: Database = None,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Build the views that are behind their source tables, test them, and publish them."""
    with (
        lake_lock(lake, "build") as writer,
        open_job(lake, master, conf, writer, views=views, database=database) as job,
    ):
        print_built(ctx, job.build(names or ()))


@command(app, "enc dataview test --views views --lake lake", flags=LOCAL, name="test")
def check(
    ctx: CommandContext,
    names: Names = None,
    lake: Lake = "lake",
    views: Views = None,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Run the tests of the built views."""
    with open_job(lake, master, conf, views=views) as job:
        print_built(ctx, job.views.test(job.spark, names or ()))


@command(app, "enc dataview list --lake lake --views views", flags=LOCAL, name="list")
def list_(
    ctx: CommandContext, lake: Lake = "lake", views: Views = None, master: Master = "local[*]", conf: Conf = None
) -> None:
    """List all tables and views, with their keys and paths. An `orphan` is a view without a file in --views."""
    with open_job(lake, master, conf, views=views) as job:
        rows = []
        for layer, name, table in job.tables():
            if layer != "state":
                wire = {"layer": layer, "name": name, "key": list(table.key), "path": table.path}
                rows.append((wire, (layer, name, ", ".join(table.key), table.path)))
        for name in job.views.orphans.names(job.spark):
            path = job.views.orphans.path(name)
            rows.append(({"layer": "orphan", "name": name, "key": [], "path": path}, ("orphan", name, "", path)))
        ctx.rows(("layer", "name", "key", "path"), rows)


@command(app, "enc dataview rebuild posts_per_author --views views", flags=LOCAL)
def rebuild(
    ctx: CommandContext,
    name: Annotated[str, typer.Argument(metavar="VIEW")],
    lake: Lake = "lake",
    views: Views = None,
    database: Database = None,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Rebuild a view from scratch. Its columns and types may have changed."""
    with (
        lake_lock(lake, "rebuild") as writer,
        open_job(lake, master, conf, writer, views=views, database=database) as job,
    ):
        print_built(ctx, [job.rebuild(name)])


@command(app, "enc dataview drop posts_per_author --views views --database serving.db", flags=LOCAL)
def drop(
    ctx: CommandContext,
    name: Annotated[str, typer.Argument(metavar="VIEW")],
    lake: Lake = "lake",
    views: Views = None,
    database: Database = None,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Remove a view from the lake and from the serving database. Remove its file first."""
    with (
        lake_lock(lake, "drop") as writer,
        open_job(lake, master, conf, writer, views=views, database=database) as job,
    ):
        done = job.drop(name)
    wire = {"view": name, "lake": done.lake, "database": done.database}
    ctx.emit(
        wire, fields(view=name, **{place: "removed" if wire[place] else "not there" for place in ("lake", "database")})
    )
    if database is None:
        ctx.note("a serving database that has the view still serves it: name it by --database to remove it there, too")


@command(app, "enc dataview upkeep --lake lake --raw-days 30", flags=LOCAL)
def upkeep(
    ctx: CommandContext,
    lake: Lake = "lake",
    views: Views = None,
    database: Database = None,
    raw_days: Annotated[float | None, typer.Option(min=0, help="Remove raw events older than this.")] = None,
    quarantine_days: Annotated[
        float | None, typer.Option(min=0, help="Remove quarantined rows older than this.")
    ] = None,
    vacuum_hours: Annotated[float, typer.Option(min=0, help="Keep files of old versions this long.")] = 168.0,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Erase deleted contents, compact small files, and remove old ones.

    `enc dataview run` does the same periodically.
    """
    try:
        from enc.dataview.pipeline.upkeep import LakeRetention
    except ModuleNotFoundError as e:
        raise MisuseError(f"{MISSING}: {e.name} is not installed") from None
    retention = LakeRetention(raw_days=raw_days, quarantine_days=quarantine_days, vacuum_hours=vacuum_hours)
    with (
        lake_lock(lake, "upkeep") as writer,
        open_job(lake, master, conf, writer, views=views, database=database, retention=retention) as job,
    ):
        job.run_upkeep()
    ctx.emit({"done": True}, fields(done="yes"))
