"""Slash commands of `enc group chat`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from enc.cli.chat.slash_commands import Replies, SlashCommand, SlashCommands, how_many, one, two
from enc.cli.group.context import find_entry, own_reaction, resolve_member
from enc.cli.group.view import GroupView, epoch_text, member_count, not_notified, role_text, topic_text

if TYPE_CHECKING:
    from enc.apps.group import Group, Invited
    from enc.apps.people.address_book import AddressBook
    from enc.apps.people.lookup import Person
    from enc.client import Client
    from enc.core.primitives.types import Receipt


class GroupCommands(SlashCommands):
    def __init__(self, group: "Group", view: GroupView, book: "AddressBook", client: "Client") -> None:
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

    def _sent(self, seq: int) -> Replies:
        self._last_seq = max(self._last_seq, seq)
        return iter(())

    def say(self, text: str) -> Replies:
        return self._sent(self.group.say(text, attempt=self.sending).seq)

    def _reply(self, rest: str) -> Replies:
        entry, text = two(rest, "/reply NUMBER TEXT")
        to = find_entry(self.group, entry).id
        return self._sent(self.group.say(text, reply_to=to, attempt=self.sending).seq)

    def _edit(self, rest: str) -> Replies:
        entry, text = two(rest, "/edit NUMBER TEXT")
        return self._sent(self.group.edit(find_entry(self.group, entry).id, text, attempt=self.sending).seq)

    def _react(self, rest: str) -> Replies:
        entry, text = two(rest, "/react NUMBER REACTION")
        return self._sent(self.group.react(find_entry(self.group, entry).id, text, attempt=self.sending).seq)

    def _unreact(self, rest: str) -> Replies:
        entry, _, text = rest.partition(" ")
        return self._sent(self.group.delete(own_reaction(self.group, entry, text.strip() or None)).seq)

    def _delete(self, rest: str) -> Replies:
        return self._sent(self.group.delete(find_entry(self.group, one(rest, "/delete NUMBER")).id).seq)

    def _announce(self, rest: str) -> Replies:
        return self._sent(self.group.announce(one(rest, "/announce TEXT"), attempt=self.sending).seq)

    def _topic(self, rest: str) -> Replies:
        if rest:
            return self._sent(self.group.set_topic(rest).seq)
        return iter([f"topic: {topic_text(self.group.status().topic)}"])

    def _profile(self, rest: str) -> Replies:
        return self._sent(self.group.set_profile({"name": one(rest, "/profile YOUR-NAME")}).seq)

    def _invite(self, rest: str) -> Replies:
        return self._admit(self.group.invite, rest)

    def _approve(self, rest: str) -> Replies:
        return self._admit(self.group.approve, rest)

    def _admit(self, act: Callable[..., "Invited"], who: str) -> Replies:
        person = self._resolve(who)
        invited = act(person.identity, place=person.places.get("personal"))
        self._sent(invited.receipt.seq)
        if invited.notice is None:
            yield not_notified(invited, self.group)

    def _resolve(self, who: str) -> "Person":
        return resolve_member(self.group, self._book, one(who, "the name or the key of a person"), self._ask)

    def _ask(self, word: str) -> "Person":
        from enc.apps.people.lookup import known

        return known(word, self._book, self._client)

    def _rotate(self, rest: str) -> Replies:
        return self._sent(self.group.rotate().seq)

    def _status(self, rest: str) -> Replies:
        found = self.group.status()
        gates = ", ".join(f"{gate} {'open' if is_open else 'closed'}" for gate, is_open in found.gates.items())
        yield f"{epoch_text(found)}; {member_count(found.members)}; you: {role_text(found)}; {gates}; {found.lifecycle}"

    def _who(self, rest: str) -> Replies:
        for person in self.group.people():
            who, state, traits, identity = self.view.person(person)
            yield "  ".join(part for part in (who, state, traits, identity) if part)

    def _history(self, rest: str) -> Replies:
        for entry in self.group.entries(how_many(rest)):
            yield self.view.entry(entry)


def _person_command(usage: str, help_: str, act: Callable[["Group", bytes], "Receipt"]) -> SlashCommand:
    return SlashCommand(
        usage, help_, lambda commands, rest: commands._sent(act(commands.group, commands._resolve(rest).identity).seq)
    )


GroupCommands.commands = {
    "reply": SlashCommand("/reply NUMBER TEXT", "reply to an entry", GroupCommands._reply, seals=True),
    "edit": SlashCommand("/edit NUMBER TEXT", "replace your message", GroupCommands._edit, seals=True),
    "delete": SlashCommand("/delete NUMBER", "delete an entry", GroupCommands._delete),
    "react": SlashCommand("/react NUMBER REACTION", "react to an entry", GroupCommands._react, seals=True),
    "unreact": SlashCommand("/unreact NUMBER [REACTION]", "remove your reaction", GroupCommands._unreact),
    "announce": SlashCommand(
        "/announce TEXT", "send an announcement, as an admin", GroupCommands._announce, seals=True
    ),
    "who": SlashCommand("/who", "list members, applicants and blocked people", GroupCommands._who),
    "status": SlashCommand("/status", "show the epoch, your role, and the gates", GroupCommands._status),
    "history": SlashCommand("/history [HOW-MANY]", "show earlier messages", GroupCommands._history),
    "topic": SlashCommand("/topic [TEXT]", "show the topic, or set it as an admin", GroupCommands._topic),
    "profile": SlashCommand("/profile YOUR-NAME", "set your name in this group", GroupCommands._profile),
    "invite": SlashCommand("/invite WHO", "make a person a member", GroupCommands._invite),
    "approve": SlashCommand("/approve WHO", "approve an applicant", GroupCommands._approve),
    "decline": _person_command("/decline WHO", "decline an application", lambda group, who: group.decline(who)),
    "remove": _person_command("/remove WHO", "remove a member", lambda group, who: group.remove(who)),
    "block": _person_command("/block WHO", "block a person", lambda group, who: group.block(who)),
    "unblock": _person_command("/unblock WHO", "unblock a person", lambda group, who: group.unblock(who)),
    "mute": _person_command("/mute WHO", "let a member read but not write", lambda group, who: group.mute(who)),
    "unmute": _person_command("/unmute WHO", "let a member write again", lambda group, who: group.unmute(who)),
    "rotate": SlashCommand("/rotate", "make a new epoch", GroupCommands._rotate),
}
