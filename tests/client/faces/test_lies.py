"""A node that lies: each test is named after the lie. It is found out, with evidence, and nothing false is believed.

`caught` holds what is the same for all: the right error, evidence that survives a file, and the pin as it was.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import Raw
from msgspec.json import encode

from enc.client import Equivocation, ForeignSequencer, Forgery, Fork, Rollback, Unreachable, check_evidence
from enc.client.wire import transport as transport_module
from enc.core.errors import (
    Duplicate,
    EncError,
    EnclaveNotFound,
    EventNotFound,
    InvalidRange,
    TreeSizeNotFound,
)
from enc.core.log.commit import build_manifest
from enc.core.log.event import erase, wire_event
from enc.core.primitives.hashing import sha256
from enc.core.trees.state_key import LIFECYCLE_KEY, shared_slot, status_key, tree_key
from enc.core.trees.tree_head import wire_head
from tests.client.scene import TOPIC, Scene, flip, instead, receipt_of, without
from tests.client.stage import caught, drain
from tests.core.world import LIFETIME, person
from tests.simulator import Json, Simulator


def test_the_simulator_tells_the_truth_until_it_is_told_to_lie(scene: Scene) -> None:
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

BY_HEAD: dict[str, Callable[[Any], Any]] = {
    "head": lambda e: e.head(),
    "state": lambda e: e.state("kv", TOPIC),
    "page": lambda e: e.query(proof=True),
    "bundle": lambda e: e.bundle(0),
    "members": lambda e: e.members(),
}
"""Everything that brings a head with it."""
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
    """The root and the proof are those of a log of three."""
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
    """The pin is on disk: who comes later knows what the first one saw."""
    old = scene.node.copy()
    scene.grow(scene.node, "more")
    scene.enclave.head()
    scene.stage.node = old
    scene.caught(Rollback, scene.other().head)


@by_head
def test_cut_log(scene: Scene, ask: Callable[[Any], Any]) -> None:
    """Smaller, and dated later: that is no old answer, but a log whose end was taken away."""
    cut = scene.node.copy()
    for text in ("more", "and more", "and still more"):
        scene.grow(scene.node, text)
    scene.enclave.head()
    scene.grow(cut, "instead")
    scene.stage.node = cut
    error = scene.caught(Rollback, lambda: ask(scene.other()))
    assert check_evidence(error.evidence).convicts


def test_head_of_another_enclave_of_the_same_node(scene: Scene) -> None:
    other = scene.stage.found(meta={"n": 2})
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
    foreign = Simulator(scene.stage.clock, person("node2"))

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
    foreign = Simulator(scene.stage.clock, person("node2"))
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


# Events


def test_two_events_in_one_place_by_receipt_and_page(scene: Scene) -> None:
    scene.show(4, scene.node.event(scene.commit("another three"), 4))
    error = scene.caught(Equivocation, scene.enclave.query)
    assert check_evidence(error.evidence).convicts


def test_two_events_in_one_place_by_two_pages(scene: Scene) -> None:
    e = scene.other()
    assert len(list(e.query())) == 8
    scene.show(4, scene.node.event(scene.commit("another three"), 4))
    error = scene.caught(Equivocation, e.query)
    assert check_evidence(error.evidence).convicts


def test_two_events_in_one_place_by_page_and_subscription(scene: Scene) -> None:
    e = scene.other()
    assert len(list(e.query())) == 8
    another = scene.node.event(scene.commit("another three"), 4)
    scene.lie("Event", lambda item: {**item, "event": wire_event(another)} if item["event"]["seq"] == 4 else None)
    scene.caught(Equivocation, e.subscribe)


@pytest.mark.parametrize("seq", range(1, 7))
def test_dropped_event(scene: Scene, seq: int) -> None:
    """Who reads everything sees it: the bundles' id lists say what there is."""
    scene.lie("Query", lambda answer: without(answer, seq))
    scene.caught(Forgery, scene.enclave.complete)


def test_dropped_event_that_a_filtered_read_cannot_miss(scene: Scene) -> None:
    """No proof says that nothing else matches; and the docs say so."""
    scene.lie("Query", lambda answer: without(answer, 4))
    assert [item.seq for item in scene.enclave.query(type="message")] == [1, 2, 7]
    assert "left out" in (scene.stage.kind.query.__doc__ or "")
    assert "**That nothing was withheld**" in (Path(__file__).parents[3] / "docs/client.md").read_text()


def test_event_that_is_not_the_one_of_the_bundle(scene: Scene) -> None:
    scene.show(4, scene.node.event(scene.commit("another three"), 4, scene.event("three").timestamp))
    scene.caught(Forgery, scene.other().complete)


def test_dropped_event_and_its_id(scene: Scene) -> None:
    scene.lie("Query", lambda answer: without(answer, 4))
    scene.lie("Bundle_Proof", lambda answer: {**answer, "ids": answer["ids"][:1]})
    scene.caught(Forgery, scene.enclave.complete)


def test_dropped_event_that_is_said_to_be_deleted(scene: Scene) -> None:
    """By the status of another event, which is."""
    e = scene.enclave
    e.delete(scene.id("one"))
    scene.stage.close_bundle()
    e.head()
    scene.lie("Query", lambda answer: without(answer, 4))
    of_one = scene.node.proofs(e.id)
    proof = of_one.state(status_key(scene.id("one")), of_one.root_at(None, False))
    scene.lie("State_Batch", lambda answer: {**answer, "proofs": [proof]})
    scene.caught(Forgery, e.complete)


def test_reordered_events(scene: Scene) -> None:
    scene.lie("Query", lambda answer: {**answer, "events": answer["events"][::-1]})
    scene.caught(Forgery, scene.enclave.query)
    scene.caught(Forgery, lambda: scene.enclave.query(reverse=True))


def test_reordered_ids_of_a_bundle(scene: Scene) -> None:
    scene.lie("Bundle_Proof", lambda answer: {**answer, "ids": answer["ids"][::-1]})
    scene.caught(Forgery, lambda: scene.enclave.bundle(0))


def test_event_that_stands_twice_in_a_page(scene: Scene) -> None:
    scene.lie("Query", lambda answer: {**answer, "events": [*answer["events"], answer["events"][-1]]})
    scene.caught(Forgery, scene.enclave.query)


def test_event_dated_before_the_one_before_it(scene: Scene) -> None:
    scene.show(7, scene.node.event(scene.commit("early"), 7, scene.event("three").timestamp - 1))
    scene.caught(Forgery, lambda: scene.other().query(seq={"start_at": 4}))


OUTSIDE: dict[str, Callable[[Scene], Json]] = {
    "type": lambda scene: {"type": "Shared"},
    "author": lambda scene: {"author": person("bob").public},
    "id": lambda scene: {"id": scene.id("three")},
    "seq": lambda scene: {"seq": 4},
    "range": lambda scene: {"seq": {"start_at": 5}},
    "tags": lambda scene: {"tags": {"r": True}},
    "timestamp": lambda scene: {"timestamp": {"end_before": scene.sent["one"].timestamp}},
}


@pytest.mark.parametrize("outside", OUTSIDE.values(), ids=OUTSIDE)
def test_event_out_of_the_filter(scene: Scene, outside: Callable[[Scene], Json]) -> None:
    item = {"event": wire_event(scene.event("one")), "status": "active"}
    scene.lie("Query", lambda answer: {**answer, "events": [item]})
    scene.caught(Forgery, lambda: scene.enclave.query(**outside(scene)))


def test_more_events_than_the_limit(scene: Scene) -> None:
    page = {"events": [{"event": wire_event(scene.event(text)), "status": "active"} for text in ("one", "three")]}
    scene.lie("Query", lambda _: page)
    scene.caught(Forgery, lambda: scene.enclave.query(limit=1))


ALTERED: dict[str, Callable[[Scene], Any]] = {
    "content": lambda scene: "three, or more",
    "type": lambda scene: "notice",
    "from": lambda scene: person("bob").public.hex(),
    "timestamp": lambda scene: scene.sent["three"].timestamp + 1,
    "exp": lambda scene: scene.event("three").exp + 1,
    "tags": lambda scene: [["k"]],
    "hash": lambda scene: flip(scene.sent["three"].hash.hex()),
    "id": lambda scene: flip(scene.id("three").hex()),
    "sig": lambda scene: flip(scene.sent["three"].sig.hex()),
    "seq_sig": lambda scene: flip(scene.sent["three"].seq_sig.hex()),
    "alg": lambda scene: "ecdsa",
    "content_hash": lambda scene: "00" * 32,
}


@pytest.mark.parametrize("field", ALTERED)
def test_altered_event(scene: Scene, field: str) -> None:
    """Content, author, time, and everything else that a signature covers."""
    scene.alter(4, **{field: ALTERED[field](scene)})
    scene.caught(Forgery, scene.other().query)


def test_event_moved_to_another_place(scene: Scene) -> None:
    def lie(answer: Json) -> Json:
        answer["events"][4]["event"]["seq"] = 5
        del answer["events"][5]
        return answer

    scene.lie("Query", lie)
    scene.caught(Forgery, scene.other().query)


@pytest.mark.parametrize("text", ["one", "plans"])
def test_withheld_content(scene: Scene, text: str) -> None:
    """Of an event that nothing has erased."""
    scene.show(scene.sent[text].seq, erase(scene.event(text)))
    scene.caught(Forgery, scene.other().query)


def test_event_of_another_enclave(scene: Scene) -> None:
    elsewhere = scene.stage.found(meta={"n": 2})
    receipt = elsewhere.commit("message", "elsewhere")
    found = scene.node.store.event(elsewhere.id, receipt.id)
    assert found is not None
    scene.show(1, found.event)
    scene.caught(Forgery, scene.other().query)


def test_event_of_a_foreign_sequencer(scene: Scene) -> None:
    foreign = Simulator(scene.stage.clock, person("node2"))
    scene.show(7, foreign.event(scene.commit("foreign"), 7))
    scene.caught(ForeignSequencer, scene.other().query)


def test_event_0_that_is_no_manifest(scene: Scene) -> None:
    """The enclave's id is the hash of its Manifest, and of nothing else that the node may sign as event 0."""
    manifest = scene.node.store.events(scene.enclave.id, 0, 1)[0]
    false = scene.commit((manifest.content or "").replace("message", "massage"))
    scene.show(0, scene.node.event(false, 0, manifest.timestamp))
    for ask in ("manifest", "overview", "members"):
        scene.caught(Forgery, getattr(scene.other(), ask))


def test_manifest_of_another_enclave(scene: Scene) -> None:
    other = scene.stage.found(meta={"n": 2})
    scene.show(0, scene.node.store.events(other.id, 0, 1)[0])
    scene.caught(Forgery, scene.other().manifest)


def test_old_commit_sequenced_again(scene: Scene) -> None:
    """Its author signed it once, for an hour; the node would have it again a year later."""
    scene.stage.clock.tick(365 * 86_400_000)
    again = scene.node.event(scene.event("one"), 8)
    page = {"events": [{"event": wire_event(again), "status": "active"}]}
    scene.lie("Query", lambda _: page)
    scene.caught(Forgery, lambda: scene.other().query(seq=8))


def test_commit_sequenced_twice(scene: Scene) -> None:
    again = scene.node.event(scene.event("one"), 8)
    scene.lie("Query", lambda answer: {"events": [*answer["events"], {"event": wire_event(again), "status": "active"}]})
    scene.caught(Forgery, scene.other().query)


def test_commit_dated_before_it_can_have_been_made(scene: Scene) -> None:
    """A commit holds for an hour at most: its time is within that of `exp`."""
    commit = scene.commit("x", exp=scene.stage.clock.now + 10 * 3_600_000)
    scene.show(7, scene.node.event(commit, 7))
    scene.caught(Forgery, scene.other().query)


@pytest.mark.parametrize("item", [{"updated_by": "00" * 32}, {"status": "updated"}], ids=["by", "status"])
def test_status_that_does_not_fit(scene: Scene, item: Json) -> None:
    scene.lie("Query", lambda answer: answer["events"][1].update(item))
    scene.caught(Forgery, scene.enclave.query)


def test_update_of_another_event(scene: Scene) -> None:
    """What an event says now is what its own Update says."""
    e = scene.enclave
    e.update(scene.id("one"), "uno")
    item = e.event(scene.id("two"))
    of_one = next(each for each in e.query(type="Update", reverse=True) if each.content == "uno")
    scene.lie("Query", lambda answer: answer["events"][0].update(updated_by=of_one.id.hex()))
    item = e.event(scene.id("two"))
    scene.node.be_honest()
    scene.caught(Forgery, lambda: e.content(item))


def test_reply_presented_as_an_update(scene: Scene) -> None:
    """It names the event by the same tag."""
    e = scene.enclave
    reply = e.commit("message", "I say", tags=[["r", scene.id("two").hex()]])
    scene.lie("Query", lambda answer: answer["events"][0].update(updated_by=reply.id.hex()))
    item = e.event(scene.id("two"))
    scene.node.be_honest()
    scene.caught(Forgery, lambda: e.content(item))


# Pages


def test_repeated_page(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.client.enclave.search.MAX_LIMIT", 3)
    pages = list[Json]()

    def first_again(answer: Json) -> Json:
        pages.append(answer)
        return pages[0]

    scene.lie("Query", first_again)
    scene.caught(Forgery, scene.enclave.query)
    assert len(pages) == 2


def test_truncated_page(scene: Scene) -> None:
    scene.lie("Query", lambda _: {"events": [], "more": True})
    scene.caught(Forgery, scene.enclave.query)


def test_page_that_ends_early(scene: Scene) -> None:
    """As if there were nothing more. Who reads everything sees it."""
    scene.lie("Query", lambda answer: {"events": answer["events"][:2]})
    scene.caught(Forgery, scene.enclave.complete)


@pytest.mark.parametrize("page", [b"[]", b"{}", b'{"events": {}}', b'{"events": [{}]}', b"null", b'"events"'], ids=str)
def test_page_of_another_form(scene: Scene, page: bytes) -> None:
    scene.lie("Query", lambda _: Raw(page))
    scene.caught(Forgery, scene.enclave.query)


# Proofs of events


def test_inclusion_proof_for_another_leaf(scene: Scene) -> None:
    inclusion = scene.node.proofs(scene.enclave.id).inclusion
    scene.lie("Inclusion_Proof", lambda answer: inclusion(1 - answer["li"]))
    scene.caught(Forgery, lambda: scene.enclave.proof(scene.id("one")))
    scene.lie("Inclusion_Proof", lambda answer: {**inclusion(1 - answer["li"]), "li": answer["li"]})
    scene.caught(Forgery, lambda: scene.enclave.proof(scene.id("one")))


def test_inclusion_proof_for_another_leaf_by_itself(scene: Scene) -> None:
    other = scene.node.proofs(scene.enclave.id).inclusion(1)
    scene.lie("Inclusion_Proof", lambda _: other)
    scene.caught(Forgery, lambda: scene.enclave._run(scene.stage.reader(scene.enclave).anchor(0)))


def proved(scene: Scene, alter: Callable[[Json], Any], seq: int = 1) -> None:
    """Alter the proof of one event, in every page."""

    def lie(answer: Json) -> None:
        for item in answer["events"]:
            if item["event"]["seq"] == seq:
                alter(item)

    scene.lie("Query", lie)


def test_inclusion_proof_for_another_leaf_in_a_page(scene: Scene) -> None:
    other = scene.node.proofs(scene.enclave.id).bare_inclusion(1, 2)
    proved(scene, lambda item: item["proof"].update(inclusion=other))
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True))


def test_invented_leaf_in_a_page(scene: Scene) -> None:
    """An event that both have signed, alone in a bundle that is not in the log."""
    event = scene.node.event(scene.commit("in no bundle"), 4, scene.event("three").timestamp)

    def lie(answer: Json) -> None:
        item = answer["events"][4]
        proof = item["proof"]
        item["event"] = wire_event(event)
        proof["bundle"] = {"ei": 0, "s": [], "size": 1}
        proof["inclusion"]["events_root"] = event.id.hex()
        proofs = scene.node.proofs(scene.enclave.id)
        proof["status"] = proofs.state(status_key(event.id), proofs.root_at(None, False))
        answer["events"] = [item]

    scene.lie("Query", lie)
    scene.caught(Forgery, lambda: scene.other().query(proof=True))


def test_membership_that_is_altered_in_a_page(scene: Scene) -> None:
    proved(scene, lambda item: item["proof"]["bundle"]["s"].__setitem__(0, "00" * 32))
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True))


def test_inclusion_proof_that_is_altered(scene: Scene) -> None:
    for field in ("events_root", "state_hash"):
        scene.lie("Inclusion_Proof", lambda answer, field=field: {**answer, field: flip(answer[field])})
        scene.caught(Forgery, lambda: scene.enclave.bundle(0))
    scene.lie("Inclusion_Proof", lambda answer: {**answer, "p": [flip(answer["p"][0])]})
    scene.caught(Forgery, lambda: scene.enclave.bundle(0))


def test_inclusion_proof_for_another_size_than_the_head_s(scene: Scene) -> None:
    scene.lie("Inclusion_Proof", lambda answer: {**scene.node.proofs(scene.enclave.id).bare_inclusion(0, 1)})
    scene.caught(Forgery, lambda: scene.enclave.bundle(0))
    older = scene.node.proofs(scene.enclave.id).bare_inclusion(0, 1)
    scene.lie("Inclusion_Proof", lambda answer: {**older, "sth": answer["sth"]})
    scene.caught(Forgery, lambda: scene.enclave.bundle(0))


def test_two_inclusion_proofs_of_one_leaf(scene: Scene) -> None:
    """The second is not even checked where the first one stands."""
    proved(scene, lambda item: item["proof"]["inclusion"].update(state_hash="00" * 32), seq=2)
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True))


def test_wrong_bundle_index(scene: Scene) -> None:
    scene.lie("Bundle_Proof", lambda answer: {**answer, "leaf_index": 1 - answer["leaf_index"]})
    scene.caught(Forgery, lambda: scene.enclave.proof(scene.id("one")))
    scene.caught(Forgery, lambda: scene.enclave.bundle(0))


def test_bundle_of_another_index(scene: Scene) -> None:
    other = scene.node.proofs(scene.enclave.id).whole_bundle(1)
    scene.lie("Bundle_Proof", lambda _: other)
    scene.caught(Forgery, lambda: scene.enclave.bundle(0))
    scene.lie("Bundle_Proof", lambda _: {**other, "leaf_index": 0})
    scene.caught(Forgery, lambda: scene.enclave.bundle(0))


def test_membership_of_another_event(scene: Scene) -> None:
    other = scene.node.proofs(scene.enclave.id).membership(scene.id("two"))
    scene.lie("Bundle_Proof", lambda _: other)
    scene.caught(Forgery, lambda: scene.enclave.proof(scene.id("one")))


@pytest.mark.parametrize("place", [{"ei": 3}, {"ei": 3, "size": 8}, {"ei": 6, "size": 7}, {"size": 2}], ids=str)
def test_event_index_in_the_padding(scene: Scene, place: Json) -> None:
    """ "games" is the last of three, and stands in the tree a second time, as padding."""
    scene.lie("Bundle_Proof", lambda answer: {**answer, **place})
    scene.caught(Forgery, lambda: scene.enclave.proof(scene.id("games")))


def test_event_index_in_the_padding_of_a_larger_bundle(scene: Scene) -> None:
    """The root fits four events as well as three. Its neighbours in the page say which place it has."""
    proved(scene, lambda item: item["proof"]["bundle"].update(ei=3, size=4), seq=6)
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True))


def test_bundle_padded_with_an_id_twice(scene: Scene) -> None:
    """The root is the same; but then there would be one event more."""
    scene.lie("Bundle_Proof", lambda answer: {**answer, "ids": [*answer["ids"], answer["ids"][-1]]})
    scene.caught(Forgery, lambda: scene.enclave.bundle(1))


def test_bundle_without_events(scene: Scene) -> None:
    scene.lie("Bundle_Proof", lambda answer: {**answer, "ids": []})
    scene.caught(Forgery, lambda: scene.enclave.bundle(1))


def test_withheld_proof(scene: Scene) -> None:
    """As if the bundle were still open, when its head is dated later."""
    proved(scene, lambda item: item.update(proof=None))
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True, seq=1))


def test_withheld_proof_of_an_event_before_one_that_is_proved(scene: Scene) -> None:
    """All of the last bundle came at the time of the head; but the events that are proved come first."""
    for text in ("five", "six", "seven"):
        scene.enclave.commit("message", text)
    assert scene.enclave.head().t == scene.event("four").timestamp
    assert len(list(scene.enclave.query(proof=True))) == 11
    proved(scene, lambda item: item.update(proof=None), seq=8)
    for reverse in (False, True):
        scene.caught(Forgery, lambda reverse=reverse: scene.enclave.query(proof=True, reverse=reverse))


def test_withheld_head_of_a_page(scene: Scene) -> None:
    scene.lie("Query", lambda answer: {"events": answer["events"]})
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True))


def test_missing_status_proof(scene: Scene) -> None:
    proved(scene, lambda item: item["proof"].pop("status"))
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True))


def test_missing_state_of_a_page(scene: Scene) -> None:
    scene.lie("Query", lambda answer: answer.pop("state") and None)
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True))


def test_status_of_another_event(scene: Scene) -> None:
    proofs = scene.node.proofs(scene.enclave.id)
    status = proofs.state(status_key(scene.id("one")), proofs.root_at(None, False))
    proved(scene, lambda item: item["proof"].update(status=status), seq=2)
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True))


def test_status_from_before_the_last_bundle(scene: Scene) -> None:
    """ "two" was active then."""
    proofs = scene.node.proofs(scene.enclave.id)
    status = proofs.state(status_key(scene.id("two")), proofs.root_at(1, False))

    def lie(answer: Json) -> None:
        answer["state"] = proofs.bare_inclusion(0, 2)
        answer["events"] = answer["events"][2:3]
        answer["events"][0]["proof"]["status"] = status

    scene.lie("Query", lie)
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True))


def test_updated_event_presented_as_active(scene: Scene) -> None:
    def lie(item: Json) -> None:
        item["status"] = "active"
        del item["updated_by"]
        item["event"].update(content="two")
        del item["event"]["content_hash"]

    proved(scene, lie, seq=2)
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True))


def test_deleted_event_presented_as_active(scene: Scene) -> None:
    shown = {"event": wire_event(scene.event("one")), "status": "active"}
    scene.enclave.delete(scene.id("one"))
    scene.stage.close_bundle()
    scene.enclave.head()
    proofs = scene.node.proofs(scene.enclave.id)
    bundle = scene.node.store.bundle(scene.enclave.id, 0)
    assert bundle is not None
    proof = {
        "bundle": proofs.member(bundle, 1),
        "inclusion": proofs.bare_inclusion(0, 3),
        "status": proofs.state(status_key(scene.id("one")), proofs.root_at(None, False)),
    }
    scene.lie("Query", lambda answer: answer["events"].insert(1, {**shown, "proof": proof}))
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True))


def test_false_page_beside_a_true_head(scene: Scene) -> None:
    """A head that comes with a lie is true by itself, and still is not taken with it."""
    scene.grow(scene.node, "more")
    proved(scene, lambda item: item["proof"]["bundle"].update(ei=0))
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True))


# State


def test_state_proof_for_another_key(scene: Scene) -> None:
    proofs = scene.node.proofs(scene.enclave.id)
    ground = proofs.root_at(None, False)
    other = proofs.state(tree_key("kv", shared_slot("agenda")), ground)
    scene.lie("State_Proof", lambda answer: {**answer, **other})
    scene.caught(Forgery, lambda: scene.enclave.state("kv", TOPIC))
    scene.caught(Forgery, lambda: scene.enclave.read_shared("topic"))


def test_stale_state_presented_as_new(scene: Scene) -> None:
    """An older leaf of the same log, under the newest head."""
    proofs = scene.node.proofs(scene.enclave.id)
    ground = proofs.root_at(1, False)
    stale = {**proofs.state(tree_key("kv", TOPIC), ground), **proofs.grounds(ground)}
    scene.lie("State_Proof", lambda _: stale)
    scene.caught(Forgery, lambda: scene.enclave.state("kv", TOPIC))
    scene.lie("State_Proof", lambda _: {**stale, "leaf_index": 1})
    scene.caught(Forgery, lambda: scene.enclave.state("kv", TOPIC))
    scene.lie("State_Proof", lambda _: {**stale, "leaf_index": 1, "inclusion": {**stale["inclusion"], "li": 1}})
    scene.caught(Forgery, lambda: scene.enclave.state("kv", TOPIC))


def test_newer_state_presented_as_that_of_an_older_size(scene: Scene) -> None:
    proofs = scene.node.proofs(scene.enclave.id)
    ground = proofs.root_at(2, False)
    newer = {**proofs.state(tree_key("kv", TOPIC), ground), **proofs.grounds(ground)}
    scene.lie("State_Proof", lambda _: newer)
    scene.caught(Forgery, lambda: scene.enclave.state("kv", TOPIC, tree_size=1))


def test_state_value_that_is_flipped(scene: Scene) -> None:
    scene.lie("State_Proof", lambda answer: {**answer, "v": flip(answer["v"])})
    scene.caught(Forgery, lambda: scene.enclave.state("kv", TOPIC))


def test_absent_presented_for_present(scene: Scene) -> None:
    scene.lie("State_Proof", lambda answer: {**answer, "v": None})
    scene.caught(Forgery, lambda: scene.enclave.state("kv", TOPIC))


def test_present_presented_for_absent(scene: Scene) -> None:
    scene.lie("State_Proof", lambda answer: {**answer, "v": "ab" * 32})
    scene.caught(Forgery, lambda: scene.enclave.state("kv", shared_slot("agenda")))


def test_state_of_a_log_that_is_said_to_have_no_bundle_yet(scene: Scene) -> None:
    """Else a terminated enclave could be shown as active, and a slot as it was."""
    scene.lie("State_Proof", instead(TreeSizeNotFound("no bundle is closed yet")))
    scene.caught(Forgery, scene.enclave.overview)
    scene.caught(Forgery, lambda: scene.enclave.read_shared("topic"))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_batch_of_another_number_of_proofs(scene: Scene, count: int) -> None:
    scene.lie("State_Batch", lambda answer: {**answer, "proofs": (answer["proofs"] * 3)[:count]})
    scene.caught(Forgery, scene.enclave.members)


def test_batch_of_swapped_proofs(scene: Scene) -> None:
    scene.lie("State_Batch", lambda answer: {**answer, "proofs": answer["proofs"][::-1]})
    scene.caught(Forgery, scene.enclave.members)


def test_withheld_setter_of_a_slot(scene: Scene) -> None:
    """An older setter is shown as the latest; the state says otherwise."""
    scene.lie("Query", lambda answer: without(answer, 6))
    scene.caught(Forgery, lambda: scene.enclave.read_shared("topic"))


def test_withheld_unsetting_of_a_slot(scene: Scene) -> None:
    scene.enclave.shared("topic", None)
    scene.stage.close_bundle()
    scene.enclave.head()
    scene.lie("Query", lambda answer: without(answer, 8))
    scene.caught(Forgery, lambda: scene.enclave.read_shared("topic"))


def test_withheld_setters_of_a_slot(scene: Scene) -> None:
    """All of them: to who may read them, that is withholding."""
    scene.lie("Query", lambda answer: without(answer, 3, 6))
    scene.caught(Forgery, lambda: scene.enclave.read_shared("topic"))


def test_lifecycle_that_is_none(scene: Scene) -> None:
    scene.node.doctor(scene.enclave.id, {LIFECYCLE_KEY: sha256(b"undead")})
    scene.grow(scene.node, "more")
    scene.enclave.head()
    scene.caught(Forgery, scene.enclave.overview)


def test_state_of_a_form_that_no_event_makes(scene: Scene) -> None:
    """A status is an id or the mark of deletion, and a bitmask has 32 bytes."""
    key = tree_key("rbac", person("bob").public)
    scene.node.doctor(scene.enclave.id, {status_key(scene.id("one")): b"\x07", key: b"\x07"})
    scene.node.take(scene.commit("more"))
    scene.stage.close_bundle()
    scene.enclave.head()
    scene.caught(Forgery, lambda: scene.enclave.status(scene.id("one")))
    scene.caught(Forgery, lambda: scene.enclave.member(person("bob").public))
    scene.caught(Forgery, lambda: scene.enclave.query(id=scene.id("one"), proof=True))


@pytest.mark.parametrize(
    ("type_", "content"),
    [
        ("Move", "not JSON"),
        ("Move", '{"target": 5}'),
        ("AC_Bundle", "{}"),
        ("AC_Bundle", '{"operations": 5}'),
        ("AC_Bundle", '{"operations": [5]}'),
        ("AC_Bundle", '{"operations": [{"type": "Move", "target": "zz"}]}'),
        ("AC_Bundle", '{"operations": [{"trait": "admin"}]}'),
        ("Grant", "[]"),
    ],
)
def test_event_that_no_node_would_have_taken(scene: Scene, type_: str, content: str) -> None:
    """Its author and the node agree on nonsense."""
    shown = {"event": wire_event(scene.node.event(scene.commit(content, type_), 8)), "status": "active"}

    def lie(answer: Json) -> None:
        if "type" in scene.node.asked["filter"]:
            answer["events"].append(shown)

    scene.lie("Query", lie)
    scene.caught(Forgery, scene.other().members)


@pytest.mark.parametrize("content", ["not JSON", "{}", "[]", '{"key": "topic"}'])
def test_slot_that_no_node_would_have_set(scene: Scene, content: str) -> None:
    shown = {"event": wire_event(scene.node.event(scene.commit(content, "Shared"), 8)), "status": "active"}
    scene.lie("Query", lambda answer: {**answer, "events": [shown, *answer["events"]]})
    scene.caught(Forgery, lambda: scene.other().read_shared("topic"))


def test_manifest_that_no_node_would_have_taken(scene: Scene) -> None:
    false = build_manifest(person("bob"), '{"enc_v": 2}', scene.stage.clock.now + LIFETIME)
    e = scene.stage.client("bob").enclave(false.enclave)
    page = {"events": [{"event": wire_event(scene.node.event(false, 0)), "status": "active"}]}
    scene.lie("Query", lambda _: page)
    assert e.manifest().content == '{"enc_v": 2}', "its signatures are good"
    caught(scene.stage, e, Forgery, lambda: e.member(person("bob").public))


# Sessions


def test_replayed_answer_of_another_session(scene: Scene) -> None:
    answers = list[httpx.Response]()

    def record(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if request.method == "POST":
            answers.append(response)
        return answers[0] if request.method == "POST" else response

    scene.node.wire = record
    assert len(list(scene.enclave.query())) == 8
    assert len(list(scene.enclave.query())) == 8, "in one session it opens, and is what was asked for"
    scene.stage.clock.tick(3_600_000)
    scene.caught(Forgery, scene.enclave.query)
    scene.caught(Forgery, scene.other().query)


def test_replayed_answer_to_another_question(scene: Scene) -> None:
    answers = list[httpx.Response]()

    def record(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if request.method == "POST":
            answers.append(response)
        return answers[0] if request.method == "POST" else response

    scene.node.wire = record
    scene.enclave.state("kv", TOPIC)
    scene.caught(Forgery, lambda: scene.enclave.state("kv", shared_slot("agenda")))
    scene.caught(Forgery, lambda: scene.enclave.state("rbac", person("bob").public))
    scene.caught(Forgery, scene.enclave.query)


def test_answer_about_another_enclave(scene: Scene) -> None:
    """Keys are of one enclave: what was sealed for another does not open."""
    other = scene.stage.found(meta={"n": 2})
    sealed = list[httpx.Response]()
    scene.node.wire = lambda request, response: sealed.append(response) or response
    list(other.query())
    scene.node.wire = lambda request, response: sealed[-1] if request.method == "POST" else response
    scene.caught(Forgery, scene.enclave.query)


@pytest.mark.parametrize("content", ["", "AAAA", "!", "A" * 200, 5, None], ids=str)
def test_answer_that_does_not_open(scene: Scene, content: Any) -> None:
    sealed = httpx.Response(200, content=encode({"type": "Response", "content": content}))
    scene.node.wire = lambda request, response: sealed if request.method == "POST" else response
    scene.caught(Forgery, scene.enclave.query)


# Subscriptions


def test_duplicated_event_of_a_subscription(scene: Scene) -> None:
    scene.lie("messages", lambda messages: [messages[0], *messages])
    scene.caught(Forgery, scene.enclave.subscribe)


def test_duplicated_live_event_of_a_subscription(scene: Scene) -> None:
    feed = scene.enclave.subscribe(after=6)
    assert next(feed).seq == 7
    (socket,) = scene.node.sockets
    scene.enclave.commit("message", "live")
    socket.waiting.append(socket.waiting[-1])
    assert next(feed).seq == 8
    scene.caught(Forgery, lambda: next(feed))


def test_events_of_a_subscription_out_of_order(scene: Scene) -> None:
    scene.lie("messages", lambda messages: [messages[1], messages[0], *messages[2:]])
    scene.caught(Forgery, scene.enclave.subscribe)


def test_event_of_a_subscription_dated_before_the_one_before_it(scene: Scene) -> None:
    early = scene.node.event(scene.commit("early"), 7, scene.event("three").timestamp - 1)
    scene.lie("Event", lambda item: {**item, "event": wire_event(early)} if item["event"]["seq"] == 7 else None)
    scene.caught(Forgery, scene.other().subscribe)


@pytest.mark.parametrize("type_", ["Event", "EOSE", "Closed"])
def test_subscription_that_was_never_asked_for(scene: Scene, type_: str) -> None:
    def lie(messages: list[Json]) -> list[Json]:
        false = {**messages[0], "type": type_, "sub_id": "another", "reason": "enclave_terminated"}
        return [false, *messages]

    scene.lie("messages", lie)
    scene.caught(Forgery, scene.enclave.subscribe)


def test_altered_event_of_a_subscription(scene: Scene) -> None:
    scene.lie("Event", lambda item: item["event"].update(content="altered"))
    scene.caught(Forgery, scene.enclave.subscribe)


def test_event_of_a_subscription_out_of_the_filter(scene: Scene) -> None:
    scene.lie("filter", lambda asked: {name: asked[name] for name in asked if name != "type"})
    scene.caught(Forgery, lambda: scene.enclave.subscribe(type="Shared"))


def test_event_of_a_subscription_from_before_its_beginning(scene: Scene) -> None:
    scene.lie("filter", lambda asked: {"limit": asked["limit"]})
    scene.caught(Forgery, lambda: scene.enclave.subscribe(after=5))


def test_event_of_a_subscription_of_another_enclave(scene: Scene) -> None:
    elsewhere = scene.stage.found(meta={"n": 2})
    manifest = wire_event(scene.node.store.events(elsewhere.id, 0, 1)[0])
    scene.lie("Event", lambda item: {**item, "event": manifest})
    scene.caught(Forgery, scene.enclave.subscribe)


def test_replayed_event_of_another_session_s_subscription(scene: Scene) -> None:
    feed = scene.enclave.subscribe()
    next(feed)
    (socket,) = scene.node.sockets
    kept = list(socket.waiting)
    feed.close()
    scene.stage.clock.tick(3_600_000)
    scene.lie("messages", lambda messages: [{**each, "sub_id": messages[0]["sub_id"]} for each in kept])
    scene.caught(Forgery, scene.enclave.subscribe)


def test_subscription_that_is_cut_with_nothing_sent(scene: Scene) -> None:
    scene.lie("messages", lambda messages: [{**messages[-1], "more": True}])
    scene.caught(Forgery, scene.enclave.subscribe)


@pytest.mark.parametrize("text", ["<html>", "[]", '"x"', "{"], ids=str)
def test_message_of_a_subscription_that_is_none(scene: Scene, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.client.stage.Connection.recv", lambda *_, **__: text)
    scene.caught(Forgery, scene.enclave.subscribe)


def test_subscription_goes_no_further_after_a_lie(scene: Scene) -> None:
    scene.lie("messages", lambda messages: [messages[0], messages[0], *messages[1:]])
    feed = scene.enclave.subscribe()
    assert next(feed).seq == 0
    scene.caught(Forgery, lambda: next(feed))
    assert list(feed) == []
    assert scene.node.sockets == []


# The node


def test_node_whose_key_has_changed_between_runs(scene: Scene) -> None:
    scene.stage.node = Simulator(scene.stage.clock, person("node2"), scene.node.copy().store)
    for ask in (*BY_HEAD.values(), lambda e: e.commit("message", "x"), lambda e: e.query(), lambda e: e.subscribe()):
        e = scene.stage.client("bob").enclave(scene.enclave.id)
        scene.caught(ForeignSequencer, lambda ask=ask, e=e: ask(e))


def test_node_that_hides_that_its_key_has_changed(scene: Scene) -> None:
    """It says the old one, and can sign by the new one alone."""
    true, head = scene.node.key.public.hex(), scene.enclave.head()
    scene.stage.node = Simulator(scene.stage.clock, person("node2"), scene.node.copy().store)
    scene.lie("info", lambda _: {"seq_pub": true})
    scene.lie("sth", lambda _: wire_head(scene.node.head(scene.enclave.id, head.ts, head.r, head.t)))
    scene.caught(ForeignSequencer, scene.other().head)


def test_node_whose_key_is_no_point_of_the_curve(scene: Scene) -> None:
    scene.lie("info", lambda _: {"seq_pub": "ff" * 32})
    scene.caught(Forgery, scene.stage.client("bob").enclave(scene.enclave.id).head)


def test_node_with_another_key_than_expected(scene: Scene) -> None:
    client = scene.stage.client("bob", seq_pub=person("node2").public)
    scene.caught(ForeignSequencer, client.enclave(scene.enclave.id).head)
    scene.caught(ForeignSequencer, client.seq_pub)


GARBAGE = [b"", b"garbage", b"{", b"[" * 100_000, b"null", b"\xff\xfe", b"<!doctype html><title>Welcome</title>"]
garbage = pytest.mark.parametrize("garbage", GARBAGE, ids=lambda body: repr(body[:8]))
ASKS: dict[str, Callable[[Any], Any]] = {
    **BY_HEAD,
    "commit": lambda e: e.commit("message", "x"),
    "query": lambda e: e.query(),
    "proof": lambda e: e.proof(bytes(32)),
}
asks = pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)


@garbage
@asks
def test_garbage(scene: Scene, garbage: bytes, ask: Callable[[Any], Any]) -> None:
    scene.node.wire = lambda request, response: httpx.Response(200, content=garbage)
    scene.caught(Forgery, lambda: ask(scene.enclave))


@garbage
def test_garbage_for_a_key(scene: Scene, garbage: bytes) -> None:
    scene.node.wire = lambda request, response: httpx.Response(200, content=garbage)
    scene.caught(Forgery, scene.other().head)


@garbage
def test_sealed_garbage(scene: Scene, garbage: bytes) -> None:
    """Truly sealed, and none of it what was asked for."""
    for kind in ("Query", "State_Proof", "State_Batch", "Bundle_Proof", "Inclusion_Proof"):
        scene.lie(kind, lambda _: Raw(garbage))
    for ask in list(ASKS.values())[1:]:
        if ask is not ASKS["commit"]:
            scene.caught(Forgery, lambda ask=ask: ask(scene.enclave))


@pytest.mark.parametrize("status", [200, 301, 302, 307, 308, 404, 500, 502, 503, 504])
@asks
def test_html_page_of_a_proxy(scene: Scene, status: int, ask: Callable[[Any], Any]) -> None:
    """Nothing is known then of the node; but what says 200 claims to be an answer."""
    page = httpx.Response(status, content=b"<html>Bad Gateway</html>", headers={"location": "http://elsewhere.test/"})
    scene.node.wire = lambda request, response: page
    if status == 200:
        scene.caught(Forgery, lambda: ask(scene.enclave))
    else:
        unreachable(scene, ask)


def unreachable(scene: Scene, ask: Callable[[Any], Any]) -> None:
    before = scene.stage.pin(scene.enclave)
    with pytest.raises(Unreachable):
        drain(ask(scene.enclave))
    assert scene.stage.pin(scene.enclave) == before


@asks
def test_redirect(scene: Scene, ask: Callable[[Any], Any]) -> None:
    """Is not followed: a commit or a session would go to another."""
    asked = list[str]()

    def redirect(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(307, headers={"location": "http://elsewhere.test" + request.url.path})

    scene.node.wire = redirect
    unreachable(scene, ask)
    assert asked == ["node.test"]


class Endless(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body without an end."""

    is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield b" " * 1000

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield b" " * 1000

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.is_closed = True


@asks
def test_endless_answer(scene: Scene, ask: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MAX_ANSWER", 10_000)
    body = Endless()
    scene.node.wire = lambda request, response: httpx.Response(200, stream=body)
    unreachable(scene, ask)
    assert body.is_closed


@asks
def test_answer_that_is_not_compressed_as_it_says(scene: Scene, ask: Callable[[Any], Any]) -> None:
    class Plain(Endless):
        def __iter__(self) -> Iterator[bytes]:
            yield b"not gzip"

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"not gzip"

    scene.node.wire = lambda request, response: httpx.Response(
        200, stream=Plain(), headers={"content-encoding": "gzip"}
    )
    unreachable(scene, ask)


def test_refusal_that_is_a_lie_brings_nothing_back(scene: Scene) -> None:
    """That there is no such event is the node's word, and is told as such."""
    scene.lie("Bundle_Proof", instead(EventNotFound("no such event")))
    with pytest.raises(EventNotFound):
        scene.enclave.proof(scene.id("one"))


@pytest.mark.parametrize("after", [10**400, -1, 1.5e308, True, "soon", None, []], ids=lambda after: str(after)[:8])
def test_refusal_with_a_false_time_to_wait(scene: Scene, after: Any) -> None:
    text = encode({"type": "Error", "code": "UNAVAILABLE", "message": "later"})[:-1]
    wait = str(after).encode() if isinstance(after, int) and not isinstance(after, bool) else encode(after)
    body = text + b',"retry_after_ms":' + wait + b"}"
    scene.node.wire = lambda request, response: httpx.Response(503, content=body)
    with pytest.raises(EncError):
        scene.stage.client("bob", patience=1.0).enclave(scene.enclave.id).head()
    assert sum(scene.stage.naps) <= 1.0
