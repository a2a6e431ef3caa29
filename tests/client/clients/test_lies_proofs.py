"""Lies about the proofs of events: each test is named after the lie."""

from collections.abc import Callable
from typing import Any

import pytest

from enc.client import Forgery
from enc.core.log.event import wire_event
from enc.core.trees.state_key import status_key
from enc.testing.lying_node import Json
from tests.client.scene import Scene, flip


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
        scene.lie("Inclusion_Proof", lambda answer, field=field: {**answer, field: flip(answer[field])})  # type: ignore[misc]
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
    """The second proof must not be skipped because the first was valid."""
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
    """ "games" is the last of three events; the padding repeats it in the tree."""
    scene.lie("Bundle_Proof", lambda answer: {**answer, **place})
    scene.caught(Forgery, lambda: scene.enclave.proof(scene.id("games")))


def test_event_index_in_the_padding_of_a_larger_bundle(scene: Scene) -> None:
    """The root fits four events as well as three. Its neighbours in the page determine its place."""
    proved(scene, lambda item: item["proof"]["bundle"].update(ei=3, size=4), seq=6)
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True))


def test_bundle_padded_with_an_id_twice(scene: Scene) -> None:
    """The root is the same, but there would be one event more."""
    scene.lie("Bundle_Proof", lambda answer: {**answer, "ids": [*answer["ids"], answer["ids"][-1]]})
    scene.caught(Forgery, lambda: scene.enclave.bundle(1))


def test_bundle_without_events(scene: Scene) -> None:
    scene.lie("Bundle_Proof", lambda answer: {**answer, "ids": []})
    scene.caught(Forgery, lambda: scene.enclave.bundle(1))


def test_withheld_proof(scene: Scene) -> None:
    """The bundle seems to be open, but its head is dated later."""
    proved(scene, lambda item: item.update(proof=None))
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True, seq=1))


def test_withheld_proof_of_an_event_before_one_that_is_proved(scene: Scene) -> None:
    """All events of the last bundle have the time of the head, but the proved events come first."""
    for text in ("five", "six", "seven"):
        scene.enclave.commit("message", text)
    assert scene.enclave.head().t == scene.event("four").timestamp
    assert len(list(scene.enclave.query(proof=True))) == 11
    proved(scene, lambda item: item.update(proof=None), seq=8)
    for reverse in (False, True):
        scene.caught(Forgery, lambda reverse=reverse: scene.enclave.query(proof=True, reverse=reverse))  # type: ignore[misc]


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
    """ "two" was active before that bundle."""
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
    """A head that comes with a lie is not pinned, even if it is valid by itself."""
    scene.grow(scene.node, "more")
    proved(scene, lambda item: item["proof"]["bundle"].update(ei=0))
    scene.caught(Forgery, lambda: scene.enclave.query(proof=True))
