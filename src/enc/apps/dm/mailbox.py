"""A person's mailbox: reads the owner's log and writes to the logs of contacts."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Self

from enc.apps.dm.compose import Composer, Random, TagList, check_text, decline_tags
from enc.apps.dm.contact_nodes import LABEL, MailboxLocator
from enc.apps.dm.errors import NoPlace, NoSuchMessage, UnknownContact
from enc.apps.dm.fold import ChangedEntry, Fold, Refusal
from enc.apps.dm.outbox import Outbox, Repaired, mark_kept
from enc.apps.dm.peer import Contact, ContactState, Invite, Peer
from enc.apps.dm.records import Kind, Record, State
from enc.apps.dm.rotation import Rotation
from enc.apps.dm.thread import Entry
from enc.apps.people.address_book import AddressBook, Place
from enc.apps.people.announcing import announce, own_place
from enc.client import Client, Item
from enc.client.enclave.writes import Id, as_bytes
from enc.client.faces.setup import now_ms
from enc.core.apps import dm
from enc.core.errors import EncError, MisuseError, Unauthorized, WorldError
from enc.core.primitives.signing import is_public_key


class Mailbox:
    """Direct messages of the client's identity, in its mailbox `enclave`.

    Everything is computed from that log, so another device with the same key sees the same. Calls
    that write read new events first. `node`: the URL of its node, if it is not the client's.
    `rotation`: when a contact automatically gets a new epoch, by `clock` in Unix milliseconds.
    """

    def __init__(
        self,
        client: Client,
        enclave: Id,
        *,
        node: str | None = None,
        rotation: Rotation = Rotation(),  # noqa: B008 - it is frozen
        clock: Callable[[], int] = now_ms,
        random: Random = os.urandom,
    ) -> None:
        self._client, self._rotation, self._clock = client, rotation, clock
        key = client.identity.key
        self.enclave = client.enclave(enclave, at=node)
        self._fold, self._composer = Fold(key), Composer(key, random)
        self._locate = MailboxLocator(client)
        self._outbox = Outbox(self.enclave, key, self._composer, self._locate, self.sync)

    @classmethod
    def create(
        cls, client: Client, *, name: str | None = None, book: AddressBook | None = None, again: bool = False
    ) -> Self:
        """Create a mailbox on the client's node, and enter it in the book and the registry, if
        given.

        Raise MisuseError if these already know one, unless `again` is set: contacts write to the
        first mailbox as long as they know it.
        """
        if not again and own_place(client, LABEL, book) is not None:
            raise MisuseError("you already have a mailbox")
        enclave = client.create("dm")
        if book is not None:
            book.set_own(client.identity.public, LABEL, Place(enclave.id, client.url or None))
        announce(client, enclave, LABEL, name)
        return cls(client, enclave.id)

    @classmethod
    def find(cls, client: Client, *, book: AddressBook | None = None, **more: Any) -> Self:
        """Return the identity's own mailbox from the book or the registry; raise NoPlace if
        unknown.
        """
        place = own_place(client, LABEL, book)
        if place is None:
            raise NoPlace("no mailbox of yours is known here: create one, or give its enclave")
        return cls(client, place.enclave, node=place.node, **more)

    @property
    def identity(self) -> bytes:
        return self._client.identity.public

    # Reading

    def sync(self) -> list[ChangedEntry]:
        """Read new events; return the entries that have changed, with their contacts."""
        items = self.enclave.query(seq={"start_after": self._fold.last_seq} if self._fold.last_seq >= 0 else None)
        return [each for item in items for each in self._fold.apply(item)]

    def live(self) -> Iterator[list[ChangedEntry]]:
        """Yield what `sync` returns as events arrive, without end."""
        with self.enclave.subscribe(after=self.last_seq) as items:
            for item in items:
                yield self.take(item)

    def take(self, item: Item) -> list[ChangedEntry]:
        """Apply one event of the log that the caller has read. Events up to `last_seq` are
        ignored.
        """
        return self._fold.apply(item)

    @property
    def last_seq(self) -> int:
        """The seq of the last event read; -1 before the first."""
        return self._fold.last_seq

    def thread(self, who: Id) -> list[Entry]:
        """Return the messages of both sides, in order, as far as the log was read."""
        return self._fold.thread(_key(who))

    def entry(self, who: Id, ref: bytes) -> Entry | None:
        known = self._fold.peers.get(_key(who))
        return None if known is None else known.entries.get(ref)

    def last(self, who: Id) -> Entry:
        """Return your last message to a contact, whatever its state: the default of `edit` and
        `retract`.
        """
        self.sync()
        found = self._fold.last_sent(_key(who))
        if found is None:
            raise NoSuchMessage("no such message: you have not written to them yet")
        return found

    def contacts(self) -> list[Contact]:
        """Return everyone with whom there was any contact, as far as the log was read, latest
        first.

        People who have only sent an invitation are in `invites`.
        """
        found = [peer.contact() for peer in self._fold.peers.values() if peer.is_contact]
        return sorted(found, key=lambda each: (-each.last_at, each.identity))

    def contact(self, who: Id) -> Contact:
        return self._fold.peer(_key(who)).contact()

    def invites(self) -> list[Invite]:
        """Return the invitations of strangers."""
        return self._fold.invites()

    @property
    def refusals(self) -> list[Refusal]:
        """Events of the log that were rejected, and why."""
        return self._fold.refusals

    @property
    def is_open(self) -> bool:
        """Whether strangers may send invitations."""
        return self._fold.is_open

    # Contacts

    def add(self, who: Id, place: Place | None = None, *, greeting: str = "") -> None:
        """Make a person a contact, and invite them to do the same; an invitation from them is
        accepted.

        A former contact may have removed you since, so they are invited again; errors of their node
        are raised.
        """
        check_text(greeting, is_greeting=True)
        peer = self._known(who)
        if peer.state == "BLOCKED":
            raise UnknownContact(f"{peer.identity.hex()} is blocked: unblock them first")
        is_answer = peer.invite is not None and peer.given is not None
        place = place or (peer.claimed_place if is_answer else peer.known_place)
        if not is_answer:
            self._locate(peer, _at(place))  # before anything is written
        self._befriend(peer)
        if is_answer and place is not None and place != peer.place:
            self._outbox.note(peer, place)
        if not is_answer or greeting:
            self._introduce(peer, place, greeting)
        self.sync()

    def accept(self, who: Id, place: Place | None = None) -> None:
        """Make a person who has invited you a contact. They learn of it by your first message."""
        if self._known(who).given is None:
            raise UnknownContact(f"{as_bytes(who, 'identity').hex()} has not invited you: add them instead")
        self.add(who, place)

    def _befriend(self, peer: Peer) -> None:
        if peer.state != "FRIEND":
            epoch = self._composer.new_epoch(peer.own.n + 1)
            content = {"target": peer.identity.hex(), "from": peer.state, "to": "FRIEND", "epoch": dm.wire_epoch(epoch)}
            self.enclave.commit("Move", content)
            self.sync()
        elif peer.own.n < 0:  # blocked before any epoch, interrupted, or moved by another program
            self._rotate(peer)

    def _introduce(self, peer: Peer, place: Place | None, greeting: str) -> None:
        """Send an invitation, or a message if they have you as a contact already.

        Contacts accept messages and reject invitations. A peer that has given an epoch had you as a
        contact, so a message is tried first.
        """
        if peer.given is None:
            try:
                self._outbox.post(peer, _at(place, kind="invite", text=greeting), "send")
            except Unauthorized as refusal:
                try:
                    self._outbox.post(peer, _at(place, kind="place"), "send")
                except Unauthorized:
                    raise refusal from None
            return
        try:
            self._outbox.post(peer, _at(place, kind="place"), "send")
        except Unauthorized:
            self._outbox.post(peer, _at(place, kind="invite", text=greeting), "send")
        else:
            self.sync()
            if greeting:
                self._outbox.post(peer, _at(place, text=greeting), "send")

    def decline(self, who: Id) -> None:
        """Delete a person's invitation."""
        peer = self._known(who)
        if peer.invite is None:
            raise UnknownContact(f"{as_bytes(who, 'identity').hex()} has not invited you")
        self._delete(decline_tags(peer, peer.invite.id))

    def remove(self, who: Id) -> None:
        """Make a contact a stranger: they may no longer write, but may invite."""
        self._move(self._known(who), "OUTSIDER")

    def block(self, who: Id) -> None:
        """Block a person: they may not write, revise what they wrote, or invite."""
        self._move(self._known(who), "BLOCKED")

    def unblock(self, who: Id, *, friend: bool = True) -> None:
        """Make a blocked person a contact again, with the former epochs; or a stranger."""
        peer = self._known(who)
        if peer.state != "BLOCKED":
            raise UnknownContact(f"{peer.identity.hex()} is not blocked")
        self._move(peer, "FRIEND" if friend else "OUTSIDER")
        if friend:
            self._befriend(peer)

    def _move(self, peer: Peer, to: ContactState) -> None:
        if peer.state == to:
            raise UnknownContact(f"{peer.identity.hex()} is already {to}")
        self.enclave.move(peer.identity, peer.state, to)
        self.sync()

    def take_invites(self, is_open: bool) -> None:
        """Open or close the mailbox to strangers."""
        self.enclave.gate("invites", open=is_open)
        self.sync()

    def rotate(self, who: Id) -> int:
        """Make a new epoch for a contact, sent with the next message; return its number."""
        peer = self._known(who)
        if peer.state != "FRIEND":
            raise UnknownContact(f"{peer.identity.hex()} is not a contact")
        self._rotate(peer)
        return peer.own.n

    def _rotate(self, peer: Peer) -> None:
        epoch = self._composer.new_epoch(peer.own.n + 1)
        self.enclave.commit("rotate", {"target": peer.identity.hex(), "epoch": dm.wire_epoch(epoch)})
        self.sync()  # if two devices use the same number, the first in the log counts

    # Messages

    def send(self, who: Id, text: str, place: Place | None = None) -> Entry:
        """Send a text. A rejection is raised, and the message stays in the thread as refused; see
        also `repair`.
        """
        check_text(text)
        with mark_kept(False):
            return self._send(self._known(who), text, place)

    def _send(self, peer: Peer, text: str, place: Place | None) -> Entry:
        if self._rotation.is_due(peer, self._clock()):
            self._rotate(peer)
        return self._post(peer, lambda: self._outbox.post(peer, _at(place or peer.known_place, text=text), "send"))

    def edit(self, who: Id, ref: bytes, text: str) -> Entry:
        """Replace the text of one of your messages; `ref` is that of its entry."""
        check_text(text)
        with mark_kept(False):
            peer = self._known(who)
            record = _mine(peer, ref)
            return self._post(peer, lambda: self._outbox.post(peer, record, "edit", text, ref))

    def retract(self, who: Id, ref: bytes) -> Entry:
        """Retract one of your messages: its text is erased in both mailboxes."""
        with mark_kept(False):
            peer = self._known(who)
            record = _mine(peer, ref)
            return self._post(peer, lambda: self._outbox.post(peer, record, "retract", ref=ref))

    def delete(self, who: Id, ref: bytes) -> None:
        """Delete a contact's message from your mailbox. They notice only if they try to revise
        it.
        """
        peer = self._known(who)
        if ref not in peer.entries or ref in peer.records:
            raise NoSuchMessage("ref: not a message of theirs")
        if peer.invite is not None and peer.invite.id == ref:
            self._delete(decline_tags(peer, ref))
            return
        item = self.enclave.event(ref)
        if item is None:
            raise NoSuchMessage("ref: the message has been deleted")
        brought = next((tag for tag in item.event.tags if tag[0] == dm.EPOCH_TAG), None)
        self._delete(self._composer.deletion_tags(peer, ref, brought))

    def _delete(self, tags: TagList) -> None:
        self.enclave.commit("Delete", {"reason": "moderator"}, tags=tags)
        self.sync()

    def repair(self) -> list[Repaired]:
        """Finish deliveries that this or another device began; return the outcome of each.

        Nothing is sent twice, even if several devices repair at once.
        """
        self.sync()
        return [self._outbox.repair(peer, ref, record) for peer, ref, record in list(self._fold.pending())]

    def _post(self, peer: Peer, post: Callable[[], bytes]) -> Entry:
        try:
            ref = post()
        except EncError:
            with suppress(WorldError):  # the first error says more
                self.sync()
            raise
        with mark_kept(True):
            self.sync()
        return peer.entries[ref]

    # Helpers

    def _known(self, who: Id) -> Peer:
        self.sync()
        return self._fold.peer(_key(who, self.identity))


def _key(who: Id, me: bytes | None = None) -> bytes:
    key = as_bytes(who, "identity")
    if not is_public_key(key):
        raise MisuseError("identity: not a public key")
    if key == me:
        raise MisuseError("identity: this is your own")
    return key


def _at(place: Place | None, kind: Kind = "message", text: str = "") -> Record:
    if place is None:
        return Record(kind=kind, text=text)
    return Record(kind=kind, text=text, mailbox=place.enclave.hex(), node=place.node)


def _mine(peer: Peer, ref: bytes) -> Record:
    record = peer.records.get(ref)
    if record is None or record.kind != "message":
        raise NoSuchMessage("ref: not a message of yours")
    if record.state != "delivered":
        raise NoSuchMessage(_GONE[record.state].format(code=record.code))
    return record


_GONE: dict[State, str] = {
    "pending": "the message has not arrived yet: `repair` first",
    "refused": "the message was refused ({code}) and is not in their mailbox",
    "retracted": "the message is already retracted: name another one",
    "removed": "they have deleted the message from their mailbox",
}
"""Why a message cannot be revised."""
