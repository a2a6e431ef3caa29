"""Presentation of a group: people, messages and changes, as lines for people and as JSON for programs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from enc.cli.chat.line import YOU, ChatLine, visible_lines
from enc.cli.common.output import short, visible, withheld_text

if TYPE_CHECKING:
    from enc.apps.group import Change, EpochView, Group, GroupEntry, GroupMember, GroupStatus, Invited

MAX_SELF_NAME = 24
"""Characters that are shown of a self-chosen name."""
QUOTE = 40
"""Characters that are quoted of an entry that was answered, edited or reacted to."""
_BECAME = {
    "OUTSIDER -> PENDING": "applies to join",
    "OUTSIDER -> MEMBER": "is a member now",
    "PENDING -> MEMBER": "is a member now",
    "PENDING -> OUTSIDER": "is no longer an applicant",
    "MEMBER -> OUTSIDER": "is no longer a member",
    "MEMBER -> BLOCKED": "is blocked",
    "OUTSIDER -> BLOCKED": "is blocked",
    "BLOCKED -> OUTSIDER": "is no longer blocked",
    "Grant admin": "is an admin now",
    "Revoke admin": "is no longer an admin",
    "Grant muted": "is muted",
    "Revoke muted": "is no longer muted",
    "Transfer owner": "is the owner now",
}


_ACTIONS = {"Own": "changes {their} profile", "Migrate": "moves the group to another node"}
_TO_YOU = {"is": "are", "applies": "apply"}


def _sentence(who: str, what: str) -> str:
    """Return a sentence. `what` begins with a verb in the third person, which becomes the second for YOU."""
    verb, _, rest = what.partition(" ")
    return f"{who} {_TO_YOU.get(verb, verb.removesuffix('s')) if who == YOU else verb} {rest}"


class GroupView:
    """Describes a group's entries and changes, with the names in the address book."""

    def __init__(self, group: "Group", names: Mapping[bytes, str]) -> None:
        self._group, self._names = group, names

    def display_name(self, identity: bytes) -> str:
        if identity == self._group.me:
            return YOU
        return display_name(identity, self._names, self._group.person(identity).profile)

    def entry(self, entry: "GroupEntry") -> ChatLine:
        return ChatLine(
            timestamp=entry.timestamp,
            who=self.display_name(entry.author),
            text=self._text(entry),
            number=f"#{entry.seq}",
            marks=self._marks(entry),
            quote=self._quote(entry.reply_to),
            is_notice=entry.kind == "notice",
            is_faint=entry.text is None,
        )

    def _text(self, entry: "GroupEntry") -> str:
        if entry.withheld is not None:
            return f"[{withheld_text(entry.withheld.reason, entry.withheld.ts)}]"
        if entry.text is None:
            return f"({visible(entry.why) or 'not readable'})"
        return visible_lines(entry.text)

    def _marks(self, entry: "GroupEntry") -> str:
        marks = [name for name, is_so in (("edited", entry.is_edited), ("late", entry.is_late)) if is_so]
        reactions = [f"{visible(each.text)} {self.display_name(each.author)}" for each in entry.reactions]
        return " ".join([*(f"({mark})" for mark in marks), *(f"[{each}]" for each in reactions)])

    def _quote(self, answered: bytes | None) -> str:
        if answered is None:
            return ""
        entry = self._group.entry(answered)
        return "an unknown entry" if entry is None else self._brief(entry)

    def _brief(self, entry: "GroupEntry") -> str:
        text = self._text(entry).replace("\n", " ")
        cut = text if len(text) <= QUOTE else f"{text[: QUOTE - 1]}…"
        return f"#{entry.seq} {self.display_name(entry.author)}: {cut}"

    def change(self, change: "Change") -> list[ChatLine]:
        """Return the lines for a change; some changes have none."""
        if change.kind in ("message", "notice") and change.entry is not None:
            return [self.entry(change.entry)]
        lines = [self._line(change, text)] if (text := self._describe(change)) else []
        if change.epoch is not None and change.kind != "epoch":
            lines.append(self._line(change, self._epoch(change.epoch)))
        return lines

    def _line(self, change: "Change", text: str) -> ChatLine:
        return ChatLine(timestamp=change.timestamp, text=text, number=f"#{change.seq}")

    def _describe(self, change: "Change") -> str:
        by = self.display_name(change.author)
        if change.kind in ("edit", "delete", "reaction"):
            return self._describe_entry(change, by)
        if change.kind == "people" and change.target is not None:
            became = _sentence(self.display_name(change.target), _BECAME.get(change.what, visible(change.what)))
            return became if change.target == change.author else f"{became}, by {by}"
        if change.kind == "epoch" and change.epoch is not None:
            return self._epoch(change.epoch)
        if change.kind == "topic":
            return _sentence(by, f"sets the topic: {topic_text(self._group.status().topic)}")
        if change.type in _ACTIONS:
            return _sentence(by, _ACTIONS[change.type].format(their="your" if by == YOU else "their"))
        return f"{by}: {visible(change.what or change.type)}"

    def _describe_entry(self, change: "Change", by: str) -> str:
        about = "an unknown entry" if change.entry is None else self._brief(change.entry)
        if change.kind == "edit":
            return _sentence(by, f"edits {about}")
        if change.kind == "reaction":
            reaction = "" if change.reaction is None else f"{visible(change.reaction.text)} "
            return _sentence(by, f"reacts {reaction}to {about}")
        if change.entry is None or change.entry.is_deleted:
            return _sentence(by, f"deletes {about if change.entry is None else f'#{change.entry.seq}'}")
        return _sentence(by, f"removes a reaction to {about}")

    def _epoch(self, epoch: "EpochView") -> str:
        by = self.display_name(epoch.author)
        if not epoch.counts:
            return f"an epoch by {by} does not count: {visible(epoch.why)}"
        trouble = f"; it does not open here: {visible(epoch.trouble)}" if epoch.trouble else ""
        return f"epoch {epoch.n} by {by}{trouble}"

    def person(self, person: "GroupMember") -> tuple[str, ...]:
        """Return the cells of a table row."""
        return (
            self.display_name(person.identity),
            person.state.lower(),
            ", ".join(person.traits),
            person.identity.hex(),
        )


def epoch_text(status: "GroupStatus") -> str:
    """Describe the newest epoch: fresh or stale, and whether it is open here."""
    if status.epoch is None:
        return "no epoch yet"
    state = "STALE" if status.is_stale else "fresh"
    return f"epoch {status.epoch.n} {state}" + ("" if status.can_seal else ", not opened here")


def display_name(identity: bytes, names: Mapping[bytes, str], profile: Any = None) -> str:
    """Return a person's display name: yours for them, or `~` and their self-chosen one with a part of their key.

    The two look different because anybody can choose any name.
    """
    if identity in names:
        return visible(names[identity])
    chosen = profile.get("name") if isinstance(profile, dict) else None
    if not isinstance(chosen, str) or not chosen:
        return short(identity)
    return f"~{visible(chosen[:MAX_SELF_NAME])} {short(identity)}"


def not_notified(invited: "Invited", group: "Group") -> str:
    """Explain why a new member was not notified, and what to do."""
    return f"they were not notified: {visible(invited.why)}; send them the group's id: {group.hex}"


def member_count(members: int) -> str:
    return f"{members} member{'' if members == 1 else 's'}"


STALE = "the group's epoch is stale: people who left since the last epoch can read what you send; new members cannot"


def role_text(status: "GroupStatus") -> str:
    return ", ".join(status.me.traits) if status.me.traits else status.me.state.lower()


def topic_text(topic: Any) -> str:
    return "(none)" if topic is None else visible(topic if isinstance(topic, str) else str(topic))


def wire(value: Any) -> Any:
    """Return a value of the group's API as JSON, with bytes in hex."""
    return _hexed(to_builtins(value, builtin_types=(bytes,)))


def _hexed(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: _hexed(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_hexed(each) for each in value]
    return value
