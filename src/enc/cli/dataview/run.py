"""`enc dataview run`: reads events from all sources, builds tables and views, and serves them, in one process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from enc.cli.common.command import command
from enc.cli.common.command_context import CommandContext
from enc.cli.dataview.commands import MISSING, app
from enc.cli.dataview.lake_commands import (
    Conf,
    Database,
    Lake,
    Master,
    Views,
    lake_lock,
    open_job,
    parse_pair,
    print_built,
)
from enc.cli.dataview.receive import Cert, Enclaves, Key, Nodes, Only, PushOptions, SkipLost, running_receiver
from enc.core.errors import MisuseError
from enc.runtime.signals import stop_event

if TYPE_CHECKING:
    from enc.cli.enclave.receiver import Listener
    from enc.dataview.pipeline.progress import PipelineProgress
    from enc.dataview.source.receive import ReceiverPaths


class RunOptions(Struct, frozen=True, kw_only=True):
    """Arguments and flags of `enc dataview run`."""

    pull: Annotated[
        list[str] | None,
        typer.Option(metavar="OPTIONS", help="Enclaves of a node or registry: options of format enc, as NAME=VALUE;…"),
    ] = None
    archive: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Archives: a file, folder or glob; may be repeated.")
    ] = None
    landing: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Landing zone of `enc dataview receive`; may be repeated.")
    ] = None
    receive: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Listen here for pushes and notifications; needs --url.")
    ] = None
    lake: Lake = "lake"
    database: Database = None
    views: Views = None
    serve: Annotated[bool, typer.Option("--serve", help="Also serve the views of --database over HTTP.")] = False
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings of --serve, in TOML.")] = None
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Address that --serve listens on.")] = None
    public: Annotated[
        list[str] | None, typer.Option(metavar="VIEW", help="A view that anybody may read; may be repeated.")
    ] = None
    once: Annotated[bool, typer.Option("--once", help="Process the events there are, and stop.")] = False
    small: Annotated[
        bool, typer.Option("--small", help="Tune Spark for few events on one machine: it starts and refreshes faster.")
    ] = False
    trust: Annotated[bool, typer.Option("--trust", help="Verify nothing. For archives that are verified already.")] = (
        False
    )
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="--receive: its public URL, as registered for pushes.")
    ] = None
    nodes: Nodes = None
    enclaves: Enclaves = None
    only: Only = None
    cert: Cert = None
    key: Key = None
    skip_lost: SkipLost = False
    master: Master = "local[*]"
    conf: Conf = None


@command(
    app,
    'enc dataview run --pull "node=http://127.0.0.1:7700;enclaves=ID;keyFile=me.key" --database serving.db',
    "enc dataview run --receive 0.0.0.0:7781 --url https://me.example/push --database serving.db --serve",
    "enc dataview run --once --archive backup.enc --lake tables",
    flags=("as_json", "identity", "registry", "profile", "timeout"),
)
def run(ctx: CommandContext, options: RunOptions) -> None:
    """Read events, verify them, and keep all tables and views up to date, until a signal.

    With --receive, pushed events are written to the lake's folder first; a notification makes --pull fetch at once.
    --node to --skip-lost work as for `enc dataview receive`; without --node, the nodes of --pull may push. Shows
    progress when stdout is a terminal; with --json, prints a line whenever the progress changes.
    """
    _check_flags(options)
    zone = None if options.receive is None else _zone(options.lake)
    sources = _sources(options, zone)
    _check_sources(ctx, sources, options.once)
    with ExitStack() as stack:
        writer = stack.enter_context(lake_lock(options.lake, "run"))
        checks: list[Callable[[], None]] = []
        if zone is not None:
            checks.append(stack.enter_context(_receiving(ctx, _push_options(options, sources), zone)).check)
        if options.serve:
            url = stack.enter_context(_serving(options))
            _announce(ctx, {"serving": url}, f"serving on {url}")
        conf = [*(_small() if options.small else ()), *(options.conf or ())]
        settings: dict[str, Any] = {"views": options.views, "database": options.database, "verify": not options.trust}
        job = stack.enter_context(open_job(options.lake, options.master, conf, writer, sources=sources, **settings))
        if options.once:
            print_built(ctx, job.drain())
            return
        job.run(stop_event(), _ProgressPrinter(ctx, checks))


def _check_flags(options: RunOptions) -> None:
    """Raise MisuseError for flags that need or exclude each other."""
    if options.serve and not options.database:
        raise MisuseError("--serve: needs --database")
    if options.receive is not None and (options.url is None or options.once):
        raise MisuseError("--receive: needs --url, and cannot be used with --once")
    of_receive = (options.url, options.nodes, options.enclaves, options.only, options.cert, options.key)
    if options.receive is None and (any(of_receive) or options.skip_lost):
        raise MisuseError("--url, --node, --enclave, --only, --cert, --key, --skip-lost: only with --receive")


def _sources(options: RunOptions, zone: "ReceiverPaths | None") -> tuple[dict[str, str], ...]:
    """Return the options of all sources. Raises MisuseError if there is none.

    Each --pull holds options of format enc, as NAME=VALUE;NAME=VALUE. `zone`: where received pushes are written.
    """
    pulls = [dict(parse_pair(each, "--pull") for each in text.split(";")) for text in options.pull or ()]
    found = [{"format": "enc", **each} for each in pulls]
    if zone is not None:
        found = [{"notices": str(zone.notices), **each} for each in found]
    found += [{"format": "enc_archive", "path": path} for path in options.archive or ()]
    found += [{"format": "landing", "path": str(path)} for path in options.landing or ()]
    if zone is not None:
        found.append(zone.source)
    if not found:
        raise MisuseError("no source: give --pull, --archive, --landing or --receive")
    return tuple(found)


def _push_options(options: RunOptions, sources: tuple[dict[str, str], ...]) -> PushOptions:
    """Return the receiver's options; without --node and --enclave, those of --pull."""
    return PushOptions(
        url=options.url or "",
        listen=options.receive or "",
        nodes=options.nodes or sorted({source["node"] for source in sources if "node" in source}),
        enclaves=options.enclaves or [id_ for source in sources for id_ in _enclave_ids(source)],
        only=options.only or [],
        cert=options.cert,
        key=options.key,
        skip_lost=options.skip_lost,
    )


def _small() -> list[str]:
    """Return Spark's settings for few rows, as `--conf` takes them."""
    from enc.dataview.lake.session import SMALL_LAKE_CONF

    return [f"{name}={value}" for name, value in SMALL_LAKE_CONF.items()]


def _check_sources(ctx: CommandContext, sources: tuple[dict[str, str], ...], once: bool) -> None:
    """Report what is known to fail before Spark starts, with a helpful message."""
    from enc.cli.dataview.check import check_pulls

    try:
        from enc.dataview.lake.session import check_requirements

        check_requirements()
        check_pulls(ctx, sources, once=once)
    except ModuleNotFoundError as e:
        raise MisuseError(f"{MISSING}: {e.name} is not installed") from None


def _enclave_ids(source: dict[str, str]) -> list[str]:
    """Return the enclaves that a source names."""
    text = source.get("enclaves") or source.get("enclave") or ""
    return [each.strip() for each in text.split(",") if each.strip()]


def _announce(ctx: CommandContext, wire: dict[str, Any], text: str) -> None:
    """Print a line of JSON for programs, or a note for people."""
    ctx.emit(wire, text) if ctx.as_json else ctx.note(text)


def _zone(lake: str) -> "ReceiverPaths":
    try:
        from enc.dataview.source.receive import ReceiverPaths
    except ModuleNotFoundError as e:
        raise MisuseError(f"{MISSING}: {e.name} is not installed") from None
    return ReceiverPaths(lake)


@contextmanager
def _receiving(ctx: CommandContext, pushes: PushOptions, zone: "ReceiverPaths") -> Iterator["Listener"]:
    zone.create()
    with running_receiver(ctx, pushes, zone.landing, zone.state, zone.notices) as listener:
        host, port = listener.address
        wire = {"host": host, "port": port, "url": pushes.url}
        _announce(ctx, {"receiving": wire}, f"receiving on {host} port {port}, for {pushes.url}")
        yield listener


@contextmanager
def _serving(options: RunOptions) -> Iterator[str]:
    from enc.dataview.serving.config import load
    from enc.dataview.serving.server import ServingServer

    flags = {"database": options.database, "listen": options.listen}
    with ServingServer(load(options.config, flags, options.public or ())).running() as url:
        yield url


class _ProgressPrinter:
    """Shows progress: one line that is overwritten on a terminal; lines of JSON for programs; else nothing."""

    def __init__(self, ctx: CommandContext, checks: Sequence[Callable[[], None]]) -> None:
        """`checks` raise if a server that runs beside the pipeline has ended."""
        self._ctx, self._checks, self._last = ctx, checks, ""

    def __call__(self, progress: "PipelineProgress") -> None:
        for check in self._checks:
            check()
        if self._ctx.as_json:
            self._print_json(progress)
        elif self._ctx.is_terminal:
            text = (
                f"{progress.events:,} events, {progress.rate:,.0f}/s, {progress.quarantined:,} quarantined, "
                f"{progress.behind:,} to fetch, {progress.waiting:,} to derive, {progress.built:,} views made"
            )
            typer.echo(f"\r\x1b[K{text}", nl=False, err=True)

    def _print_json(self, progress: "PipelineProgress") -> None:
        names = ("events", "quarantined", "behind", "waiting", "built")
        wire = {name: getattr(progress, name) for name in names}
        text = str(wire)
        if text != self._last:
            self._last = text
            self._ctx.emit({**wire, "rate": round(progress.rate, 1)}, "")
