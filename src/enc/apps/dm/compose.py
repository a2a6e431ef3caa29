"""Builds what is written into a contact's mailbox: sealed contents and their tags."""

from collections.abc import Callable

from enc.apps.dm.epochs import GivenEpoch
from enc.apps.dm.errors import NoEpoch
from enc.apps.dm.peer import Peer
from enc.apps.dm.records import MAX_TEXT, CopyRecord
from enc.apps.dm.tags import AT_TAG, FROM_TAG, MAILBOX_TAG, NODE_TAG
from enc.core.errors import MisuseError
from enc.core.primitives.sealing import NONCE_SIZE
from enc.core.primitives.signer import Signer
from enc.core.sealed_forms import dm

Random = Callable[[int], bytes]
TagList = list[tuple[str, ...]]


def check_text(text: str, *, is_greeting: bool = False) -> None:
    if not isinstance(text, str):
        raise MisuseError(f"text: expected a str, not {type(text).__name__}")
    if len(text.encode(errors="surrogatepass")) > MAX_TEXT or (not text and not is_greeting):
        raise MisuseError(f"text: expected 1 to {MAX_TEXT} bytes")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MisuseError("text: not valid Unicode") from None


class Composer:
    """`key`: the owner's; `random`: returns the requested number of random bytes."""

    def __init__(self, key: Signer, random: Random) -> None:
        self._key, self._random = key, random
        self._chain: tuple[GivenEpoch, dm.EpochChain] | None = None

    def nonce(self) -> bytes:
        return self._random(NONCE_SIZE)

    def new_epoch(self, n: int) -> dm.SealedEpoch:
        """Make a new secret, sealed to the owner."""
        return dm.seal_epoch(self._key, self._key.public, n, self._random(dm.SECRET), self.nonce())

    def content(self, peer: Peer, text: str) -> tuple[str, int, int]:
        """Seal a message; return its content and the epoch and sender_seq, which no device used
        before.
        """
        given = peer.given
        if given is None:
            raise NoEpoch(
                _NO_KEY if peer.state == "FRIEND" else "you have no key to write to them with: add them first"
            )
        seq = peer.next_seq(given.n)
        if seq > dm.MAX_SENDER_SEQ:
            raise NoEpoch(
                "the contact's epoch has no unused message number: wait until they send a message with a new epoch"
            )
        return dm.seal_message(self._keys(given), given.n, seq, text.encode(), self.nonce()), given.n, seq

    def _keys(self, given: GivenEpoch) -> dm.EpochChain:
        """Return the epoch's key chain; the last one is cached."""
        if self._chain is None or self._chain[0] != given:
            self._chain = given, dm.EpochChain(given.secret)
        return self._chain[1]

    def epoch_tags(self, peer: Peer) -> TagList:
        """Return the tag that gives the contact the current epoch to write back with."""
        own = peer.own
        return [dm.epoch_tag(dm.seal_epoch(self._key, peer.identity, own.n, own.secret, self.nonce()))]

    def invitation_tags(self, peer: Peer, mailbox: str, node: str) -> TagList:
        """Return the tags that say where the owner's mailbox is, and its epoch."""
        return [*self._place(peer, mailbox, node), *self.epoch_tags(peer)]

    def _place(self, peer: Peer, mailbox: str, node: str) -> TagList:
        tags: TagList = [(MAILBOX_TAG, self.seal_greeting(peer, mailbox))]
        return [*tags, (NODE_TAG, self.seal_greeting(peer, node))] if node else tags

    def seal_greeting(self, peer: Peer, text: str) -> str:
        return dm.seal_invite(self._key, peer.identity, text, self.nonce())

    def retraction_tags(self, peer: Peer, record: CopyRecord) -> TagList:
        """Return the tags of a retraction: when the message was sent, for readers that see the
        Delete alone, and the current epoch if the message brought one.
        """
        brought = self.epoch_tags(peer) if 0 <= record.delivers <= peer.own.n else []
        return [("r", record.id), (AT_TAG, str(record.at)), *brought]

    def deletion_tags(self, peer: Peer, ref: bytes, brought: tuple[str, ...] | None) -> TagList:
        """Return the tags of the owner's Delete of a contact's event.

        They repeat what the event brought, if that is current. An epoch from before the contact's
        new mailbox may have a greater number and would be taken for the newest, so it is left out.
        """
        carried: TagList = []
        if peer.entries[ref].kind == "invite" and peer.claimed_place is not None:
            carried = self._place(peer, peer.claimed_place.enclave.hex(), peer.claimed_place.node or "")
        if brought is not None and peer.given is not None and brought[1:2] == (str(peer.given.n),):
            carried.append(brought)
        return [("r", ref.hex()), *([(FROM_TAG, peer.identity.hex()), *carried] if carried else [])]


_NO_KEY = (
    "they have not answered yet: you can send messages once they have accepted your invitation, or have written to you"
)


def decline_tags(peer: Peer, invite: bytes) -> TagList:
    """Return the tags of the Delete of an invitation: it drops all that its author claimed."""
    return [("r", invite.hex()), (FROM_TAG, peer.identity.hex())]
