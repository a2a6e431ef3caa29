"""`enc node adopt` and `enc node mark-restored`: end and begin the state of a store that is a copy."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from enc.cli.common import exits
from enc.cli.common.exits import one_line
from enc.cli.ops import node
from enc.cli.ops.node import NAME, ConfigFile, Data, enclave_id, epilog_with, load
from enc.core.errors import EncError, MisuseError, Unavailable
from enc.node.config import NodeConfig
from enc.runtime.clock import utc_time

if TYPE_CHECKING:
    from enc.cli.ops.adopt_sources import Newer
    from enc.node.ops.adoption import StoreComparison
    from enc.node.store.sqlite.store import SqliteStore

app = node.app

MAX_SHOWN = 1000
"""Lines about enclaves that have something newer elsewhere."""

Url = Annotated[list[str] | None, typer.Option(metavar="URL", help="Do not ask this witness or registry.")]


class Source(Struct, frozen=True):
    """A witness, registry or archive that may have something newer."""

    name: str
    unit: str
    """What it has of an enclave: heads, records or a log."""
    ask: "Callable[[StoreComparison], Iterator[Newer | None]]"


@app.command(epilog=epilog_with("Example: enc node adopt --data /var/lib/enc --witness https://witness.example=KEY"))
def adopt(
    config: ConfigFile = None,
    data: Data = None,
    witness: Annotated[
        list[str] | None, typer.Option(metavar="URL=KEY", help="Ask this witness; may be repeated.")
    ] = None,
    registry: Annotated[
        str | None, typer.Option(metavar="URL#ID:KEY", help="Ask this registry. Default: registry.announce_to.")
    ] = None,
    archive: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Compare with this archive; may be repeated.")
    ] = None,
    without: Url = None,
    lost: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="An enclave that `enc node salvage` left out; may be repeated."),
    ] = None,
    new_key: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Prepare moves to a new key in this new directory instead.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Vouch without being asked.")] = False,
) -> None:
    """Let a restored node sign again, if nobody has anything newer than its store, and you vouch for the rest.

    The node must not be running. A node is restored if its store is a backup, or if its files were copied or replaced.
    Everything that the node signed and the store lacks would convict it as soon as it signs something else.

    With --lost, nobody is asked about an enclave that this store lacks as a whole: the node does not sign for it again.
    With --new-key the store stays as it is, and the owners of its enclaves move them to another key.
    """
    from enc.node.ops.adoption import StoreComparison
    from enc.node.store.sqlite.provenance import ENDS_EARLY

    with exits.exit_on_error(NAME):
        settings = load(config, data)[0]
        with _restored(settings) as (store, seq_pub):
            if new_key is not None:
                if witness or registry or archive or without or lost or yes:
                    raise MisuseError("--new-key: asks nobody and adopts nothing: leave out the other flags")
                from enc.node.ops.new_key import prepare_moves

                typer.echo(prepare_moves(store, seq_pub, new_key, settings.public_url))
                return
            if ENDS_EARLY in store.restored():
                raise MisuseError(f"this store is {store.restored()}: it cannot be adopted; see --new-key")
            comparison = StoreComparison(store, seq_pub, _lost(store, lost or ()))
            _adopt(settings, store, comparison, _sources(settings, witness, registry, archive), without or (), yes)


@app.command("mark-restored", epilog=epilog_with("Example: enc node mark-restored --data /var/lib/enc"))
def mark_restored(config: ConfigFile = None, data: Data = None) -> None:
    """Mark a store as a copy, after its disk or virtual machine was set back to an earlier state.

    The node must not be running. It cannot detect such a change itself. From the next start on, it signs nothing
    until `enc node adopt`.
    """
    with exits.exit_on_error(NAME), _opened(load(config, data)[0]) as (store, _):
        store.provenance.mark("marked by its operator")
    typer.echo("the node signs nothing until `enc node adopt`")


@contextmanager
def _opened(settings: NodeConfig) -> "Iterator[tuple[SqliteStore, bytes]]":
    """Open the store of a node that does not run; yield it, and the node's public key."""
    from enc.node.ops.signer import public_key
    from enc.node.store.sqlite.connection import open_existing
    from enc.node.store.sqlite.store import SqliteStore

    open_existing(settings.store_path).close()  # SqliteStore would create an empty store at a wrong path
    seq_pub = public_key(settings)
    with closing(SqliteStore(settings.store_path)) as store:
        yield store, seq_pub


@contextmanager
def _restored(settings: NodeConfig) -> "Iterator[tuple[SqliteStore, bytes]]":
    from enc.node.ops.place import mark_if_copied

    with _opened(settings) as (store, seq_pub):
        mark_if_copied(store, settings.store_path, settings.host_id)
        if not store.restored():
            raise MisuseError(f"{settings.store_path}: not restored: the node may run as it is")
        yield store, seq_pub


def _sources(
    settings: NodeConfig, witnesses: list[str] | None, registry: str | None, archives: list[Path] | None
) -> list[Source]:
    from enc.cli.ops import adopt_sources
    from enc.client.registry.registry_client import parse_registry
    from enc.client.witness.witnesses import parse_witness

    found = []
    for each in map(parse_witness, witnesses or ()):
        found.append(Source(each.url, "head", partial(adopt_sources.ask_witness, each)))
    if where := registry or settings.registry.announce_to:
        parsed = parse_registry(where)
        found.append(Source(parsed.url, "record", partial(adopt_sources.ask_registry, parsed)))
    for file in archives or ():
        found.append(Source(str(file), "log", partial(adopt_sources.read_archive_file, file)))
    return found


def _lost(store: "SqliteStore", texts: Sequence[str]) -> set[bytes]:
    """Return the enclaves of --lost. One of which the store has the beginning cannot be lost: the node would
    sign another continuation.
    """
    found = {enclave_id(text, "--lost") for text in texts}
    for enclave in sorted(found):
        if store.load(enclave) is not None:
            raise MisuseError(f"--lost {enclave.hex()}: this store has the enclave; name only those that it lacks")
    return found


def _adopt(
    settings: NodeConfig,
    store: "SqliteStore",
    comparison: "StoreComparison",
    sources: Sequence[Source],
    without: Sequence[str],
    is_sure: bool,
) -> None:
    from enc.node.ops import place

    names = {source.name for source in sources}
    for url in without:
        if url.rstrip("/") not in names:
            raise MisuseError(f"--without {url}: expected one of those to ask: {', '.join(sorted(names)) or 'nobody'}")
    left_out = {url.rstrip("/") for url in without}
    asked = [_compare(source, comparison) for source in sources if source.name not in left_out]
    typer.echo(f"this store is {store.restored()}")
    typer.echo("\n".join([*asked, *(f"{name}: not asked" for name in sorted(left_out))] or ["nobody was asked"]))
    typer.echo(_statement(comparison))
    if not is_sure:
        typer.confirm("Do you vouch for that?", abort=True, err=True)
    place.adopt(store, settings.store_path, settings.host_id)
    typer.echo("adopted: the node signs again when it starts")


def _compare(source: Source, comparison: "StoreComparison") -> str:
    """Return a line about a source that has nothing newer; raise Unavailable if it has, or cannot be asked."""
    known, newer = 0, list["Newer"]()
    try:
        for found in source.ask(comparison):
            known += 1
            if found is not None and len(newer) < MAX_SHOWN:
                newer.append(found)
    except MisuseError:
        raise
    except EncError as e:
        todo = f"try again, or go on without it: --without {source.name}"
        raise Unavailable(f"{source.name}: {e.message}; {todo}") from None
    for each in newer:
        typer.echo(one_line(f"{each.enclave.hex()}: {source.name} has {each.what}"))
    if newer:
        what = "something newer than this store: restore a newer copy, or see --new-key"
        if any(comparison.lacks(each.enclave) for each in newer):
            what += "; for an enclave that `enc node salvage` left out: --lost ID"
        raise Unavailable(f"not adopted: {source.name} has {what}")
    return one_line(
        f"{source.name}: nothing newer; it has {known} {source.unit}{'s' * (known != 1)} of this node's enclaves"
    )


def _statement(comparison: "StoreComparison") -> str:
    extent, known = comparison.extent(), ""
    if extent.enclaves:
        known = f", where the newest event is of {utc_time(extent.newest)}"
    if extent.open_bundles:
        known += f" and the last events of {extent.open_bundles} of {extent.enclaves} enclaves are in no bundle that "
        known += "a witness can know"
    if comparison.lost:
        count = len(comparison.lost)
        known += f", except for {count} lost enclave{'s' * (count != 1)}, which it must never sign for again"
    return (
        f"By adopting the store you vouch that the node with the key {comparison.seq_pub.hex()} has signed no event, "
        f"receipt or head that is missing here{known}; if it has, everybody who holds that can convict the node."
    )
