"""Enclaves of version 1 on a node: beside those of version 2, by the same requests, with codes of their own rules."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import decode, encode
from msgspec.structs import replace
from websockets.sync.client import ClientConnection, connect

from enc.core.log.commit import build_commit, build_manifest, check_commit, wire_commit
from enc.core.log.event import check_event, parse_event
from enc.core.machine.replay import Replay
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.sealing import open_text
from enc.core.session.envelope import seal_request
from enc.core.session.session import SKEW, client_keys
from enc.core.trees.proof import (
    LogLeaf,
    check_event_proof,
    check_state_proof,
    parse_bundle_proof,
    parse_inclusion,
    parse_state_proof,
)
from enc.core.trees.state_key import DELETED, Namespace, identity_key, status_key
from enc.core.trees.tree_head import check_bound_head, parse_head
from enc.node.config import EndpointSettings, NodeConfig
from enc.node.fsck import check_store
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store
from enc.testing.memory_store import MemoryStore
from tests.core.world import LIFETIME, NO_POINT, give, person, pub
from tests.core.world_v1 import EXAMPLE, bundle, change, has, initial, manifest, row
from tests.node.served import NODE, SMALL, Enclave, Json, Served, about, bad, good
from tests.node.small_v1 import ADMIN, DATAVIEW, ENDPOINT, MEMBER, OWNER, SCHEMA, SMALL_V1

GONE = {"reason": "author"}
VERSIONS = pytest.mark.parametrize("constitution", [SMALL_V1, SMALL], ids=["version 1", "version 2"])


@pytest.fixture(scope="module")
def node() -> Iterator[Served]:
    with Served() as served:
        yield served


@pytest.fixture
def enclave(node: Served) -> Enclave:
    return node.create(SMALL_V1)


@pytest.fixture(params=["memory", "sqlite"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    """Return a node on each kind of store."""
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "enc.db")
    with closing(store), Served(store=store) as served:
        yield served


def bitmask(enclave: Enclave, name: str) -> int:
    """Return the bitmask that the node reports for somebody."""
    found = enclave.ask(name, "State_Proof", namespace="rbac", key=pub(name), mode="current")
    return int(found["v"] or "0", 16)


# Side by side


def test_a_node_says_that_it_hosts_both_versions(node: Served) -> None:
    assert good(node.get("/info"))["enc_v"] == [1, 2]


def test_enc_v_decides_by_which_rules_a_commit_is_hashed(node: Served) -> None:
    one, two = node.create(SMALL_V1), node.create(SMALL)
    for enclave, other in ((one, 2), (two, 1)):
        for tags in ((), (("k", "v"),)):
            commit = enclave.commit("bob", "message", "hello", *tags, enc_v=other)
            assert bad(node.post(wire_commit(commit))).code == "INVALID_HASH"
            enclave.send("bob", "message", "hello", *tags)
        for item in enclave.query("bob", type="message"):
            check_event(parse_event(encode(item["event"])), enclave.enc_v)


def test_the_same_type_may_have_rules_in_one_version_and_none_in_the_other(node: Served) -> None:
    one, two = node.create(SMALL_V1), node.create(SMALL)
    assert one.send("bob", "Shared", "any words at all").seq == 1
    assert two.refused("bob", "Shared", "any words at all").code == "INVALID_COMMIT"
    assert two.send("alice", "Grant", give("bob", "helper")).seq == 1
    assert one.refused("alice", "Grant", give("bob", "Admin")).code == "INVALID_COMMIT"
    assert one.refused("alice", "Transfer", give("bob", "owner")).code == "UNAUTHORIZED"
    assert two.refused("alice", "Transfer_Owner", {"new_owner": pub("bob")}).code == "UNAUTHORIZED"


def test_a_manifest_hashed_by_the_other_version_is_refused(node: Served) -> None:
    for constitution, other in ((SMALL_V1, 2), (SMALL, 1)):
        content = compact_json({**constitution, "meta": {"n": "other"}})
        tags = (("k", "v"),)
        commit = build_manifest(person("alice"), content, node.clock.now + LIFETIME, tags, enc_v=other)
        assert bad(node.post(wire_commit(commit))).code == "INVALID_HASH"


def test_schnorr_only(node: Served, enclave: Enclave) -> None:
    commit = enclave.commit("bob", "message", "x", alg="ecdsa")
    assert bad(node.post(wire_commit(commit))).code == "INVALID_COMMIT"
    content = compact_json({**SMALL_V1, "meta": {"n": "ecdsa"}})
    creation = build_manifest(person("alice"), content, node.clock.now + LIFETIME, alg="ecdsa", enc_v=1)
    assert bad(node.post(wire_commit(creation))).code == "INVALID_COMMIT"


@pytest.mark.parametrize("mark", [",", "[", "]"])
def test_a_tag_that_the_text_cannot_hold_is_refused(node: Served, enclave: Enclave, mark: str) -> None:
    wire = wire_commit(enclave.commit("bob", "message", "x", ("k", "v")))
    wire["tags"] = [["k", f"v{mark}w"]]
    assert bad(node.post(wire)).code == "INVALID_COMMIT"


# The Manifest

BROKEN: dict[str, Json] = {
    "use_temp": {"RBAC": {**SMALL_V1["RBAC"], "use_temp": "chat"}},
    "no RBAC": {"RBAC": []},
    "schema": {"RBAC": {**SMALL_V1["RBAC"], "schema": {}}},
    "an op": {"RBAC": {**SMALL_V1["RBAC"], "schema": [row("message", "Member", "X")]}},
    "no owner": {"RBAC": {**SMALL_V1["RBAC"], "initial_state": initial(bob="Member")}},
    "two owners": {"RBAC": {**SMALL_V1["RBAC"], "initial_state": initial(alice="Owner", bob="Owner")}},
    "no key": {"RBAC": {**SMALL_V1["RBAC"], "initial_state": {"Owner": [NO_POINT]}}},
    "an unknown role": {"RBAC": {**SMALL_V1["RBAC"], "initial_state": initial(alice="Owner King")}},
    "a dynamic role": {"RBAC": {**SMALL_V1["RBAC"], "initial_state": initial(alice="Owner Any")}},
    "a reserved target": {"RBAC": {**SMALL_V1["RBAC"], "schema": [row("Grant", "Owner", "C", "Owner")]}},
    "bundle": {"bundle": {"size": 0}},
    "meta": {"meta": 3},
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_manifest_that_breaks_a_rule_creates_nothing(node: Served, what: str) -> None:
    commit = node.manifest({**SMALL_V1, **BROKEN[what]})
    assert bad(node.post(wire_commit(commit))).code == "INVALID_COMMIT"
    assert bad(node.get(f"/{commit.enclave.hex()}/sth")).code == "ENCLAVE_NOT_FOUND"


def test_the_initial_state_is_the_state(enclave: Enclave) -> None:
    expected = {"alice": OWNER | MEMBER, "bob": MEMBER, "carol": ADMIN | MEMBER, "dave": DATAVIEW, "mallory": 0}
    assert {name: bitmask(enclave, name) for name in expected} == expected


def test_a_second_manifest_exists_already(node: Served, enclave: Enclave) -> None:
    content = enclave.manifest.content or ""
    again = build_commit(person("alice"), enclave.id, "Manifest", content, node.clock.now + LIFETIME + 7, enc_v=1)
    assert bad(node.post(wire_commit(again))).code == "ENCLAVE_EXISTS"


# Every type, with its effect on the bitmasks that the node reports

DONE: dict[str, tuple[str, str, Any, dict[str, int]]] = {
    "Grant": ("carol", "Grant", has("mallory", "Member"), {"mallory": MEMBER}),
    "Grant, held": ("carol", "Grant", has("bob", "Member"), {"bob": MEMBER}),
    "Grant_Push": ("alice", "Grant_Push", has("bob", "DataView", endpoint=ENDPOINT), {"bob": MEMBER | DATAVIEW}),
    "Revoke": ("alice", "Revoke", has("carol", "Admin"), {"carol": MEMBER}),
    "Revoke, not held": ("alice", "Revoke", has("bob", "Admin"), {"bob": MEMBER}),
    "Revoke_Self, the last role": ("bob", "Revoke_Self", {"role": "Member"}, {"bob": 0}),
    "Move": ("alice", "Move", change("bob", MEMBER, ADMIN | DATAVIEW), {"bob": ADMIN | DATAVIEW}),
    "Move to zero": ("carol", "Move", change("bob", MEMBER, 0), {"bob": 0}),
    "Move of the owner's others": ("alice", "Move", change("alice", OWNER | MEMBER, OWNER), {"alice": OWNER}),
    "Force_Move": ("alice", "Force_Move", change("carol", ADMIN | MEMBER, DATAVIEW), {"carol": DATAVIEW}),
    "Transfer_Owner": ("alice", "Transfer_Owner", {"new_owner": pub("carol")}, {"alice": MEMBER, "carol": 0x300000002}),
    "Transfer_Owner to oneself": ("alice", "Transfer_Owner", {"new_owner": pub("alice")}, {"alice": OWNER | MEMBER}),
    "AC_Bundle": (
        "alice",
        "AC_Bundle",
        bundle(
            ("Grant", has("mallory", "Member")),
            ("Move", change("mallory", MEMBER, ADMIN | MEMBER)),
            ("Revoke", has("bob", "Member")),
            ("Grant_Push", has("bob", "DataView", endpoint=ENDPOINT)),
            ("Force_Move", change("carol", ADMIN | MEMBER, ADMIN)),
            ("Revoke_Self", {"role": "Member"}),
        ),
        {"mallory": ADMIN | MEMBER, "bob": DATAVIEW, "carol": ADMIN, "alice": OWNER},
    ),
}


@pytest.mark.parametrize("what", DONE)
def test_what_each_type_does(enclave: Enclave, what: str) -> None:
    who, type_, content, after = DONE[what]
    assert enclave.send(who, type_, content).seq == 1
    assert {name: bitmask(enclave, name) for name in after} == after


# Every code of every type, with its status and its fields

Refusal = tuple[str, str, Any, int, str, Json]
REFUSED: dict[str, Refusal] = {
    "Grant without C": ("bob", "Grant", has("mallory", "Member"), 403, "UNAUTHORIZED", {}),
    "Grant beyond the targets": ("carol", "Grant", has("bob", "Admin"), 403, "UNAUTHORIZED", {}),
    "Grant of Owner": ("alice", "Grant", has("bob", "Owner"), 403, "UNAUTHORIZED", {}),
    "Grant of no role": ("alice", "Grant", has("bob", "King"), 403, "UNAUTHORIZED", {}),
    "Grant to no key": ("alice", "Grant", {"role": "Member", "identity": NO_POINT}, 400, "INVALID_COMMIT", {}),
    "Grant_Push by a Grant's entry": (
        *("carol", "Grant_Push", has("bob", "Member", endpoint=ENDPOINT)),
        *(403, "UNAUTHORIZED", {}),
    ),
    "Grant_Push without endpoint": ("alice", "Grant_Push", has("bob", "DataView"), 400, "INVALID_COMMIT", {}),
    "Grant_Push to nowhere": (
        *("alice", "Grant_Push", has("bob", "DataView", endpoint="")),
        *(400, "INVALID_ENDPOINT_URL", {}),
    ),
    "Revoke beyond the targets": ("carol", "Revoke", has("carol", "Admin"), 403, "UNAUTHORIZED", {}),
    "Revoke of the Owner": ("alice", "Revoke", has("alice", "Owner"), 403, "UNAUTHORIZED", {}),
    "Revoke_Self of Owner": ("alice", "Revoke_Self", {"role": "Owner"}, 403, "OWNER_SELF_REVOKE_FORBIDDEN", {}),
    "Revoke_Self beyond the targets": ("carol", "Revoke_Self", {"role": "Admin"}, 403, "UNAUTHORIZED", {}),
    "Move from elsewhere": (
        *("alice", "Move", change("bob", ADMIN, 0)),
        *(409, "BITMASK_MISMATCH", {"expected": hex(ADMIN), "actual": hex(MEMBER)}),
    ),
    "Move of nobody": (
        *("alice", "Move", change("mallory", MEMBER, 0)),
        *(409, "BITMASK_MISMATCH", {"expected": hex(MEMBER), "actual": "0x0"}),
    ),
    "Move of Owner": ("alice", "Move", change("alice", OWNER | MEMBER, MEMBER), 403, "OWNER_BIT_PROTECTED", {}),
    "Move beyond the targets": ("carol", "Move", change("bob", MEMBER, ADMIN), 403, "UNAUTHORIZED", {}),
    "Move to a reserved bit": ("alice", "Move", change("bob", MEMBER, 1), 400, "INVALID_COMMIT", {}),
    "Move misspelled": (
        *("alice", "Move", {"identity": pub("bob"), "from": "0X200000000", "to": "0x0"}),
        *(400, "INVALID_COMMIT", {}),
    ),
    "Force_Move without C": ("carol", "Force_Move", change("bob", MEMBER, 0), 403, "UNAUTHORIZED", {}),
    "Force_Move from elsewhere": (
        *("alice", "Force_Move", change("bob", 0, MEMBER)),
        *(409, "BITMASK_MISMATCH", {"expected": "0x0", "actual": hex(MEMBER)}),
    ),
    "Force_Move of the Owner": (
        *("alice", "Force_Move", change("alice", OWNER | MEMBER, OWNER)),
        *(403, "OWNER_BIT_PROTECTED", {}),
    ),
    "Force_Move to Owner": ("alice", "Force_Move", change("bob", MEMBER, OWNER), 403, "OWNER_BIT_PROTECTED", {}),
    "Transfer_Owner by another": ("bob", "Transfer_Owner", {"new_owner": pub("bob")}, 403, "UNAUTHORIZED", {}),
    "Transfer_Owner to no key": ("alice", "Transfer_Owner", {"new_owner": NO_POINT}, 400, "INVALID_COMMIT", {}),
    "AC_Bundle": (
        *("carol", "AC_Bundle", bundle(("Grant", has("mallory", "Member")), ("Grant", has("bob", "Admin")))),
        *(409, "AC_BUNDLE_FAILED", {"failed_index": 1, "reason": "UNAUTHORIZED"}),
    ),
    "AC_Bundle, a bitmask": (
        *("alice", "AC_Bundle", bundle(("Move", change("bob", ADMIN, 0)))),
        *(409, "AC_BUNDLE_FAILED", {"failed_index": 0, "reason": "BITMASK_MISMATCH"}),
    ),
    "AC_Bundle, the Owner": (
        *("alice", "AC_Bundle", bundle(("Revoke_Self", {"role": "Owner"}))),
        *(409, "AC_BUNDLE_FAILED", {"failed_index": 0, "reason": "OWNER_SELF_REVOKE_FORBIDDEN"}),
    ),
    "AC_Bundle of a Transfer_Owner": (
        *("alice", "AC_Bundle", bundle(("Transfer_Owner", {"new_owner": pub("bob")}))),
        *(400, "INVALID_COMMIT", {}),
    ),
    "AC_Bundle of nothing": ("alice", "AC_Bundle", bundle(), 400, "INVALID_COMMIT", {}),
    "Pause without C": ("carol", "Pause", "", 403, "UNAUTHORIZED", {}),
    "Resume while active": ("alice", "Resume", "", 409, "INVALID_LIFECYCLE_STATE", {}),
    "Terminate without C": ("carol", "Terminate", "", 403, "UNAUTHORIZED", {}),
    "Migrate by another": (
        *("carol", "Migrate", {"new_sequencer": pub("node2"), "prev_seq": 0, "ct_root": "00" * 32}),
        *(403, "UNAUTHORIZED", {}),
    ),
    "a content event without C": ("mallory", "message", "x", 403, "UNAUTHORIZED", {}),
    "a type that only Node has": ("alice", "Report", "x", 403, "UNAUTHORIZED", {}),
    "a type without an entry": ("alice", "colour", "x", 403, "UNAUTHORIZED", {}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_each_type_is_refused_for(enclave: Enclave, what: str) -> None:
    who, type_, content, status, code, context = REFUSED[what]
    people = ("alice", "bob", "carol", "dave", "mallory")
    before = [bitmask(enclave, name) for name in people]
    error = enclave.refused(who, type_, content)
    assert (error.status, error.code, error.context) == (status, code, context)
    assert [bitmask(enclave, name) for name in people] == before


def test_a_refused_commit_may_be_sent_again_once_it_is_allowed(node: Served, enclave: Enclave) -> None:
    commit = enclave.commit("mallory", "message", "let me in")
    assert bad(node.post(wire_commit(commit))).code == "UNAUTHORIZED"
    enclave.send("carol", "Grant", has("mallory", "Member"))
    assert node.submit(commit).seq == 2


def test_the_sequencer_may_write_and_read_what_is_node_s(enclave: Enclave) -> None:
    enclave.send("node", "Report", "all is well")
    assert [item["event"]["content"] for item in enclave.query("node")] == ["all is well"]
    assert enclave.query("mallory", type="Report") == []
    assert len(enclave.query("bob", type="Report")) == 1


def test_authors_read_what_they_wrote_where_self_may(enclave: Enclave) -> None:
    mine = enclave.send("mallory", "note", "from outside")
    enclave.send("dave", "note", "another's")
    assert [item["event"]["seq"] for item in enclave.query("mallory")] == [mine.seq]
    assert len(enclave.query("bob", type="note")) == 2


# Lifecycle


def test_the_lifecycle_is_kept_though_the_tree_does_not_hold_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    with Served(store=store) as node:
        enclave = node.create(SMALL_V1)
        before = enclave.ask("alice", "State_Proof", namespace="rbac", key=pub("alice"), mode="current")["state_hash"]
        enclave.send("alice", "Pause")
        after = enclave.ask("alice", "State_Proof", namespace="rbac", key=pub("alice"), mode="current")["state_hash"]
        assert before == after
        clock = node.clock
    store.close()
    with closing(SqliteStore(tmp_path / "enc.db")) as store, Served(store=store, clock=clock) as node:
        again = Enclave(node, enclave.manifest)
        error = again.refused("bob", "message", "x")
        assert (error.status, error.code) == (403, "ENCLAVE_PAUSED")
        assert again.refused("alice", "Pause").code == "ENCLAVE_PAUSED"
        again.send("alice", "Resume")
        again.send("bob", "message", "x")
        again.send("alice", "Terminate")
        error = again.refused("bob", "message", "x")
        assert (error.status, error.code) == (410, "ENCLAVE_TERMINATED")
        assert [item["event"]["type"] for item in again.query("bob")][-3:] == ["Resume", "message", "Terminate"]


def test_migrate_is_the_owner_s_without_an_entry_and_ends_what_is_taken_here(enclave: Enclave) -> None:
    enclave.send("bob", "message", "x")
    found = enclave.ask("alice", "Checkpoint")
    content = {"new_sequencer": pub("node2"), "prev_seq": found["seq"], "ct_root": found["ct_root"]}
    wrong = enclave.refused("alice", "Migrate", {**content, "ct_root": "00" * 32})
    assert (wrong.status, wrong.code) == (409, "CHECKPOINT_MISMATCH")
    assert wrong.context == {"seq": 1, "ct_root": found["ct_root"]}
    enclave.send("alice", "Migrate", content)
    error = enclave.refused("bob", "message", "x")
    assert (error.status, error.code, error.context) == (410, "ENCLAVE_MIGRATED", {"new_sequencer": pub("node2")})
    assert enclave.refused("alice", "Terminate").code == "ENCLAVE_MIGRATED"


def test_only_the_owner_takes_a_checkpoint_and_exports(enclave: Enclave) -> None:
    for type_ in ("Checkpoint", "Export"):
        assert enclave.denied("carol", type_).code == "UNAUTHORIZED"
    enclave.send("alice", "Transfer_Owner", {"new_owner": pub("carol")})
    assert enclave.ask("carol", "Checkpoint")["seq"] == 1
    assert enclave.denied("alice", "Export").code == "UNAUTHORIZED"


# Update and Delete, and the contents that they erase


def test_update_and_delete_on_each_store(stored: Served) -> None:
    enclave = stored.create(SMALL_V1)
    first, other = enclave.send("bob", "message", "one"), enclave.send("bob", "Shared", "two")
    update = enclave.send("bob", "Update", "better", about(first))
    slot = enclave.send("bob", "Update", "a content event here", about(other))
    assert enclave.refused("alice", "Update", "x", about(first)).code == "UNAUTHORIZED"
    assert enclave.refused("bob", "Update", "x", about(update)).code == "INVALID_TARGET"
    shown = {item["event"]["seq"]: item for item in enclave.query("bob")}
    for seq, by in ((first.seq, update), (other.seq, slot)):
        assert (shown[seq]["status"], shown[seq]["updated_by"]) == ("updated", by.id.hex())
        assert shown[seq]["event"]["content"] is None
    enclave.send("carol", "Delete", {"reason": "moderator"}, about(first))
    assert enclave.refused("bob", "Update", "x", about(first)).code == "EVENT_DELETED"
    assert first.seq not in enclave.seqs("bob")
    found = enclave.ask("bob", "State_Proof", namespace="event_status", key=first.id.hex(), mode="current")
    assert bytes.fromhex(found["v"]) == DELETED
    assert enclave.refused("bob", "Update", "x", ("r", "00" * 32)).code == "EVENT_NOT_FOUND"


def test_what_only_version_2_predefines_is_erased_by_time_here(stored: Served) -> None:
    """In version 1 a `Shared` is a content event; in version 2 it is never erased."""
    one, two = stored.create(SMALL_V1), stored.create(SMALL)
    when = ("auto-delete", str(stored.clock.now + LIFETIME + 2000))
    events = {
        one: one.send("bob", "Shared", '{"key":"topic","value":1}', when),
        two: two.send("bob", "Shared", {"key": "topic", "value": 1}, when),
    }
    assert check_store(stored.store, NODE.public, None, lambda more: None).differences == []
    stored.clock.tick(LIFETIME + 3000)
    for _ in range(3):
        stored.settle()
    contents = {enclave: enclave.query("bob", id=event.id.hex())[0]["event"] for enclave, event in events.items()}
    assert contents[one]["content"] is None
    assert contents[two]["content"] is not None
    report = check_store(stored.store, NODE.public, None, lambda more: None)
    assert report.differences == []


# Endpoints

STRICT = NodeConfig(port=0)
PRIVATE = "https://127.0.0.1/hook"


@pytest.mark.parametrize("url", [PRIVATE, "http://example.com/", "https://example.com:80/", "not a URL"])
def test_no_endpoint_that_a_node_would_not_call_is_registered(url: str) -> None:
    with Served(STRICT) as node:
        enclave = node.create(SMALL_V1)
        refused = enclave.refused("alice", "Grant_Push", has("bob", "DataView", endpoint=url))
        assert (refused.status, refused.code) == (400, "INVALID_ENDPOINT_URL")
        operations = bundle(("Grant", has("bob", "Admin")), ("Grant_Push", has("bob", "DataView", endpoint=url)))
        assert enclave.refused("alice", "AC_Bundle", operations).code == "INVALID_ENDPOINT_URL"
        assert bitmask(enclave, "bob") == MEMBER, "the role is granted with its endpoint, or not at all"
        state: dict[str, list[Any]] = {
            "Owner": [pub("alice")],
            "DataView": [{"identity": pub("dave"), "endpoint": url}],
        }
        creation = node.manifest(manifest(SCHEMA, state))
        assert bad(node.post(wire_commit(creation))).code == "INVALID_ENDPOINT_URL"
        assert bad(node.get(f"/{creation.enclave.hex()}/sth")).code == "ENCLAVE_NOT_FOUND"


def test_in_a_grant_and_in_other_operations_an_endpoint_means_nothing() -> None:
    with Served(STRICT) as node:
        enclave = node.create(SMALL_V1)
        enclave.send("alice", "Grant", has("bob", "Admin", endpoint=PRIVATE))
        operations = bundle(("Revoke", has("bob", "Admin", endpoint=PRIVATE)), ("Grant", has("bob", "DataView")))
        enclave.send("alice", "AC_Bundle", operations)
        enclave.send("alice", "Grant_Push", has("bob", "DataView", endpoint="https://example.com/hook"))


def test_an_operator_may_allow_private_endpoints() -> None:
    with Served(replace(STRICT, endpoints=EndpointSettings(allow_private=True))) as node:
        enclave = node.create(SMALL_V1)
        enclave.send("alice", "Grant_Push", has("bob", "DataView", endpoint="http://127.0.0.1:8080/hook"))


# State: two namespaces


def test_there_are_two_namespaces(enclave: Enclave) -> None:
    for namespace in ("kv", "colour"):
        for type_, body in (
            ("State_Proof", {"namespace": namespace, "key": pub("bob")}),
            ("State_Batch", {"keys": [{"namespace": namespace, "key": pub("bob")}]}),
        ):
            error = enclave.denied("bob", type_, mode="current", **body)
            assert (error.status, error.code) == (400, "INVALID_NAMESPACE")
            assert error.message == "namespace: expected one of rbac, event_status"


# Either version by the same requests


@VERSIONS
def test_proofs_of_either_version(node: Served, constitution: Json) -> None:
    enclave = node.create(constitution)
    events = [enclave.send("bob", "message", f"{i}") for i in range(3)]
    enclave.send("bob", "Update", "new", about(events[0]))
    node.clock.tick(6000)
    node.settle()
    answer = enclave.ask("bob", "Query", filter={"type": "message"}, proof=True)
    head = parse_head(encode(answer["sth"]))
    check_bound_head(head, NODE.public, enclave.id)
    for item in answer["events"]:
        event, proof = parse_event(encode(item["event"])), item["proof"]
        check_event(event, enclave.enc_v)
        inclusion, leaf = inclusion_of(proof["inclusion"])
        check_event_proof(event.id, parse_bundle_proof(encode(proof["bundle"])), leaf, inclusion, head)
    check_state(enclave, "rbac", person("bob").public)
    check_state(enclave, "event_status", events[0].id)


def inclusion_of(wire: Json) -> tuple[Any, LogLeaf]:
    leaf = LogLeaf(bytes.fromhex(wire["events_root"]), bytes.fromhex(wire["state_hash"]))
    return parse_inclusion(encode(wire)), leaf


def check_state(enclave: Enclave, namespace: Namespace, key: bytes) -> None:
    found = enclave.ask("bob", "State_Proof", namespace=namespace, key=key.hex())
    above = enclave.ask("bob", "Inclusion_Proof", leaf_index=found["leaf_index"])
    inclusion, leaf = inclusion_of(above)
    head = parse_head(encode(above["sth"]))
    tree_key = identity_key(key) if namespace == "rbac" else status_key(key)
    check_state_proof(tree_key, parse_state_proof(encode(found)), leaf, inclusion, head)


@VERSIONS
def test_an_export_of_either_version_replays(stored: Served, constitution: Json) -> None:
    enclave = stored.create(constitution)
    for i in range(6):
        event = enclave.send("bob", "message", f"{i}", ("k", "v"))
    enclave.send("bob", "Update", "new", about(event))
    enclave.send("alice", "Pause")
    enclave.send("alice", "Resume")
    replay, page = Replay(enclave.id), enclave.ask("alice", "Export")
    for wire in page["events"]:
        replay.add(parse_event(encode(wire)))
    assert replay.finish().policy.enc_v == enclave.enc_v
    checkpoint = enclave.ask("alice", "Checkpoint")
    assert (replay.state.seq, replay.checkpoint_root().hex()) == (checkpoint["seq"], checkpoint["ct_root"])
    assert check_store(stored.store, NODE.public, None, lambda more: None).differences == []


class Listener:
    """An open subscription."""

    def __init__(self, socket: ClientConnection, enclave: Enclave, name: str, **filter_: Any) -> None:
        session = enclave.node.session(name)
        self._socket, self._keys = socket, client_keys(session, NODE.public, enclave.id)
        query = seal_request(session, NODE.public, enclave.id, "Query", {"filter": filter_}, bytes(24))
        socket.send(encode(query).decode())

    def next(self) -> Any:
        """Return the next event, or the end that the message reports."""
        message = decode(self._socket.recv(timeout=30))
        if message["type"] == "Event":
            return decode(open_text(self._keys.response, message["event"]))
        return message.get("reason") or message["type"]


@contextmanager
def listening(enclave: Enclave, name: str, **filter_: Any) -> Iterator[Listener]:
    with connect(enclave.node.url.replace("http", "ws"), proxy=None) as socket:
        yield Listener(socket, enclave, name, **filter_)


@VERSIONS
def test_a_subscriber_hears_of_either_version(node: Served, constitution: Json) -> None:
    enclave = node.create(constitution)
    enclave.send("bob", "message", "stored", ("k", "v"))
    with listening(enclave, "bob", type="message") as listener:
        check_event(parse_event(encode(listener.next()["event"])), enclave.enc_v)
        assert listener.next() == "EOSE"
        enclave.send("alice", "message", "live")
        assert listener.next()["event"]["content"] == "live"
        enclave.send("alice", "Terminate")
        assert listener.next() == "enclave_terminated"


def test_a_subscription_lasts_by_the_clock_of_its_node() -> None:
    """The node's check once a second uses this clock too: by any other, a subscription would end early or never."""
    with Served() as node, listening(node.create(SMALL), "bob", type="message") as listener:
        assert listener.next() == "EOSE"
        node.on_loop(node.node.expire)
        assert node.on_loop(lambda: node.node.hub.count) == 1
        node.clock.tick(3_600_000 + SKEW * 1000)
        node.on_loop(node.node.expire)
        assert listener.next() == "session_expired"


def test_a_subscriber_of_version_1_loses_what_a_role_gave(node: Served) -> None:
    """Only the role gives a right here, so the subscription ends with it; a Pause ends it too."""
    schema = [entry for entry in SCHEMA if entry["role"] not in ("Self", "Any")]
    enclave = node.create(manifest(schema, initial(alice="Owner Member", bob="Member")))
    with listening(enclave, "bob") as one, listening(enclave, "alice") as other:
        for listener in (one, other):
            assert listener.next()["event"]["type"] == "Manifest"
            assert listener.next() == "EOSE"
        enclave.send("bob", "Revoke_Self", {"role": "Member"})
        assert one.next() == "access_revoked"
        assert other.next()["event"]["type"] == "Revoke_Self"
        enclave.send("alice", "Pause")
        assert other.next()["event"]["type"] == "Pause"
        assert other.next() == "enclave_paused"


@VERSIONS
def test_many_writers_at_once_and_every_commit_stands_once(node: Served, constitution: Json) -> None:
    enclave = node.create(constitution)
    commits = [enclave.commit("bob", "message", f"{i}") for i in range(60)]
    receipts, lock = list[int](), threading.Lock()

    def write(mine: list[Any]) -> None:
        for commit in mine:
            check_commit(commit, enclave.enc_v)
            receipt = good(node.post(wire_commit(commit)))
            with lock:
                receipts.append(receipt["seq"])

    threads = [threading.Thread(target=write, args=(commits[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(receipts) == list(range(1, 61))


def test_the_document_s_example_on_a_node(node: Served) -> None:
    """Section 7 of the document, with its people."""
    enclave = node.create(manifest(EXAMPLE, initial(alice="Owner", carol="Admin Member", bob="Member")))
    said = enclave.send("bob", "Chat_Message", "hello")
    enclave.send("carol", "Grant", has("dave", "Member"))
    enclave.send("dave", "Chat_Message", "thanks")
    assert enclave.refused("carol", "Update", "x", about(said)).code == "UNAUTHORIZED"
    enclave.send("bob", "Update", "hello, all", about(said))
    assert [item["event"]["type"] for item in enclave.query("dave")] == [
        *("Chat_Message", "Grant", "Chat_Message", "Update")
    ]
    assert enclave.denied("alice", "Query", filter={}).code == "UNAUTHORIZED", "being the Owner does not include R"
    enclave.send("dave", "Revoke_Self", {"role": "Member"})
    assert enclave.denied("dave", "Query", filter={}).code == "UNAUTHORIZED"
    enclave.send("alice", "Terminate")
