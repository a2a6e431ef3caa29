"""The log verifier: what a client knows about one enclave's log, and which answers it rejects.

It stores the sequencers and the last signed head on disk, and remembers the latest events in memory.
Rules, each with the error that a violation raises:

 1. an event is signed by the sequencer of its seq, a head by the node             ForeignSequencer
 2. a former sequencer signs nothing after the Migrate that replaced it            SplitBrain
 3. a receipt is for the commit that was sent                                      Forgery
 4. an event verifies (hash, both signatures, id), belongs to this enclave         Forgery
    and has the same version as all others
 5. event 0 and no other is the Manifest; `exp` allows the timestamp               Forgery
 6. one seq has one event                                                          Equivocation
 7. a commit has one seq                                                           Forgery
 8. a head is never smaller than the head known when it was requested              Rollback
 9. heads of one size have one root; a larger head extends the smaller             Fork
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from enc.client.errors import (
    Distrust,
    Equivocation,
    ForeignSequencer,
    Forgery,
    Fork,
    Rollback,
    SplitBrain,
    TooManyMoves,
)
from enc.client.evidence.evidence import (
    EvidenceKind,
    answer_evidence,
    split_event,
    split_head,
    two_events,
    two_heads,
    unconnected,
)
from enc.client.verify.pins import MAX_URL, Pin, Pins, pin_of
from enc.client.verify.sequencer_history import History, move_of
from enc.client.verify.signatures import check_events
from enc.core.errors import EnclaveMigrated, InvalidProof, PeerError
from enc.core.log.commit import version_of
from enc.core.log.event import check_manifest_place, check_time, erase, sequenced
from enc.core.log.receipt import check_receipt
from enc.core.primitives.types import Commit, ConsistencyProof, Event, Receipt, TreeHead
from enc.core.rules.dialect import Dialect
from enc.core.rules.dialects import dialect_of
from enc.core.trees.merkle_log import check_consistency
from enc.core.trees.tree_head import check_bound_head

DEFAULT_VERSION = 2
"""Version assumed until a signed answer shows another."""
MAX_SEEN = 4096
"""Most events whose seq is remembered."""


class LogVerifier:
    """`sequencer`: the key of the node that answers, the current sequencer or a former one. `url`:
    where it answers, to be pinned too.
    """

    def __init__(
        self, enclave: bytes, sequencer: bytes, pins: Pins, enc_v: int | None = None, url: str | None = None
    ) -> None:
        self.enclave, self.sequencer = enclave, sequencer
        self._urls = (url,) if url is not None and len(url) <= MAX_URL else ()
        self.enc_v = enc_v
        """The enclave's version; None until a signed answer shows it."""
        self._pins, self._is_pinned, self._lock = pins, False, Lock()
        self.history = History(sequencer)
        self._seen: OrderedDict[int, Event] = OrderedDict()
        self._seqs: dict[bytes, int] = {}
        """Seqs of the remembered events, by hash of the commit."""

    @property
    def dialect(self) -> Dialect:
        """The dialect of the enclave's version, as far as known."""
        return dialect_of(self.enc_v or DEFAULT_VERSION)

    @property
    def size(self) -> int:
        """Number of bundles of the largest verified head; 0 without one."""
        head = self.head
        return head.ts if head else 0

    @property
    def head(self) -> TreeHead | None:
        """The last verified head of this node, from this client or another that shares the pins."""
        pin = self._check_pin()
        return pin.head if pin and pin.sequencer == self.sequencer else None

    def _check_pin(self) -> Pin | None:
        """Load the pin. Another client that shares the pins may have pinned another node or a move."""
        pin = self._pins.load(self.enclave)
        if pin is None:
            return None
        known = pin.history
        if pin.sequencer != self.sequencer and not known.knows(self.sequencer):
            raise self._foreign("the node's answers", self.sequencer, b"", pin.sequencer)
        if (known.reach, len(known.moves)) > (self.history.reach, len(self.history.moves)):
            self.history = known
        return pin

    def learn(self, history: History) -> None:
        """Store what was learned about the enclave's sequencers."""
        self.history = history.sized(self.history.sizes())
        self._store_pin()

    def _store_pin(self, head: TreeHead | None = None) -> None:
        self._pins.store(self.enclave, pin_of(self.sequencer, head, self.history, self._urls))
        self._check_pin()

    def check_is_current(self) -> None:
        """Raise EnclaveMigrated unless the node is the current sequencer, as far as known."""
        self._check_pin()
        move = self.history.departure(self.sequencer)
        if move is not None:
            raise EnclaveMigrated(
                f"the enclave left the node by Migrate {move.event.seq}",
                new_sequencer=(self.history.sequencer or b"").hex(),
            )

    def signer_unknown(self, seq: int, key: bytes) -> bool:
        """Whether the key, or the sequencer of this seq, is unknown: there may be unknown Migrates."""
        return self.history.at(seq) is None or not self.history.knows(key)

    def nodes_of(self, event: Event) -> frozenset[bytes]:
        """Return the keys that may withhold the content of a verified event: all known sequencers."""
        return frozenset({self.sequencer, event.sequencer, *self.history.keys()})

    @contextmanager
    def blame_node(self, what: str, answer: bytes) -> Iterator[None]:
        """Raise any failed check in this block as a Forgery of the node, with `answer` as evidence."""
        try:
            yield
        except (Distrust, TooManyMoves):
            raise
        except PeerError as e:
            raise self.forgery(f"{what}: {e.message}", answer) from e

    def forgery(self, message: str, answer: bytes) -> Forgery:
        return Forgery(message, answer_evidence("answer", self.enclave, self.sequencer, message, answer))

    def _foreign(self, what: str, key: bytes, answer: bytes, known: bytes = b"") -> ForeignSequencer:
        message = f"{what}: signed by {key.hex()}, but the enclave's sequencer is {(known or self.sequencer).hex()}"
        return ForeignSequencer(message, answer_evidence("foreign", self.enclave, self.sequencer, message, answer))

    def _split_brain(self, event: Event, what: str) -> SplitBrain | None:
        """Return the error for an event that a former sequencer signed after its term, if it did."""
        move = self.history.superseded(event.sequencer, event.seq)
        if move is None:
            return None
        message = (
            f"{what}: signed by {event.sequencer.hex()}, whose term as sequencer ended with Migrate {move.event.seq}"
        )
        return SplitBrain(message, split_event(move.event, event, message))

    # Events

    def verify_receipt(self, receipt: Receipt, commit: Commit, answer: bytes) -> None:
        """Verify a receipt, also one that a former sequencer issued and the current one returns."""
        self._check_pin()
        with self.blame_node("receipt", answer):
            check_receipt(receipt, commit, receipt.sequencer)
        r = receipt
        event = sequenced(commit, r.id, r.timestamp, r.sequencer, r.seq, r.seq_sig)
        self._check_signer(event, "receipt", answer)
        self._record_events([event], answer)
        self.enc_v = self.enc_v or version_of(commit)

    def verify_events(self, events: Sequence[Event], answer: bytes) -> None:
        self._check_pin()
        for event in events:
            if event.enclave != self.enclave:
                raise self.forgery(f"event {event.seq}: belongs to another enclave", answer)
            if self.signer_unknown(event.seq, event.sequencer):
                raise self._foreign(f"event {event.seq}", event.sequencer, answer)
        if not events:
            return
        with self.blame_node("event", answer):
            enc_v = self.enc_v or version_of(events[0])
            check_events(events, enc_v)
        for event in sorted(events, key=lambda event: event.seq):
            self._check_signer(event, f"event {event.seq}", answer)
        self._record_events(events, answer)
        self.enc_v = enc_v

    def _check_signer(self, event: Event, what: str, answer: bytes) -> None:
        if self.history.at(event.seq) != event.sequencer:
            raise self._split_brain(event, what) or self._foreign(what, event.sequencer, answer)
        if event.type == "Migrate" and event.sequencer == self.sequencer and event.seq > self.history.reach:
            self._record_departure(event, answer)

    def _record_departure(self, event: Event, answer: bytes) -> None:
        """Record a Migrate by which the enclave leaves this node: later signatures of it do not
        count.
        """
        with self.blame_node("event", answer):
            move = move_of(event, self.sequencer, self.enclave)
        if move.new_sequencer != self.sequencer:
            first = self.history.first if self.history.moves else self.sequencer
            self.learn(History(first, (*self.history.moves, move)))

    def _record_events(self, events: Sequence[Event], answer: bytes) -> None:
        """Record verified events, and pin the sequencer with the first of them."""
        with self.blame_node("event", answer), self._lock:
            for event in events:
                _check_place(event)
                self._record_seq(event)
        if not self._is_pinned:
            self._store_pin()
            self._is_pinned = True

    def _record_seq(self, event: Event) -> None:
        first = self._seen.get(event.seq)
        if first is None:
            if self._seqs.setdefault(event.hash, event.seq) != event.seq:
                raise InvalidProof(f"{event.seq}: the same commit is already event {self._seqs[event.hash]}")
            self._seen[event.seq] = erase(event)
            if len(self._seen) > MAX_SEEN:
                self._seqs.pop(self._seen.popitem(last=False)[1].hash, None)
        elif first.id != event.id:
            message = f"two different events are signed as event {event.seq}"
            raise Equivocation(message, two_events(first, erase(event), message))

    # Heads

    def check_head(self, head: TreeHead, answer: bytes, since: int) -> TreeHead | None:
        """Check a head by itself and against the pinned one.

        Returns the other head with which it must be proved consistent, if any. `since`: the size
        known when the head was requested. While the answer was on its way, another answer, to this
        client or to one that shares the pins, may have brought a larger head.
        """
        try:
            check_bound_head(head, self.sequencer, self.enclave)
        except InvalidProof as e:
            message = f"head: {e.message}"
            raise ForeignSequencer(
                message, answer_evidence("foreign", self.enclave, self.sequencer, message, answer)
            ) from e
        pinned = self.head
        self._check_term(head)
        if pinned is None:
            return None
        if head.ts < min(since, pinned.ts):
            raise self._contradiction(Rollback, "rollback", "the node shows an older log than before", pinned, head)
        if head.ts == pinned.ts and head.r != pinned.r:
            raise self._contradiction(Fork, "fork", "the node signed two logs of the same size", pinned, head)
        return pinned if head.ts != pinned.ts and head.ts and pinned.ts else None

    def _check_term(self, head: TreeHead) -> None:
        """Reject a former sequencer's head beyond its term, and any once its successor is pinned."""
        move, pin = self.history.departure(self.sequencer), self._pins.load(self.enclave)
        if move is None:
            return
        if move.size is not None and head.ts > move.size:
            message = f"{self.sequencer.hex()} signed a head of {head.ts} bundles, but its term ended at {move.size}"
            raise SplitBrain(message, split_head(move.event, move.size, head, self.sequencer, message))
        if pin is not None and pin.sequencer != self.sequencer:
            raise EnclaveMigrated(
                f"the node's term as sequencer ended with Migrate {move.event.seq}", new_sequencer=pin.sequencer.hex()
            )

    def _contradiction(
        self, error: type[Distrust], kind: EvidenceKind, message: str, pinned: TreeHead, head: TreeHead
    ) -> Distrust:
        message = f"{message}: {pinned.ts} bundles before, {head.ts} now"
        return error(message, two_heads(kind, self.enclave, self.sequencer, message, pinned, head))

    def connect(self, first: TreeHead, then: TreeHead, proof: ConsistencyProof, signer: bytes | None = None) -> None:
        """Check that `then` extends `first`, which a former sequencer (`signer`) may have signed."""
        try:
            if (proof.ts1, proof.ts2) != (first.ts, then.ts):
                raise InvalidProof("consistency: the sizes are not the requested ones")
            check_consistency(proof, first.r, then.r)
        except InvalidProof as e:
            raise self.unconnected(first, then, e.message, proof, signer) from e

    def unconnected(
        self,
        first: TreeHead,
        then: TreeHead,
        why: str,
        proof: ConsistencyProof | None = None,
        signer: bytes | None = None,
    ) -> Fork:
        message = f"the log of {then.ts} bundles is not proved to extend the log of {first.ts}: {why}"
        return Fork(message, unconnected(self.enclave, self.sequencer, message, first, then, proof, signer))

    def root_mismatch(self, signer: bytes, pinned: TreeHead, head: TreeHead) -> Fork:
        """Return the error for a head that differs from the one the former sequencer `signer`
        signed.
        """
        message = f"the log of {head.ts} bundles is not the one that {signer.hex()} signed"
        return Fork(message, two_heads("fork", self.enclave, self.sequencer, message, pinned, head, signer))

    def pin_head(self, head: TreeHead) -> None:
        """Pin a head that was checked and connected, if it is larger than the pinned one."""
        self._store_pin(head)


def _check_place(event: Event) -> None:
    """Apply rule 5: a node that follows the protocol would have rejected such a commit."""
    try:
        check_manifest_place(event, InvalidProof)
        check_time(event, InvalidProof)
    except InvalidProof as e:
        raise InvalidProof(f"{event.seq}: {e.message}") from None
