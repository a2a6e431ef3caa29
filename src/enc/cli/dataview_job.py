"""`enc dataview run|build|test|list|rebuild|upkeep`: the pipeline and the views over its tables."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.command import LOCAL, command
from enc.cli.dataview import MISSING, app
from enc.cli.output import fields
from enc.cli.terminal import Terminal
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.dataview.job import Job, Progress
    from enc.dataview.view_run import Built

Lake = Annotated[str, typer.Option("--lake", metavar="DIR", help="Where the tables are.")]
Views = Annotated[Path | None, typer.Option("--views", metavar="DIR", help="A folder of views, in SQL and Python.")]
Database = Annotated[
    str | None, typer.Option("--database", metavar="PLACE", help="Where to publish: a file, or postgresql://….")
]
Master = Annotated[str, typer.Option("--master", metavar="URL", help="Spark's master: this machine, or a cluster.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark's own.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="[VIEW]...", help="Only these.")]


@contextmanager
def _job(at: Terminal, lake: str, master: str, conf: list[str] | None, **settings: Any) -> Iterator["Job"]:
    """A job with a Spark of its own, which ends with it."""
    try:
        from enc.dataview.job import JobSettings, opened
        from enc.dataview.session import spark_session
    except ModuleNotFoundError as e:
        raise MisuseError(f"{MISSING}: {e.name} is not installed") from None
    views = settings.pop("views", None)
    found = JobSettings(root=lake, views=str(views) if views else None, **settings)
    spark = spark_session("enc dataview", master, dict(_pair(text, "--conf") for text in conf or ()))
    try:
        with opened(found, spark) as job:
            yield job
    finally:
        spark.stop()


def _pair(text: str, flag: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise MisuseError(f"{flag}: expected NAME=VALUE")
    return name, value


def _sources(
    pull: list[str] | None, archives: list[str] | None, landing: list[Path] | None
) -> tuple[dict[str, str], ...]:
    """`pull`: options of format enc, as NAME=VALUE;NAME=VALUE."""
    found = [{"format": "enc", **dict(_pair(each, "--pull") for each in text.split(";"))} for text in pull or ()]
    found += [{"format": "enc_archive", "path": path} for path in archives or ()]
    found += [{"format": "landing", "path": str(path)} for path in landing or ()]
    if not found:
        raise MisuseError("where from: give --pull, --archive or --landing")
    return tuple(found)


@command(
    app,
    'enc dataview run --pull "node=http://127.0.0.1:7700;enclaves=ID;keyFile=me.key" --database serving.db',
    "enc dataview run --once --archive backup.enc --lake tables",
    flags=LOCAL,
)
def run(
    at: Terminal,
    pull: Annotated[
        list[str] | None,
        typer.Option(metavar="OPTIONS", help="Enclaves of a node or registry: NAME=VALUE;…, as format enc takes them."),
    ] = None,
    archive: Annotated[list[str] | None, typer.Option(metavar="PATH", help="Archives: a file, folder or glob.")] = None,
    landing: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="What `enc dataview receive` takes in.")
    ] = None,
    lake: Lake = "lake",
    database: Database = None,
    views: Views = None,
    serve: Annotated[bool, typer.Option("--serve", help="Also answer over HTTP, from --database.")] = False,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings of --serve, in TOML.")] = None,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where --serve listens.")] = None,
    public: Annotated[list[str] | None, typer.Option(metavar="VIEW", help="A view that anybody may read.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Take in what is there, and stop.")] = False,
    trust: Annotated[bool, typer.Option("--trust", help="Verify nothing: for archives that were verified.")] = False,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Take events in, verify them, and keep all tables and views up to date, until a signal."""
    if serve and not database:
        raise MisuseError("--serve: needs --database")
    sources = _sources(pull, archive, landing)
    with ExitStack() as stack:
        if serve:
            at.note(f"serving on {stack.enter_context(_serving(config, database, listen, public))}")
        how: dict[str, Any] = {"sources": sources, "database": database, "views": views, "verify": not trust}
        job = stack.enter_context(_job(at, lake, master, conf, **how))
        if once:
            _say_built(at, job.drain())
            return
        job.run(_until_signal(), lambda progress: _tell(at, progress))


@contextmanager
def _serving(config: Path | None, database: str | None, listen: str | None, public: list[str] | None) -> Iterator[str]:
    from enc.dataview.serving.config import load
    from enc.dataview.serving.server import ServingServer

    with ServingServer(load(config, {"database": database, "listen": listen}, public or ())).running() as url:
        yield url


def _until_signal() -> Event:
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _tell(at: Terminal, progress: "Progress") -> None:
    """One line that is written over, on a terminal."""
    text = (
        f"{progress.events} events, {progress.rate:.0f}/s, {progress.quarantined} quarantined, "
        f"derived to batch {progress.derived_batch}, {progress.built} views made"
    )
    if at.is_terminal:
        typer.echo(f"\r\x1b[K{text}", nl=False, err=True)


def _say_built(at: Terminal, built: "list[Built]") -> None:
    rows = []
    for each in built:
        wire = {"view": each.name, "made": each.changed, "failures": list(each.failures)}
        rows.append((wire, (each.name, "yes" if each.changed else "no", "; ".join(each.failures))))
    at.rows(("view", "made", "failures"), rows)
    if any(each.failures for each in built):
        raise typer.Exit(1)


@command(app, "enc dataview build --views views --lake lake", flags=LOCAL)
def build(
    at: Terminal,
    names: Names = None,
    lake: Lake = "lake",
    views: Views = None,
    database: Database = None,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Make the views that are behind the tables they read, test them, and publish them."""
    with _job(at, lake, master, conf, views=views, database=database) as job:
        _say_built(at, job.build(names or ()))


@command(app, "enc dataview test --views views --lake lake", flags=LOCAL, name="test")
def check(
    at: Terminal,
    names: Names = None,
    lake: Lake = "lake",
    views: Views = None,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Test the views that are there."""
    with _job(at, lake, master, conf, views=views) as job:
        _say_built(at, job.views.test(job.spark, names or ()))


@command(app, "enc dataview list --lake lake --views views", flags=LOCAL, name="list")
def list_(
    at: Terminal, lake: Lake = "lake", views: Views = None, master: Master = "local[*]", conf: Conf = None
) -> None:
    """List all tables and views, with their keys and where they are."""
    with _job(at, lake, master, conf, views=views) as job:
        rows = []
        for layer, name, table in job.tables():
            if layer != "state":
                wire = {"layer": layer, "name": name, "key": list(table.key), "path": table.path}
                rows.append((wire, (layer, name, ", ".join(table.key), table.path)))
        at.rows(("layer", "name", "key", "path"), rows)


@command(app, "enc dataview rebuild posts_per_author --views views", flags=LOCAL)
def rebuild(
    at: Terminal,
    name: Annotated[str, typer.Argument(metavar="VIEW")],
    lake: Lake = "lake",
    views: Views = None,
    database: Database = None,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Make a view from the beginning, also with other columns or types."""
    with _job(at, lake, master, conf, views=views, database=database) as job:
        _say_built(at, [job.rebuild(name)])


@command(app, "enc dataview upkeep --lake lake --raw-days 30", flags=LOCAL)
def upkeep(
    at: Terminal,
    lake: Lake = "lake",
    views: Views = None,
    database: Database = None,
    raw_days: Annotated[float | None, typer.Option(min=0, help="Remove raw events older than this.")] = None,
    quarantine_days: Annotated[float | None, typer.Option(min=0, help="Remove quarantined rows older.")] = None,
    vacuum_hours: Annotated[float, typer.Option(min=0, help="Keep files of old versions this long.")] = 168.0,
    master: Master = "local[*]",
    conf: Conf = None,
) -> None:
    """Erase what must go, compact small files, remove old ones.

    `run` does the same every now and then; no other process may write to the tables meanwhile.
    """
    try:
        from enc.dataview.upkeep import Keeping
    except ModuleNotFoundError as e:
        raise MisuseError(f"{MISSING}: {e.name} is not installed") from None
    keeping = Keeping(raw_days=raw_days, quarantine_days=quarantine_days, vacuum_hours=vacuum_hours)
    with _job(at, lake, master, conf, views=views, database=database, keeping=keeping) as job:
        job.keep()
    at.say({"done": True}, fields(done="yes"))
