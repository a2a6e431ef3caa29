"""Values that a group's app shows: people, entries of the conversation, epochs and changes."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from enc.core.primitives.types import Receipt, Withheld
from enc.core.sealed_forms.personal import Handoff

MemberState = Literal["OUTSIDER", "PENDING", "MEMBER", "BLOCKED"]
EntryKind = Literal["message", "notice"]


class GroupMember(Struct, frozen=True):
    """A person's State, traits and profile in the group, from its log."""

    identity: bytes
    state: str
    traits: tuple[str, ...] = ()
    profile: Any = None
    """Their own profile, which the node can read; None: not set."""

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
    """A reaction to an entry."""

    id: bytes
    author: bytes
    text: str


class GroupEntry(Struct, frozen=True, kw_only=True):
    """A message or an admin's announcement (`notice`), as it is now."""

    id: bytes
    seq: int
    kind: EntryKind
    author: bytes
    timestamp: int
    """Unix milliseconds, by the node's clock."""
    text: str | None = None
    """None: cannot be shown; `why` gives the reason."""
    why: str = ""
    """Why there is no text: deleted, withheld, from before we joined, or sealed wrongly."""
    withheld: Withheld | None = None
    """The verified statement of a node that it withholds the content."""
    epoch: int | None = None
    is_late: bool = False
    """Sealed under an epoch that had been replaced: members who left since may read it."""
    is_edited: bool = False
    is_deleted: bool = False
    reply_to: bytes | None = None
    """The id of the entry that it answers."""
    reactions: tuple[Reaction, ...] = ()


class EpochView(Struct, frozen=True, kw_only=True):
    """An epoch that someone made: it counts, or everyone ignores it."""

    n: int | None
    """Its number; None if it has none."""
    seq: int
    """The seq of the event that carries it."""
    author: bytes
    counts: bool
    why: str = ""
    """Why it does not count."""
    withheld: Withheld | None = None
    """The verified statement of a node that it withholds the event's content: the epoch in it is
    unknown here, and members who read it before may use it."""
    is_open: bool = False
    """Whether we hold its secret."""
    trouble: str = ""
    """Why we lack the secret of an epoch that counts, so that nothing can be sealed under it."""


class GroupStatus(Struct, frozen=True, kw_only=True):
    """The status of the group, from its log."""

    lifecycle: str
    """active, paused, terminated or migrated."""
    seq: int
    """The seq of the last event that was read."""
    me: GroupMember
    members: int
    epoch: EpochView | None
    """The last one that counts."""
    is_stale: bool
    """Whether the members differ from those of the last epoch: people who left may read what is
    sent, and people who joined may not.
    """
    can_seal: bool
    """Whether we are a member and hold the secret of the last epoch."""
    gates: Mapping[str, bool]
    """Whether `applications` and `auto_join` are open."""
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

    `offline` and `online` belong to no event: the node has stopped answering, or answers again.
    """

    kind: ChangeKind
    seq: int
    id: bytes
    author: bytes
    timestamp: int
    type: str
    """The event's type: Move, message, …"""
    entry: GroupEntry | None = None
    """The entry after the event, for a message, notice, edit, delete or reaction; None: unknown
    here.
    """
    target: bytes | None = None
    """The person it is about, for a Move, Grant, Revoke or Transfer."""
    what: str = ""
    """In the log's terms: `OUTSIDER -> MEMBER`, `Grant admin`, `applications open`; else a
    phrase.
    """
    epoch: EpochView | None = None
    """The epoch that the event carries."""
    reaction: Reaction | None = None


class Sent(Struct, frozen=True, kw_only=True):
    """An event that was sent and is in the log."""

    id: bytes
    seq: int
    epoch: int
    is_stale: bool = False
    """Whether it was sealed under an epoch whose members are not the current ones."""


class Invited(Struct, frozen=True, kw_only=True):
    """A new member; `notice` is None if they could not be notified."""

    receipt: Receipt
    notice: Receipt | None = None
    why: str = ""
    """Why no notice was written."""


class Invitation(Struct, frozen=True, kw_only=True):
    """A `group_invite` from a personal store."""

    id: bytes
    """The id of the notice's event."""
    enclave: bytes
    inviter: bytes
    topic: str | None = None
    greeting: str | None = None
    epoch_n: int | None = None
    is_confirmed: bool = False
    """Whether the group's log has the Move by which the inviter made us a MEMBER. Show others as
    unproved.
    """
    why: str = ""
    """Why it is not confirmed."""
    move_ref: bytes | None = None
    """The event that made us a member, according to the notice."""
    handoff: Handoff | None = None
    is_refuted: bool = False
    """Whether it contradicts the group's log or Manifest, or itself: it should be deleted."""
