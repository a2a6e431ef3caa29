"""Lies about heads and receipts: each test is named after the lie.

`caught` checks what is the same for all: the right error, evidence that survives a file, an unchanged pin.
"""

from collections.abc import Callable
from typing import Any

import pytest

from enc.client import Equivocation, ForeignSequencer, Forgery, Fork, Rollback, check_evidence
from enc.core.errors import (
    Duplicate,
    EncError,
    EnclaveNotFound,
    InvalidRange,
    TreeSizeNotFound,
)
from enc.core.trees.tree_head import wire_head
from enc.testing.lying_node import Json, LyingNode
from tests.client.scene import BY_HEAD, Scene, flip, instead, receipt_of
from tests.core.world import person


def test_the_node_tells_the_truth_until_it_is_told_to_lie(scene: Scene) -> None:
    e = scene.enclave
    assert [item.seq for item in e.query()] == list(range(8))
    assert [item.fact is not None for item in e.query(proof=True)] == [True] * 7 + [False]
    assert [item.seq for item in e.complete()] == list(range(7))
    assert e.proof(scene.id("two")).status == e.status(scene.id("two")) == "updated"
    assert e.content(e.event(scene.id("two"))) == "more"
    assert e.read_shared("topic").value == "games"
    assert e.read_shared("topic").proved
    feed = e.subscribe()
    assert [next(feed).seq for _ in range(8)] == list(range(8))


# Heads


by_head = pytest.mark.parametrize("ask", BY_HEAD.values(), ids=BY_HEAD)


@by_head
def test_forked_head(scene: Scene, ask: Callable[[Any], Any]) -> None:
    twin = scene.fork()
    scene.enclave.head()
    scene.stage.node = twin
    error = scene.caught(Fork, lambda: ask(scene.other()))
    assert check_evidence(error.evidence).convicts


@by_head
def test_head_that_does_not_extend_the_pinned_one(scene: Scene, ask: Callable[[Any], Any]) -> None:
    twin = scene.fork()
    scene.enclave.head()
    scene.grow(twin, "and more")
    scene.stage.node = twin
    error = scene.caught(Fork, lambda: ask(scene.other()))
    assert not check_evidence(error.evidence).convicts
    assert error.evidence.parts["proof"]["ts2"] == 4


def test_consistency_proof_that_is_altered(scene: Scene) -> None:
    scene.grow(scene.node, "more")
    scene.lie("consistency", lambda answer: {**answer, "p": [flip(answer["p"][0]), *answer["p"][1:]]})
    scene.caught(Fork, scene.enclave.head)


@pytest.mark.parametrize("sizes", [{"ts1": 1}, {"ts2": 2}, {"ts1": 3}], ids=str)
def test_consistency_proof_for_other_sizes(scene: Scene, sizes: Json) -> None:
    scene.grow(scene.node, "more")
    scene.lie("consistency", lambda answer: {**answer, **sizes})
    scene.caught(Fork, scene.enclave.head)


def test_true_consistency_proof_of_other_sizes(scene: Scene) -> None:
    scene.grow(scene.node, "more")
    scene.lie("consistency", lambda _: scene.node.proofs(scene.enclave.id).consistency(1, 3))
    scene.caught(Fork, scene.enclave.head)


def test_head_that_claims_more_bundles_than_its_log_has(scene: Scene) -> None:
    """Root and proof belong to a log of three bundles."""
    scene.grow(scene.node, "more")
    head, shown = scene.node.proofs(scene.enclave.id).head(), scene.node.proofs(scene.enclave.id).consistency(2, 3)
    scene.lie("sth", lambda _: wire_head(scene.node.head(scene.enclave.id, 7, head.r)))
    scene.lie("consistency", lambda _: shown)
    scene.caught(Fork, scene.enclave.head)


@pytest.mark.parametrize("refusal", [InvalidRange, TreeSizeNotFound, EnclaveNotFound])
def test_consistency_that_is_refused(scene: Scene, refusal: type[EncError]) -> None:
    scene.grow(scene.node, "more")
    scene.lie("consistency", instead(refusal("no")))
    error = scene.caught(Fork, scene.enclave.head)
    assert not check_evidence(error.evidence).convicts


@by_head
def test_rolled_back_head(scene: Scene, ask: Callable[[Any], Any]) -> None:
    old = scene.node.copy()
    scene.grow(scene.node, "more")
    scene.enclave.head()
    scene.stage.node = old
    error = scene.caught(Rollback, lambda: ask(scene.enclave))
    assert not check_evidence(error.evidence).convicts


def test_rolled_back_head_shown_to_another_client_later(scene: Scene) -> None:
    """The pin is on disk: a later client knows what the first one saw."""
    old = scene.node.copy()
    scene.grow(scene.node, "more")
    scene.enclave.head()
    scene.stage.node = old
    scene.caught(Rollback, scene.other().head)


@by_head
def test_cut_log(scene: Scene, ask: Callable[[Any], Any]) -> None:
    """Smaller and dated later: not an old answer but a truncated log."""
    cut = scene.node.copy()
    for text in ("more", "and more", "and still more"):
        scene.grow(scene.node, text)
    scene.enclave.head()
    scene.grow(cut, "instead")
    scene.stage.node = cut
    error = scene.caught(Rollback, lambda: ask(scene.other()))
    assert check_evidence(error.evidence).convicts


def test_head_of_another_enclave_of_the_same_node(scene: Scene) -> None:
    other = scene.stage.create(meta={"n": 2})
    scene.stage.close_bundle()
    head = wire_head(other.head())
    scene.lie("sth", lambda _: head)
    scene.caught(ForeignSequencer, scene.enclave.head)


@pytest.mark.parametrize("bound_sig", [None, "00" * 64], ids=["missing", "nonsense"])
def test_head_without_the_signature_that_binds_it(scene: Scene, bound_sig: str | None) -> None:
    scene.lie("sth", lambda answer: {**answer, "bound_sig": bound_sig})
    scene.caught(ForeignSequencer, scene.enclave.head)


@by_head
def test_head_by_a_foreign_key(scene: Scene, ask: Callable[[Any], Any]) -> None:
    foreign = LyingNode(scene.stage.clock, person("node2"))

    def sign(head: Json) -> Json:
        return wire_head(foreign.head(scene.enclave.id, head["ts"], bytes.fromhex(head["r"]), head["t"]))

    scene.lie("sth", sign)
    for kind in ("State_Proof", "State_Batch", "Query", "Inclusion_Proof"):
        scene.lie(kind, lambda answer: {**answer, "sth": sign(answer["sth"])} if "sth" in answer else answer)
    scene.caught(ForeignSequencer, lambda: ask(scene.enclave))


@pytest.mark.parametrize("field", ["t", "ts"])
def test_head_with_another_number_than_signed(scene: Scene, field: str) -> None:
    scene.lie("sth", lambda answer: {**answer, field: answer[field] + 1})
    scene.caught(ForeignSequencer, scene.enclave.head)


# Receipts


def test_receipt_of_a_foreign_sequencer(scene: Scene) -> None:
    foreign = LyingNode(scene.stage.clock, person("node2"))
    scene.lie("Receipt", lambda _: receipt_of(foreign.event(scene.node.commit, 8)))
    scene.caught(ForeignSequencer, lambda: scene.enclave.commit("message", "x"))


def test_receipt_for_another_commit(scene: Scene) -> None:
    scene.lie("Receipt", lambda _: receipt_of(scene.node.event(scene.commit("not yours"), 8)))
    scene.caught(Forgery, lambda: scene.enclave.commit("message", "x"))


def test_receipt_for_another_commit_as_a_duplicate(scene: Scene) -> None:
    """As if an answer had been lost, and the same commit sent again."""
    receipt = receipt_of(scene.node.event(scene.commit("not yours"), 8))
    scene.lie("Receipt", instead(Duplicate("taken before", receipt=receipt)))
    scene.caught(Forgery, lambda: scene.enclave.commit("message", "x"))


@pytest.mark.parametrize("field", ["seq", "timestamp"])
def test_receipt_with_another_number_than_signed(scene: Scene, field: str) -> None:
    scene.lie("Receipt", lambda answer: {**answer, field: answer[field] + 1})
    scene.caught(Forgery, lambda: scene.enclave.commit("message", "x"))


@pytest.mark.parametrize("field", ["id", "hash", "sig", "seq_sig"])
def test_receipt_that_is_altered(scene: Scene, field: str) -> None:
    scene.lie("Receipt", lambda answer: {**answer, field: flip(answer[field])})
    scene.caught(Forgery, lambda: scene.enclave.commit("message", "x"))


def test_receipt_for_the_place_of_the_manifest(scene: Scene) -> None:
    scene.lie("Receipt", lambda _: receipt_of(scene.node.event(scene.node.commit, 0)))
    scene.caught(Forgery, lambda: scene.other().commit("message", "x"))


def test_receipt_for_a_place_that_is_taken(scene: Scene) -> None:
    scene.lie("Receipt", lambda _: receipt_of(scene.node.event(scene.node.commit, 7)))
    error = scene.caught(Equivocation, lambda: scene.enclave.commit("message", "x"))
    assert check_evidence(error.evidence).convicts


def test_receipt_dated_long_after_the_commit_has_expired(scene: Scene) -> None:
    late = scene.stage.clock.now + 10**9
    scene.lie("Receipt", lambda _: receipt_of(scene.node.event(scene.node.commit, 8, late)))
    scene.caught(Forgery, lambda: scene.enclave.commit("message", "x"))
