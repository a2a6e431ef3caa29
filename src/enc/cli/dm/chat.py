"""`enc dm chat`: a conversation with a contact, in a terminal or through a pipe.

There are three clients, one per thread that talks to a node: a mailbox belongs to one thread.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.chat.loop import run_chat
from enc.cli.chat.slash_commands import HISTORY
from enc.cli.chat.source import AWAY, BACK, ChatUpdate, patience
from enc.cli.common.book import open_book
from enc.cli.common.command import NODE, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.exits import FAILED
from enc.cli.common.output import short
from enc.cli.dm.context import MailboxContext, Who, Yes, find_mailbox
from enc.cli.dm.slash_commands import MailboxCommands
from enc.cli.dm.view import line_of, wire_entry

if TYPE_CHECKING:
    from enc.apps.dm import Mailbox, ThreadEntry
    from enc.client import Enclave, Item
    from enc.client.subscribe.subscription import Subscription

app = typer.Typer()


@command(
    app,
    "enc dm chat bob",
    "enc dm chat bob --history 100",
    "echo hello | enc dm chat bob",
    "enc dm chat bob --stay --json",
    flags=NODE,
)
def chat(
    ctx: CommandContext,
    who: Who,
    history: Annotated[int, typer.Option(min=0, metavar="N", help="Show this many earlier messages.")] = HISTORY,
    stay: Annotated[
        bool, typer.Option("--stay", help="Without a terminal: continue listening when stdin ends.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Chat with a contact: shows the history, then new messages; sends what you type. /help lists commands.

    Without a terminal it reads and prints line by line.
    """
    me = ctx.identity()
    with (
        open_book(ctx) as book,
        ctx.client_as(me) as shows,
        ctx.client_as(me) as writes,
        ctx.client_as(me, **patience(ctx, stay)) as listens,
    ):
        shown, written, subscribed = (find_mailbox(each, book) for each in (shows, writes, listens))
        dm = MailboxContext(ctx, shows, book, shown)
        shown.sync()
        identity = dm.resolve(who, yes)
        commands = MailboxCommands(written, identity, dm.name(identity), dm.explain)
        source = MailboxChat(shown, commands, subscribed.enclave, identity, dm.name(identity), **patience(ctx, stay))
        is_pending = any(
            entry.state == "pending" for entry in shown.thread(identity)
        )  # interrupted, on this device or another
        is_well = run_chat(ctx, source, history, stay=stay, first="/retry" if is_pending else "")
    if not is_well:
        raise typer.Exit(FAILED)


class MailboxChat:
    """A conversation with one contact. `shown` is read, `feed` is subscribed to.

    `patience`: seconds for which the node may be unreachable.
    """

    def __init__(
        self,
        shown: "Mailbox",
        commands: MailboxCommands,
        feed: "Enclave",
        who: bytes,
        name: str,
        patience: float = 0.0,
    ) -> None:
        self._shown, self._feed, self._who, self._name, self.commands = shown, feed, who, name, commands
        self.is_patient, self.is_away = bool(patience), False
        self.seq = shown.last_seq
        self._seen: dict[bytes, ThreadEntry] = {}
        self._live: Subscription | None = None
        self._is_closed = False
        self.status = self._status_line()

    def _status_line(self) -> str:
        return f"{self._name} | {short(self._who)} | {self._shown.contact(self._who).state}"

    def past(self, limit: int) -> Iterable[ChatUpdate]:
        thread = self._shown.thread(self._who)
        self._seen = {entry.ref: entry for entry in thread}
        return [self._show(entry) for entry in (thread[-limit:] if limit else ())]

    def live(self) -> Iterator[ChatUpdate]:
        from enc.client import Item

        self._live = self._feed.subscribe(after=self.seq)
        if self._is_closed:
            self._live.close()
        while (news := self._live.news()) is not None:
            if isinstance(news, Item):
                yield from self._taken(news)
            elif self.is_patient:
                self.is_away = not news.is_up
                yield ChatUpdate((), {}, -1, AWAY if self.is_away else BACK)

    def _taken(self, item: "Item") -> Iterator[ChatUpdate]:
        for who, ref in self._shown.take(item):
            entry = self._shown.entry(who, ref)
            if who == self._who and entry is not None and entry != self._seen.get(ref):
                self._seen[ref] = entry
                yield self._show(entry)
        self.status = self._status_line()
        yield ChatUpdate((), {}, item.seq)

    def _show(self, entry: "ThreadEntry") -> ChatUpdate:
        is_mine = entry.author == self._shown.identity
        line = line_of(entry, self._shown.identity, self._name)
        return ChatUpdate([line], wire_entry(entry), -1, confirms=(entry.text or "") if is_mine else "")

    def warning_for(self, line: str) -> str:
        return ""

    def close(self) -> None:
        self._is_closed = True
        if self._live is not None:
            self._live.close()
