"""What contacts say of themselves: where their mailboxes are, and the epochs to seal with."""

from collections.abc import Callable

from enc.apps.address_book import Place
from enc.apps.dm.epochs import next_given, open_epoch
from enc.apps.dm.opening import open_greeting
from enc.apps.dm.peer import Peer
from enc.apps.dm.tags import MAILBOX_TAG, NODE_TAG, tag_value, url_said
from enc.core import dm
from enc.core.encoding import unhex
from enc.core.errors import DecryptFailed, PeerError
from enc.core.sealing import shared_key
from enc.core.signing import PrivateKey
from enc.core.types import Event


class Introductions:
    """`key` is the owner's; `refuse` hears of an epoch that is wrong, which leaves its event as it is."""

    def __init__(self, key: PrivateKey, refuse: Callable[[Event, PeerError], None]) -> None:
        self._key, self._me, self._refuse = key, key.public, refuse
        self._keys: dict[bytes, bytes] = {}
        """Of what each has sealed to the owner, and the owner to each."""

    def greeting(self, sealed: str, other: bytes) -> str:
        """What is sealed as an invitation's content is, by either side."""
        if other not in self._keys:
            self._keys[other] = shared_key(self._key, other, dm.INVITE)
        return open_greeting(sealed, self._keys[other])

    def epoch(self, event: Event, peer: Peer) -> None:
        """The epoch that an event brings: one that is wrong leaves the event as it is."""
        tag = next((tag for tag in event.tags if tag[0] == dm.EPOCH_TAG), None)
        if tag is None:
            return
        try:
            epoch = dm.parse_epoch_tag(tag)
            peer.given = next_given(peer.given, epoch.n, open_epoch(self._key, peer.identity, epoch))
        except PeerError as e:
            self._refuse(event, e)

    def mailbox(self, event: Event, peer: Peer) -> None:
        """Where a contact's mailbox is, as it says, and its epoch. A new mailbox has epochs of its own.

        The owner's Delete says again what was known: that begins nothing anew.
        """
        sealed, node = tag_value(event, MAILBOX_TAG), tag_value(event, NODE_TAG)
        if sealed:
            mailbox = unhex(self.greeting(sealed, peer.identity), 32, MAILBOX_TAG, DecryptFailed)
            url = url_said(self.greeting(node, peer.identity)) if node else None
            if event.from_ != self._me and (peer.said is None or peer.said.enclave != mailbox):
                peer.begin_anew(event.seq)
            peer.said = Place(mailbox, url)
        self.epoch(event, peer)
