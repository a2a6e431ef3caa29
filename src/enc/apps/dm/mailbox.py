"""A person's mailbox: one's own log, which is read, and those of contacts, which are written to."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Self

from enc.apps.address_book import AddressBook, Place
from enc.apps.announcing import announce, own_place
from enc.apps.dm.composing import Composer, Random, TagList, check_text, declining
from enc.apps.dm.errors import NoPlace, NoSuchMessage, UnknownContact
from enc.apps.dm.fold import Fold, Refusal, Touched
from enc.apps.dm.outbox import Outbox, Repaired, keeping
from enc.apps.dm.peer import Contact, Invite, Peer, Standing
from enc.apps.dm.reaching import LABEL, Reach
from enc.apps.dm.records import Kind, Record, State
from enc.apps.dm.rotation import Rotation
from enc.apps.dm.thread import Entry
from enc.client import Client, Item
from enc.client.setup import now_ms
from enc.client.writes import Id, as_bytes
from enc.core import dm
from enc.core.errors import EncError, MisuseError, Unauthorized, WorldError
from enc.core.signing import is_public_key


class Mailbox:
    """Direct messages of the client's identity, in its mailbox `enclave`.

    Everything is rebuilt from that log: another device with the same key sees the same. Calls that write read what is
    new first. `node`: its URL, if it is not the client's. `rotation`: when a contact gets a new epoch by itself, by
    `clock`, Unix milliseconds.
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
        self._reach = Reach(client)
        self._outbox = Outbox(self.enclave, key, self._composer, self._reach, self.sync)

    @classmethod
    def create(
        cls, client: Client, *, name: str | None = None, book: AddressBook | None = None, again: bool = False
    ) -> Self:
        """Found a mailbox on the client's node, and make it known: in the book and the registry, as far as they are.

        Whoever has one that these know gets another only `again`: contacts write to the first as long as they know it.
        """
        if not again and own_place(client, LABEL, book) is not None:
            raise MisuseError("you have a mailbox already")
        enclave = client.create("dm")
        if book is not None:
            book.set_own(client.identity.public, LABEL, Place(enclave.id, client.url or None))
        announce(client, enclave, LABEL, name)
        return cls(client, enclave.id)

    @classmethod
    def find(cls, client: Client, *, book: AddressBook | None = None, **more: Any) -> Self:
        """The identity's own mailbox, as the book or the registry has it; NoPlace where neither does."""
        place = own_place(client, LABEL, book)
        if place is None:
            raise NoPlace("no mailbox of yours is known here: found one, or give its enclave")
        return cls(client, place.enclave, node=place.node, **more)

    @property
    def identity(self) -> bytes:
        return self._client.identity.public

    # Reading

    def sync(self) -> list[Touched]:
        """Read what is new; which entries of whose threads have changed."""
        items = self.enclave.query(seq={"start_after": self._fold.last_seq} if self._fold.last_seq >= 0 else None)
        return [each for item in items for each in self._fold.take(item)]

    def live(self) -> Iterator[list[Touched]]:
        """`sync` as events come, without end."""
        with self.enclave.subscribe(after=self.last_seq) as items:
            for item in items:
                yield self.take(item)

    def take(self, item: Item) -> list[Touched]:
        """One event of the log that somebody else has read: the one after `last_seq`, or it is left out."""
        return self._fold.take(item)

    @property
    def last_seq(self) -> int:
        """How far the log was read; -1: not at all."""
        return self._fold.last_seq

    def thread(self, who: Id) -> list[Entry]:
        """What both said, in order, as far as it was read."""
        return self._fold.thread(_key(who))

    def entry(self, who: Id, ref: bytes) -> Entry | None:
        known = self._fold.peers.get(_key(who))
        return None if known is None else known.entries.get(ref)

    def last(self, who: Id) -> Entry:
        """Your last message to somebody, whatever became of it: what `edit` and `retract` are about, if nobody says."""
        self.sync()
        found = self._fold.last_sent(_key(who))
        if found is None:
            raise NoSuchMessage("you have written nothing to them yet: there is no such message")
        return found

    def contacts(self) -> list[Contact]:
        """Everybody with whom there is, or was, anything, as far as it was read; the last one heard of first.

        Who has but sent an invitation is among `invites`.
        """
        found = [peer.contact() for peer in self._fold.peers.values() if peer.is_contact]
        return sorted(found, key=lambda each: (-each.last_at, each.identity))

    def contact(self, who: Id) -> Contact:
        return self._fold.peer(_key(who)).contact()

    def invites(self) -> list[Invite]:
        """Invitations of strangers."""
        return self._fold.invites()

    @property
    def refusals(self) -> list[Refusal]:
        """What in the log was not taken, and why."""
        return self._fold.refusals

    @property
    def is_open(self) -> bool:
        """Strangers may send invitations."""
        return self._fold.is_open

    # Contacts

    def add(self, who: Id, place: Place | None = None, *, greeting: str = "") -> None:
        """Make somebody a contact, and invite them to do the same; whoever has invited you is accepted.

        Whoever was a contact before may have removed you since, so they are told again; what their node says is raised.
        """
        check_text(greeting, is_greeting=True)
        peer = self._known(who)
        if peer.state == "BLOCKED":
            raise UnknownContact(f"{peer.identity.hex()} is blocked: unblock them first")
        is_answer = peer.invite is not None and peer.given is not None
        place = place or (peer.said if is_answer else peer.where)
        if not is_answer:
            self._reach(peer, _at(place))  # before anything is written
        self._befriend(peer)
        if is_answer and place is not None and place != peer.place:
            self._outbox.note(peer, place)
        if not is_answer or greeting:
            self._introduce(peer, place, greeting)
        self.sync()

    def accept(self, who: Id, place: Place | None = None) -> None:
        """Make somebody a contact who has invited you. They learn of it by your first message."""
        if self._known(who).given is None:
            raise UnknownContact(f"{as_bytes(who, 'identity').hex()} has not invited you: add them instead")
        self.add(who, place)

    def _befriend(self, peer: Peer) -> None:
        if peer.state != "FRIEND":
            epoch = self._composer.new_epoch(peer.own.n + 1)
            content = {"target": peer.identity.hex(), "from": peer.state, "to": "FRIEND", "epoch": dm.wire_epoch(epoch)}
            self.enclave.commit("Move", content)
            self.sync()
        elif peer.own.n < 0:  # blocked before there was anything, interrupted, or moved by another program
            self._rotate(peer)

    def _introduce(self, peer: Peer, place: Place | None, greeting: str) -> None:
        """Whoever has you as a contact takes messages from you, and no invitation; who has given an epoch, had you."""
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
        """Delete somebody's invitation."""
        peer = self._known(who)
        if peer.invite is None:
            raise UnknownContact(f"{as_bytes(who, 'identity').hex()} has not invited you")
        self._delete(declining(peer, peer.invite.id))

    def remove(self, who: Id) -> None:
        """Nobody's friend nor foe any more: may not write, but may invite."""
        self._move(self._known(who), "OUTSIDER")

    def block(self, who: Id) -> None:
        """May neither write, nor revise what they wrote, nor invite."""
        self._move(self._known(who), "BLOCKED")

    def unblock(self, who: Id, *, friend: bool = True) -> None:
        """A contact again, with the epochs from before; or a stranger."""
        peer = self._known(who)
        if peer.state != "BLOCKED":
            raise UnknownContact(f"{peer.identity.hex()} is not blocked")
        self._move(peer, "FRIEND" if friend else "OUTSIDER")
        if friend:
            self._befriend(peer)

    def _move(self, peer: Peer, to: Standing) -> None:
        if peer.state == to:
            raise UnknownContact(f"{peer.identity.hex()} is {to} already")
        self.enclave.move(peer.identity, peer.state, to)
        self.sync()

    def take_invites(self, is_open: bool) -> None:
        """Open or close the mailbox to strangers."""
        self.enclave.gate("invites", open=is_open)
        self.sync()

    def rotate(self, who: Id) -> int:
        """Make a new epoch for a contact. It is given to them with the next message; gives its number."""
        peer = self._known(who)
        if peer.state != "FRIEND":
            raise UnknownContact(f"{peer.identity.hex()} is no contact")
        self._rotate(peer)
        return peer.own.n

    def _rotate(self, peer: Peer) -> None:
        epoch = self._composer.new_epoch(peer.own.n + 1)
        self.enclave.commit("rotate", {"target": peer.identity.hex(), "epoch": dm.wire_epoch(epoch)})
        self.sync()  # of two devices' that say the same number, the log's first counts

    # Messages

    def send(self, who: Id, text: str, place: Place | None = None) -> Entry:
        """Send a text. What is refused is raised, and stays in the thread as refused; see also `repair`."""
        check_text(text)
        with keeping(False):
            return self._send(self._known(who), text, place)

    def _send(self, peer: Peer, text: str, place: Place | None) -> Entry:
        if self._rotation.is_due(peer, self._clock()):
            self._rotate(peer)
        return self._post(peer, lambda: self._outbox.post(peer, _at(place or peer.where, text=text), "send"))

    def edit(self, who: Id, ref: bytes, text: str) -> Entry:
        """Replace the text of a message of one's own: `ref` is its entry's."""
        check_text(text)
        with keeping(False):
            peer = self._known(who)
            record = _mine(peer, ref)
            return self._post(peer, lambda: self._outbox.post(peer, record, "edit", text, ref))

    def retract(self, who: Id, ref: bytes) -> Entry:
        """Take back a message of one's own: its text is erased in both mailboxes."""
        with keeping(False):
            peer = self._known(who)
            record = _mine(peer, ref)
            return self._post(peer, lambda: self._outbox.post(peer, record, "retract", ref=ref))

    def delete(self, who: Id, ref: bytes) -> None:
        """Delete what a contact wrote from one's own mailbox. They learn of it only if they try to revise it."""
        peer = self._known(who)
        if ref not in peer.entries or ref in peer.records:
            raise NoSuchMessage("nothing of theirs is there by this reference")
        if peer.invite is not None and peer.invite.id == ref:
            self._delete(declining(peer, ref))
            return
        item = self.enclave.event(ref)
        if item is None:
            raise NoSuchMessage("it is not there any more")
        brought = next((tag for tag in item.event.tags if tag[0] == dm.EPOCH_TAG), None)
        self._delete(self._composer.forgetting(peer, ref, brought))

    def _delete(self, tags: TagList) -> None:
        self.enclave.commit("Delete", {"reason": "moderator"}, tags=tags)
        self.sync()

    def repair(self) -> list[Repaired]:
        """Finish what this or another device began; what came of each. Nothing is sent twice, whoever else is at it."""
        self.sync()
        return [self._outbox.repair(peer, ref, record) for peer, ref, record in list(self._fold.pending())]

    def _post(self, peer: Peer, post: Callable[[], bytes]) -> Entry:
        try:
            ref = post()
        except EncError:
            with suppress(WorldError):  # what came before says more
                self.sync()
            raise
        with keeping(True):
            self.sync()
        return peer.entries[ref]

    # Whom, and where

    def _known(self, who: Id) -> Peer:
        self.sync()
        return self._fold.peer(_key(who, self.identity))


def _key(who: Id, me: bytes | None = None) -> bytes:
    key = as_bytes(who, "identity")
    if not is_public_key(key):
        raise MisuseError("identity: no public key")
    if key == me:
        raise MisuseError("identity: that is you")
    return key


def _at(place: Place | None, kind: Kind = "message", text: str = "") -> Record:
    if place is None:
        return Record(kind=kind, text=text)
    return Record(kind=kind, text=text, mailbox=place.enclave.hex(), node=place.node)


def _mine(peer: Peer, ref: bytes) -> Record:
    record = peer.records.get(ref)
    if record is None or record.kind != "message":
        raise NoSuchMessage("no message of yours is there by this reference")
    if record.state != "delivered":
        raise NoSuchMessage(_GONE[record.state].format(code=record.code))
    return record


_GONE: dict[State, str] = {
    "pending": "it has not arrived yet: `repair` first",
    "refused": "it was refused ({code}), and is not in their mailbox",
    "retracted": "it is retracted already: say which message you mean",
    "removed": "they have deleted it from their mailbox",
}
"""Why a message cannot be revised."""
