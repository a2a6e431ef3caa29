"""Who may have a slot proved: its leaf is a hash by which a guess of the content can be tested."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.core.trees.state_key import gate_slot, own_slot, shared_slot
from tests.core.world import person, pub
from tests.node.served import Enclave, Json, Served, sqlite

ALL = ["C", "U", "D", "R"]
MANIFEST = {
    "enc_v": 2,
    "states": ["MEMBER"],
    "traits": ["owner(0)", "auditor(1)", "banned(2)"],
    "init": [
        {"identity": pub("alice"), "state": "MEMBER", "traits": ["owner"]},
        {"identity": pub("bob"), "state": "MEMBER", "traits": ["auditor"]},
        {"identity": pub("carol"), "state": "MEMBER", "traits": []},
        {"identity": pub("dave"), "state": "MEMBER", "traits": ["banned"]},
    ],
    "readers": [{"type": "Public", "reads": "note"}],
    "slots": [
        {"event": "Own", "key": "vote", "operator": "Self", "ops": ALL},
        {"event": "Own", "key": "vote", "operator": "auditor", "ops": "R"},
        {"event": "Own", "key": "profile", "operator": ["Self", "MEMBER"], "ops": ALL},
        {"event": "Own", "key": "profile", "operator": "banned", "ops": "_R"},
        {"event": "Shared", "key": "topic", "operator": "MEMBER", "ops": ALL},
        {"event": "Shared", "key": "budget", "operator": "owner", "ops": ALL},
        {"event": "Shared", "key": "motto", "operator": "owner", "ops": "C"},
        {"event": "Shared", "key": "motto", "operator": "Sender", "ops": "R"},
    ],
    "customs": [
        {"event": "note", "operator": "owner", "ops": "C", "alias": "notes", "gate": {"operator": "owner"}},
    ],
    "bundle": {"size": 1, "timeout": 1000},
}


@pytest.fixture(scope="module")
def enclave(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enclave]:
    store = sqlite(tmp_path_factory.mktemp("slots"))
    with Served(store=store) as node:
        enclave = node.create(MANIFEST)
        for who in ("alice", "carol"):
            enclave.send(who, "Own", {"key": "vote", "value": "no"})
            enclave.send(who, "Own", {"key": "profile", "value": who})
        for key in ("topic", "budget", "motto"):
            enclave.send("alice", "Shared", {"key": key, "value": "x"})
        enclave.send("alice", "Gate", {"alias": "notes", "state": "closed"})
        yield enclave
    store.close()


def own(who: str, key: str) -> Json:
    return {"namespace": "kv", "key": own_slot(person(who).public, key).hex()}


def named(who: str, key: str) -> Json:
    return own(who, key) | {"own": {"identity": pub(who), "key": key}}


def shared(key: str) -> Json:
    return {"namespace": "kv", "key": shared_slot(key).hex()}


PUBLIC = [
    shared("lifecycle"),
    {"namespace": "kv", "key": gate_slot("notes").hex()},
    {"namespace": "rbac", "key": pub("alice")},
    {"namespace": "event_status", "key": "00" * 32},
]
WHEN: list[Json] = [{}, {"mode": "current"}, {"tree_size": 3}]
MAY: dict[str, tuple[list[Json], list[Json]]] = {
    "alice": (
        [own("alice", "vote"), named("alice", "vote"), shared("topic"), shared("budget"), named("carol", "profile")],
        [own("carol", "vote"), named("carol", "vote"), shared("motto"), own("carol", "profile")],
    ),
    "bob": (
        [own("carol", "vote"), named("carol", "vote"), own("carol", "profile"), shared("topic")],
        [shared("budget")],
    ),
    "carol": (
        [own("carol", "vote"), own("carol", "profile"), named("alice", "profile"), shared("topic")],
        [own("alice", "vote"), named("alice", "vote"), shared("budget"), own("bob", "vote"), shared("other")],
    ),
    "dave": ([own("dave", "vote"), shared("topic")], [own("dave", "profile"), named("alice", "profile")]),
    "eve": (
        [own("eve", "vote")],
        [own("alice", "vote"), named("alice", "vote"), own("alice", "profile"), shared("topic"), shared("budget")],
    ),
}
"""For each identity: slots that it may have proved, and slots that it may not."""


@pytest.mark.parametrize("when", WHEN, ids=str)
@pytest.mark.parametrize("who", MAY)
def test_a_slot_is_proved_to_those_who_may_read_it(enclave: Enclave, who: str, when: Json) -> None:
    allowed, denied = MAY[who]
    for key in (*allowed, *PUBLIC):
        assert enclave.ask(who, "State_Proof", **key, **when)["k"]
    for key in denied:
        assert enclave.denied(who, "State_Proof", **key, **when).code == "UNAUTHORIZED"
        assert enclave.denied(who, "State_Batch", keys=[*PUBLIC, key], **when).code == "UNAUTHORIZED"
    assert len(enclave.ask(who, "State_Batch", keys=[*allowed, *PUBLIC], **when)["proofs"]) == len(allowed) + 4


def test_a_slot_that_is_not_set_is_proved_to_the_same(enclave: Enclave) -> None:
    assert enclave.ask("bob", "State_Proof", **own("zoe", "vote"))["v"] is None
    assert enclave.denied("eve", "State_Proof", **own("zoe", "vote")).code == "UNAUTHORIZED"


def test_a_key_is_not_proved_under_the_name_of_another_slot(enclave: Enclave) -> None:
    for name in ({"identity": pub("alice"), "key": "profile"}, {"identity": pub("eve"), "key": "vote"}):
        error = enclave.denied("eve", "State_Proof", **own("alice", "vote") | {"own": name})
        assert (error.code, error.message) == ("INVALID_QUERY", "own: not the slot of this key")
    bad = own("alice", "vote") | {"own": {"identity": "00", "key": "vote"}}
    assert enclave.denied("eve", "State_Proof", **bad).code == "INVALID_QUERY"


def test_an_enclave_without_own_slots_has_none_to_hide(tmp_path: Path) -> None:
    store = sqlite(tmp_path)
    with Served(store=store) as node:
        enclave = node.create({**MANIFEST, "slots": []})
        assert enclave.ask("eve", "State_Proof", **own("alice", "vote"))["v"] is None
    store.close()
