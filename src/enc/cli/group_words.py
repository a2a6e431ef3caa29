"""What is typed in a chat: a message, or a command that begins with a slash."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from enc.cli.group_room import entry_of, whom
from enc.cli.group_talk import own_reaction
from enc.cli.group_view import View, counted, freshness, standing, topic_text, untold
from enc.cli.line_editor import Ended
from enc.cli.output import visible
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.apps.group import Group, Invited
    from enc.core.types import Receipt

Told = Iterator[str]


class Word(Struct, frozen=True):
    """A command of the chat."""

    usage: str
    help: str
    act: Callable[["Words", str], Told]
    seals: bool = False
    """It sends something that is sealed under the group's epoch."""


class Words:
    """`do` a line; it yields what is to be said of it, if anything. What it sends comes back by the log."""

    def __init__(self, group: "Group", view: View, *, has_registry: bool) -> None:
        self.group, self.view, self._has_registry = group, view, has_registry
        self.last_seq = -1
        """Of the last event that was sent from here."""

    def do(self, line: str) -> Told:
        name, rest = parse(line)
        if not name:
            return self._say(rest) if rest.strip() else iter(())
        if name not in WORDS:
            raise MisuseError(f"/{visible(name)} is no command; /help lists them")
        return WORDS[name].act(self, rest)

    def _sent(self, seq: int) -> Told:
        self.last_seq = max(self.last_seq, seq)
        return iter(())

    def _say(self, text: str) -> Told:
        return self._sent(self.group.say(text).seq)

    def _reply(self, rest: str) -> Told:
        entry, text = _two(rest, "/reply NUMBER TEXT")
        return self._sent(self.group.say(text, reply_to=entry_of(self.group, entry).id).seq)

    def _edit(self, rest: str) -> Told:
        entry, text = _two(rest, "/edit NUMBER TEXT")
        return self._sent(self.group.edit(entry_of(self.group, entry).id, text).seq)

    def _react(self, rest: str) -> Told:
        entry, text = _two(rest, "/react NUMBER REACTION")
        return self._sent(self.group.react(entry_of(self.group, entry).id, text).seq)

    def _unreact(self, rest: str) -> Told:
        entry, _, text = rest.partition(" ")
        return self._sent(self.group.delete(own_reaction(self.group, entry, text.strip() or None)).seq)

    def _delete(self, rest: str) -> Told:
        return self._sent(self.group.delete(entry_of(self.group, _one(rest, "/delete NUMBER")).id).seq)

    def _announce(self, rest: str) -> Told:
        return self._sent(self.group.announce(_one(rest, "/announce TEXT")).seq)

    def _topic(self, rest: str) -> Told:
        if rest:
            return self._sent(self.group.set_topic(rest).seq)
        return iter([f"topic: {topic_text(self.group.status().topic)}"])

    def _profile(self, rest: str) -> Told:
        return self._sent(self.group.set_profile({"name": _one(rest, "/profile YOUR-NAME")}).seq)

    def _invite(self, rest: str) -> Told:
        return self._told(self.group.invite(self._whom(rest)))

    def _approve(self, rest: str) -> Told:
        return self._told(self.group.approve(self._whom(rest)))

    def _told(self, invited: "Invited") -> Told:
        self._sent(invited.receipt.seq)
        if invited.notice is None:
            yield untold(invited, self.group, has_registry=self._has_registry)

    def _whom(self, who: str) -> bytes:
        return whom(self.group, self.view.names, _one(who, "the name or the key of somebody"))

    def _rotate(self, rest: str) -> Told:
        return self._sent(self.group.rotate().seq)

    def _status(self, rest: str) -> Told:
        found = self.group.status()
        gates = ", ".join(f"{gate} {'open' if is_open else 'closed'}" for gate, is_open in found.gates.items())
        yield f"{freshness(found)}; {counted(found.members)}; you: {standing(found)}; {gates}; {found.lifecycle}"

    def _who(self, rest: str) -> Told:
        for person in self.group.people():
            who, state, traits, identity = self.view.person(person)
            yield "  ".join(part for part in (who, state, traits, identity) if part)

    def _history(self, rest: str) -> Told:
        if rest and not rest.isdecimal():
            raise MisuseError("use: /history [HOW-MANY]")
        for entry in self.group.entries(int(rest or 20)):
            yield self.view.entry(entry).plain()

    def _help(self, rest: str) -> Told:
        width = max(len(word.usage) for word in WORDS.values())
        yield "What you type is sent to the group; // at the start of a line sends it with one slash."
        for word in WORDS.values():
            yield f"{word.usage:<{width}}  {word.help}"

    def _quit(self, rest: str) -> Told:
        raise Ended


def parse(line: str) -> tuple[str, str]:
    """The name of a command and what follows it; no name: it is a message."""
    if line.startswith("//") or not line.startswith("/"):
        return "", line.removeprefix("/")
    name, _, rest = line[1:].partition(" ")
    return name, rest.strip()


def seals(line: str) -> bool:
    """Whether the line sends something that is sealed."""
    name, rest = parse(line)
    return WORDS[name].seals if name in WORDS else not name and bool(rest.strip())


def _two(rest: str, usage: str) -> tuple[str, str]:
    first, _, second = rest.partition(" ")
    if not first or not second.strip():
        raise MisuseError(f"use: {usage}")
    return first, second.strip()


def _one(rest: str, usage: str) -> str:
    if not rest:
        raise MisuseError(f"use: {usage}")
    return rest


def _about(usage: str, help_: str, act: Callable[["Group", bytes], "Receipt"]) -> Word:
    return Word(usage, help_, lambda words, rest: words._sent(act(words.group, words._whom(rest)).seq))


WORDS: Mapping[str, Word] = {
    "reply": Word("/reply NUMBER TEXT", "answer an entry", Words._reply, seals=True),
    "edit": Word("/edit NUMBER TEXT", "replace what you said", Words._edit, seals=True),
    "delete": Word("/delete NUMBER", "take an entry away", Words._delete),
    "react": Word("/react NUMBER REACTION", "react to an entry", Words._react, seals=True),
    "unreact": Word("/unreact NUMBER [REACTION]", "take your reaction back", Words._unreact),
    "announce": Word("/announce TEXT", "as an admin", Words._announce, seals=True),
    "who": Word("/who", "who is who", Words._who),
    "status": Word("/status", "the epoch, your part, what is open", Words._status),
    "history": Word("/history [HOW-MANY]", "what was said before", Words._history),
    "topic": Word("/topic [TEXT]", "the topic, or a new one as an admin", Words._topic),
    "profile": Word("/profile YOUR-NAME", "what you are called here", Words._profile),
    "invite": Word("/invite WHO", "make somebody a member", Words._invite),
    "approve": Word("/approve WHO", "let an applicant in", Words._approve),
    "decline": _about("/decline WHO", "turn an applicant down", lambda group, who: group.decline(who)),
    "remove": _about("/remove WHO", "put a member out", lambda group, who: group.remove(who)),
    "block": _about("/block WHO", "put somebody out for good", lambda group, who: group.block(who)),
    "unblock": _about("/unblock WHO", "block somebody no more", lambda group, who: group.unblock(who)),
    "mute": _about("/mute WHO", "let a member read and not speak", lambda group, who: group.mute(who)),
    "unmute": _about("/unmute WHO", "let a member speak again", lambda group, who: group.unmute(who)),
    "rotate": Word("/rotate", "make a new epoch", Words._rotate),
    "help": Word("/help", "this", Words._help),
    "quit": Word("/quit", "leave the chat, not the group; also Ctrl-D", Words._quit),
}
