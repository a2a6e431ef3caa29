"""Delivers to contacts. Each delivery is first copied to the owner's log, with the commit to send;
the outcome is written there afterwards.

After a crash at any point, `settle` continues from what the log has: the node accepts the same commit
once and answers later copies with its receipt. A commit that was never taken and has expired is
signed again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct
from msgspec.structs import replace

from enc.apps.dm import records
from enc.apps.dm.compose import Composer, TagList
from enc.apps.dm.peer import Peer
from enc.apps.dm.records import CopyAct, CopyKind, CopyRecord
from enc.apps.dm.tags import TO_TAG
from enc.apps.people.address_book import Place
from enc.client import Distrust, Enclave, LostRange, SendAttempt, TimedOut, Unreachable
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
from enc.core.primitives.signer import Signer
from enc.core.primitives.types import Commit
from enc.core.sealed_forms import dm

UNKNOWN = (Distrust, LostRange, RateLimited, Expired, EnclaveNotFound, NodeNotFound)
"""Errors after which the delivery stays pending: the contact's node has not rejected it. A node
without the mailbox is not the contact's."""


TEMPORARY = (WorldError, RateLimited, Expired, EnclaveNotFound, NodeNotFound)
"""Errors after which the same delivery may succeed later."""


@contextmanager
def mark_kept(is_kept: bool) -> Iterator[None]:
    """Note on temporary errors whether the message is in the owner's log, to be sent later.

    The innermost `mark_kept` decides.
    """
    try:
        yield
    except TEMPORARY as e:
        if "kept" not in e.context:
            e.context = {**e.context, "kept": is_kept}
            e.message += (
                "; the message is stored: `repair` sends it" if is_kept else "; nothing was stored, as far as is known"
            )
        raise


@contextmanager
def name_contact(peer: Peer, theirs: Enclave) -> Iterator[None]:
    """Note on temporary errors whose node did not accept the delivery: `contact` and `node` in the
    context.
    """
    try:
        yield
    except TEMPORARY as e:
        who, url = peer.identity.hex(), theirs.url
        e.context = {**e.context, "contact": who, "node": url}
        what = "does not answer" if isinstance(e, Unreachable | TimedOut) else "did not accept it"
        e.message = f"the node of {who}{f', {url},' if url else ''} {what}: {e.message}"
        raise


class Repaired(Struct, frozen=True):
    """A pending delivery and its outcome."""

    who: bytes
    ref: bytes
    kind: CopyKind
    act: CopyAct
    text: str
    """The message's text, after the edit if it is one."""
    error: EncError | None = None
    is_left: bool = False
    """Whether it is still pending."""


class Outbox:
    """`own`: the owner's mailbox; `locate`: returns a contact's; `sync`: reads other devices'
    events.
    """

    def __init__(
        self,
        own: Enclave,
        key: Signer,
        composer: Composer,
        locate: Callable[[Peer, CopyRecord], Enclave],
        sync: Callable[[], object],
    ) -> None:
        self._own, self._key, self._composer, self._locate, self._sync = own, key, composer, locate, sync

    def post(
        self,
        peer: Peer,
        record: CopyRecord,
        act: CopyAct,
        text: str = "",
        ref: bytes | None = None,
        attempt: SendAttempt | None = None,
    ) -> bytes:
        """Send a message, an invitation, an edit or a retraction; return the `sent` event's id.

        If the contact's node rejects it, the error is raised after the copy records it. After a
        WorldError it is pending. `attempt`: for a new entry that may have been stored before.
        """
        if ref is None:
            ref, record = self._store(peer, lambda: self.compose(peer, record, act, text), attempt or SendAttempt())
        else:
            record = self.compose(peer, record, act, text)
            self._write(peer, ref, record)
        with mark_kept(True):
            self.settle(peer, ref, record)
        return ref

    def _store(self, peer: Peer, compose: Callable[[], CopyRecord], attempt: SendAttempt) -> tuple[bytes, CopyRecord]:
        """Write the copy to the owner's log, once; return its id and the copy."""
        if attempt.commit is not None:
            with suppress(Expired):  # it was never accepted, and never will be
                ref = self._own.send(attempt.commit).id
                return ref, attempt.about
        record = attempt.about = compose()
        tags = [(TO_TAG, peer.identity.hex())]
        attempt.commit = self._own.prepare("sent", self._sealed(peer, record), tags=tags)
        return self._own.send(attempt.commit).id, record

    def note(self, peer: Peer, place: Place) -> None:
        """Store where a contact's mailbox is."""
        record = CopyRecord(kind="place", mailbox=place.enclave.hex(), node=place.node, state="delivered")
        self._own.commit("sent", self._sealed(peer, record), tags=[(TO_TAG, peer.identity.hex())])

    def settle(self, peer: Peer, ref: bytes, record: CopyRecord) -> None:
        """Send what is pending, possibly again, and write the outcome to the log."""
        if record.pending is None:
            return
        refusal: PeerError | None = None
        theirs = self._locate(peer, record)  # outside the try: a mailbox not found is not a rejection
        try:
            with name_contact(peer, theirs):
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

    def _is_outdated(self, peer: Peer, ref: bytes, begun: CopyRecord) -> bool:
        """Whether another device has retracted it meanwhile, or seen it arrive: its copy knows
        more.
        """
        if ref not in peer.records:
            return False
        self._sync()
        now = peer.records[ref].state
        return now == "retracted" or (begun.state == "pending" and now == "delivered")

    def resume(self, peer: Peer, ref: bytes, record: CopyRecord) -> None:
        """Settle after a crash: a commit that has expired is signed again."""
        try:
            self.settle(peer, ref, record)
        except Expired:
            pending = record.pending
            if pending is None:
                raise
            self.post(peer, record, pending.act, pending.text, ref)

    def repair(self, peer: Peer, ref: bytes, record: CopyRecord) -> Repaired:
        """Resume and return the outcome. Only Distrust is raised."""
        act: CopyAct = "send" if record.pending is None else record.pending.act
        text = record.text if record.pending is None or act != "edit" else record.pending.text
        error: EncError | None = None
        try:
            self.resume(peer, ref, record)
        except Distrust:
            raise
        except EncError as e:
            error = e
        self._sync()
        is_left = peer.records[ref].pending is not None
        return Repaired(peer.identity, ref, record.kind, act, text, error, is_left)

    def compose(self, peer: Peer, record: CopyRecord, act: CopyAct, text: str) -> CopyRecord:
        """Return the copy with the signed commit in it."""
        theirs = self._locate(peer, record)
        record = replace(record, mailbox=theirs.hex)
        if act == "retract":
            commit = theirs.prepare("Delete", {"reason": "author"}, tags=self._composer.retraction_tags(peer, record))
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

    def _delivering(self, peer: Peer, record: CopyRecord) -> tuple[CopyRecord, TagList]:
        """Add the current epoch if the contact has not been given it yet."""
        if not peer.owes_epoch:
            return replace(record, delivers=-1), []
        return replace(record, delivers=peer.own.n), self._composer.epoch_tags(peer)

    def _introduced(self, theirs: Enclave, peer: Peer, record: CopyRecord) -> CopyRecord:
        """Compose an invitation; or, for a peer who has the owner as a contact already, an empty
        message with the same tags.
        """
        tags = self._composer.invitation_tags(peer, self._own.hex, self._own.url)
        commit: Commit
        if record.kind == "invite":
            commit = theirs.prepare("invite", self._composer.seal_greeting(peer, record.text), tags=tags)
        else:
            commit = theirs.prepare("message", "", tags=tags)
        return records.begun(replace(record, delivers=peer.own.n), "send", commit)

    def _sealed(self, peer: Peer, record: CopyRecord) -> str:
        return dm.seal_sent(self._key, peer.identity, records.wire_record(record), self._composer.nonce())

    def _write(self, peer: Peer, ref: bytes, record: CopyRecord) -> None:
        self._own.update(ref, self._sealed(peer, record))
