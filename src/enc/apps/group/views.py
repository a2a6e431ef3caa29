"""What a group's app shows: people, entries of the conversation, epochs, and what changed. Plain values."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from enc.core.personal import Handoff
from enc.core.types import Receipt

State = Literal["OUTSIDER", "PENDING", "MEMBER", "BLOCKED"]
EntryKind = Literal["message", "notice"]


class Person(Struct, frozen=True):
    """Somebody who is or holds anything in the group, by its log."""

    identity: bytes
    state: str
    traits: tuple[str, ...] = ()
    profile: Any = None
    """What they say of themselves, in the open; None: nothing."""

    @property
    def is_member(self) -> bool:
        return self.state == "MEMBER"

    @property
    def is_owner(self) -> bool:
        return "owner" in self.traits

    @property
    def is_admin(self) -> bool:
        return "admin" in self.traits

    @property
    def is_muted(self) -> bool:
        return "muted" in self.traits


class Reaction(Struct, frozen=True):
    """Somebody's reaction to an entry."""

    id: bytes
    author: bytes
    text: str


class Entry(Struct, frozen=True, kw_only=True):
    """A message, or an admin's announcement (`notice`), as it stands now."""

    id: bytes
    seq: int
    kind: EntryKind
    author: bytes
    timestamp: int
    """Unix milliseconds, by the node's clock."""
    text: str | None = None
    """None: not to be shown; `why` says why."""
    why: str = ""
    """Why there is no text: deleted, from before one came, sealed wrongly."""
    epoch: int | None = None
    is_late: bool = False
    """Sealed under an epoch that was over when it was sent: whoever left since may read it."""
    is_edited: bool = False
    is_deleted: bool = False
    reply_to: bytes | None = None
    """The id of the entry that it answers."""
    reactions: tuple[Reaction, ...] = ()


class EpochView(Struct, frozen=True, kw_only=True):
    """An epoch that somebody made: counted, or ignored by everybody alike."""

    n: int | None
    """The number that it says; None: it says none."""
    seq: int
    """Of the event that carries it."""
    author: bytes
    counts: bool
    why: str = ""
    """Why it does not count."""
    is_open: bool = False
    """Its secret is held here."""
    trouble: str = ""
    """It counts, but its secret did not come to us, or does not fit: nothing can be sealed under it."""


class Status(Struct, frozen=True, kw_only=True):
    """How the group stands, by its log."""

    lifecycle: str
    """active, paused, terminated or migrated."""
    seq: int
    """Of the last event that was taken."""
    me: Person
    members: int
    epoch: EpochView | None
    """The last that counted."""
    is_stale: bool
    """The members are not those of the last epoch: who left may read what is sent, who joined may not."""
    can_seal: bool
    """Whether we hold the secret of the last epoch, and are a member of it."""
    gates: Mapping[str, bool]
    """`applications` and `auto_join`: whether they are open."""
    topic: Any


ChangeKind = Literal[
    "message",
    "notice",
    "edit",
    "delete",
    "reaction",
    "people",
    "epoch",
    "topic",
    "profile",
    "gate",
    "lifecycle",
    "offline",
    "online",
    "other",
]


class Change(Struct, frozen=True, kw_only=True):
    """What one event of the log changed.

    `offline` and `online` are of no event: the node does not answer, and does again.
    """

    kind: ChangeKind
    seq: int
    id: bytes
    author: bytes
    timestamp: int
    type: str
    """The event's own: Move, message, …"""
    entry: Entry | None = None
    """As it is after the event: of a message, a notice, an edit, a delete, a reaction. None: one that is not here."""
    target: bytes | None = None
    """Who it is about, of a Move, a Grant, a Revoke, a Transfer."""
    what: str = ""
    """In words of the log: `OUTSIDER -> MEMBER`, `Grant admin`, `applications open`; else in words for people."""
    epoch: EpochView | None = None
    """The epoch that the event carries."""
    reaction: Reaction | None = None


class Sent(Struct, frozen=True, kw_only=True):
    """What was sent, and stands in the log."""

    id: bytes
    seq: int
    epoch: int
    is_stale: bool = False
    """It was sealed under an epoch whose members are not the present ones."""


class Invited(Struct, frozen=True, kw_only=True):
    """Somebody is a member now; whether they were told is another matter."""

    receipt: Receipt
    notice: Receipt | None = None
    why: str = ""
    """Why no notice was written."""


class Invitation(Struct, frozen=True, kw_only=True):
    """A `group_invite` from one's personal store."""

    id: bytes
    """Of the notice's event."""
    enclave: bytes
    inviter: bytes
    topic: str | None = None
    greeting: str | None = None
    epoch_n: int | None = None
    is_confirmed: bool = False
    """The group's own log has the inviter's Move of us to MEMBER. Show no other as an invitation."""
    why: str = ""
    """Why it is not confirmed, so far."""
    move_ref: bytes | None = None
    """The event that made us a member, as the notice says."""
    handoff: Handoff | None = None
    is_discarded: bool = False
    """Its source refutes it, or it was not confirmed in time: it is to be deleted."""
