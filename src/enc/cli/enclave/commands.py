"""`enc enclave`: create enclaves, show their settings and list their members."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.common import known_ids
from enc.cli.common.command import LOCAL, NODE, command
from enc.cli.common.command_context import CommandContext, read
from enc.cli.common.event_flags import as_tag
from enc.cli.common.output import OutputRow, fields, format_time
from enc.core.errors import MisuseError
from enc.core.primitives.encoding import compact_json

if TYPE_CHECKING:
    from enc.client import Identity, Overview
    from enc.core.primitives.types import TreeHead

app = typer.Typer(
    name="enclave", help="Create enclaves, show their settings and list their members.", no_args_is_help=True
)


@command(app, "enc enclave create team --use", "enc enclave create ./manifest.json --name archive", flags=NODE)
def create(
    ctx: CommandContext,
    manifest: Annotated[
        str | None,
        typer.Argument(
            metavar="[MANIFEST]",
            help="A manifest's file, or a template: "
            "dm, feed, ledger, log, notes, personal, personal-v1, registry or team.",
        ),
    ] = None,
    template: Annotated[str | None, typer.Option(metavar="NAME", help="A template, by its name.")] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Stored in the manifest's meta; distinguishes two of a kind.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="NAME[=VALUE]", help="A tag; may be repeated.")] = None,
    use: Annotated[bool, typer.Option("--use", help="The profile uses the new enclave from now on.")] = False,
) -> None:
    """Create an enclave.

    Its id is a hash of its creator, manifest and tags, so each can be created only once. A template
    without --name gets a random word in its meta: each call creates another enclave.
    """
    given = manifest or template
    if given is None or (manifest and template):
        raise MisuseError("give a manifest's file, or a template")
    with ctx.client() as client:
        found = _manifest(given, name, client.identity, is_template=manifest is None)
        enclave = client.create(found, tags=map(as_tag, tag or ()))
        if use:
            ctx.settings.store("enclave", enclave.hex)
        ctx.emit({"enclave": enclave.hex, "sequencer": client.seq_pub().hex(), "node": client.url}, enclave.hex)


def _manifest(manifest: str, name: str | None, owner: "Identity", *, is_template: bool) -> dict[str, Any] | str | Path:
    from enc.client.enclave.templates import names, template

    if manifest not in names() and (is_template or not Path(manifest).exists()):
        raise MisuseError(f"{manifest}: neither a file nor a template; templates are {', '.join(names())}")
    if name is None:
        return manifest if manifest in names() else Path(manifest)
    found = template(manifest, owner.public) if manifest in names() else _object(Path(manifest))
    return {**found, "meta": {**found.get("meta", {}), "name": name}}


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read(path))
    except ValueError as e:
        raise MisuseError(f"{path}: not JSON: {e}") from None
    if not isinstance(found, dict) or not isinstance(found.get("meta", {}), dict):
        raise MisuseError(f"{path}: expected an object whose meta is an object")
    return found


@command(app, "enc enclave info", "enc enclave info --json | jq .manifest")
def info(ctx: CommandContext) -> None:
    """Show the enclave's manifest, sequencer, lifecycle and newest head."""
    with ctx.enclave() as enclave:
        overview = enclave.overview()
    ctx.emit(_wire_overview(overview), _text_overview(overview))


def _wire_overview(overview: "Overview") -> dict[str, Any]:
    from enc.core.rules.manifest_schemas import read_schemas
    from enc.core.trees.tree_head import wire_head

    return {
        "enclave": overview.enclave.hex(),
        "sequencer": overview.sequencer.hex(),
        "created": overview.created,
        "lifecycle": overview.lifecycle,
        "head": wire_head(overview.head),
        "manifest": dict(overview.manifest),
        "schema_problems": dict(read_schemas(overview.manifest).problems),
    }


def _text_overview(overview: "Overview") -> str:
    """Format an overview for people; only programs get the whole manifest."""
    from enc.core.rules.manifest_schemas import read_schemas

    meta, schemas = overview.manifest.get("meta", {}), read_schemas(overview.manifest)
    return fields(
        enclave=overview.enclave.hex(),
        **{name: meta[name] for name in ("name", "description") if name in meta},
        sequencer=overview.sequencer.hex(),
        created=format_time(overview.created),
        lifecycle=overview.lifecycle,
        head=text_head(overview.head),
        **{what: compact_json(names) for what, names in overview.names.items()},
        **({"schemas": ", ".join(schemas.by_type)} if schemas.by_type else {}),
        **({"ignored schemas": "; ".join(schemas.problems.values())} if schemas.problems else {}),
    )


def text_head(head: "TreeHead") -> str:
    return f"{head.ts} bundles, root {head.r.hex()}, {format_time(head.t)}"


@command(app, "enc enclave members")
def members(ctx: CommandContext) -> None:
    """List every identity with a State or traits after the last closed bundle, each proved."""
    with ctx.enclave() as enclave:
        found = enclave.members()
    ctx.rows(
        ("identity", "state", "traits"),
        (
            (
                {
                    "identity": member.identity.hex(),
                    "state": member.state,
                    "traits": list(member.traits),
                    "bundle": member.fact.anchor.index,
                },
                (member.identity.hex(), member.state, ", ".join(member.traits)),
            )
            for member in found
        ),
    )


@command(app, "enc enclave list", name="list", flags=LOCAL)
def list_(ctx: CommandContext) -> None:
    """List the enclaves you have used, with the last signed head seen of each. Works offline."""
    ctx.rows(("enclave", "bundles"), _pinned())


def _pinned() -> Iterator[OutputRow]:
    from enc.client.verify.pins import FilePins, default_directory
    from enc.core.trees.tree_head import wire_head

    pins = FilePins(default_directory())
    for id_ in known_ids.used_enclaves():
        pin = pins.load(id_)
        if pin is not None:
            head = pin.head and wire_head(pin.head)
            wire = {"enclave": id_.hex(), "sequencer": pin.sequencer.hex(), "head": head}
            yield wire, (id_.hex(), str(pin.head.ts) if pin.head else "-")
