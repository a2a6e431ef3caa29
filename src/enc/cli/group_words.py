"""Slash commands of `enc group chat`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from enc.cli.chat_words import Told, Word, Words, how_many, one, two
from enc.cli.group_room import entry_of, own_reaction, whom
from enc.cli.group_view import View, counted, freshness, standing, topic_text, untold

if TYPE_CHECKING:
    from enc.apps.address_book import AddressBook
    from enc.apps.group import Group, Invited
    from enc.apps.people import Person
    from enc.client import Client
    from enc.core.types import Receipt


class GroupWords(Words):
    def __init__(self, group: "Group", view: View, book: "AddressBook", client: "Client") -> None:
        self.group, self.view, self._book, self._client = group, view, book, client
        self._last_seq = -1

    @property
    def last_seq(self) -> int:
        """Seq of the last event sent from here."""
        return self._last_seq

    @property
    def max_text(self) -> int:
        from enc.apps.group.rights import MAX_TEXT

        return MAX_TEXT

    def _sent(self, seq: int) -> Told:
        self._last_seq = max(self._last_seq, seq)
        return iter(())

    def say(self, text: str) -> Told:
        return self._sent(self.group.say(text).seq)

    def _reply(self, rest: str) -> Told:
        entry, text = two(rest, "/reply NUMBER TEXT")
        return self._sent(self.group.say(text, reply_to=entry_of(self.group, entry).id).seq)

    def _edit(self, rest: str) -> Told:
        entry, text = two(rest, "/edit NUMBER TEXT")
        return self._sent(self.group.edit(entry_of(self.group, entry).id, text).seq)

    def _react(self, rest: str) -> Told:
        entry, text = two(rest, "/react NUMBER REACTION")
        return self._sent(self.group.react(entry_of(self.group, entry).id, text).seq)

    def _unreact(self, rest: str) -> Told:
        entry, _, text = rest.partition(" ")
        return self._sent(self.group.delete(own_reaction(self.group, entry, text.strip() or None)).seq)

    def _delete(self, rest: str) -> Told:
        return self._sent(self.group.delete(entry_of(self.group, one(rest, "/delete NUMBER")).id).seq)

    def _announce(self, rest: str) -> Told:
        return self._sent(self.group.announce(one(rest, "/announce TEXT")).seq)

    def _topic(self, rest: str) -> Told:
        if rest:
            return self._sent(self.group.set_topic(rest).seq)
        return iter([f"topic: {topic_text(self.group.status().topic)}"])

    def _profile(self, rest: str) -> Told:
        return self._sent(self.group.set_profile({"name": one(rest, "/profile YOUR-NAME")}).seq)

    def _invite(self, rest: str) -> Told:
        return self._let_in(self.group.invite, rest)

    def _approve(self, rest: str) -> Told:
        return self._let_in(self.group.approve, rest)

    def _let_in(self, act: Callable[..., "Invited"], who: str) -> Told:
        person = self._whom(who)
        invited = act(person.identity, place=person.places.get("personal"))
        self._sent(invited.receipt.seq)
        if invited.notice is None:
            yield untold(invited, self.group)

    def _whom(self, who: str) -> "Person":
        return whom(self.group, self._book, one(who, "the name or the key of a person"), self._ask)

    def _ask(self, word: str) -> "Person":
        from enc.apps.people import known

        return known(word, self._book, self._client)

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
        for entry in self.group.entries(how_many(rest)):
            yield self.view.entry(entry)


def _about(usage: str, help_: str, act: Callable[["Group", bytes], "Receipt"]) -> Word:
    return Word(usage, help_, lambda words, rest: words._sent(act(words.group, words._whom(rest).identity).seq))


GroupWords.words = {
    "reply": Word("/reply NUMBER TEXT", "reply to an entry", GroupWords._reply, seals=True),
    "edit": Word("/edit NUMBER TEXT", "replace your message", GroupWords._edit, seals=True),
    "delete": Word("/delete NUMBER", "delete an entry", GroupWords._delete),
    "react": Word("/react NUMBER REACTION", "react to an entry", GroupWords._react, seals=True),
    "unreact": Word("/unreact NUMBER [REACTION]", "remove your reaction", GroupWords._unreact),
    "announce": Word("/announce TEXT", "send an announcement, as an admin", GroupWords._announce, seals=True),
    "who": Word("/who", "list members, applicants and blocked people", GroupWords._who),
    "status": Word("/status", "show the epoch, your role, and the gates", GroupWords._status),
    "history": Word("/history [HOW-MANY]", "show earlier messages", GroupWords._history),
    "topic": Word("/topic [TEXT]", "show the topic, or set it as an admin", GroupWords._topic),
    "profile": Word("/profile YOUR-NAME", "set your name in this group", GroupWords._profile),
    "invite": Word("/invite WHO", "make a person a member", GroupWords._invite),
    "approve": Word("/approve WHO", "approve an applicant", GroupWords._approve),
    "decline": _about("/decline WHO", "decline an application", lambda group, who: group.decline(who)),
    "remove": _about("/remove WHO", "remove a member", lambda group, who: group.remove(who)),
    "block": _about("/block WHO", "block a person", lambda group, who: group.block(who)),
    "unblock": _about("/unblock WHO", "unblock a person", lambda group, who: group.unblock(who)),
    "mute": _about("/mute WHO", "let a member read but not write", lambda group, who: group.mute(who)),
    "unmute": _about("/unmute WHO", "let a member write again", lambda group, who: group.unmute(who)),
    "rotate": Word("/rotate", "make a new epoch", GroupWords._rotate),
}
