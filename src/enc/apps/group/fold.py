"""A group as a fold over its log: events in, in order and with checked signatures; everything else follows from them.

Pure: no I/O, no clock, no randomness. Two folds over one log agree, whoever feeds them and whenever; what they can
open differs by the keys that they were given.
"""

from typing import Any

from enc.apps.group.epochs import Epochs, Keys
from enc.apps.group.roll import Roll
from enc.apps.group.talk import Talk
from enc.apps.group.views import Change, ChangeKind, EpochView, Person, Status
from enc.core.content import content_object
from enc.core.types import Event

_KINDS: dict[str, ChangeKind] = {
    "Manifest": "people",
    "Move": "people",
    "Grant": "people",
    "Revoke": "people",
    "Transfer": "people",
    "AC_Bundle": "people",
    "Gate": "gate",
    "Shared": "topic",
    "Own": "profile",
    "rotate": "epoch",
    "Pause": "lifecycle",
    "Resume": "lifecycle",
    "Terminate": "lifecycle",
    "Migrate": "lifecycle",
}


_WORDS = {
    "Manifest": "founded the group",
    "Shared": "changed the topic",
    "Own": "changed their profile",
    "Pause": "paused the group",
    "Resume": "resumed the group",
    "Terminate": "ended the group",
    "Migrate": "moved the group to another node",
}
"""What the author did."""


class Fold:
    def __init__(self, keys: Keys, enclave: bytes | None = None) -> None:
        self.me = keys.me
        self.roll = Roll(enclave)
        self.epochs = Epochs(keys)
        self.talk = Talk(self.epochs)

    @property
    def seq(self) -> int:
        return self.roll.seq

    def skip(self, seq: int) -> None:
        self.roll.skip(seq)

    def take(self, event: Event) -> Change:
        """The next event. ReplayFailed: the rules refuse it, and nothing has changed."""
        self.roll.take(event)
        epoch = self.epochs.take(event, self.roll)
        said = self.talk.take(event)
        kind, entry, reaction = said or (_KINDS.get(event.type, "other"), None, None)
        target, what = _told(event)
        return Change(
            kind=kind,
            seq=event.seq,
            id=event.id,
            author=event.from_,
            timestamp=event.timestamp,
            type=event.type,
            entry=entry,
            target=target,
            what=what,
            epoch=epoch,
            reaction=reaction,
        )

    # How it stands

    @property
    def is_stale(self) -> bool:
        return self.epochs.is_stale(self.roll.members)

    @property
    def can_seal(self) -> bool:
        last = self.epochs.last
        return last is not None and self.me in self.roll.members and self.epochs.secret(last.n) is not None

    def last_epoch(self) -> EpochView | None:
        return next((view for view in reversed(self.epochs.views) if view.counts), None)

    def my_standing(self) -> Person:
        return self.roll.person(self.me)

    def status(self) -> Status:
        return Status(
            lifecycle=self.roll.lifecycle,
            seq=self.seq,
            me=self.my_standing(),
            members=len(self.roll.members),
            epoch=self.last_epoch(),
            is_stale=self.is_stale,
            can_seal=self.can_seal,
            gates=self.roll.gates(),
            topic=self.roll.topic,
        )


def _told(event: Event) -> tuple[bytes | None, str]:
    """Whom an event is about, and what it does, in the log's own words, or in words for people."""
    if event.type in ("Move", "Grant", "Revoke", "Transfer", "Gate"):
        content: dict[str, Any] = content_object(event)
        if event.type == "Gate":
            return None, f"{content['alias']} {content['state']}"
        what = f"{content['from']} -> {content['to']}" if event.type == "Move" else f"{event.type} {content['trait']}"
        return bytes.fromhex(content["target"]), what
    return None, _WORDS.get(event.type, event.type)
