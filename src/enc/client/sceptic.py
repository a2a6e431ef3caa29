"""The sceptic: what a client knows of one enclave's log, and so what it refuses to believe.

It remembers, on disk, who the sequencers are and the last signed head, and, while it lives, the latest events it saw.
Rules, each with the error that breaking it raises:

 1. an event is signed by who is the sequencer in its place, a head by the node    ForeignSequencer
 2. a former sequencer signs nothing after the Migrate that replaced it            SplitBrain
 3. a receipt is for the commit that was sent                                      Forgery
 4. an event checks (hash, both signatures, id), and is of this enclave            Forgery
    and of one version with all others
 5. event 0 and no other is the Manifest; a time is one that its `exp` allows      Forgery
 6. one place of the log holds one event                                           Equivocation
 7. a commit stands in one place                                                   Forgery
 8. a head is never smaller than the one that was known when it was asked for      Rollback
 9. heads of one size have one root; a larger one extends the smaller              Fork
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
from enc.client.evidence import Kind, answer_evidence, split_event, split_head, two_events, two_heads, unconnected
from enc.client.history import History, move_of
from enc.client.pins import Pin, Pins, pin_of
from enc.client.signatures import check_events
from enc.core.commit import version_of
from enc.core.dialect import Dialect
from enc.core.dialects import dialect_of
from enc.core.errors import EnclaveMigrated, InvalidProof, PeerError
from enc.core.event import check_manifest_place, check_time, erase, sequenced
from enc.core.merkle_log import check_consistency
from enc.core.receipt import check_receipt
from enc.core.tree_head import check_bound_head
from enc.core.types import Commit, ConsistencyProof, Event, Receipt, TreeHead

DEFAULT_VERSION = 2
"""The version of an enclave of which nothing is known yet, until that turns out wrong."""
MAX_SEEN = 4096
"""Events whose places are remembered."""


class LogVerifier:
    """`sequencer` is the node that answers: the enclave's sequencer, or one of its former ones."""

    def __init__(self, enclave: bytes, sequencer: bytes, pins: Pins, enc_v: int | None = None) -> None:
        self.enclave, self.sequencer = enclave, sequencer
        self.enc_v = enc_v
        """The enclave's version; None until something signed has told it."""
        self._pins, self._is_pinned, self._lock = pins, False, Lock()
        self.history = History(sequencer)
        self._seen: OrderedDict[int, Event] = OrderedDict()
        self._places: dict[bytes, int] = {}
        """Of commits, by hash: those of the events that are remembered."""

    @property
    def dialect(self) -> Dialect:
        """How the enclave's events are written, as far as that is known."""
        return dialect_of(self.enc_v or DEFAULT_VERSION)

    @property
    def size(self) -> int:
        """Bundles of the log that is known."""
        head = self.head
        return head.ts if head else 0

    @property
    def head(self) -> TreeHead | None:
        """The last signed head of this node that was believed, by this client or by another with the same pins."""
        pin = self._check_pin()
        return pin.head if pin and pin.sequencer == self.sequencer else None

    def _check_pin(self) -> Pin | None:
        """The pin; another client with the same pins may have met another node first, or have followed the enclave."""
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
        """Keep what was found out about the enclave's sequencers."""
        self.history = history.sized(self.history.sizes())
        self._pins.store(self.enclave, pin_of(self.sequencer, None, self.history))
        self._check_pin()

    def check_is_current(self) -> None:
        """The node is the enclave's sequencer, as far as is known."""
        self._check_pin()
        move = self.history.departure(self.sequencer)
        if move is not None:
            raise EnclaveMigrated(
                f"the enclave left the node by Migrate {move.event.seq}",
                new_sequencer=(self.history.sequencer or b"").hex(),
            )

    def signer_unknown(self, seq: int, key: bytes) -> bool:
        """Nothing is known of this key, or of who is the sequencer in this place: there may have been Migrates."""
        expected = self.history.at(seq)
        return expected != key and (expected is None or not self.history.knows(key))

    @contextmanager
    def blame_node(self, what: str, answer: bytes) -> Iterator[None]:
        """Whatever does not check inside is the node's doing, and `answer` is what it said."""
        try:
            yield
        except (Distrust, TooManyMoves):
            raise
        except PeerError as e:
            raise self.forgery(f"{what}: {e.message}", answer) from e

    def forgery(self, message: str, answer: bytes) -> Forgery:
        return Forgery(message, answer_evidence("answer", self.enclave, self.sequencer, message, answer))

    def _foreign(self, what: str, key: bytes, answer: bytes, known: bytes = b"") -> ForeignSequencer:
        message = f"{what}: signed by {key.hex()}, and the enclave's sequencer is {(known or self.sequencer).hex()}"
        return ForeignSequencer(message, answer_evidence("foreign", self.enclave, self.sequencer, message, answer))

    def _split(self, event: Event, what: str) -> SplitBrain | None:
        """A former sequencer's word about a place where it is the sequencer no more."""
        move = self.history.superseded(event.sequencer, event.seq)
        if move is None:
            return None
        message = (
            f"{what}: signed by {event.sequencer.hex()}, which ceased to be the sequencer by Migrate {move.event.seq}"
        )
        return SplitBrain(message, split_event(move.event, event, message))

    # Events

    def verify_receipt(self, receipt: Receipt, commit: Commit, answer: bytes) -> None:
        """Also of a commit that an earlier sequencer took, and of which the present one knows."""
        self._check_pin()
        with self.blame_node("receipt", answer):
            check_receipt(receipt, commit, receipt.sequencer)
        r = receipt
        event = sequenced(commit, r.id, r.timestamp, r.sequencer, r.seq, r.seq_sig)
        self._check_signer(event, "receipt", answer)
        self._see([event], answer)
        self.enc_v = self.enc_v or version_of(commit)

    def verify_events(self, events: Sequence[Event], answer: bytes) -> None:
        self._check_pin()
        for event in events:
            if event.enclave != self.enclave:
                raise self.forgery(f"event {event.seq}: of another enclave", answer)
            if self.signer_unknown(event.seq, event.sequencer):
                raise self._foreign(f"event {event.seq}", event.sequencer, answer)
        if not events:
            return
        with self.blame_node("event", answer):
            enc_v = self.enc_v or version_of(events[0])
            check_events(events, enc_v)
        for event in sorted(events, key=lambda event: event.seq):
            self._check_signer(event, f"event {event.seq}", answer)
        self._see(events, answer)
        self.enc_v = enc_v

    def _check_signer(self, event: Event, what: str, answer: bytes) -> None:
        if self.history.at(event.seq) != event.sequencer:
            raise self._split(event, what) or self._foreign(what, event.sequencer, answer)
        if event.type == "Migrate" and event.sequencer == self.sequencer and event.seq > self.history.reach:
            self._note(event, answer)

    def _note(self, event: Event, answer: bytes) -> None:
        """The node itself says that the enclave leaves it: what it signs for later places is nothing any more."""
        with self.blame_node("event", answer):
            move = move_of(event, self.sequencer, self.enclave)
        if move.new_sequencer != self.sequencer:
            first = self.history.first if self.history.moves else self.sequencer
            self.learn(History(first, (*self.history.moves, move)))

    def _see(self, events: Sequence[Event], answer: bytes) -> None:
        """What is signed for this enclave: from the first on, its signer is the sequencer, until a Migrate."""
        with self.blame_node("event", answer), self._lock:
            for event in events:
                _check_place(event)
                self._place(event)
        if events and not self._is_pinned:
            self._pins.store(self.enclave, pin_of(self.sequencer, None, self.history))
            self._check_pin()
            self._is_pinned = True

    def _place(self, event: Event) -> None:
        first = self._seen.get(event.seq)
        if first is None:
            if self._places.setdefault(event.hash, event.seq) != event.seq:
                raise InvalidProof(f"{event.seq}: its commit is event {self._places[event.hash]} already")
            self._seen[event.seq] = erase(event)
            if len(self._seen) > MAX_SEEN:
                self._places.pop(self._seen.popitem(last=False)[1].hash, None)
        elif first.id != event.id:
            message = f"two different events are signed as number {event.seq}"
            raise Equivocation(message, two_events(first, erase(event), message))

    # Heads

    def check_head(self, head: TreeHead, answer: bytes, since: int) -> TreeHead | None:
        """Judge a head by itself and against the pinned one; which other head must be connected with it, if any.

        `since`: the size that was known when it was asked for. An answer may have been on its way while another one,
        to this client or to another with the same pins, brought a larger head.
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
            raise self._against(Rollback, "rollback", "the node shows an older log than before", pinned, head)
        if head.ts == pinned.ts and head.r != pinned.r:
            raise self._against(Fork, "fork", "the node signed two logs of one size", pinned, head)
        return pinned if head.ts != pinned.ts and head.ts and pinned.ts else None

    def _check_term(self, head: TreeHead) -> None:
        """A former sequencer's log has ended. Whoever believes its successor's heads has no use for its own."""
        move, pin = self.history.departure(self.sequencer), self._pins.load(self.enclave)
        if move is None:
            return
        if move.size is not None and head.ts > move.size:
            message = (
                f"{self.sequencer.hex()} signed a head of {head.ts} bundles: it left the log when it had {move.size}"
            )
            raise SplitBrain(message, split_head(move.event, move.size, head, self.sequencer, message))
        if pin is not None and pin.sequencer != self.sequencer:
            raise EnclaveMigrated(
                f"the node ceased to be the sequencer by Migrate {move.event.seq}", new_sequencer=pin.sequencer.hex()
            )

    def _against(self, error: type[Distrust], kind: Kind, message: str, pinned: TreeHead, head: TreeHead) -> Distrust:
        message = f"{message}: {pinned.ts} bundles before, {head.ts} now"
        return error(message, two_heads(kind, self.enclave, self.sequencer, message, pinned, head))

    def connect(self, first: TreeHead, then: TreeHead, proof: ConsistencyProof, signer: bytes | None = None) -> None:
        """The larger head extends the smaller, which another sequencer may have signed before a Migrate."""
        try:
            if (proof.ts1, proof.ts2) != (first.ts, then.ts):
                raise InvalidProof("consistency: for other sizes than asked")
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
        message = f"the log of {then.ts} bundles is not shown to extend the one of {first.ts}: {why}"
        return Fork(message, unconnected(self.enclave, self.sequencer, message, first, then, proof, signer))

    def root_mismatch(self, signer: bytes, pinned: TreeHead, head: TreeHead) -> Fork:
        """Of the log as the sequencer before left it."""
        message = f"the log of {head.ts} bundles is not the one that {signer.hex()} signed"
        return Fork(message, two_heads("fork", self.enclave, self.sequencer, message, pinned, head, signer))

    def pin_head(self, head: TreeHead) -> None:
        """A head that was checked, and connected, takes the pinned one's place if it is larger."""
        self._pins.store(self.enclave, pin_of(self.sequencer, head, self.history))
        self._check_pin()


def _check_place(event: Event) -> None:
    """Apply rule 5: a node that follows the protocol would have rejected such a commit."""
    try:
        check_manifest_place(event, InvalidProof)
        check_time(event, InvalidProof)
    except InvalidProof as e:
        raise InvalidProof(f"{event.seq}: {e.message}") from None
