"""Proofs in answers: heads, bundles, state and Queries, verified by the kernel."""

from itertools import combinations_with_replacement
from typing import Any

import pytest
from msgspec.json import encode

from enc.core.errors import InvalidProof
from enc.core.log.event import check_event, parse_event
from enc.core.machine.enclave import state_hash
from enc.core.machine.state import view
from enc.core.primitives.hashing import EMPTY_HASH, sha256
from enc.core.trees.bundle import check_membership, events_root
from enc.core.trees.merkle_log import check_consistency
from enc.core.trees.proof import (
    LogLeaf,
    check_event_proof,
    check_state_proof,
    parse_bundle_proof,
    parse_consistency,
    parse_inclusion,
    parse_state_proof,
)
from enc.core.trees.sparse_merkle import check_state
from enc.core.trees.state_key import CLOSED, DELETED, Namespace, gate_slot, own_slot, shared_slot, tree_key
from enc.core.trees.tree_head import check_bound_head, parse_head
from tests.core.world import person, pub
from tests.node.read.enclave_history import Life, check_ground, checked_value, pending
from tests.node.served import NODE, SMALL, Json, Served, good


def test_the_life_has_closed_bundles_of_several_sizes_and_pending_events(life: Life) -> None:
    assert sorted(life.heads) == list(range(life.size + 1))
    assert life.size > 5
    assert life.replayed(len(life.events) - 1).state.bundle is not None


# Heads and the log


def test_every_head_is_bound_to_its_enclave(life: Life) -> None:
    other = life.enclave.node.create(SMALL)
    for wire in life.heads.values():
        head = parse_head(wire)
        check_bound_head(head, NODE.public, life.enclave.id)
        with pytest.raises(InvalidProof):
            check_bound_head(head, NODE.public, other.id)


def test_the_head_of_an_empty_log(life: Life) -> None:
    head = parse_head(life.heads[0])
    assert (head.ts, head.r, head.t) == (0, EMPTY_HASH, life.events[0].timestamp)


def test_roots_are_those_of_replay(life: Life) -> None:
    replay = life.replayed(len(life.events) - 1)
    store: Any = replay.store
    sealed = store.bundles
    assert parse_head(life.heads[life.size]).r == replay.state.log.root()
    assert len(sealed) == life.size


def test_consistency_of_all_pairs_of_sizes(life: Life) -> None:
    node = life.enclave.node
    roots = {size: parse_head(wire).r for size, wire in life.heads.items()}
    for first, second in combinations_with_replacement(range(1, life.size + 1), 2):
        answer = good(node.get(f"/{life.enclave.id.hex()}/consistency?from={first}&to={second}"))
        proof = parse_consistency(encode(answer))
        assert (proof.ts1, proof.ts2) == (first, second)
        check_consistency(proof, roots[first], roots[second])
        assert life.head(answer["sth"]).ts == second
    for first in range(1, life.size + 1):
        latest = good(node.get(f"/{life.enclave.id.hex()}/consistency?from={first}"))
        assert latest["ts2"] == life.size


def test_inclusion_of_every_leaf_in_every_size(life: Life) -> None:
    for size in range(1, life.size + 1):
        for index in range(size):
            answer = life.enclave.ask("bob", "Inclusion_Proof", leaf_index=index, tree_size=size)
            check_ground(life, answer, answer["sth"])
            assert (answer["ts"], answer["li"]) == (size, index)
        assert life.enclave.denied("bob", "Inclusion_Proof", leaf_index=size, tree_size=size).code == "LEAF_NOT_FOUND"
    latest = life.enclave.ask("bob", "Inclusion_Proof", leaf_index=0)
    assert latest["ts"] == life.size
    assert life.enclave.denied("bob", "Inclusion_Proof", leaf_index=life.size).code == "LEAF_NOT_FOUND"
    beyond = life.enclave.denied("bob", "Inclusion_Proof", leaf_index=0, tree_size=life.size + 1)
    assert beyond.code == "TREE_SIZE_NOT_FOUND"
    assert life.enclave.denied("bob", "Inclusion_Proof", leaf_index=0, tree_size=0).code == "LEAF_NOT_FOUND"


# Bundles


def test_every_event_of_a_closed_bundle_is_proved_and_no_other(life: Life) -> None:
    closed = {event.seq for event in life.events} - pending(life)
    for event in life.events:
        asked = {"event_id": event.id.hex()}
        if event.seq not in closed:
            error = life.enclave.denied("bob", "Bundle_Proof", **asked)
            assert error.code == "EVENT_PENDING"
            assert error.context["retry_after_ms"] > 0
            continue
        answer = life.enclave.ask("bob", "Bundle_Proof", **asked)
        inclusion = life.enclave.ask("bob", "Inclusion_Proof", leaf_index=answer["leaf_index"])
        leaf = LogLeaf(bytes.fromhex(answer["events_root"]), bytes.fromhex(inclusion["state_hash"]))
        head = life.head(answer["sth"])
        check_event_proof(event.id, parse_bundle_proof(encode(answer)), leaf, parse_inclusion(encode(inclusion)), head)


def test_the_bundles_hold_every_event_in_order(life: Life) -> None:
    ids, sizes = list[bytes](), list[int]()
    for index in range(life.size):
        answer = life.enclave.ask("bob", "Bundle_Proof", leaf_index=index)
        found = [bytes.fromhex(text) for text in answer["ids"]]
        inclusion = life.enclave.ask("bob", "Inclusion_Proof", leaf_index=index)
        assert (answer["leaf_index"], answer["first_seq"]) == (index, len(ids))
        assert events_root(found).hex() == answer["events_root"] == inclusion["events_root"]
        life.head(answer["sth"])
        ids, sizes = ids + found, [*sizes, len(found)]
    assert ids == [event.id for event in life.events if event.seq not in pending(life)]
    assert {1, 3, 4} <= set(sizes)
    assert life.enclave.denied("bob", "Bundle_Proof", leaf_index=life.size).code == "LEAF_NOT_FOUND"


def test_an_event_of_another_enclave_or_of_none_is_not_found(life: Life) -> None:
    node = life.enclave.node
    other = node.create(SMALL)
    for enclave, event_id in ((other, life.events[1].id), (life.enclave, bytes(32))):
        error = enclave.denied("bob", "Bundle_Proof", event_id=event_id.hex())
        assert (error.status, error.code) == (404, "EVENT_NOT_FOUND")


def test_how_long_a_pending_event_waits(node: Served) -> None:
    enclave = node.create(SMALL)
    event = enclave.send("bob", "message", "x")
    asked = {"event_id": event.id.hex()}
    for wait, left in ((0, 4999), (4998, 1)):
        node.clock.tick(wait)
        assert enclave.denied("bob", "Bundle_Proof", **asked).context == {"retry_after_ms": left}
    node.clock.tick(1)
    node.settle()
    answer = enclave.ask("bob", "Bundle_Proof", **asked)
    check_membership(parse_bundle_proof(encode(answer)), event.id, bytes.fromhex(answer["events_root"]))


# State


def keys(life: Life) -> list[tuple[Namespace, bytes]]:
    people = [person(name).public for name in ("alice", "bob", "carol", "dave", "mallory", "nobody")]
    slots = [shared_slot("topic"), shared_slot("lifecycle"), own_slot(person("carol").public, "profile")]
    kv = [*slots, gate_slot("applications"), bytes(32)]
    return [
        *(("rbac", public) for public in people),
        *(("event_status", event.id) for event in life.events),
        *(("kv", raw) for raw in kv),
    ]


def test_state_at_every_size(life: Life) -> None:
    store: Any = life.replayed(len(life.events) - 1).store
    bundles = store.bundles
    for size in range(1, life.size + 1):
        bundle = bundles[size - 1]
        replay = life.replayed(bundle.first_seq + bundle.count - 1)
        for namespace, raw in keys(life):
            answer = life.enclave.ask("bob", "State_Proof", namespace=namespace, key=raw.hex(), tree_size=size)
            key = tree_key(namespace, raw)
            value = view(replay.state, replay.store).leaf(key)
            assert checked_value(life, key, answer) == value
            assert answer["leaf_index"] == size - 1


def test_state_as_verified_and_as_current(life: Life) -> None:
    now = life.replayed(len(life.events) - 1)
    differ = 0
    for namespace, raw in keys(life):
        asked = {"namespace": namespace, "key": raw.hex()}
        verified = life.enclave.ask("bob", "State_Proof", **asked)
        assert verified == life.enclave.ask("bob", "State_Proof", **asked, mode="verified")
        assert verified == life.enclave.ask("bob", "State_Proof", **asked, tree_size=life.size)
        assert verified == life.enclave.ask("bob", "State_Proof", **asked, tree_size=life.size, mode="current")
        current = life.enclave.ask("bob", "State_Proof", **asked, mode="current")
        key, proof = tree_key(namespace, raw), parse_state_proof(encode(current))
        check_state(proof, key, bytes.fromhex(current["state_hash"]))
        assert proof.v == view(now.state, now.store).leaf(key)
        assert (current["leaf_index"], "inclusion" in current) == (None, False)
        assert current["state_hash"] == state_hash(now.state, now.store).hex()
        life.head(current["sth"])
        differ += current["v"] != verified["v"]
    assert differ > 0


def test_what_the_state_says(life: Life) -> None:
    def value(namespace: Namespace, raw: bytes, **more: Any) -> str | None:
        found: str | None = life.enclave.ask("bob", "State_Proof", namespace=namespace, key=raw.hex(), **more)["v"]
        return found

    sent = life.sent
    assert value("event_status", sent["m0"].id) == sent["u1"].id.hex()
    assert value("event_status", sent["m1"].id) == DELETED.hex()
    assert value("event_status", sent["m3"].id) is None
    assert value("event_status", sent["m3"].id, mode="current") == DELETED.hex()
    assert value("event_status", sent["u1"].id) is None
    assert value("kv", gate_slot("applications")) == CLOSED.hex()
    assert value("kv", gate_slot("applications"), tree_size=1) is None
    assert value("kv", shared_slot("topic")) == sha256(b'{"key":"topic","value":"plans"}').hex()
    assert value("rbac", person("dave").public) == f"{1:064x}"
    assert value("rbac", person("alice").public) == f"{0x302:064x}"
    assert value("rbac", person("nobody").public) is None


@pytest.mark.parametrize("when", [{}, {"mode": "verified"}, {"mode": "current"}, {"tree_size": 2}])
def test_a_batch_is_the_same_proofs_under_one_root(life: Life, when: Json) -> None:
    wanted = [{"namespace": namespace, "key": raw.hex()} for namespace, raw in keys(life)]
    wanted += wanted[:2]
    batch = life.enclave.ask("bob", "State_Batch", keys=wanted, **when)
    assert len(batch["proofs"]) == len(wanted)
    for key, proof in zip(wanted, batch["proofs"], strict=True):
        alone = life.enclave.ask("bob", "State_Proof", **key, **when)
        assert {**alone, **proof} == alone
        assert {**alone, **{k: v for k, v in batch.items() if k != "proofs"}} == alone


def test_sizes_that_the_log_never_had(life: Life) -> None:
    node = life.enclave.node
    fresh = node.create(SMALL)
    key = {"namespace": "rbac", "key": pub("bob")}
    for enclave, sizes in ((life.enclave, [0, life.size + 1, 2**53 - 1]), (fresh, [0, 1])):
        for size in sizes:
            for type_, body in (("State_Proof", key), ("State_Batch", {"keys": [key]})):
                error = enclave.denied("bob", type_, **body, tree_size=size)
                assert (error.status, error.code) == (404, "TREE_SIZE_NOT_FOUND")
    assert fresh.denied("bob", "State_Proof", **key).code == "TREE_SIZE_NOT_FOUND"
    assert fresh.ask("bob", "State_Proof", **key, mode="current")["v"] == f"{2:064x}"


def test_unknown_namespaces(life: Life) -> None:
    for namespace in ("", "RBAC", "colour", "00"):
        key = {"namespace": namespace, "key": pub("bob")}
        assert life.enclave.denied("bob", "State_Proof", **key).code == "INVALID_NAMESPACE"
        good_key = {"namespace": "rbac", "key": pub("bob")}
        assert life.enclave.denied("bob", "State_Batch", keys=[good_key, key]).code == "INVALID_NAMESPACE"


# Queries with proofs


def test_a_query_with_proofs(life: Life) -> None:
    answer = life.enclave.ask("bob", "Query", filter={"limit": 1000}, proof=True)
    head = life.head(answer["sth"])
    assert head.ts == life.size
    ground = check_ground(life, answer["state"], answer["sth"])
    assert answer["state"]["li"] == life.size - 1
    unproved, statuses = set[int](), dict[int, bytes | None]()
    for item in answer["events"]:
        event, proof = parse_event(encode(item["event"])), item["proof"]
        check_event(event, 2)
        if proof is None:
            unproved.add(event.seq)
            continue
        leaf = check_ground(life, proof["inclusion"], answer["sth"])
        assert proof["bundle"]["leaf_index"] == proof["inclusion"]["li"]
        assert proof["bundle"]["events_root"] == proof["inclusion"]["events_root"]
        inclusion = parse_inclusion(encode(proof["inclusion"]))
        check_event_proof(event.id, parse_bundle_proof(encode(proof["bundle"])), leaf, inclusion, head)
        status = parse_state_proof(encode(proof["status"]))
        under = parse_inclusion(encode(answer["state"]))
        check_state_proof(tree_key("event_status", event.id), status, ground, under, head)
        statuses[event.seq] = status.v
    sent = life.sent
    assert unproved == pending(life) - {sent["m3"].seq}
    assert statuses[sent["m0"].seq] == sent["u1"].id
    assert statuses[sent["m2"].seq] is None  # its Update is pending
    assert sent["m1"].seq not in statuses
    plain = life.enclave.ask("bob", "Query", filter={"limit": 1000})
    bare = [{k: v for k, v in item.items() if k != "proof"} for item in answer["events"]]
    assert plain == {"events": bare}


def test_a_query_with_proofs_before_the_first_bundle_is_closed(node: Served) -> None:
    enclave = node.create(SMALL)
    answer = enclave.ask("bob", "Query", filter={}, proof=True)
    assert [item["proof"] for item in answer["events"]] == [None]
    check_bound_head(parse_head(encode(answer["sth"])), NODE.public, enclave.id)
    assert (answer["sth"]["ts"], "state" in answer) == (0, False)


def test_a_query_with_proofs_of_one_page(life: Life) -> None:
    answer = life.enclave.ask("bob", "Query", filter={"limit": 1, "seq": 5}, proof=True)
    assert [item["event"]["seq"] for item in answer["events"]] == [5]
    assert "more" not in answer
    assert life.enclave.ask("bob", "Query", filter={"limit": 1}, proof=True)["more"] is True
    empty = life.enclave.ask("bob", "Query", filter={"id": []}, proof=True)
    assert (empty["events"], empty["sth"]["ts"]) == ([], life.size)
