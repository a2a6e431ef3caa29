"""A group computed from its log: apply the events in order, with checked signatures.

Pure: no I/O, no clock, no randomness. Two folds over one log agree; only what they can open differs
by the keys they were given.
"""

from typing import Any

from enc.apps.group.epochs import Epochs, Keys
from enc.apps.group.membership import Membership
from enc.apps.group.messages import Messages
from enc.apps.group.views import Change, ChangeKind, EpochView, GroupMember, GroupStatus
from enc.core.primitives.types import Event
from enc.core.rules.content import content_object

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
    "Manifest": "created the group",
    "Shared": "changed the topic",
    "Own": "changed their profile",
    "Pause": "paused the group",
    "Resume": "resumed the group",
    "Terminate": "ended the group",
    "Migrate": "moved the group to another node",
}
"""What the author of an event did."""


class GroupFold:
    def __init__(self, keys: Keys, enclave: bytes | None = None) -> None:
        self.me = keys.me
        self.membership = Membership(enclave)
        self.epochs = Epochs(keys)
        self.messages = Messages(self.epochs)

    @property
    def seq(self) -> int:
        return self.membership.seq

    def skip(self, seq: int) -> None:
        self.membership.skip(seq)

    def apply(self, event: Event) -> Change:
        """Apply the next event. Raise ReplayFailed, without any change, if the rules forbid it."""
        self.membership.apply(event)
        epoch = self.epochs.apply(event, self.membership)
        message = self.messages.apply(event)
        kind, entry, reaction = message or (_KINDS.get(event.type, "other"), None, None)
        target, what = _describe(event)
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

    # Status

    @property
    def is_stale(self) -> bool:
        return self.epochs.is_stale(self.membership.members)

    @property
    def can_seal(self) -> bool:
        last = self.epochs.last
        return last is not None and self.me in self.membership.members and self.epochs.secret(last.n) is not None

    def last_epoch(self) -> EpochView | None:
        return next((view for view in reversed(self.epochs.views) if view.counts), None)

    def myself(self) -> GroupMember:
        return self.membership.person(self.me)

    def status(self) -> GroupStatus:
        return GroupStatus(
            lifecycle=self.membership.lifecycle,
            seq=self.seq,
            me=self.myself(),
            members=len(self.membership.members),
            epoch=self.last_epoch(),
            is_stale=self.is_stale,
            can_seal=self.can_seal,
            gates=self.membership.gates(),
            topic=self.membership.topic,
        )


def _describe(event: Event) -> tuple[bytes | None, str]:
    """Return the person an event is about, and what it does, in the log's terms or as a phrase."""
    if event.type in ("Move", "Grant", "Revoke", "Transfer", "Gate"):
        content: dict[str, Any] = content_object(event)
        if event.type == "Gate":
            return None, f"{content['alias']} {content['state']}"
        what = f"{content['from']} -> {content['to']}" if event.type == "Move" else f"{event.type} {content['trait']}"
        return bytes.fromhex(content["target"]), what
    return None, _WORDS.get(event.type, event.type)
