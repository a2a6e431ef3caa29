"""A mailbox computed from its log: contacts, epochs, invitations and threads.

Feed it every event that the owner may read, by rising seq; two devices that were fed the same log
agree. An event's old content may be erased by the time it is read, so everything here follows from
what is never erased: later Updates and Deletes, tags, and the order of events.

A node cannot sign for others, but it can show events that it should have rejected. So the rights
are checked here again: Moves, rotates, copies and Gates are the owner's; a message is a FRIEND's;
an event is revised by its author, unless BLOCKED.
"""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from enc.apps.dm.contact_claims import ContactClaims
from enc.apps.dm.epochs import open_epoch
from enc.apps.dm.errors import NotAllowed
from enc.apps.dm.open_message import open_copy, open_text
from enc.apps.dm.peer import Invite, Peer
from enc.apps.dm.records import CopyRecord, parse_record
from enc.apps.dm.tags import (
    AT_TAG,
    FROM_TAG,
    MAILBOX_TAG,
    TO_TAG,
    claimed_time,
    tag_value,
)
from enc.apps.dm.thread import ThreadEntry, sent_entry
from enc.apps.people.address_book import Place
from enc.client.verify.items import Item
from enc.core.errors import PeerError
from enc.core.primitives.encoding import unhex
from enc.core.primitives.signer import Signer
from enc.core.primitives.types import Event
from enc.core.rules.content import content_object, revised_id
from enc.core.sealed_forms import dm

MAX_REFUSALS = 1000

ChangedEntry = tuple[bytes, bytes]
"""The contact whose thread has changed, and the `ref` of the entry."""


class Refusal(Struct, frozen=True):
    """An event that was rejected, entirely or in part."""

    seq: int
    id: bytes
    author: bytes
    error: PeerError


class MailboxFold:
    def __init__(self, key: Signer) -> None:
        self._key, self.me = key, key.public
        self.peers: dict[bytes, Peer] = {}
        self.last_seq = -1
        self.refusals: list[Refusal] = []
        """The first MAX_REFUSALS."""
        self.is_open = True
        """Whether strangers may send invitations."""
        self._sent: dict[bytes, tuple[bytes, int, int]] = {}
        """For each `sent` event: its recipient, seq and time."""
        self._sent_keys: dict[bytes, bytes] = {}
        self._claims = ContactClaims(key, self._refuse)
        self._handlers: dict[str, Callable[[Event], list[ChangedEntry]]] = {
            "Move": self._move,
            "AC_Bundle": self._bundle,
            "Gate": self._gate,
            "rotate": self._rotate,
            "invite": self._invite,
            "message": self._message,
            "sent": self._sent_event,
            "Update": self._update,
            "Delete": self._delete,
        }

    def apply(self, item: Item) -> list[ChangedEntry]:
        """Apply the next event; return the changed entries. A wrong event is added to the
        refusals.
        """
        if item.seq <= self.last_seq:
            return []
        self.last_seq, event = item.seq, item.event
        handle = self._handlers.get(event.type)
        if handle is None:
            return []
        try:
            return handle(event)
        except PeerError as e:
            self._refuse(event, e)
            return []

    def peer(self, identity: bytes) -> Peer:
        return self.peers.setdefault(identity, Peer(identity))

    def thread(self, identity: bytes) -> list[ThreadEntry]:
        known = self.peers.get(identity)
        return [] if known is None else sorted(known.entries.values(), key=lambda entry: entry.place)

    def last_sent(self, identity: bytes) -> ThreadEntry | None:
        """Return the owner's last message to a contact, in the order of the owner's log: a pending
        message has no time in the contact's mailbox yet."""
        known = self.peers.get(identity)
        if known is None:
            return None
        mine = [ref for ref, record in known.records.items() if record.kind == "message"]
        return known.entries[max(mine, key=lambda ref: self._sent[ref][1])] if mine else None

    def invites(self) -> list[Invite]:
        """Return the invitations of strangers, the oldest first."""
        waiting = (peer.invite for peer in self.peers.values() if peer.state == "OUTSIDER")
        return sorted((invite for invite in waiting if invite is not None), key=lambda invite: invite.at)

    def pending(self) -> Iterator[tuple[Peer, bytes, CopyRecord]]:
        """Yield the records whose delivery is pending."""
        for peer in self.peers.values():
            for ref, record in list(peer.records.items()):
                if record.pending is not None:
                    yield peer, ref, record

    # The owner's events

    def _move(self, event: Event) -> list[ChangedEntry]:
        self._check_owner(event)
        return self._moved(event, content_object(event))

    def _bundle(self, event: Event) -> list[ChangedEntry]:
        self._check_owner(event)
        operations = content_object(event).get("operations")
        for each in operations if isinstance(operations, list) else ():
            if isinstance(each, dict) and each.get("type") in ("Move", "Gate"):
                self._moved(event, each) if each["type"] == "Move" else self._gated(each)
        return []

    def _moved(self, event: Event, content: dict[str, Any]) -> list[ChangedEntry]:
        target, to = unhex(content.get("target"), 32, "target"), content.get("to")
        if to not in ("OUTSIDER", "FRIEND", "BLOCKED") or target == self.me:
            raise NotAllowed(f"Move: not a move within a mailbox: to {to}")
        peer = self.peer(target)
        if content.get("from") != peer.state:  # a node withheld it, so that it would undo a later one
            raise NotAllowed(f"Move: the target is {peer.state}")
        if peer.state == "BLOCKED":
            peer.delivered, peer.unblocked_seq = -1, event.seq
        peer.state = to
        if to != "OUTSIDER":  # answered
            peer.open_invites.clear()
        if "epoch" in content:
            self._own_epoch(event, peer, content["epoch"])
        return []

    def _rotate(self, event: Event) -> list[ChangedEntry]:
        self._check_owner(event)
        content = content_object(event)
        target = unhex(content.get("target"), 32, "target")
        self._own_epoch(event, self.peer(target), content.get("epoch"))
        return []

    def _own_epoch(self, event: Event, peer: Peer, wire: Any) -> None:
        epoch = dm.parse_epoch(wire)
        peer.own.check_next(epoch.n)
        peer.own.add(epoch.n, open_epoch(self._key, self.me, epoch))
        peer.epoch_at = event.timestamp

    def _gate(self, event: Event) -> list[ChangedEntry]:
        self._check_owner(event)
        self._gated(content_object(event))
        return []

    def _gated(self, content: dict[str, Any]) -> None:
        if content.get("alias") == "invites":
            self.is_open = content.get("state") == "open"

    def _sent_event(self, event: Event) -> list[ChangedEntry]:
        self._check_owner(event)
        to = unhex(tag_value(event, TO_TAG), 32, TO_TAG)
        self._sent[event.id] = to, event.seq, event.timestamp
        return self._copy(event, event.id)

    def _copy(self, event: Event, ref: bytes) -> list[ChangedEntry]:
        """Read the content of a copy or of its Update; None means that a later Update replaced
        it, or that a node withholds it.
        """
        content, (to, seq, at) = event.content, self._sent[ref]
        if content is None:
            return [] if event.withheld is None else self._withheld_copy(event, ref)
        others = (self._sent_key(other) for other in list(self.peers) if other != to)
        record = parse_record(open_copy(content, self._sent_key(to), others))
        peer = self.peer(to)
        peer.records[ref] = record
        if record.epoch >= 0:
            peer.used[record.epoch] = max(peer.used.get(record.epoch, -1), record.sender_seq)
        if record.state in ("delivered", "retracted") and seq > peer.unblocked_seq:
            peer.delivered = max(peer.delivered, record.delivers)
        is_there = record.state not in ("pending", "refused")
        if record.mailbox and is_there and seq >= peer.place_seq:  # the newest copy counts
            peer.place, peer.place_seq = Place(bytes.fromhex(record.mailbox), record.node), seq
        if record.kind == "place":
            return []
        peer.entries[ref] = sent_entry(self.me, ref, at, record)
        return [(to, ref)]

    def _withheld_copy(self, event: Event, ref: bytes) -> list[ChangedEntry]:
        """Show that a node withholds the owner's copy. What the copy said of the delivery is
        unknown: an earlier version of it counts."""
        to, _, at = self._sent[ref]
        entries = self.peer(to).entries
        blank = ThreadEntry(at, ref, self.me, None, "delivered", ref=ref)
        entries[ref] = replace(entries.get(ref, blank), text=None, withheld=event.withheld)
        return [(to, ref)]

    # Events of others

    def _invite(self, event: Event) -> list[ChangedEntry]:
        peer = self.peer(event.from_)
        if event.from_ == self.me or peer.state != "OUTSIDER" or not self.is_open:
            raise NotAllowed("invite: accepted only from a stranger, while the gate is open")
        greeting = "" if event.withheld else self._claims.greeting(event.content or "", event.from_)
        self._claims.mailbox(event, peer)
        peer.add_invite(Invite(event.id, event.timestamp, event.from_, greeting))
        entry = ThreadEntry(event.timestamp, event.id, event.from_, greeting, "received", kind="invite", ref=event.id)
        peer.entries[event.id] = replace(entry, text=None, withheld=event.withheld) if event.withheld else entry
        return [(event.from_, event.id)]

    def _message(self, event: Event) -> list[ChangedEntry]:
        peer = self.peer(event.from_)
        if peer.state != "FRIEND":
            raise NotAllowed(f"message: the author is {peer.state}")
        if event.content == "":  # only brings an epoch
            self._claims.mailbox(event, peer)
            return []
        self._claims.epoch(event, peer)
        entry = ThreadEntry(event.timestamp, event.id, event.from_, None, "received", ref=event.id)
        peer.entries[event.id] = self._read(event, peer, entry)
        return [(event.from_, event.id)]

    def _read(self, event: Event, peer: Peer, entry: ThreadEntry) -> ThreadEntry:
        """Return the entry with the event's text; None if a later Update replaced it, or a node
        withholds it."""
        entry = replace(entry, withheld=event.withheld)
        if event.content is None:
            return replace(entry, text=None, state="received", code="")
        others = (each.own for each in self.peers.values() if each is not peer)
        try:
            return replace(entry, text=open_text(event.content, peer.own, others), state="received", code="")
        except PeerError as e:
            self._refuse(event, e)
            return replace(entry, text=None, state="unreadable", code=e.code)

    def _update(self, event: Event) -> list[ChangedEntry]:
        target = revised_id(event)
        if target in self._sent:
            self._check_owner(event)
            return self._copy(event, target)
        peer = self.peers.get(event.from_)
        entry = None if peer is None else peer.entries.get(target)
        if peer is None or entry is None:
            return []  # its target has been deleted
        if peer.state == "BLOCKED" or entry.kind != "message" or entry.state == "retracted":
            raise NotAllowed("Update: not by its author, by a blocked author, or of a retracted message")
        peer.entries[target] = self._read(event, peer, replace(entry, is_edited=True))
        return [(event.from_, target)]

    def _delete(self, event: Event) -> list[ChangedEntry]:
        """Apply a Delete: the owner's removes the entry, an author's leaves a retracted one."""
        target = revised_id(event)
        if event.from_ == self.me:
            return self._forget(event, target)
        peer = self.peer(event.from_)
        others = (each.entries for each in self.peers.values() if each is not peer)
        if peer.state == "BLOCKED" or target in self._sent or any(target in entries for entries in others):
            raise NotAllowed("Delete: not by its author, or by a blocked author")
        self._claims.epoch(event, peer)
        at = claimed_time(tag_value(event, AT_TAG), event.timestamp)
        peer.entries[target] = ThreadEntry(at, target, event.from_, None, "retracted", ref=target)
        return [(event.from_, target)]

    def _forget(self, event: Event, target: bytes) -> list[ChangedEntry]:
        """Apply the owner's Delete. It repeats what the deleted event brought, since nobody is
        shown that event again.

        A Delete that names an author and brings nothing drops all that the author claimed.
        """
        author = tag_value(event, FROM_TAG)
        if author:
            peer = self.peer(unhex(author, 32, FROM_TAG))
            brings = any(tag[0] in (dm.EPOCH_TAG, MAILBOX_TAG) for tag in event.tags)
            self._claims.mailbox(event, peer) if brings else peer.decline(event.seq)
        for peer in self.peers.values():
            if peer.invite is not None and peer.invite.id == target:
                peer.decline(event.seq)
            if target in peer.entries and target not in peer.records:
                peer.open_invites = [each for each in peer.open_invites if each.id != target]
                del peer.entries[target]
                return [(peer.identity, target)]
        return []

    # Keys and refusals

    def _sent_key(self, to: bytes) -> bytes:
        if to not in self._sent_keys:
            self._sent_keys[to] = dm.sent_key(self._key, to)
        return self._sent_keys[to]

    def _check_owner(self, event: Event) -> None:
        if event.from_ != self.me:
            raise NotAllowed(f"{event.type}: not by the owner")

    def _refuse(self, event: Event, error: PeerError) -> None:
        if len(self.refusals) < MAX_REFUSALS:
            self.refusals.append(Refusal(event.seq, event.id, event.from_, error))
