"""`enc up`: a registry, a node and a DataView of one's own, in one folder, for development."""

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

from enc.cli.command import LOCAL, command
from enc.cli.dataview import MISSING
from enc.cli.output import fields
from enc.cli.profiles import NAMES
from enc.cli.terminal import Terminal
from enc.cli.up_house import House
from enc.cli.up_part import Part, PartEnded
from enc.core.errors import EnclaveExists, MisuseError, Unavailable, WorldError

if TYPE_CHECKING:
    from enc.client import Identity

app = typer.Typer()

HOST = "127.0.0.1"
LOOK_S = 1.0
"""How often it is looked whether the parts live, and which enclaves there are."""
START_S = 120.0
"""For which the DataView's server may take to answer; Spark starts after that."""
PIPELINE = "pipeline"
"""The view in which the pipeline says how far it is."""
FIRST = ("enc enclave create team --use", 'enc commit message "hello"', "enc query --type message")
"""What to type next."""


@command(app, "enc up", "enc up --home ./dev --port 7710 --page-port 7790", "enc up --no-dataview", flags=LOCAL)
def up(
    at: Terminal,
    home: Annotated[Path, typer.Option(metavar="DIR", help="Where everything is kept.")] = Path("enc-data"),
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65_535, help="The node's; 0: a free one.")] = 7700,
    page_port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65_535, help="The DataView's page and API; 0: a free one.")
    ] = 7780,
    dataview: Annotated[bool, typer.Option("--dataview/--no-dataview", help="With Spark, which needs Java.")] = True,
    views: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder of views of your own, in SQL and Python.")
    ] = None,
) -> None:
    """Run a registry, a node and a DataView of your own, for development, until Ctrl-C.

    All data is in one folder, and the next start goes on with it. Whoever reaches this machine's own address may read
    what the folder's key may read.
    """
    names = _view_names(views) if dataview else []
    house = House(home)
    with house.held(), _until_signal(), _ending(at), ExitStack() as stack:
        ports = _port(port, "--port"), _port(page_port, "--page-port") if dataview else 0
        if ports[0] == ports[1]:
            raise MisuseError(f"port {ports[0]}: the node and the page need one each: give another with --page-port")
        parts = [_node(stack, house, ports[0])]
        house.note_enclaves()
        if dataview:
            parts.append(_dataview(stack, house, ports[1], names, views))
        _tell(at, house, f"http://{HOST}:{ports[1]}" if dataview else None)
        try:
            _watch(house, parts)
        except KeyboardInterrupt:
            at.note("stopping; once more ends it at once")
            raise


def _watch(house: House, parts: list[Part]) -> None:
    while True:
        for part in parts:
            part.check()
        with suppress(WorldError):  # a store that is busy is looked at again
            house.note_enclaves()
        time.sleep(LOOK_S)


@contextmanager
def _ending(at: Terminal) -> Iterator[None]:
    """What a part that died has said at last is told before the error."""
    try:
        yield
    except PartEnded as e:
        for line in e.context["lines"]:
            at.note(f"  {line}")
        raise


def _view_names(views: Path | None) -> list[str]:
    """All that may be served. What Spark needs is looked for before anything is started."""
    try:
        from enc.dataview.session import check_java, delta_jars
        from enc.dataview.views import load_views, readable
    except ModuleNotFoundError as e:
        raise MisuseError(f"{MISSING}: {e.name} is not installed; `enc up --no-dataview` does without") from None
    try:
        check_java()
        delta_jars()
    except MisuseError as e:
        raise MisuseError(f"{e.message}; or run `enc up --no-dataview`") from None
    return [*readable(), PIPELINE, *(view.name for view in (load_views(views) if views else ()))]


def _port(port: int, flag: str) -> int:
    """A port that is free now: the one that is asked for, or any."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError as e:
            raise MisuseError(
                f"port {port} cannot be had: {e.strerror}: stop what uses it, or give another with {flag}"
            ) from None
        return int(trial.getsockname()[1])


@contextmanager
def _until_signal() -> Iterator[None]:
    """A signal ends the block, whatever it waits for; a second one also ends what is waited for then."""

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


def _node(stack: ExitStack, house: House, port: int) -> Part:
    """Start the node, with the registry on it, and tell the client where they are."""
    from msgspec.json import decode

    from enc.client import Client
    from enc.client.setup import manifest_content
    from enc.client.templates import template

    me, registry = house.identity(), house.registry()
    manifest = template("registry", me.public)
    wanted = registry or _enclave_id(me, manifest_content(manifest, me))
    place = ("--host", HOST, "--port", str(port), "--data", str(house.node))
    part = Part("node", house.log("node"), "node", "run", *place, "--registry", wanted, "--dev", heard=True)
    stack.callback(part.stop)
    ready = decode(part.first_line())
    url = ready["url"]
    if registry is None:
        # It is there if the start before was interrupted after this.
        with Client(url, me, pins=None) as client, suppress(EnclaveExists):
            client.create(manifest)
    where = f"{url}#{wanted}:{ready['seq_pub']}"
    _announce(house, where)
    house.settle(url, where)
    return part


def _enclave_id(founder: "Identity", content: str) -> str:
    """What the enclave will be called: a hash of who founds it and of its manifest."""
    from enc.core.commit import build_manifest

    return build_manifest(founder.key, content, 0).enclave.hex()


def _announce(house: House, where: str) -> None:
    """Tell the registry where the node is: as the node itself, which alone may."""
    from enc.client import Client, Identity
    from enc.client.directory import parse_registry
    from enc.node import key_file

    node = Identity(key_file.load(house.node / "node.key"))
    with Client(identity=node, registry=parse_registry(where), pins=None) as client:
        client.register_node([where.partition("#")[0]])


def _dataview(stack: ExitStack, house: House, port: int, names: list[str], views: Path | None) -> Part:
    """Start the pipeline and its server, and wait until that answers."""
    from enc.cli import profiles

    profile = profiles.read(house.config)[profiles.DEFAULT]
    house.write_serving(f"{HOST}:{port}", profile["node"], profile["registry"], names)
    url, _, rest = profile["registry"].partition("#")
    id_, _, key = rest.partition(":")
    options = {"node": profile["node"], "registry": url, "registryEnclave": id_, "registryKey": key, "enclaves": "*"}
    options |= {"enclavesFile": str(house.enclaves), "keyFile": str(house.key)}
    pull = ";".join(f"{name}={value}" for name, value in options.items())
    own = ("--views", str(views.absolute())) if views else ()
    kept = ("--lake", str(house.lake), "--database", str(house.database), *own)
    serving = ("--serve", "--config", str(house.serve), "--small")
    part = Part("DataView", house.log("dataview"), "dataview", "run", "--pull", pull, *kept, *serving)
    stack.callback(part.stop)
    _wait_for(part, port)
    return part


def _wait_for(part: Part, port: int) -> None:
    deadline = time.monotonic() + START_S
    while True:
        part.check()
        try:
            socket.create_connection((HOST, port), 1).close()
        except OSError as e:
            if time.monotonic() > deadline:
                raise Unavailable(f"the DataView does not answer: {e}; its log is {part.log}") from None
            time.sleep(0.1)
        else:
            return


def _path() -> list[str]:
    """What a shell must be told that does not find `enc`."""
    if shutil.which("enc"):
        return []
    return [f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"']


def _tell(at: Terminal, house: House, page: str | None) -> None:
    from enc.cli import profiles

    profile = profiles.read(house.config)[profiles.DEFAULT]
    wire = {"home": str(house.home), "config": str(house.config), "node": profile["node"]}
    wire |= {"registry": profile["registry"], "logs": str(house.home / "logs")}
    shown = {name: wire[name] for name in ("node", "registry", "home", "logs")}
    steps = [*_path(), f"export ENC_CONFIG={shlex.quote(str(house.config))}", *FIRST]
    text = "\n".join(
        [
            fields(**{**({"page": page} if page else {}), **shown}),
            "",
            "In another terminal:",
            *(f"  {step}" for step in steps),
            "",
            "Ctrl-C stops it; the data stays." + (" Rows come once Spark has started." if page else ""),
        ]
    )
    at.say({**wire, "page": page}, text)
    for name in ("profile", *NAMES):
        if os.environ.get(f"ENC_{name.upper()}"):
            at.note(f"ENC_{name.upper()} is set, and wins over this folder's profile: unset ENC_{name.upper()}")
