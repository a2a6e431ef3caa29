"""Contacts of a mailbox: adding, accepting, blocking, and new epochs for them."""

from enc.apps.dm.compose import TagList, check_text, decline_tags
from enc.apps.dm.errors import NoEpoch, NoPlace, UnknownContact
from enc.apps.dm.mailbox_reader import MailboxReader
from enc.apps.dm.peer import MAX_OPEN_INVITES, ContactState, Peer
from enc.apps.dm.records import CopyKind, CopyRecord
from enc.apps.people.address_book import Place
from enc.client import Distrust
from enc.client.enclave.writes import Id, as_bytes
from enc.core.errors import MisuseError, PeerError, Unauthorized, WorldError
from enc.core.sealed_forms import dm


class ContactActions(MailboxReader):
    def add(self, who: Id, place: Place | None = None, *, greeting: str = "") -> None:
        """Make a person a contact, and invite them to do the same; an invitation from them is
        accepted.

        A former contact may have removed you since, so they are invited again; errors of their node
        are raised. Raise NoEpoch if they have accepted but the greeting cannot be sealed for them
        yet.
        """
        check_text(greeting, is_greeting=True)
        peer = self._known(who)
        if peer.state == "BLOCKED":
            raise UnknownContact(f"{peer.identity.hex()} is blocked: unblock them first")
        is_answer = peer.invite is not None and peer.given is not None
        place = place or (peer.claimed_place if is_answer else peer.known_place)
        if not is_answer:
            self._locate(peer, record_at(place))  # before anything is written
        self._befriend(peer)
        if is_answer and place is not None and place != peer.place:
            self._outbox.note(peer, place)
        if not is_answer or greeting:
            self._introduce(peer, place, greeting)
        else:
            self._give_epoch(peer, place)
        self.sync()

    def accept(self, who: Id, place: Place | None = None) -> None:
        """Make a person who has invited you a contact, and send them the key to write with.

        If that cannot be delivered now, your first message brings it.
        """
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

    def _give_epoch(self, peer: Peer, place: Place | None) -> None:
        """Send the current epoch, if their node accepts it now: they can then write at once."""
        try:
            self._outbox.post(peer, record_at(place, kind="place"), "send")
        except Distrust:
            raise
        except (NoPlace, PeerError, WorldError):
            return

    def _introduce(self, peer: Peer, place: Place | None, greeting: str) -> None:
        """Send an invitation, or a message if they have you as a contact already.

        Contacts accept messages and reject invitations. A peer that has given an epoch had you as a
        contact, so a message is tried first.
        """
        if peer.given is None:
            _check_unanswered(peer)
            try:
                self._outbox.post(peer, record_at(place, kind="invite", text=greeting), "send")
            except Unauthorized as refusal:
                try:
                    self._outbox.post(peer, record_at(place, kind="place"), "send")
                except Unauthorized:
                    raise refusal from None
                self._greet(peer, place, greeting)
            return
        try:
            self._outbox.post(peer, record_at(place, kind="place"), "send")
        except Unauthorized:
            self._outbox.post(peer, record_at(place, kind="invite", text=greeting), "send")
        else:
            self._greet(peer, place, greeting)

    def _greet(self, peer: Peer, place: Place | None, greeting: str) -> None:
        """Send a greeting as a message to a person who has you as a contact."""
        self.sync()
        if greeting and peer.given is None:
            raise NoEpoch(
                "they have you as a contact, but have sent no key to write with yet: the greeting was not sent; "
                "wait until they write to you"
            )
        if greeting:
            self._outbox.post(peer, record_at(place, text=greeting), "send")

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

    def _delete(self, tags: TagList) -> None:
        self.enclave.commit("Delete", {"reason": "moderator"}, tags=tags)
        self.sync()


def _check_unanswered(peer: Peer) -> None:
    """Raise MisuseError if the recipient would drop an earlier invitation for the next one."""
    sent = sum(record.kind == "invite" and record.state == "delivered" for record in peer.records.values())
    if sent >= MAX_OPEN_INVITES:
        raise MisuseError(f"{sent} invitations to {peer.identity.hex()} are not answered: nothing was sent")


def record_at(place: Place | None, kind: CopyKind = "message", text: str = "") -> CopyRecord:
    """Return a record for a mailbox at `place`; without one, for wherever the contact is found."""
    if place is None:
        return CopyRecord(kind=kind, text=text)
    return CopyRecord(kind=kind, text=text, mailbox=place.enclave.hex(), node=place.node)
