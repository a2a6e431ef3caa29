"""What contacts claim about themselves: where their mailboxes are, and the epochs to seal with."""

from collections.abc import Callable

from enc.apps.dm.epochs import next_given, open_epoch
from enc.apps.dm.open_message import open_greeting
from enc.apps.dm.peer import Peer
from enc.apps.dm.tags import MAILBOX_TAG, NODE_TAG, claimed_url, tag_value
from enc.apps.people.address_book import Place
from enc.core.errors import DecryptFailed, PeerError
from enc.core.primitives.encoding import unhex
from enc.core.primitives.sealing import shared_key
from enc.core.primitives.signer import Signer
from enc.core.primitives.types import Event
from enc.core.sealed_forms import dm


class ContactClaims:
    """`key`: the owner's; `refuse`: called for a wrong epoch, which does not affect its event."""

    def __init__(self, key: Signer, refuse: Callable[[Event, PeerError], None]) -> None:
        self._key, self._me, self._refuse = key, key.public, refuse
        self._keys: dict[bytes, bytes] = {}
        """Keys shared by the owner and each contact."""

    def greeting(self, sealed: str, other: bytes) -> str:
        """Open a text that either side sealed as an invitation's content."""
        if other not in self._keys:
            self._keys[other] = shared_key(self._key, other, dm.INVITE)
        return open_greeting(sealed, self._keys[other])

    def epoch(self, event: Event, peer: Peer) -> None:
        """Read the epoch that an event brings. A wrong one does not affect the event."""
        tag = next((tag for tag in event.tags if tag[0] == dm.EPOCH_TAG), None)
        if tag is None:
            return
        try:
            epoch = dm.parse_epoch_tag(tag)
            peer.given = next_given(peer.given, epoch.n, open_epoch(self._key, peer.identity, epoch))
        except PeerError as e:
            self._refuse(event, e)

    def mailbox(self, event: Event, peer: Peer) -> None:
        """Read where a contact says its mailbox is, and its epoch. A new mailbox has epochs of its
        own.

        The owner's Delete repeats what was known, so it resets nothing.
        """
        sealed, node = tag_value(event, MAILBOX_TAG), tag_value(event, NODE_TAG)
        if sealed:
            mailbox = unhex(self.greeting(sealed, peer.identity), 32, MAILBOX_TAG, DecryptFailed)
            url = claimed_url(self.greeting(node, peer.identity)) if node else None
            if event.from_ != self._me and (peer.claimed_place is None or peer.claimed_place.enclave != mailbox):
                peer.reset_mailbox(event.seq)
            peer.claimed_place = Place(mailbox, url)
        self.epoch(event, peer)
