"""`enc up`: runs a registry, a node and a DataView in one folder, for development."""

import os
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.common.command import LOCAL, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import fields
from enc.cli.common.profiles import NAMES
from enc.cli.dataview.commands import MISSING
from enc.cli.up.folder import UpFolder
from enc.cli.up.process import ProcessEnded, UpProcess
from enc.core.errors import EnclaveExists, MisuseError, Unavailable, WorldError

if TYPE_CHECKING:
    from enc.client import Identity

app = typer.Typer()

HOST = "127.0.0.1"
CHECK_S = 1.0
"""Interval between two checks of the processes and of the node's enclaves."""
START_S = 120.0
"""Time the DataView's server has to answer; Spark starts after that."""
PIPELINE = "pipeline"
"""The view that shows the pipeline's progress."""
NEXT_STEPS = ("enc enclave create team --use", 'enc commit message "hello"', "enc query --type message")
"""Commands to try next."""


@command(app, "enc up", "enc up --home ./dev --port 7710 --page-port 7790", "enc up --no-dataview", flags=LOCAL)
def up(
    ctx: CommandContext,
    home: Annotated[Path, typer.Option(metavar="DIR", help="Folder of all data.")] = Path("enc-data"),
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65_535, help="Port of the node; 0: a free one.")
    ] = 7700,
    page_port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65_535, help="Port of the DataView's page and API; 0: a free one.")
    ] = 7780,
    dataview: Annotated[
        bool, typer.Option("--dataview/--no-dataview", help="Run a DataView, on Spark, which needs Java.")
    ] = True,
    views: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of your own views, in SQL and Python.")
    ] = None,
) -> None:
    """Run a registry, a node and a DataView for development, until Ctrl-C.

    All data is in one folder; the next start continues with it. Every user of this machine can read through the
    DataView what the folder's key may read.
    """
    names = _view_names(views) if dataview else []
    folder = UpFolder(home)
    with folder.locked(), _until_signal(), _show_last_lines(ctx), ExitStack() as stack:
        ports = _port(port, "--port"), _port(page_port, "--page-port") if dataview else 0
        if ports[0] == ports[1]:
            raise MisuseError(
                f"port {ports[0]}: the node and the page need different ports: give another with --page-port"
            )
        processes = [_start_node(stack, folder, ports[0])]
        folder.write_enclaves()
        if dataview:
            processes.append(_start_dataview(stack, folder, ports[1], names, views))
        _print_summary(ctx, folder, f"http://{HOST}:{ports[1]}" if dataview else None)
        try:
            _watch(folder, processes)
        except KeyboardInterrupt:
            ctx.note("stopping; press Ctrl-C again to end at once")
            raise


def _watch(folder: UpFolder, processes: list[UpProcess]) -> None:
    while True:
        for process in processes:
            process.check()
        with suppress(WorldError):  # the store is busy: the next round reads it
            folder.write_enclaves()
        time.sleep(CHECK_S)


@contextmanager
def _show_last_lines(ctx: CommandContext) -> Iterator[None]:
    """Print the last log lines of a process that died, before the error."""
    try:
        yield
    except ProcessEnded as e:
        for line in e.context["lines"]:
            ctx.note(f"  {line}")
        raise


def _view_names(views: Path | None) -> list[str]:
    """Return the names of all views to serve. Raises MisuseError if Spark's requirements are missing."""
    try:
        from enc.dataview.lake.session import check_requirements
        from enc.dataview.views.catalog import load_views, readable
    except ModuleNotFoundError as e:
        raise MisuseError(f"{MISSING}: {e.name} is not installed; `enc up --no-dataview` runs without it") from None
    try:
        check_requirements()
    except MisuseError as e:
        raise MisuseError(f"{e.message}; or run `enc up --no-dataview`") from None
    return [*readable(), PIPELINE, *(view.name for view in (load_views(views) if views else ()))]


def _port(port: int, flag: str) -> int:
    """Return a free port: the given one, or any for 0. Raises MisuseError if the given one is taken."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError as e:
            raise MisuseError(
                f"port {port} is not available: {e.strerror}: stop what uses it, or give another with {flag}"
            ) from None
        return int(trial.getsockname()[1])


@contextmanager
def _until_signal() -> Iterator[None]:
    """End the block at a signal, whatever it waits for. A second signal also interrupts the cleanup."""

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start_node(stack: ExitStack, folder: UpFolder, port: int) -> UpProcess:
    """Start the node, create the registry on it, and write both to the client's profile."""
    from msgspec.json import decode

    from enc.client import Client
    from enc.client.clients.wiring import manifest_content
    from enc.client.enclave.templates import template

    me, registry = folder.identity(), folder.registry()
    manifest = template("registry", me.public)
    wanted = registry or _enclave_id(me, manifest_content(manifest, me))
    place = ("--host", HOST, "--port", str(port), "--data", str(folder.node))
    process = UpProcess(
        "node", folder.log("node"), "node", "run", *place, "--registry", wanted, "--dev", capture_stdout=True
    )
    stack.callback(process.stop)
    ready = decode(process.first_line())
    url = ready["url"]
    if registry is None:
        # It exists already if the previous start was interrupted after this.
        with Client(url, me, pins=None) as client, suppress(EnclaveExists):
            client.create(manifest)
    where = f"{url}#{wanted}:{ready['seq_pub']}"
    _announce(folder, where)
    folder.write_profile(url, where)
    return process


def _enclave_id(creator: "Identity", content: str) -> str:
    """Return the id that the enclave will have: a hash of its creator and its manifest."""
    from enc.core.log.commit import build_manifest

    return build_manifest(creator.key, content, 0).enclave.hex()


def _announce(folder: UpFolder, where: str) -> None:
    """Register the node in the registry, with the node's key: no other identity may."""
    from enc.client import Client, Identity
    from enc.client.registry.registry_client import parse_registry
    from enc.node.ops import key_file

    node = Identity(key_file.load(folder.node / "node.key"))
    with Client(identity=node, registry=parse_registry(where), pins=None) as client:
        client.register_node([where.partition("#")[0]])


def _start_dataview(stack: ExitStack, folder: UpFolder, port: int, names: list[str], views: Path | None) -> UpProcess:
    """Start the pipeline and its server, and wait until the server answers."""
    from enc.cli.common import profiles

    profile = profiles.read(folder.config)[profiles.DEFAULT]
    folder.write_serving(f"{HOST}:{port}", profile["node"], profile["registry"], names)
    url, _, rest = profile["registry"].partition("#")
    id_, _, key = rest.partition(":")
    options = {"node": profile["node"], "registry": url, "registryEnclave": id_, "registryKey": key, "enclaves": "*"}
    options |= {"enclavesFile": str(folder.enclaves), "keyFile": str(folder.key)}
    pull = ";".join(f"{name}={value}" for name, value in options.items())
    own = ("--views", str(views.absolute())) if views else ()
    kept = ("--lake", str(folder.lake), "--database", str(folder.database), *own)
    serving = ("--serve", "--config", str(folder.serve), "--small")
    process = UpProcess("DataView", folder.log("dataview"), "dataview", "run", "--pull", pull, *kept, *serving)
    stack.callback(process.stop)
    _wait_for(process, port)
    return process


def _wait_for(process: UpProcess, port: int) -> None:
    deadline = time.monotonic() + START_S
    while True:
        process.check()
        try:
            socket.create_connection((HOST, port), 1).close()
        except OSError as e:
            if time.monotonic() > deadline:
                raise Unavailable(f"the DataView does not answer: {e}; its log is {process.log}") from None
            time.sleep(0.1)
        else:
            return


def _path_hint() -> list[str]:
    """Return the shell line that puts `enc` on the PATH, if it is not there."""
    if shutil.which("enc"):
        return []
    return [f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"']


def _print_summary(ctx: CommandContext, folder: UpFolder, page: str | None) -> None:
    from enc.cli.common import profiles

    profile = profiles.read(folder.config)[profiles.DEFAULT]
    wire = {"home": str(folder.home), "config": str(folder.config), "node": profile["node"]}
    wire |= {"registry": profile["registry"], "logs": str(folder.home / "logs")}
    shown = {name: wire[name] for name in ("node", "registry", "home", "logs")}
    steps = [*_path_hint(), f"export ENC_CONFIG={shlex.quote(str(folder.config))}", *NEXT_STEPS]
    text = "\n".join(
        [
            fields(**{**({"page": page} if page else {}), **shown}),
            "",
            "In another terminal:",
            *(f"  {step}" for step in steps),
            "",
            "Ctrl-C stops it; the data stays." + (" Rows appear once Spark has started." if page else ""),
        ]
    )
    ctx.emit({**wire, "page": page}, text)
    for name in ("profile", *NAMES):
        if os.environ.get(f"ENC_{name.upper()}"):
            ctx.note(f"ENC_{name.upper()} is set, and overrides this folder's profile: unset ENC_{name.upper()}")
