"""What is typed in a chat: a message, or a command that begins with a slash. An app brings the commands."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from msgspec import Struct

from enc.cli.chat_line import Line
from enc.cli.line_editor import Ended
from enc.cli.output import visible
from enc.core.errors import MisuseError

Told = Iterator[str | Line]
MAX_TEXT = 32 << 10
"""Bytes of one text, where an app does not say otherwise."""
HISTORY = 20
"""Entries of it that are shown, if nobody says how many."""


class Word(Struct, frozen=True):
    """A command of the chat. `act` gets the app's Words and what follows the command's name."""

    usage: str
    help: str
    act: Callable[[Any, str], Told]
    seals: bool = False
    """It sends something that is sealed."""


class Words(ABC):
    """`do` a line; it yields what is to be said of it, if anything. What it sends comes back by the log."""

    words: ClassVar[Mapping[str, Word]]
    """By name. Those that every chat has are added, where the app has none of that name."""

    @property
    @abstractmethod
    def last_seq(self) -> int:
        """How far the log that is shown must be, for all that was done to be seen; -1: nothing was."""

    @property
    def max_text(self) -> int:
        """Bytes of one text."""
        return MAX_TEXT

    @abstractmethod
    def say(self, text: str) -> Told:
        """Send a message."""

    def do(self, line: str) -> Told:
        name, rest = parse(line)
        if not name:
            return self.say(rest) if rest.strip() else iter(())
        word = self._all().get(name)
        if word is None:
            raise MisuseError(f"/{visible(name)} is no command; /help lists them")
        return word.act(self, rest)

    @classmethod
    def seals(cls, line: str) -> bool:
        """Whether the line sends something that is sealed."""
        name, rest = parse(line)
        word = cls._all().get(name)
        return word.seals if word is not None else not name and bool(rest.strip())

    @classmethod
    def _all(cls) -> Mapping[str, Word]:
        return {**cls.words, **_EVERYWHERE, **cls.words}

    def _help(self, rest: str) -> Told:
        width = max(len(word.usage) for word in self._all().values())
        yield "What you type is sent; // at the start of a line sends it with one slash."
        for word in self._all().values():
            yield f"{word.usage:<{width}}  {word.help}"

    def _retry(self, rest: str) -> Told:
        """The chat itself enters the lines again that were not sent."""
        return iter(())

    def _quit(self, rest: str) -> Told:
        raise Ended


_EVERYWHERE: Mapping[str, Word] = {
    "retry": Word("/retry", "send what was not sent", Words._retry, seals=True),
    "help": Word("/help", "this", Words._help),
    "quit": Word("/quit", "leave the chat; also Ctrl-D, Ctrl-C", Words._quit),
}


def parse(line: str) -> tuple[str, str]:
    """The name of a command and what follows it; no name: it is a message."""
    if line.startswith("//") or not line.startswith("/"):
        return "", line.removeprefix("/")
    name, _, rest = line[1:].partition(" ")
    return name, rest.strip()


def one(rest: str, usage: str) -> str:
    """What follows a command that needs something."""
    if not rest:
        raise MisuseError(f"use: {usage}")
    return rest


def two(rest: str, usage: str) -> tuple[str, str]:
    """A word, and what follows it."""
    first, _, second = rest.partition(" ")
    if not first or not second.strip():
        raise MisuseError(f"use: {usage}")
    return first, second.strip()


def how_many(rest: str) -> int:
    """Of `/history [HOW-MANY]`."""
    if rest and not (rest.isdecimal() and len(rest) <= 9):
        raise MisuseError("use: /history [HOW-MANY]")
    return int(rest or HISTORY)
