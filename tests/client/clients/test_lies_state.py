"""Lies about the state, and in sessions: each test is named after the lie."""

from typing import Any

import httpx
import pytest
from msgspec.json import encode

from enc.client import Forgery
from enc.core.errors import (
    TreeSizeNotFound,
)
from enc.core.log.commit import build_manifest
from enc.core.log.event import wire_event
from enc.core.primitives.hashing import sha256
from enc.core.trees.state_key import LIFECYCLE_KEY, shared_slot, status_key, tree_key
from enc.testing.lying_node import Json
from tests.client.scene import TOPIC, Scene, flip, instead, without
from tests.client.stage import caught
from tests.core.world import LIFETIME, person

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
    stale = {**proofs.state(tree_key("kv", TOPIC), ground), **proofs.root_evidence(ground)}
    scene.lie("State_Proof", lambda _: stale)
    scene.caught(Forgery, lambda: scene.enclave.state("kv", TOPIC))
    scene.lie("State_Proof", lambda _: {**stale, "leaf_index": 1})
    scene.caught(Forgery, lambda: scene.enclave.state("kv", TOPIC))
    scene.lie("State_Proof", lambda _: {**stale, "leaf_index": 1, "inclusion": {**stale["inclusion"], "li": 1}})
    scene.caught(Forgery, lambda: scene.enclave.state("kv", TOPIC))


def test_newer_state_presented_as_that_of_an_older_size(scene: Scene) -> None:
    proofs = scene.node.proofs(scene.enclave.id)
    ground = proofs.root_at(2, False)
    newer = {**proofs.state(tree_key("kv", TOPIC), ground), **proofs.root_evidence(ground)}
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
    """Otherwise a terminated enclave could be shown as active, or a slot with an old value."""
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
    """An older event is shown as the latest setter; the state differs."""
    scene.lie("Query", lambda answer: without(answer, 6))
    scene.caught(Forgery, lambda: scene.enclave.read_shared("topic"))


def test_withheld_unsetting_of_a_slot(scene: Scene) -> None:
    scene.enclave.shared("topic", None)
    scene.stage.close_bundle()
    scene.enclave.head()
    scene.lie("Query", lambda answer: without(answer, 8))
    scene.caught(Forgery, lambda: scene.enclave.read_shared("topic"))


def test_withheld_setters_of_a_slot(scene: Scene) -> None:
    """All events: for an identity that may read them, this is withholding."""
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
    """The author and the node both signed invalid content."""
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
    assert len(list(scene.enclave.query())) == 8, "in one session the answer opens, and is the requested one"
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
    """Keys belong to one enclave: an answer sealed for another does not open."""
    other = scene.stage.create(meta={"n": 2})
    sealed = list[httpx.Response]()
    scene.node.wire = lambda request, response: sealed.append(response) or response  # type: ignore[func-returns-value]
    list(other.query())
    scene.node.wire = lambda request, response: sealed[-1] if request.method == "POST" else response
    scene.caught(Forgery, scene.enclave.query)


@pytest.mark.parametrize("content", ["", "AAAA", "!", "A" * 200, 5, None], ids=str)
def test_answer_that_does_not_open(scene: Scene, content: Any) -> None:
    sealed = httpx.Response(200, content=encode({"type": "Response", "content": content}))
    scene.node.wire = lambda request, response: sealed if request.method == "POST" else response
    scene.caught(Forgery, scene.enclave.query)
