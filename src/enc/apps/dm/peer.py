"""One contact, as far as the owner's log tells of it."""

from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from enc.apps.address_book import Place
from enc.apps.dm.epochs import GivenEpoch, OwnEpochs
from enc.apps.dm.records import Record
from enc.apps.dm.thread import Entry

Standing = Literal["OUTSIDER", "OWNER", "FRIEND", "BLOCKED"]


class Invite(Struct, frozen=True):
    """Somebody wants to be a contact."""

    id: bytes
    at: int
    author: bytes
    greeting: str


class Contact(Struct, frozen=True):
    """Somebody with whom there is, or was, anything."""

    identity: bytes
    state: Standing
    """In one's own mailbox: what they are in the other's, only its owner knows."""
    own_epoch: int
    """The newest that one made for them, and the newest that they gave; -1: none."""
    given_epoch: int
    place: Place | None
    messages: int
    last_at: int


@dataclass
class Peer:
    identity: bytes
    state: Standing = "OUTSIDER"
    own: OwnEpochs = field(default_factory=OwnEpochs, repr=False)
    given: GivenEpoch | None = field(default=None, repr=False)
    place: Place | None = None
    place_seq: int = -1
    said: Place | None = None
    """Where their mailbox is: as one's own newest copy has it, and as they said themselves."""
    invite: Invite | None = field(default=None, repr=False)
    entries: dict[bytes, Entry] = field(default_factory=dict, repr=False)
    """By `ref`."""
    records: dict[bytes, Record] = field(default_factory=dict, repr=False)
    """One's own copies, by the id of the `sent` event."""
    used: dict[int, int] = field(default_factory=dict)
    """The highest sender_seq of each epoch of theirs that one has sealed with."""
    delivered: int = -1
    """The newest epoch of one's own that they were given since they were last unblocked, or came with a new mailbox."""
    unblocked_seq: int = -1
    epoch_at: int = 0
    """When the current epoch was made."""

    def next_seq(self, epoch: int) -> int:
        return self.used.get(epoch, -1) + 1

    def begin_anew(self, seq: int) -> None:
        """They have a new mailbox, or none that is known: what one knew of the old one counts no more."""
        self.given, self.delivered, self.unblocked_seq = None, -1, seq
        self.place, self.place_seq = None, seq

    def decline(self, seq: int) -> None:
        """Nothing is left of what they said of themselves: as on a device that never saw the invitation."""
        self.begin_anew(seq)
        self.said = None
        self.drop_invite()

    def drop_invite(self) -> None:
        """One that was not answered."""
        if self.invite is not None:
            self.entries.pop(self.invite.id, None)
        self.invite = None

    @property
    def is_contact(self) -> bool:
        """There is, or was, more than an invitation that waits."""
        waiting = 0 if self.invite is None else self.invite.id in self.entries
        return self.state != "OUTSIDER" or len(self.entries) > waiting

    @property
    def heard(self) -> int:
        """Messages of the current epoch's time that stand: what is deleted, a new device does not see."""
        there = (entry for entry in self.entries.values() if entry.author == self.identity and entry.kind == "message")
        return sum(entry.at >= self.epoch_at and entry.state in ("received", "unreadable") for entry in there)

    @property
    def where(self) -> Place | None:
        return self.place or self.said

    @property
    def owes_epoch(self) -> bool:
        """The current epoch must go with the next message."""
        return self.own.n > self.delivered

    def contact(self) -> Contact:
        given = -1 if self.given is None else self.given.n
        last = max((entry.at for entry in self.entries.values()), default=0)
        return Contact(self.identity, self.state, self.own.n, given, self.where, len(self.entries), last)
