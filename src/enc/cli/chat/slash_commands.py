"""Input of a chat: messages, and commands that begin with a slash. The application defines the commands."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from enc.cli.chat.line import ChatLine
from enc.cli.common.output import visible
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.client import SendAttempt

Replies = Iterator[str | ChatLine]
MAX_TEXT = 32 << 10
"""Default maximum size of one text, in bytes."""
HISTORY = 20
"""Default number of earlier entries to show."""


class ChatEnded(Exception):
    """The user left the chat."""


class LineAttempt(Struct, eq=False):
    """What is kept of a line between two tries to send it."""

    send: "SendAttempt"
    is_stored: bool = False
    """The message is in the sender's own log, and the app itself has to deliver it."""


class SlashCommand(Struct, frozen=True):
    """A command of the chat. `act` gets the SlashCommands and the text after the command's name."""

    usage: str
    help: str
    act: Callable[[Any, str], Replies]
    seals: bool = False
    """Whether it sends a sealed text."""


class SlashCommands(ABC):
    """Runs lines: `do` yields replies to show. Sent messages appear when the log has them."""

    commands: ClassVar[Mapping[str, SlashCommand]]
    """The application's commands by name. They override those that every chat has."""

    attempt: "LineAttempt | None" = None
    """The attempt of the line that runs, set by the chat."""

    @property
    @abstractmethod
    def last_seq(self) -> int:
        """The seq up to which the log must be shown for all sent lines to appear; -1: none was sent."""

    @property
    def max_text(self) -> int:
        """Maximum size of one text, in bytes."""
        return MAX_TEXT

    @abstractmethod
    def say(self, text: str) -> Replies:
        """Send a message."""

    def do(self, line: str) -> Replies:
        name, rest = parse(line)
        if not name:
            return self.say(rest) if rest.strip() else iter(())
        word = self._all().get(name)
        if word is None:
            raise MisuseError(f"/{visible(name)}: unknown command; /help lists all commands")
        return word.act(self, rest)

    def new_attempt(self) -> "LineAttempt":
        """Return what is kept of a new line, so that it is sent once although it may run several times."""
        from enc.client import SendAttempt

        return LineAttempt(SendAttempt())

    @property
    def sending(self) -> "SendAttempt | None":
        """The attempt to give to the app's sending methods."""
        return None if self.attempt is None else self.attempt.send

    @classmethod
    def seals(cls, line: str) -> bool:
        """Return whether the line sends a sealed text."""
        name, rest = parse(line)
        word = cls._all().get(name)
        return word.seals if word is not None else not name and bool(rest.strip())

    @classmethod
    def _all(cls) -> Mapping[str, SlashCommand]:
        return {**cls.commands, **_EVERYWHERE, **cls.commands}

    def _help(self, rest: str) -> Replies:
        width = max(len(word.usage) for word in self._all().values())
        yield "What you type is sent. To send a text that starts with /, type //."
        for word in self._all().values():
            yield f"{word.usage:<{width}}  {word.help}"

    def _retry(self, rest: str) -> Replies:
        """Do nothing: the chat itself enters the unsent lines again."""
        return iter(())

    def _quit(self, rest: str) -> Replies:
        raise ChatEnded


_EVERYWHERE: Mapping[str, SlashCommand] = {
    "retry": SlashCommand("/retry", "send unsent lines again", SlashCommands._retry, seals=True),
    "help": SlashCommand("/help", "list the commands", SlashCommands._help),
    "quit": SlashCommand("/quit", "leave the chat; also Ctrl-D, Ctrl-C", SlashCommands._quit),
}


def parse(line: str) -> tuple[str, str]:
    """Return the command's name and the text after it; the name of a message is empty."""
    if line.startswith("//") or not line.startswith("/"):
        return "", line.removeprefix("/")
    name, _, rest = line[1:].partition(" ")
    return name, rest.strip()


def one(rest: str, usage: str) -> str:
    """Return the argument of a command. Raises MisuseError if it is missing."""
    if not rest:
        raise MisuseError(f"use: {usage}")
    return rest


def two(rest: str, usage: str) -> tuple[str, str]:
    """Return the first word and the rest. Raises MisuseError if one is missing."""
    first, _, second = rest.partition(" ")
    if not first or not second.strip():
        raise MisuseError(f"use: {usage}")
    return first, second.strip()


def how_many(rest: str) -> int:
    """Return the argument of `/history [HOW-MANY]`. Raises MisuseError."""
    if rest and not (rest.isdecimal() and len(rest) <= 9):
        raise MisuseError("use: /history [HOW-MANY]")
    return int(rest or HISTORY)
