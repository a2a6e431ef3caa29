"""Delivering: what goes to a contact is copied to one's own log first, with the commit that is sent, and settled after.

After a crash anywhere here, `settle` with what the log has goes on: the same commit is taken once, and answered with
its receipt however late; one that was never taken and is too old is made anew.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from enc.apps.address_book import Place
from enc.apps.dm import records
from enc.apps.dm.composing import Composer, TagList
from enc.apps.dm.peer import Peer
from enc.apps.dm.records import Act, Kind, Record
from enc.apps.dm.tags import TO_TAG
from enc.client import Distrust, Enclave, LostRange
from enc.core import dm
from enc.core.errors import (
    EncError,
    EnclaveNotFound,
    EventDeleted,
    Expired,
    NodeNotFound,
    PeerError,
    RateLimited,
    WorldError,
)
from enc.core.signing import PrivateKey
from enc.core.types import Commit

UNKNOWN = (Distrust, LostRange, RateLimited, Expired, EnclaveNotFound, NodeNotFound)
"""After these nobody has refused what was sent: it stays pending. A node without the mailbox is not the contact's."""


@contextmanager
def keeping(is_kept: bool) -> Iterator[None]:
    """Whatever fails inside for now says whether it is in one's own log, to be sent later: the innermost knows."""
    try:
        yield
    except (WorldError, RateLimited, Expired, EnclaveNotFound, NodeNotFound) as e:
        if "kept" not in e.context:
            e.context = {**e.context, "kept": is_kept}
            e.message += "; it is kept: `repair` sends it" if is_kept else "; nothing was kept, as far as is known"
        raise


class Repaired(Struct, frozen=True):
    """What was begun, and what came of it now."""

    who: bytes
    ref: bytes
    kind: Kind
    act: Act
    text: str
    """What it says, or will say."""
    error: EncError | None = None
    is_left: bool = False
    """It is pending still: nobody has refused it."""


class Outbox:
    """`own` is one's own mailbox, `reach` gives a contact's, `sync` reads what other devices wrote."""

    def __init__(
        self,
        own: Enclave,
        key: PrivateKey,
        composer: Composer,
        reach: Callable[[Peer, Record], Enclave],
        sync: Callable[[], object],
    ) -> None:
        self._own, self._key, self._composer, self._reach, self._sync = own, key, composer, reach, sync

    def post(self, peer: Peer, record: Record, act: Act, text: str = "", ref: bytes | None = None) -> bytes:
        """Send a message, an invitation, an edit or a retraction; gives the `sent` event's id.

        What the contact's node refuses is raised once the copy says so; after a WorldError it is pending.
        """
        record = self.compose(peer, record, act, text)
        if ref is None:
            ref = self._own.commit("sent", self._sealed(peer, record), tags=[(TO_TAG, peer.identity.hex())]).id
        else:
            self._write(peer, ref, record)
        with keeping(True):
            self.settle(peer, ref, record)
        return ref

    def note(self, peer: Peer, place: Place) -> None:
        """Keep where a contact's mailbox is."""
        record = Record(kind="place", mailbox=place.enclave.hex(), node=place.node, state="delivered")
        self._own.commit("sent", self._sealed(peer, record), tags=[(TO_TAG, peer.identity.hex())])

    def settle(self, peer: Peer, ref: bytes, record: Record) -> None:
        """Send what is pending, perhaps once more, and write down what came of it."""
        if record.pending is None:
            return
        refusal: PeerError | None = None
        theirs = self._reach(peer, record)  # who cannot be found has refused nothing
        try:
            receipt = theirs.send(records.pending_commit(record.pending))
            outcome = replace(records.done(record, receipt), node=theirs.url or record.node)
        except UNKNOWN:
            raise
        except EventDeleted:
            outcome = records.removed(record)
        except PeerError as e:
            outcome, refusal = records.refused(record, e.code), e
        if not self._is_outdated(peer, ref, record):
            self._write(peer, ref, outcome)
        if refusal is not None:
            raise refusal

    def _is_outdated(self, peer: Peer, ref: bytes, begun: Record) -> bool:
        """Another device has retracted it meanwhile, or seen it arrive: its copy says more than this one's would."""
        if ref not in peer.records:
            return False
        self._sync()
        now = peer.records[ref].state
        return now == "retracted" or (begun.state == "pending" and now == "delivered")

    def settle_again(self, peer: Peer, ref: bytes, record: Record) -> None:
        """The same after a crash: what is too old to be taken is made anew."""
        try:
            self.settle(peer, ref, record)
        except Expired:
            pending = record.pending
            if pending is None:
                raise
            self.post(peer, record, pending.act, pending.text, ref)

    def repair(self, peer: Peer, ref: bytes, record: Record) -> Repaired:
        """`settle_again`, which tells what came of it. Distrust is raised."""
        act: Act = "send" if record.pending is None else record.pending.act
        text = record.text if record.pending is None or act != "edit" else record.pending.text
        error: EncError | None = None
        try:
            self.settle_again(peer, ref, record)
        except Distrust:
            raise
        except EncError as e:
            error = e
        self._sync()
        is_left = peer.records[ref].pending is not None
        return Repaired(peer.identity, ref, record.kind, act, text, error, is_left)

    def compose(self, peer: Peer, record: Record, act: Act, text: str) -> Record:
        """The copy with the signed commit in it."""
        theirs = self._reach(peer, record)
        record = replace(record, mailbox=theirs.hex)
        if act == "retract":
            commit = theirs.prepare("Delete", {"reason": "author"}, tags=self._composer.retraction(peer, record))
            return records.begun(record, act, commit)
        if record.kind != "message":
            return self._introduced(theirs, peer, record)
        content, epoch, seq = self._composer.content(peer, text if act == "edit" else record.text)
        record = replace(record, epoch=epoch, sender_seq=seq)
        if act == "edit":
            commit = theirs.prepare("Update", content, tags=[("r", record.id)])
        else:
            record, tags = self._delivering(peer, record)
            commit = theirs.prepare("message", content, tags=tags)
        return records.begun(record, act, commit, text)

    def _delivering(self, peer: Peer, record: Record) -> tuple[Record, TagList]:
        """With the current epoch, if the contact has not been given it yet."""
        if not peer.owes_epoch:
            return replace(record, delivers=-1), []
        return replace(record, delivers=peer.own.n), self._composer.epoch_tags(peer)

    def _introduced(self, theirs: Enclave, peer: Peer, record: Record) -> Record:
        """An invitation; or, to who has one as a contact already, a message that brings as much and says nothing."""
        tags = self._composer.invitation(peer, self._own.hex, self._own.url)
        commit: Commit
        if record.kind == "invite":
            commit = theirs.prepare("invite", self._composer.greeting(peer, record.text), tags=tags)
        else:
            commit = theirs.prepare("message", "", tags=tags)
        return records.begun(replace(record, delivers=peer.own.n), "send", commit)

    def _sealed(self, peer: Peer, record: Record) -> str:
        return dm.seal_sent(self._key, peer.identity, records.wire_record(record), self._composer.nonce())

    def _write(self, peer: Peer, ref: bytes, record: Record) -> None:
        self._own.update(ref, self._sealed(peer, record))
