"""One contact, as the owner's log shows it."""

from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from enc.apps.dm.epochs import GivenEpoch, OwnEpochs
from enc.apps.dm.records import CopyRecord
from enc.apps.dm.thread import ThreadEntry
from enc.apps.people.address_book import Place

MAX_OPEN_INVITES = 16
"""Unanswered invitations that are kept of one stranger: the newest."""

ContactState = Literal["OUTSIDER", "OWNER", "FRIEND", "BLOCKED"]


class Invite(Struct, frozen=True):
    """A stranger's request to become a contact: the latest. `greeting`: those of all, a line each."""

    id: bytes
    at: int
    author: bytes
    greeting: str


class MailboxContact(Struct, frozen=True):
    """A person with whom there is, or was, any contact."""

    identity: bytes
    state: ContactState
    """Their State in your mailbox; only they know your State in theirs."""
    own_epoch: int
    """The newest epoch you made for them, and the newest they gave; -1: none."""
    given_epoch: int
    place: Place | None
    messages: int
    last_at: int


@dataclass
class Peer:
    identity: bytes
    state: ContactState = "OUTSIDER"
    own: OwnEpochs = field(default_factory=OwnEpochs, repr=False)
    given: GivenEpoch | None = field(default=None, repr=False)
    place: Place | None = None
    place_seq: int = -1
    claimed_place: Place | None = None
    """Where their mailbox is: `place` is from the owner's newest copy, this is from their
    events.
    """
    open_invites: list[Invite] = field(default_factory=list, repr=False)
    """Those not answered, the oldest first."""
    entries: dict[bytes, ThreadEntry] = field(default_factory=dict, repr=False)
    """By `ref`."""
    records: dict[bytes, CopyRecord] = field(default_factory=dict, repr=False)
    """The owner's copies, by the id of the `sent` event."""
    used: dict[int, int] = field(default_factory=dict)
    """The highest sender_seq used in each of their epochs."""
    delivered: int = -1
    """The newest own epoch they were given since their last unblocking or new mailbox."""
    unblocked_seq: int = -1
    epoch_at: int = 0
    """When the current epoch was made."""

    def next_seq(self, epoch: int) -> int:
        return self.used.get(epoch, -1) + 1

    def reset_mailbox(self, seq: int) -> None:
        """Forget what was known of their mailbox: they have a new one, or none that is known."""
        self.given, self.delivered, self.unblocked_seq = None, -1, seq
        self.place, self.place_seq = None, seq

    def decline(self, seq: int) -> None:
        """Forget all their claims, as on a device that never saw the invitation."""
        self.reset_mailbox(seq)
        self.claimed_place = None
        for invite in self.open_invites:
            self.entries.pop(invite.id, None)
        self.open_invites.clear()

    @property
    def invite(self) -> Invite | None:
        """Return the latest invitation that was not answered, with the greetings of all of them."""
        if not self.open_invites:
            return None
        return replace(
            self.open_invites[-1], greeting="\n".join(each.greeting for each in self.open_invites if each.greeting)
        )

    def add_invite(self, invite: Invite) -> None:
        self.open_invites.append(invite)
        if len(self.open_invites) > MAX_OPEN_INVITES:
            self.entries.pop(self.open_invites.pop(0).id, None)

    @property
    def is_contact(self) -> bool:
        """Whether there is, or was, more than an unanswered invitation."""
        waiting = sum(invite.id in self.entries for invite in self.open_invites)
        return self.state != "OUTSIDER" or len(self.entries) > waiting

    @property
    def messages_in_epoch(self) -> int:
        """Their messages since the current epoch was made, without deleted ones, which a new device
        does not see."""
        there = (entry for entry in self.entries.values() if entry.author == self.identity and entry.kind == "message")
        return sum(entry.at >= self.epoch_at and entry.state in ("received", "unreadable") for entry in there)

    @property
    def known_place(self) -> Place | None:
        return self.place or self.claimed_place

    @property
    def owes_epoch(self) -> bool:
        """Whether the next message must carry the current epoch."""
        return self.own.n > self.delivered

    def contact(self) -> MailboxContact:
        given = -1 if self.given is None else self.given.n
        last = max((entry.at for entry in self.entries.values()), default=0)
        return MailboxContact(self.identity, self.state, self.own.n, given, self.known_place, len(self.entries), last)
