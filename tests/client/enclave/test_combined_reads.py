"""Reading: an honest node's answers are combined, proved where possible, and never blamed."""

from typing import Any

import pytest
from msgspec.structs import replace

from enc.client import Forgery
from enc.core.errors import EventNotFound, EventPending, MisuseError, TreeSizeNotFound, Unauthorized
from enc.core.log.event import wire_event
from enc.core.rules.content import content_object
from enc.core.trees.state_key import shared_slot
from enc.node.read.state_rights import StateRights
from enc.testing.lying_node import Json
from tests.client.scene import TOPIC, Scene, without
from tests.client.stage import Stage
from tests.core.world import person, pub
from tests.node.served import NODE, SMALL

ALICE, BOB, CAROL, DAVE = (person(name).public for name in ("alice", "bob", "carol", "dave"))


# The enclave


def test_an_overview(scene: Scene) -> None:
    found = scene.enclave.overview()
    assert (found.enclave, found.sequencer) == (scene.enclave.id, NODE.public)
    assert found.manifest == {**SMALL, "bundle": {"size": 4, "timeout": 5000}}
    assert found.created == scene.enclave.manifest().timestamp
    assert found.lifecycle == "active"
    assert found.head == scene.enclave.head()


def test_the_overview_of_an_enclave_that_has_only_begun(stage: Stage) -> None:
    found = stage.create().overview()
    assert (found.lifecycle, found.head.ts) == ("active", 0)


@pytest.mark.parametrize(("call", "lifecycle"), [("pause", "paused"), ("terminate", "terminated")])
def test_a_lifecycle_is_that_after_the_last_closed_bundle(scene: Scene, call: str, lifecycle: str) -> None:
    getattr(scene.enclave, call)()
    assert scene.enclave.overview().lifecycle == "active"
    scene.stage.close_bundle()
    assert scene.enclave.overview().lifecycle == lifecycle


def test_the_manifest_is_event_0(scene: Scene) -> None:
    event = scene.enclave.manifest()
    assert (event.seq, event.type, event.from_) == (0, "Manifest", ALICE)


def test_who_may_read_nothing_is_told_so(scene: Scene) -> None:
    stranger = scene.stage.client("mallory").enclave(scene.enclave.id)
    for ask in (stranger.manifest, stranger.overview, stranger.members):
        with pytest.raises(Unauthorized):
            ask()
    assert stranger.state("rbac", person("mallory").public).value is None


# Members


def test_a_member(scene: Scene) -> None:
    found = scene.enclave.member(pub("carol"))
    assert (found.identity, found.state, found.traits) == (CAROL, "MEMBER", ("admin",))
    assert found.fact.anchor.head == scene.enclave.head()
    nobody = scene.enclave.member(person("mallory").public)
    assert (nobody.state, nobody.traits, nobody.fact.value) == ("OUTSIDER", (), None)


def test_all_members(scene: Scene) -> None:
    e = scene.enclave
    e.move(DAVE, "PENDING", "MEMBER")
    e.ac_bundle([{"type": "Grant", "target": BOB.hex(), "trait": "helper"}])
    scene.stage.close_bundle()
    found = {member.identity: (member.state, member.traits) for member in e.members()}
    assert found == {
        ALICE: ("MEMBER", ("owner", "admin")),
        BOB: ("MEMBER", ("helper",)),
        CAROL: ("MEMBER", ("admin",)),
        DAVE: ("MEMBER", ()),
    }


def test_who_has_left_is_no_member(scene: Scene) -> None:
    scene.enclave.move(BOB, "MEMBER", "OUTSIDER")
    scene.enclave.gate("applications", open=False)
    scene.stage.close_bundle()
    assert BOB not in {member.identity for member in scene.enclave.members()}


def test_many_members_take_many_pages_and_batches(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    people = [person(f"guest {i}") for i in range(7)]
    for guest in people:
        scene.stage.client(f"guest {people.index(guest)}").enclave(scene.enclave.id).move(
            guest.public, "OUTSIDER", "PENDING"
        )
    scene.stage.close_bundle()
    monkeypatch.setattr("enc.client.enclave.members.MAX_LIMIT", 2)
    monkeypatch.setattr("enc.client.enclave.members.BATCH", 3)
    assert len(scene.enclave.members()) == 4 + 7


def test_before_the_first_bundle_is_closed_it_is_waited_for(stage: Stage) -> None:
    enclave = stage.create()
    with pytest.raises(TreeSizeNotFound):
        enclave.member(BOB)
    e = stage.client("bob", patience=30.0).enclave(enclave.id)
    assert e.member(BOB).state == "MEMBER"
    assert 5 <= sum(stage.naps) < 10
    assert len(e.members()) == 4


# Slots


def test_a_slot_that_is_proved(scene: Scene) -> None:
    slot = scene.enclave.read_shared("topic")
    assert (slot.value, slot.proved, slot.event.seq) == ("games", True, 6)


def test_a_slot_that_was_set_a_moment_ago(scene: Scene) -> None:
    scene.enclave.shared("topic", {"deep": [1, None]})
    slot = scene.enclave.read_shared("topic")
    assert (slot.value, slot.proved, slot.event.seq) == ({"deep": [1, None]}, False, 8)
    scene.stage.close_bundle()
    assert scene.enclave.read_shared("topic").proved


def test_a_slot_that_is_unset(scene: Scene) -> None:
    scene.enclave.shared("topic", None)
    slot = scene.enclave.read_shared("topic")
    assert (slot.value, slot.proved) == (None, False)
    scene.stage.close_bundle()
    slot = scene.enclave.read_shared("topic")
    assert (slot.value, slot.proved, slot.event.seq) == (None, True, 8)


def test_a_slot_that_never_was_set(scene: Scene) -> None:
    slot = scene.enclave.read_own("profile")
    assert (slot.value, slot.event, slot.proved) == (None, None, True)


def test_a_slot_of_somebody_s_own(scene: Scene) -> None:
    scene.enclave.own("profile", "alice")
    scene.other().own("profile", "bob")
    scene.stage.close_bundle()
    assert scene.enclave.read_own("profile").value == "alice"
    assert scene.enclave.read_own("profile", BOB).value == "bob"
    assert scene.other().read_own("profile", pub("alice")).value == "alice"


def test_a_slot_before_the_first_bundle_is_closed(stage: Stage) -> None:
    enclave = stage.create()
    assert not enclave.read_shared("topic").proved
    enclave.shared("topic", "plans")
    slot = enclave.read_shared("topic")
    assert (slot.value, slot.proved) == ("plans", False)


def test_a_slot_among_many(stage: Stage) -> None:
    """The event that set it is many pages back."""
    slots = [{"event": "Shared", "operator": "MEMBER", "ops": ["C", "U", "D"], "key": key} for key in ("a", "b")]
    enclave = stage.create(slots=slots)
    enclave.shared("a", "first")
    for i in range(205):
        enclave.shared("b", i)
    stage.close_bundle()
    assert enclave.read_shared("a").value == "first"
    assert enclave.read_shared("a").proved


def test_a_slot_whose_setter_is_not_yours_to_read(stage: Stage) -> None:
    readers = [
        {"type": "admin", "reads": "*"},
        {"type": "MEMBER", "reads": ["message", "Manifest"]},
        {"type": "Sender", "reads": "Shared"},
    ]
    enclave = stage.create(readers=readers)
    enclave.shared("topic", "secret")
    stage.close_bundle()
    assert enclave.read_shared("topic").value == "secret"
    bob = stage.client("bob").enclave(enclave.id)
    for read in (lambda: bob.read_shared("topic"), lambda: bob.read_own("profile")):
        with pytest.raises(Unauthorized, match="may not read that slot"):
            read()


def test_a_node_that_proves_every_slot_to_everybody_is_not_blamed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As nodes did before slots had to be readable for that."""
    monkeypatch.setattr(StateRights, "check", lambda self, asked: None)
    enclave = stage.create(readers=[{"type": "admin", "reads": "*"}, {"type": "MEMBER", "reads": "Manifest"}])
    enclave.shared("topic", "secret")
    stage.close_bundle()
    with pytest.raises(EventNotFound, match="you may not read the event that set it last"):
        stage.client("bob").enclave(enclave.id).read_shared("topic")


def test_a_slot_of_another_among_slots_that_are_private(stage: Stage) -> None:
    """The node learns from the request which slot is asked for."""
    own = {"event": "Own", "operator": "Self", "ops": ["C", "U", "D", "R"]}
    slots = [own | {"key": "vote"}, own | {"key": "profile"}]
    slots.append({"event": "Own", "operator": "MEMBER", "ops": ["R"], "key": "profile"})
    enclave = stage.create(slots=slots, readers=[{"type": "MEMBER", "reads": "Manifest"}])
    bob = stage.client("bob").enclave(enclave.id)
    enclave.own("profile", "Alice")
    enclave.own("vote", "no")
    stage.close_bundle()
    slot = bob.read_own("profile", pub("alice"))
    assert (slot.value, slot.proved) == ("Alice", True)
    with pytest.raises(Unauthorized, match="may not read that slot"):
        bob.read_own("vote", pub("alice"))


def test_the_hash_of_a_slot_s_content_does_not_give_a_value_that_was_guessed(scene: Scene) -> None:
    """Hashes over a slot are in proofs for other keys too."""
    contents = [scene.enclave.own("profile", "yes"), scene.enclave.own("profile", "yes")]
    found = [content_object(scene.enclave.event(each.id)) for each in contents]
    assert [set(each) for each in found] == [{"key", "value", "salt"}] * 2
    assert found[0]["salt"] != found[1]["salt"]


# Contents and proofs


def test_the_contents_of_many_updated_events_take_one_request(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    e = scene.enclave
    e.update(scene.id("one"), "first")
    items = list(e.query(type=["message", "Update"]))
    before = len(scene.node.calls)
    found = e.contents(items)
    assert [found[scene.id(text)] for text in ("one", "two", "three", "more", "four")] == [
        "first",
        "more",
        "three",
        "more",
        "four",
    ]
    assert len(scene.node.calls) == before + 1
    monkeypatch.setattr("enc.client.enclave.combined_reads.MAX_IDS", 1)
    assert e.contents(items) == found
    assert len(scene.node.calls) == before + 3
    assert e.contents([]) == {}


def test_an_update_of_another_event_is_not_taken_for_a_content(scene: Scene) -> None:
    items = list(scene.enclave.query(type="message"))
    other = scene.enclave.update(scene.id("one"), "first")
    wrong = [replace(item, updated_by=other.id if item.updated_by else None) for item in items]
    with pytest.raises(Forgery, match="updated_by does not name an Update of this event"):
        scene.enclave.contents(wrong)


def test_what_an_event_says_now(scene: Scene) -> None:
    e = scene.enclave
    assert e.content(e.event(scene.id("one"))) == "one"
    assert e.content(e.event(scene.id("two"))) == "more"
    e.update(scene.id("two"), "and more")
    assert e.content(e.event(scene.id("two"))) == "and more"


def test_an_update_that_is_not_shown_is_not_called_erased(scene: Scene) -> None:
    item = scene.enclave.event(scene.id("two"))
    scene.lie("Query", lambda answer: {"events": []})
    with pytest.raises(EventNotFound, match="does not show you the Update"):
        scene.enclave.content(item)


@pytest.mark.parametrize(("text", "status"), [("one", "active"), ("two", "updated"), ("three", "deleted")])
def test_a_status(scene: Scene, text: str, status: str) -> None:
    scene.enclave.delete(scene.id("three"))
    scene.stage.close_bundle()
    assert scene.enclave.status(scene.id(text)) == status
    if status == "deleted":
        with pytest.raises(EventNotFound, match="deleted"):
            scene.enclave.proof(scene.id(text))
    else:
        fact = scene.enclave.proof(scene.id(text).hex())
        assert (fact.status, fact.event.id) == (status, scene.id(text))


def test_an_event_whose_bundle_is_open(scene: Scene) -> None:
    for ask in (scene.enclave.proof, scene.enclave.status):
        with pytest.raises(EventPending):
            ask(scene.id("four"), wait=False)
        with pytest.raises(EventPending):
            ask(scene.id("four"))


def test_an_event_is_waited_for(stage: Stage, scene: Scene) -> None:
    e = stage.client("bob", patience=30.0).enclave(scene.enclave.id)
    assert e.proof(scene.id("four")).status == "active"
    assert sum(stage.naps) == pytest.approx(5.0)


def test_an_event_that_never_was(scene: Scene) -> None:
    with pytest.raises(EventNotFound):
        scene.enclave.proof(bytes(32))


def test_a_state_of_an_earlier_time(scene: Scene) -> None:
    e = scene.enclave
    values = [e.state("kv", TOPIC, tree_size=size).value for size in (1, 2)]
    assert values[1] == e.state("kv", TOPIC.hex()).value
    assert len({None, *values}) == 3
    with pytest.raises(TreeSizeNotFound):
        e.state("kv", TOPIC, tree_size=3)
    assert e.state("kv", shared_slot("agenda")).value is None
    for size in (0, -1):
        with pytest.raises(MisuseError, match="tree_size"):
            e.state("kv", TOPIC, tree_size=size)


def test_a_bundle(scene: Scene) -> None:
    bundle = scene.enclave.bundle(1)
    assert bundle.index == 1
    assert list(bundle.ids) == [scene.id(text) for text in ("three", "more", "games")]


# All of it


def seqs(enclave: Any) -> list[int]:
    return [item.seq for item in enclave.complete()]


def test_everything_of_an_enclave_that_has_only_begun(stage: Stage) -> None:
    assert seqs(stage.create()) == []


def test_everything_but_what_is_deleted(scene: Scene) -> None:
    scene.enclave.delete(scene.id("one"))
    scene.stage.close_bundle()
    assert seqs(scene.enclave) == [0, 2, 3, 4, 5, 6, 7, 8]


def test_everything_but_what_was_deleted_a_moment_ago(scene: Scene) -> None:
    """The Delete is in the open bundle: the proved state lacks it, but the node is right."""
    scene.enclave.delete(scene.id("one"))
    assert seqs(scene.enclave) == [0, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_delete_explains_only_what_the_proved_state_cannot_know_yet(scene: Scene, is_new: bool) -> None:
    """Otherwise an old, ineffective Delete could hide an event."""
    at = scene.enclave.head().t if is_new else scene.enclave.head().t - 1
    commit = scene.commit('{"reason":"author"}', "Delete", (("r", scene.id("one").hex()),))
    shown = {"event": wire_event(scene.node.event(commit, 100, at)), "status": "active"}

    def lie(answer: Json) -> Json:
        return {"events": [shown]} if scene.node.asked["filter"].get("type") == "Delete" else without(answer, 1)

    scene.lie("Query", lie)
    if is_new:
        assert seqs(scene.enclave) == [0, 2, 3, 4, 5, 6]
    else:
        scene.caught(Forgery, scene.enclave.complete)


def test_everything_in_many_pages_and_batches(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.client.enclave.complete_read.MAX_LIMIT", 2)
    monkeypatch.setattr("enc.client.enclave.complete_read.BATCH", 1)
    scene.enclave.delete(scene.id("one"))
    scene.enclave.delete(scene.id("three"))
    scene.stage.close_bundle()
    assert seqs(scene.enclave) == [0, 2, 3, 5, 6, 7, 8, 9]
