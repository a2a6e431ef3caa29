"""The log verifier alone: whose signatures count in which place, and what it shows as evidence."""

from typing import Any

import pytest
from msgspec.structs import replace

from enc.client import Distrust, Equivocation, ForeignSequencer, Forgery, Fork, SplitBrain, check_evidence
from enc.client.verify.log_verifier import LogVerifier
from enc.client.verify.pins import MemoryPins, Pin, pin_of
from enc.client.verify.sequencer_history import History, history_of
from enc.core.errors import EnclaveMigrated
from enc.core.log.commit import build_commit
from enc.core.log.event import finalize
from enc.core.log.receipt import build_receipt
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import sha256
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Event, TreeHead
from enc.core.rules.dialects import dialect_of
from enc.core.trees.tree_head import sign_head
from tests.client.evidence.honest_log import LOG
from tests.core.world import START, person

ENCLAVE, OTHER = sha256(b"enclave"), sha256(b"other enclave")
A, B, C = (person(name) for name in ("node", "node2", "node3"))


def event(seq: int, by: PrivateKey, text: str = "hello", *, enclave: bytes = ENCLAVE, enc_v: int = 2) -> Event:
    commit = build_commit(person("bob"), enclave, "message", f"{text} {seq}", START + 60_000, enc_v=enc_v)
    return finalize(commit, by, START + seq, seq)


def migrate(seq: int, by: PrivateKey, to: PrivateKey) -> Event:
    content = {"new_sequencer": to.public.hex(), "prev_seq": seq - 1, "ct_root": "ab" * 32}
    commit = build_commit(person("alice"), ENCLAVE, "Migrate", compact_json(content), START + 60_000)
    return finalize(commit, by, START + seq, seq)


def head(size: int, by: PrivateKey = A, root: bytes | None = None, enclave: bytes = ENCLAVE) -> TreeHead:
    return sign_head(by, enclave, START, size, LOG.roots[size] if root is None else root)


TO_B, TAKEN_BY_C = migrate(5, A, B), migrate(9, C, C)
LINE = history_of(A.public, [TO_B, TAKEN_BY_C], ENCLAVE)


def verifier(key: PrivateKey = A, history: History | None = None, pins: MemoryPins | None = None) -> LogVerifier:
    made = LogVerifier(ENCLAVE, key.public, MemoryPins() if pins is None else pins)
    if history is not None:
        made.learn(history)
    return made


def distrusted(error: type[Distrust], kind: str, message: str, work: Any) -> Distrust:
    """Check the error, its message and its evidence."""
    with pytest.raises(error) as caught:
        work()
    assert type(caught.value) is error
    assert caught.value.message.startswith(message)
    assert (caught.value.evidence.kind, caught.value.evidence.message) == (kind, caught.value.message)
    assert (caught.value.evidence.enclave, len(caught.value.evidence.sequencer)) == (ENCLAVE, 32)
    return caught.value


# Events


def test_an_event_is_of_the_enclave_and_of_its_sequencer() -> None:
    v = verifier()
    foreign = f"event 1: signed by {B.public.hex()}, but the enclave's sequencer is {A.public.hex()}"
    found = distrusted(ForeignSequencer, "foreign", foreign, lambda: v.verify_events([event(1, B)], b"what came"))
    assert (found.message, found.evidence.parts) == (foreign, {"answer": "what came"})
    unsigned = replace(event(1, B), sig=bytes(64))  # whoever signed it, it is not the sequencer's
    distrusted(ForeignSequencer, "foreign", foreign, lambda: v.verify_events([unsigned], b""))
    stray = event(1, A, enclave=OTHER)
    distrusted(Forgery, "answer", "event 1: belongs to another enclave", lambda: v.verify_events([stray], b""))
    for broken in (replace(event(1, A), sig=bytes(64)), replace(event(1, A), timestamp=START)):
        distrusted(Forgery, "answer", "event: ", lambda broken=broken: v.verify_events([broken], b""))
    assert (v.enc_v, v.head) == (None, None)
    v.verify_events([], b"")
    v.verify_events([event(1, A)], b"")
    assert v.enc_v == 2


def test_one_seq_has_one_event() -> None:
    v = verifier()
    v.verify_events([event(1, A)], b"")
    found = distrusted(
        Equivocation, "equivocation", "two different", lambda: v.verify_events([event(1, A, "other")], b"")
    )
    assert check_evidence(found.evidence).convicts
    again = finalize(event(1, A), A, START + 2, 2)
    distrusted(Forgery, "answer", "event: 2: the same commit is already", lambda: v.verify_events([again], b""))


def test_the_version_of_the_first_signed_answer_is_the_enclave_s() -> None:
    v = verifier()
    assert type(v.dialect) is type(dialect_of(2))
    v.verify_events([event(1, A, enc_v=1)], b"")
    assert (v.enc_v, type(v.dialect)) == (1, type(dialect_of(1)))
    distrusted(Forgery, "answer", "event: ", lambda: v.verify_events([event(2, A)], b""))
    by_receipt = verifier()
    by_receipt.verify_receipt(build_receipt(event(1, A, enc_v=1)), event(1, A, enc_v=1), b"")
    assert by_receipt.enc_v == 1
    by_receipt.verify_receipt(build_receipt(event(2, A)), event(2, A), b"")
    assert by_receipt.enc_v == 1


def test_a_receipt_is_for_the_commit_and_of_the_sequencer_of_its_seq() -> None:
    v, sent = verifier(C, LINE), event(3, A)
    v.verify_receipt(build_receipt(sent), sent, b"")
    distrusted(Equivocation, "equivocation", "two", lambda: v.verify_events([event(3, A, "other")], b""))
    other = event(4, A)
    distrusted(Forgery, "answer", "receipt: ", lambda: v.verify_receipt(build_receipt(other), sent, b""))
    late = event(7, A)
    distrusted(SplitBrain, "split", "receipt: signed by", lambda: v.verify_receipt(build_receipt(late), late, b""))
    strange = event(7, person("eve"))
    distrusted(ForeignSequencer, "foreign", "receipt: ", lambda: v.verify_receipt(build_receipt(strange), strange, b""))


# Moves


def test_whose_signature_counts_in_which_place() -> None:
    v = verifier(C, LINE)
    v.verify_events([event(seq, key) for seq, key in ((3, A), (6, B), (8, B), (10, C))], b"")
    found = distrusted(SplitBrain, "split", "event 7: signed by", lambda: v.verify_events([event(7, A)], b""))
    assert f"whose term as sequencer ended with Migrate {TO_B.seq}" in found.message
    assert not check_evidence(found.evidence).convicts  # A may have had the enclave back
    distrusted(ForeignSequencer, "foreign", "event 4: signed by", lambda: v.verify_events([event(4, B)], b""))
    distrusted(ForeignSequencer, "foreign", "event 11", lambda: v.verify_events([event(11, person("eve"))], b""))


def test_who_may_be_a_sequencer_that_is_not_known_yet() -> None:
    known = verifier(C, LINE)
    assert not known.signer_unknown(3, A.public)
    assert not known.signer_unknown(3, B.public)  # known, though not for this seq
    assert known.signer_unknown(3, person("eve").public)
    late = verifier(C, history_of(None, [TAKEN_BY_C], ENCLAVE))
    assert late.signer_unknown(3, A.public)
    assert late.signer_unknown(3, C.public)
    assert not late.signer_unknown(9, C.public)


def test_a_node_s_own_migrate_ends_its_term() -> None:
    v = verifier()
    v.verify_events([TO_B], b"")
    assert v.history == history_of(A.public, [TO_B], ENCLAVE)
    with pytest.raises(EnclaveMigrated) as error:
        v.check_is_current()
    assert error.value.context == {"new_sequencer": B.public.hex()}
    v.verify_events([TO_B], b"")
    assert len(v.history.moves) == 1
    found = distrusted(SplitBrain, "split", "event 6: ", lambda: v.verify_events([event(6, A)], b""))
    assert check_evidence(found.evidence).convicts


def test_a_migrate_to_itself_ends_no_term_and_a_wrong_one_is_a_forgery() -> None:
    v = verifier()
    v.verify_events([migrate(3, A, A)], b"")
    v.check_is_current()
    assert v.history == History(A.public)
    content = {"new_sequencer": B.public.hex(), "prev_seq": 2, "ct_root": "ab" * 32}
    commit = build_commit(person("alice"), ENCLAVE, "Migrate", compact_json(content), START + 60_000)
    wrong = finalize(commit, A, START + 7, 7)
    distrusted(Forgery, "answer", "event: Migrate 7: prev_seq", lambda: v.verify_events([wrong], b""))


def test_a_second_migrate_of_a_node_that_came_back_is_added_to_the_first() -> None:
    back = migrate(12, C, A)
    v = verifier(A, history_of(A.public, [TO_B, TAKEN_BY_C, back], ENCLAVE))
    v.verify_events([migrate(20, A, B)], b"")
    assert [move.event.seq for move in v.history.moves] == [5, 9, 12, 20]
    assert v.history.first == A.public
    last = verifier(C, LINE)
    last.verify_events([migrate(20, C, A)], b"")
    assert (last.history.first, last.history.sequencer) == (A.public, A.public)


def test_a_former_node_shows_a_later_migrate_without_being_its_signer() -> None:
    v = verifier(A, LINE)
    v.verify_events([migrate(20, C, B)], b"")
    assert v.history == LINE


class CountingPins(MemoryPins):
    """Counts what is stored. `first` is what another client stores just before the first of it."""

    def __init__(self, first: Pin | None = None) -> None:
        super().__init__()
        self.stored, self.first = 0, first

    def store(self, enclave: bytes, pin: Pin) -> None:
        if self.first is not None and not self.stored:
            super().store(enclave, self.first)
        self.stored += 1
        super().store(enclave, pin)


def test_the_first_event_pins_its_sequencer_once() -> None:
    pins = CountingPins()
    v = verifier(pins=pins)
    for seq in (1, 2, 3):
        v.verify_events([event(seq, A)], b"")
    assert (pins.stored, pins.load(ENCLAVE)) == (1, pin_of(A.public, None, History(A.public)))


def test_another_client_may_pin_another_node_at_the_same_time() -> None:
    v = verifier(pins=CountingPins(pin_of(B.public, None, History(B.public))))
    message = f"the node's answers: signed by {A.public.hex()}, but the enclave's sequencer is {B.public.hex()}"
    distrusted(ForeignSequencer, "foreign", message, lambda: v.verify_events([event(1, A)], b""))


def test_what_another_client_has_learned_is_known_here() -> None:
    pins = MemoryPins()
    here, there = verifier(A, pins=pins), verifier(A, pins=pins)
    there.verify_events([event(1, A)], b"")
    there.verify_events([TO_B], b"")
    with pytest.raises(EnclaveMigrated):
        verifier(A, pins=pins).check_is_current()
    late = event(6, A)
    distrusted(SplitBrain, "split", "receipt", lambda: here.verify_receipt(build_receipt(late), late, b""))
    with pytest.raises(EnclaveMigrated):
        here.check_is_current()
    assert here.history == there.history
    distrusted(SplitBrain, "split", "event 6", lambda: here.verify_events([event(6, A)], b""))
    stranger = verifier(C, pins=pins)
    distrusted(ForeignSequencer, "foreign", "the node's answers: signed by", lambda: stranger.verify_events([], b""))
    successor = verifier(B, pins=pins)
    successor.verify_events([event(6, B)], b"")
    assert successor.history == there.history


# Heads


def test_a_head_is_the_sequencer_s_for_this_enclave() -> None:
    for wrong in (head(3, B), head(3, enclave=OTHER)):
        distrusted(ForeignSequencer, "foreign", "head: sth: ", lambda wrong=wrong: verifier().check_head(wrong, b"", 0))


def test_two_heads_of_one_size_have_one_root() -> None:
    v = verifier()
    v.pin_head(head(3))
    assert v.head == head(3)
    found = distrusted(Fork, "fork", "the node signed two", lambda: v.check_head(head(3, root=bytes(32)), b"", 3))
    assert check_evidence(found.evidence).convicts
    found = distrusted(
        Fork, "fork", "the log of 3", lambda: (_ for _ in ()).throw(v.root_mismatch(B.public, head(3, B), head(3)))
    )
    assert found.evidence.parts["signer"] == B.public.hex()


def test_a_proof_connects_the_sizes_that_were_asked_for() -> None:
    """Also if it connects other sizes of which the heads have the roots."""
    v = verifier()
    v.connect(head(3), head(5), LOG.connect(3, 5))
    first = head(3, root=LOG.roots[4])
    found = distrusted(
        Fork, "inconsistent", "the log of 5 bundles is not", lambda: v.connect(first, head(5), LOG.connect(4, 5))
    )
    assert "the sizes are not the requested ones" in found.message


def test_a_former_sequencer_signs_no_head_beyond_its_term() -> None:
    line = history_of(A.public, [TO_B], ENCLAVE)
    unsized = verifier(A, line)
    assert unsized.check_head(head(5), b"", 0) is None
    v = verifier(A, line.sized({TO_B.id: 3}))
    assert v.check_head(head(3), b"", 0) is None
    distrusted(SplitBrain, "split", f"{A.public.hex()} signed a head of 4", lambda: v.check_head(head(4), b"", 0))
    pins = MemoryPins()
    former = verifier(A, line, pins)
    verifier(B, line, pins).pin_head(head(4, B))
    with pytest.raises(EnclaveMigrated) as error:
        former.check_head(head(3), b"", 0)
    assert error.value.context == {"new_sequencer": B.public.hex()}
    assert former.head is None
    pins.remove(ENCLAVE)
    assert former.check_head(head(3), b"", 0) is None
