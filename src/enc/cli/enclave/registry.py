"""`enc registry`: create a registry, register nodes, enclaves and identities, and look them up."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.common import known_ids
from enc.cli.common.command import NODE, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import OutputRow, fields, short
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.client import Client, Resolution
    from enc.core.primitives.types import Receipt

app = typer.Typer(
    name="registry",
    help="The directory of enclaves, nodes and people: create a registry, register in it, look up entries.",
    no_args_is_help=True,
)


@command(app, "enc registry init --use", flags=NODE)
def init(
    ctx: CommandContext,
    use: Annotated[bool, typer.Option("--use", help="The profile uses the new registry from now on.")] = False,
) -> None:
    """Create a registry on the node. The node serves its lookups if it runs with `--registry ID`."""
    with ctx.client() as client:
        enclave = client.create("registry")
        seq_pub = client.seq_pub().hex()
        text = f"{client.url}#{enclave.hex}:{seq_pub}"
    if use:
        ctx.settings.store("registry", text)
    ctx.emit({"enclave": enclave.hex, "sequencer": seq_pub, "node": client.url, "registry": text}, text)
    ctx.note(f"to serve its lookups: enc node run … --registry {enclave.hex}")


@command(
    app, "enc registry register-node https://node.example --key /var/lib/enc/node.key", name="register-node", flags=NODE
)
def register_node(
    ctx: CommandContext,
    uris: Annotated[list[str], typer.Argument(metavar="URI…", help="URLs of the node, the preferred one first.")],
    key: Annotated[Path, typer.Option(metavar="FILE", help="The node's key file: only the node itself can register.")],
) -> None:
    """Register a node's URLs. A node with `registry.announce_to` in its configuration does this itself."""
    from enc.client import Identity
    from enc.node.ops import key_file

    with ctx.client_as(Identity(key_file.load(key))) as client:
        _print_registered(ctx, client, client.register_node(uris))


@command(app, "enc registry register-enclave --app chat", name="register-enclave")
def register_enclave(
    ctx: CommandContext,
    app_: Annotated[str | None, typer.Option("--app", metavar="NAME", help="The application that uses it.")] = None,
    desc: Annotated[str | None, typer.Option(metavar="TEXT", help="A description for people.")] = None,
    meta: Annotated[str | None, typer.Option(metavar="JSON", help="More data of the application.")] = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="An archive from before a migration, if the registry rejects the migration without it."
        ),
    ] = None,
) -> None:
    """Register the node of your enclave, as its owner, with a proof of the ownership.

    After a Transfer, the new owner's client does this by itself as soon as it sees the Transfer; until then the
    previous owner can still change the entry. Fields that are not given keep their values.
    """
    with ctx.client() as client:
        enclave = client.enclave(ctx.enclave_id())
        receipt = enclave.register(app=app_, desc=desc, meta=None if meta is None else _object(meta), archive=archive)
        _print_registered(ctx, client, receipt)


@command(app, "enc registry register-identity personal=5c1f…", name="register-identity", flags=NODE)
def register_identity(
    ctx: CommandContext,
    enclaves: Annotated[
        list[str] | None, typer.Argument(metavar="LABEL=ID…", help="Your enclaves, each with a label.")
    ] = None,
    sub_key: Annotated[
        bool, typer.Option("--sub-key/--no-sub-key", help="Also register the key that others encrypt to.")
    ] = True,
) -> None:
    """Register which enclaves are yours. This replaces your earlier entry."""
    labels = (_parse_label(each) for each in enclaves or ())
    named = {label: known_ids.enclave(id_, what=label) for label, id_ in labels}
    with ctx.client() as client:
        _print_registered(ctx, client, client.register_identity(named, sub_key=sub_key))


def _parse_label(text: str) -> tuple[str, str]:
    label, is_given, enclave = text.partition("=")
    if not is_given or not label:
        raise MisuseError(f"{text}: expected LABEL=ID")
    return label, enclave


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as e:
        raise MisuseError(f"--meta: not JSON: {e}") from None
    if not isinstance(found, dict):
        raise MisuseError("--meta: expected an object")
    return found


def _print_registered(ctx: CommandContext, client: "Client", receipt: "Receipt | None") -> None:
    if receipt is None:
        ctx.emit({"registered": False}, "registered already")
    else:
        ctx.print_receipt(client.registry(), receipt)


@command(app, "enc registry resolve 5c1f…", flags=NODE)
def resolve(
    ctx: CommandContext, which: Annotated[str, typer.Argument(metavar="ENCLAVE", help=known_ids.ENCLAVE)]
) -> None:
    """Print an enclave's node: the registry's entry, verified by its proof."""
    with ctx.client_as(None) as client:
        found = client.resolve(known_ids.enclave(which))
    wire = _wire(found)
    ctx.emit(wire, fields(**{**wire, "endpoints": " ".join(wire["endpoints"]), "meta": json.dumps(wire["meta"])}))


def _wire(found: "Resolution") -> dict[str, Any]:
    record = found.record
    return {
        "enclave": found.enclave.hex(),
        "sequencer": found.sequencer.hex(),
        "endpoints": [endpoint.uri for endpoint in found.node.endpoints],
        "holder": record.holder.hex(),
        "creator": record.entry.manifest_event.from_.hex(),
        "app": record.entry.app,
        "desc": record.entry.desc,
        "meta": dict(record.entry.meta),
        "entry": record.item.id.hex(),
        "proved": record.is_proved,
    }


@command(app, "enc registry lookup 3f0c…", flags=NODE)
def lookup(ctx: CommandContext, who: Annotated[str, typer.Argument(metavar="WHO", help=known_ids.PERSON)]) -> None:
    """Print an identity's registered enclaves, and the key to encrypt to."""
    with ctx.client_as(None) as client:
        found = client.lookup(known_ids.identity(who))
    enclaves = {label: enclave.hex() for label, enclave in found.enclaves.items()}
    sub_pub = found.sub_pub.hex() if found.sub_pub else None
    ctx.emit(
        {"identity": found.id_pub.hex(), "enclaves": enclaves, "sub_pub": sub_pub},
        fields(identity=found.id_pub.hex(), sub_pub=sub_pub or "-", **enclaves),
    )


@command(app, "enc registry list --app chat", "enc registry list -q garden", name="list", flags=NODE)
def list_(
    ctx: CommandContext,
    app_: Annotated[str | None, typer.Option("--app", metavar="NAME", help="Enclaves of this application.")] = None,
    creator: Annotated[str | None, typer.Option(metavar="WHO", help="Enclaves created by this identity.")] = None,
    q: Annotated[
        str | None, typer.Option("--query", "-q", metavar="TEXT", help="Enclaves with this text in their description.")
    ] = None,
) -> None:
    """List the enclaves in the registry, unverified. `resolve` verifies one."""
    who = None if creator is None else known_ids.identity(creator, what="--creator")
    with ctx.client_as(None) as client:
        search = {"app": app_, "creator": who, "q": q}
        ctx.rows(("enclave", "app", "holder", "about"), _listing(client, search), cut=True)


def _listing(client: "Client", search: dict[str, str | None]) -> Iterator[OutputRow]:
    after: str | None = None
    while True:
        page, after = client.listing(**search, after=after)
        for each in page:
            cells = (
                str(each.get("enclave_id")),
                str(each.get("app", "")),
                _short(each.get("holder")),
                str(each.get("desc", "")),
            )
            yield each, cells
        if after is None:
            return


def _short(key: Any) -> str:
    try:
        return short(bytes.fromhex(str(key)))
    except ValueError:
        return "-"
