"""`enc me`: your personal store: profile, posts, private documents and notices."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.common import known_ids
from enc.cli.common.book import open_book
from enc.cli.common.command import NODE, command
from enc.cli.common.command_context import CommandContext, content
from enc.cli.common.output import OutputRow, fields, format_time
from enc.cli.me import card, contacts, documents, notices
from enc.cli.me.audience import audience_lines, wire_audience
from enc.cli.me.context import Which, find_id, open_store
from enc.core.errors import EncError, InvalidCommit, MisuseError
from enc.core.primitives.encoding import strict_json

if TYPE_CHECKING:
    from enc.apps.personal import LedgerEntry, Personal

app = typer.Typer(
    name="me",
    help="Your personal store: a profile, posts, sealed documents, an inbox for notices; and your address book.",
    no_args_is_help=True,
)


@command(app, "enc me create --name 'Ada L.'", flags=NODE)
def create(
    ctx: CommandContext,
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="Your display name. It is public.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Create another, though you have one.")] = False,
) -> None:
    """Create your store on the node, and register it in the registry, if one is set."""
    from enc.apps import Personal
    from enc.apps.personal.store import find_place

    with open_book(ctx) as book, ctx.client() as client:
        if not again and find_place(client, book) is not None:
            raise MisuseError("you have a store already: `enc me show` shows it; --again creates another")
        made = Personal.create(client, display_name=name, book=book, again=again)
        _print_store(ctx, made)


@command(app, "enc me use 5c1f… --at https://node.example", flags=NODE)
def use(
    ctx: CommandContext,
    which: Annotated[str, typer.Argument(metavar="ENCLAVE", help="Your store's id.")],
    there: Annotated[str | None, typer.Option("--at", metavar="URL", help="Its node. Default: the profile's.")] = None,
) -> None:
    """Use an existing store, on a device without a registry."""
    from enc.apps import Personal
    from enc.apps.people.address_book import Place

    id_ = known_ids.enclave(which)
    with open_book(ctx) as book, ctx.client() as client:
        found = Personal(client, id_, node=there)
        found.refresh()  # fails unless the store is one's own: the node lets only its owner read
        place = Place(bytes.fromhex(id_), there or client.url or None)
        book.set_own(client.identity.public, "personal", place)
        _print_store(ctx, found)


def _print_store(ctx: CommandContext, found: "Personal") -> None:
    wire = {"enclave": found.enclave.hex, "node": found.enclave.url, "identity": found.client.identity.hex}
    ctx.emit(wire, fields(**wire))


@command(app, "enc me show", flags=NODE)
def show(ctx: CommandContext) -> None:
    """Show your store in a few lines. `enc me notices` shows its inbox."""
    with open_store(ctx) as mine:
        unreadable = mine.unreadable()
        wire: dict[str, Any] = {
            "enclave": mine.enclave.hex,
            "node": mine.enclave.url,
            "identity": mine.client.identity.hex,
            "name": mine.profile().display_name or "",
            "posts": len(mine.posts()),
            "documents": len(mine.documents()),
            "unreadable": sum(each.withheld is None for each in unreadable),
            "withheld": sum(each.withheld is not None for each in unreadable),
        }
        ctx.emit(wire, fields(**wire))


@command(app, "enc me announce", flags=NODE)
def announce(ctx: CommandContext) -> None:
    """Register your store in the registry: again if it failed, or in a new registry."""
    with open_store(ctx) as mine:
        if not mine.client.has_registry:
            raise MisuseError("no registry is set: give --registry, or `enc config set registry URL#ID:KEY`")
        mine.announce(mine.profile().display_name)
        _print_store(ctx, mine)


# The profile


@command(
    app,
    "enc me profile",
    "enc me profile --name 'Ada L.' --bio 'I count.'",
    "enc me profile --set pronouns=she --unset bio",
    flags=NODE,
)
def profile(
    ctx: CommandContext,
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="Your display name.")] = None,
    bio: Annotated[str | None, typer.Option(metavar="TEXT", help="A short text about you.")] = None,
    avatar: Annotated[str | None, typer.Option(metavar="URL", help="Your picture.")] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Any other field. A value that is not JSON is text."),
    ] = None,
    unset: Annotated[list[str] | None, typer.Option(metavar="FIELD", help="Remove a field.")] = None,
) -> None:
    """Print your profile, or change fields of it. It is public, and provable from the enclave's state."""
    common = {"display_name": name, "bio": bio, "avatar": avatar}
    changes: dict[str, Any] = {field: value for field, value in common.items() if value is not None}
    changes |= dict(map(_field, sets or ())) | dict.fromkeys(unset or ())
    with open_store(ctx) as mine:
        if changes:
            ctx.print_receipt(mine.enclave, mine.set_profile(**changes))
            return
        found = mine.profile()
    texts = {field: value if isinstance(value, str) else json.dumps(value) for field, value in found.fields.items()}
    ctx.emit({"profile": dict(found.fields), "proved": found.proved}, fields(**texts) if texts else "")
    if not found.proved:
        ctx.note("not proved yet: no closed bundle contains it")


def _field(text: str) -> tuple[str, Any]:
    name, is_given, value = text.partition("=")
    if not is_given or not name:
        raise MisuseError(f"{text}: expected FIELD=VALUE")
    try:
        return name, strict_json(value)
    except InvalidCommit:
        return name, value


# Posts


@command(app, "enc me post 'Hello, world'", "fortune | enc me post -", flags=NODE)
def post(
    ctx: CommandContext, text: Annotated[str | None, typer.Argument(metavar="TEXT", help="- reads stdin.")] = None
) -> None:
    """Publish a post, and print who can see it. It is not sealed."""
    from enc.apps import AddressBook
    from enc.core.log.receipt import wire_receipt

    body = content(text, None)
    with open_store(ctx) as mine:
        receipt = mine.post(body)
        wire = {**wire_receipt(receipt), "enclave": mine.enclave.hex}
        text_ = fields(seq=receipt.seq, id=receipt.id.hex(), time=format_time(receipt.timestamp))
        try:
            audience = mine.audience()
        except EncError as e:  # the post is in the log all the same
            ctx.emit({**wire, "audience": None}, text_)
            ctx.note(f"posted; who can see it could not be read: {e.message}")
            return
        ctx.emit({**wire, "audience": wire_audience(audience)}, text_)
    for line in audience_lines(audience, mine.enclave.url, AddressBook().names()):
        ctx.note(line)


@command(app, "enc me posts", flags=NODE)
def posts(ctx: CommandContext) -> None:
    """List your posts, the oldest first."""
    with open_store(ctx) as mine:
        ctx.rows(("seq", "id", "time", "text"), map(_post, mine.posts()), cut=True)


def _post(entry: "LedgerEntry") -> OutputRow:
    text = entry.content or ""
    try:
        parsed = strict_json(text)
        text = str(parsed.get("text", text)) if isinstance(parsed, dict) else text
    except InvalidCommit:
        pass
    wire = {
        "id": entry.id.hex(),
        "seq": entry.seq,
        "created": entry.created,
        "changed": entry.changed,
        "content": entry.content,
    }
    return wire, (str(entry.seq), entry.id.hex()[:8], format_time(entry.created), text)


@command(app, "enc me unpost 7", flags=NODE)
def unpost(ctx: CommandContext, which: Which) -> None:
    """Delete a post. This cannot be undone."""
    with open_store(ctx) as mine:
        id_ = find_id(which, {entry.id: entry.seq for entry in mine.posts()})
        ctx.print_receipt(mine.enclave, mine.delete_post(id_))


for part in (documents, notices, contacts, card):
    app.add_typer(part.app)
