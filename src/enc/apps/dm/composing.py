"""What is written into a contact's mailbox: sealed contents, and the tags that go with them."""

from collections.abc import Callable

from enc.apps.dm.epochs import GivenEpoch
from enc.apps.dm.errors import NoEpoch
from enc.apps.dm.peer import Peer
from enc.apps.dm.records import MAX_TEXT, Record
from enc.apps.dm.tags import AT_TAG, FROM_TAG, MAILBOX_TAG, NODE_TAG
from enc.core import dm
from enc.core.errors import MisuseError
from enc.core.sealing import NONCE_SIZE
from enc.core.signing import PrivateKey

Random = Callable[[int], bytes]
TagList = list[tuple[str, ...]]


def check_text(text: str, *, is_greeting: bool = False) -> None:
    if not isinstance(text, str):
        raise MisuseError(f"a text is a str, and this is {type(text).__name__}")
    if len(text.encode(errors="surrogatepass")) > MAX_TEXT or (not text and not is_greeting):
        raise MisuseError(f"a text has 1 to {MAX_TEXT} bytes")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MisuseError("a text is Unicode, and this is none") from None


class Composer:
    """`key` is the owner's; `random` gives as many bytes as it is asked for."""

    def __init__(self, key: PrivateKey, random: Random) -> None:
        self._key, self._random = key, random
        self._chain: tuple[GivenEpoch, dm.Chain] | None = None

    def nonce(self) -> bytes:
        return self._random(NONCE_SIZE)

    def new_epoch(self, n: int) -> dm.Epoch:
        """A new secret, sealed to the owner."""
        return dm.seal_epoch(self._key, self._key.public, n, self._random(dm.SECRET), self.nonce())

    def content(self, peer: Peer, text: str) -> tuple[str, int, int]:
        """A message's content, and the epoch and sender_seq that it is sealed with: the next that no device used."""
        given = peer.given
        if given is None:
            raise NoEpoch("there is nothing to seal with until they have written to you; if not invited, add them")
        seq = peer.next_seq(given.n)
        if seq > dm.MAX_SENDER_SEQ:
            raise NoEpoch("the contact's epoch is used up: it must send a message with a new one first")
        return dm.seal_message(self._keys(given), given.n, seq, text.encode(), self.nonce()), given.n, seq

    def _keys(self, given: GivenEpoch) -> dm.Chain:
        """The chain of the epoch that was used last is kept."""
        if self._chain is None or self._chain[0] != given:
            self._chain = given, dm.Chain(given.secret)
        return self._chain[1]

    def epoch_tags(self, peer: Peer) -> TagList:
        """The current epoch, for the contact to write back with."""
        own = peer.own
        return [dm.epoch_tag(dm.seal_epoch(self._key, peer.identity, own.n, own.secret, self.nonce()))]

    def invitation(self, peer: Peer, mailbox: str, node: str) -> TagList:
        """Where one's own mailbox is, and its epoch."""
        return [*self._place(peer, mailbox, node), *self.epoch_tags(peer)]

    def _place(self, peer: Peer, mailbox: str, node: str) -> TagList:
        tags: TagList = [(MAILBOX_TAG, self.greeting(peer, mailbox))]
        return [*tags, (NODE_TAG, self.greeting(peer, node))] if node else tags

    def greeting(self, peer: Peer, text: str) -> str:
        return dm.seal_invite(self._key, peer.identity, text, self.nonce())

    def retraction(self, peer: Peer, record: Record) -> TagList:
        """When the message was sent, for who sees the Delete alone; and where it brought an epoch, the current one."""
        brought = self.epoch_tags(peer) if 0 <= record.delivers <= peer.own.n else []
        return [("r", record.id), (AT_TAG, str(record.at)), *brought]

    def forgetting(self, peer: Peer, ref: bytes, brought: tuple[str, ...] | None) -> TagList:
        """The owner deletes what a contact wrote: what it brought goes on in the Delete, as far as it is current.

        An epoch from before the contact's new mailbox may have a greater number, and would be taken for the newest.
        """
        goes_on: TagList = []
        if peer.entries[ref].kind == "invite" and peer.said is not None:
            goes_on = self._place(peer, peer.said.enclave.hex(), peer.said.node or "")
        if brought is not None and peer.given is not None and brought[1:2] == (str(peer.given.n),):
            goes_on.append(brought)
        return [("r", ref.hex()), *([(FROM_TAG, peer.identity.hex()), *goes_on] if goes_on else [])]


def declining(peer: Peer, invite: bytes) -> TagList:
    """The owner deletes an invitation, and with it all that its author said of itself."""
    return [("r", invite.hex()), (FROM_TAG, peer.identity.hex())]
