"""`enc dm`: direct messages. Texts are sealed on this machine; no node sees them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from enc.cli.common import known_ids
from enc.cli.common.book import open_book
from enc.cli.common.command import NODE, command
from enc.cli.common.command_context import CommandContext, content
from enc.cli.common.exits import FAILED
from enc.cli.common.failures import NO_ANSWER
from enc.cli.common.output import OutputRow, fields, format_time, visible
from enc.cli.dm import chat, contacts
from enc.cli.dm.context import At, MailboxContext, Where, Who, Yes, open_mailbox
from enc.cli.dm.view import wire_entry
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.apps.dm import Mailbox, Repaired, ThreadEntry
    from enc.client import Client

app = typer.Typer(
    name="dm",
    help="Direct messages: your mailbox, your contacts, and end-to-end encrypted messages.",
    no_args_is_help=True,
)
app.add_typer(contacts.app)
app.add_typer(chat.app)

Message = Annotated[
    str | None,
    typer.Option("--message", metavar="ID", help="The message's id, or the start of it. Default: your last message."),
]


# The mailbox


@command(app, "enc dm create --name Alice", flags=NODE)
def create(
    ctx: CommandContext,
    name: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The name under which others find you in the registry.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Create another, though you have one.")] = False,
) -> None:
    """Create your mailbox on the node, and register it in the registry, if one is set."""
    from enc.apps.dm import Mailbox
    from enc.apps.people.announcing import own_place

    with open_book(ctx) as book, ctx.client() as client:
        if not again and own_place(client, "dm", book) is not None:
            raise MisuseError("you have a mailbox already: `enc dm status` shows it; --again creates another")
        mailbox = Mailbox.create(client, name=name, book=book, again=True)
        _print_mailbox(ctx, mailbox, client)


@command(app, "enc dm use 5c1f…", flags=NODE)
def use(
    ctx: CommandContext, which: Annotated[str, typer.Argument(metavar="ENCLAVE", help="Your mailbox's id.")]
) -> None:
    """Use an existing mailbox, for example on a new device. Your key alone opens everything in it."""
    from enc.apps.dm import Mailbox
    from enc.apps.people.address_book import Place

    with open_book(ctx) as book, ctx.client() as client:
        mailbox = Mailbox(client, known_ids.enclave(which))
        mailbox.sync()
        book.set_own(client.identity.public, "dm", Place(mailbox.enclave.id, client.url or None))
        _print_mailbox(ctx, mailbox, client)


def _print_mailbox(ctx: CommandContext, mailbox: "Mailbox", client: "Client") -> None:
    wire = {"mailbox": mailbox.enclave.hex, "identity": client.identity.hex, "node": mailbox.enclave.url}
    ctx.emit(wire, fields(**wire))


@command(app, "enc dm status", flags=NODE)
def status(ctx: CommandContext) -> None:
    """Show your mailbox: its node, pending invitations, and entries that could not be read."""
    with open_mailbox(ctx) as dm:
        mailbox = dm.mailbox
        refused = [{"seq": each.seq, "author": each.author.hex(), "code": each.error.code} for each in mailbox.refusals]
        wire = {
            "mailbox": mailbox.enclave.hex,
            "node": mailbox.enclave.url,
            "contacts": sum(each.state == "FRIEND" for each in mailbox.contacts()),
            "invites": len(mailbox.invites()),
            "open": mailbox.is_open,
            "refused": refused,
        }
        refusals = ", ".join(f"{each['code']} at seq {each['seq']}" for each in refused) or "nothing"
        ctx.emit(wire, fields(**{**wire, "refused": refusals}))


@command(app, "enc dm invitations", "enc dm invitations closed", flags=NODE)
def invitations(
    ctx: CommandContext,
    state: Annotated[
        Literal["open", "closed"] | None, typer.Argument(metavar="[open|closed]", help="The new state.")
    ] = None,
) -> None:
    """Show whether strangers may invite you; or open or close the mailbox to them."""
    with open_mailbox(ctx) as dm:
        if state is not None:
            dm.mailbox.take_invites(state == "open")
        is_open = dm.mailbox.is_open
        ctx.emit({"open": is_open}, "open" if is_open else "closed")


# Messages


@command(app, "enc dm send bob 'See you at 8'", flags=NODE)
def send(
    ctx: CommandContext,
    who: Who,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message; - reads stdin.")],
    mailbox: Where = None,
    there: At = None,
    yes: Yes = False,
) -> None:
    """Send a message. If their node rejects it, it stays in the thread as refused."""
    body = content(text, None).rstrip("\n") if text == "-" else text
    with _keep_note(), open_mailbox(ctx) as dm:
        identity = dm.resolve(who, yes)
        if dm.mailbox.contact(identity).state == "BLOCKED":
            ctx.note(f"you have blocked {dm.name(identity)}: they cannot answer")
        with dm.place_of(identity, mailbox, there) as place:
            _print_entry(ctx, dm, dm.mailbox.send(identity, body, place))


@command(app, "enc dm edit bob 'See you at 9'", flags=NODE)
def edit(
    ctx: CommandContext,
    who: Who,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The new text.")],
    message: Message = None,
    yes: Yes = False,
) -> None:
    """Replace the text of one of your messages."""
    with _keep_note(), open_mailbox(ctx) as dm:
        identity = dm.resolve(who, yes)
        _print_entry(ctx, dm, dm.mailbox.edit(identity, dm.message_ref(identity, message, mine=True), text))


@command(app, "enc dm retract bob", flags=NODE)
def retract(ctx: CommandContext, who: Who, message: Message = None, yes: Yes = False) -> None:
    """Retract one of your messages: its text is erased in both mailboxes."""
    with _keep_note(), open_mailbox(ctx) as dm:
        identity = dm.resolve(who, yes)
        _print_entry(ctx, dm, dm.mailbox.retract(identity, dm.message_ref(identity, message, mine=True)))


@command(app, "enc dm delete bob 5c1f", flags=NODE)
def delete(
    ctx: CommandContext,
    who: Who,
    message: Annotated[str, typer.Argument(metavar="ID", help="The message's id, or the start of it.")],
    yes: Yes = False,
) -> None:
    """Delete a contact's message from your mailbox. They are not notified."""
    with open_mailbox(ctx) as dm:
        identity = dm.resolve(who, yes)
        dm.mailbox.delete(identity, dm.message_ref(identity, message, mine=False))
        ctx.emit({"deleted": message}, "deleted")


@command(app, "enc dm read bob", "enc dm read bob --limit 10 --json", flags=NODE)
def read(
    ctx: CommandContext,
    who: Who,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="At most this many, the newest.")] = None,
    yes: Yes = False,
) -> None:
    """Print the messages between you and a contact."""
    with open_mailbox(ctx) as dm:
        identity = dm.resolve(who, yes)
        thread = dm.mailbox.thread(identity)
        if not thread and dm.mailbox.contact(identity).state == "OUTSIDER":
            raise MisuseError(f"no messages with {dm.name(identity)}: `enc dm contacts` lists your contacts")
        ctx.rows(("time", "who", "state", "text"), (_row(dm, entry) for entry in thread[-(limit or len(thread)) :]))


@command(app, "enc dm repair", flags=NODE)
def repair(ctx: CommandContext) -> None:
    """Send pending messages again, also those of your other devices. Nothing arrives twice."""
    with open_mailbox(ctx) as dm:
        found = dm.mailbox.repair()
        failed = [each for each in found if each.error is not None]
        done = [each for each in found if each.error is None]
        wire = {"delivered": list(map(_wire_repaired, done)), "failed": list(map(_wire_repaired, failed))}
        ctx.emit(wire, "\n".join(_repair_line(dm, each) for each in (*done, *failed)) or "nothing is pending")
    if failed:
        raise typer.Exit(NO_ANSWER if any(each.is_left for each in failed) else FAILED)


def _wire_repaired(each: "Repaired") -> dict[str, Any]:
    wire = {"identity": each.who.hex(), "kind": each.kind, "act": each.act, "text": each.text}
    if each.error is None:
        return wire
    return {**wire, "code": each.error.code or "MISUSE", "message": each.error.message, "pending": each.is_left}


def _repair_line(dm: MailboxContext, each: "Repaired") -> str:
    """Return a line about a repaired message: the recipient, the action, and the result."""
    what = {"send": "", "edit": "edit: ", "retract": "retraction of: "}[each.act]
    if each.error is None:
        end = "done" if each.act != "send" else "delivered"
    else:
        end = f"{'still pending' if each.is_left else 'refused'}, {each.error.code or dm.explain(each.error)}"
    label = visible(each.text) if each.kind == "message" else f"invitation {visible(each.text)}".strip()
    return f"{dm.name(each.who)}: {what}{label}: {end}"


@contextmanager
def _keep_note() -> Iterator[None]:
    """Make errors state whether the message is kept, also when one's own node does not answer."""
    from enc.apps.dm.outbox import mark_kept

    with mark_kept(False):
        yield


def _print_entry(ctx: CommandContext, dm: MailboxContext, entry: "ThreadEntry") -> None:
    ctx.emit(wire_entry(entry), f"{entry.state} {entry.id.hex()}")


def _row(dm: MailboxContext, entry: "ThreadEntry") -> OutputRow:
    wire, is_mine = wire_entry(entry), entry.author == dm.mailbox.identity
    state = f"{entry.state}{', edited' if entry.is_edited else ''}{f', {entry.code}' if entry.code else ''}"
    name = "you" if is_mine else dm.name(entry.author)
    return wire, (format_time(entry.at), name, state, entry.text or "")
