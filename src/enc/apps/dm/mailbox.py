"""A person's mailbox: reads the owner's log and writes to the logs of contacts."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from enc.apps.dm.compose import check_text, decline_tags
from enc.apps.dm.contact_actions import ContactActions, record_at
from enc.apps.dm.errors import NoPlace, NoSuchMessage
from enc.apps.dm.mailbox_locator import LABEL
from enc.apps.dm.outbox import Repaired, mark_kept
from enc.apps.dm.peer import Peer
from enc.apps.dm.records import CopyRecord, CopyState
from enc.apps.dm.thread import ThreadEntry
from enc.apps.people.address_book import AddressBook, Place
from enc.apps.people.announcing import announce, own_place
from enc.client import Client, SendAttempt
from enc.client.enclave.writes import Id, as_bytes
from enc.core.errors import EncError, MisuseError, WorldError
from enc.core.sealed_forms import dm


class Mailbox(ContactActions):
    """Direct messages of the client's identity, in its mailbox `enclave`.

    Everything is computed from that log, so another device with the same key sees the same. Calls
    that write read new events first. `node`: the URL of its node, if it is not the client's.
    `rotation`: when a contact automatically gets a new epoch, by `clock` in Unix milliseconds.
    """

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

    # Messages

    def send(
        self, who: Id, text: str, place: Place | None = None, *, attempt: SendAttempt | None = None
    ) -> ThreadEntry:
        """Send a text. A rejection is raised, and the message stays in the thread as refused; see
        also `repair`.

        `attempt`: to send the same message again after an error, give the same one to both calls.
        """
        check_text(text)
        with mark_kept(False):
            return self._send(self._known(who), text, place, attempt)

    def _send(self, peer: Peer, text: str, place: Place | None, attempt: SendAttempt | None) -> ThreadEntry:
        if self._rotation.is_due(peer, self._clock()):
            self._rotate(peer)
        return self._post(
            peer,
            lambda: self._outbox.post(peer, record_at(place or peer.known_place, text=text), "send", attempt=attempt),
        )

    def edit(self, who: Id, ref: bytes, text: str) -> ThreadEntry:
        """Replace the text of one of your messages; `ref` is that of its entry."""
        check_text(text)
        with mark_kept(False):
            peer = self._known(who)
            record = _mine(peer, ref)
            return self._post(peer, lambda: self._outbox.post(peer, record, "edit", text, ref))

    def retract(self, who: Id, ref: bytes) -> ThreadEntry:
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
        if any(invite.id == ref for invite in peer.open_invites):
            self._delete(decline_tags(peer, ref))
            return
        item = self.enclave.event(ref)
        if item is None:
            raise NoSuchMessage("ref: the message has been deleted")
        brought = next((tag for tag in item.event.tags if tag[0] == dm.EPOCH_TAG), None)
        self._delete(self._composer.deletion_tags(peer, ref, brought))

    def repair(self, who: Id | None = None) -> list[Repaired]:
        """Finish deliveries that this or another device began; return the outcome of each.

        Nothing is sent twice, even if several devices repair at once. `who`: only those to this
        contact.
        """
        self.sync()
        pending = list(self._fold.pending())
        if who is not None:
            pending = [each for each in pending if each[0].identity == as_bytes(who, "identity")]
        return [self._outbox.repair(*each) for each in pending]

    def _post(self, peer: Peer, post: Callable[[], bytes]) -> ThreadEntry:
        try:
            ref = post()
        except EncError:
            with suppress(WorldError):  # the first error says more
                self.sync()
            raise
        with mark_kept(True):
            self.sync()
        return peer.entries[ref]


def _mine(peer: Peer, ref: bytes) -> CopyRecord:
    record = peer.records.get(ref)
    if record is None or record.kind != "message":
        raise NoSuchMessage("ref: not a message of yours")
    if record.state != "delivered":
        raise NoSuchMessage(_GONE[record.state].format(code=record.code))
    return record


_GONE: dict[CopyState, str] = {
    "pending": "the message has not arrived yet: `repair` first",
    "refused": "the message was refused ({code}) and is not in their mailbox",
    "retracted": "the message is already retracted: name another one",
    "removed": "they have deleted the message from their mailbox",
}
"""Why a message cannot be revised."""
