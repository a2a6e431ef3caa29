"""The rules of a registry: whose entry stands, who may replace it, and every way to take it from them refused."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from enc.core.errors import InvalidCommit, ReplayFailed
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import erase, finalize, wire_event
from enc.core.machine.enclave import apply
from enc.core.machine.replay import Replay
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Event
from enc.core.registry.migrate_chain import Link, check_chain, wire_link
from enc.core.registry.owner_proof import (
    KnownOwnership,
    build_owner_proof,
    find_passage,
    parse_owner_proof,
    wire_owner_proof,
)
from enc.core.registry.reg_entry import MAX_META, EnclaveEntry, parse_enclave, parse_node, wire_enclave, wire_identity
from enc.core.rules.policy import Effects
from enc.core.trees.state_key import DELETED, identity_key
from tests.core.registry_world import BY_STATE, REGISTRY, TEAM, House, Registry, identity_entry, node_entry
from tests.core.strategies import examples, flip
from tests.core.world import LIFETIME, NO_POINT, NODES, START, Json, World, about, give, init, move, path, person, pub
from tests.core.world_v1 import EXAMPLE, initial, manifest

GONE = {"reason": "author"}


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def house() -> House:
    """Alice's enclave, with a closed bundle."""
    house = House(TEAM)
    house.talk()
    return house


def sold(house: House, to: str = "bob", from_: str = "alice") -> House:
    house.transfer(from_, to)
    return house


# What a registry is


def test_without_the_flag_reg_types_are_content_like_any_other() -> None:
    world = World({name: value for name, value in REGISTRY.items() if name != "registry"}, by="olga")
    event = world.send("alice", "Reg_Node", "anything")
    world.send("alice", "Update", "more", tags=about(event))
    assert world.memory.records == {}


def test_what_is_no_entry_is_the_manifest_s_alone(registry: Registry) -> None:
    note = registry.send("alice", "note", "hello")
    update = registry.send("alice", "Update", "hello again", tags=about(note))
    assert registry.effects.erases == (note.id,)
    registry.send("alice", "Delete", GONE, tags=about(note))
    assert registry.effects.erases == (note.id, update.id)
    assert registry.code("bob", "Delete", GONE, tags=about(note)) == "UNAUTHORIZED"
    registry.send("olga", "Pause")
    assert registry.code("alice", "Reg_Node", node_entry("alice")) == "ENCLAVE_PAUSED"
    registry.send("olga", "Resume")
    registry.send("alice", "Reg_Node", node_entry("alice"))


def test_the_manifest_says_who_may_register_at_all() -> None:
    closed = {**REGISTRY["RBAC"], "customs": []}
    registry = Registry(RBAC=closed)
    for type_, content in (
        ("Reg_Node", node_entry("alice")),
        ("Reg_Identity", identity_entry("alice")),
        ("Reg_Enclave", House(TEAM).entry()),
    ):
        error = registry.refused("alice", type_, content)
        assert (error.code, error.message) == ("UNAUTHORIZED", f"no entry of the manifest allows C on {type_}")


# Nodes and identities

OWN: dict[str, Callable[..., Json]] = {"Reg_Node": node_entry, "Reg_Identity": identity_entry}


@pytest.mark.parametrize("type_", OWN)
def test_a_node_and_an_identity_register_themselves_alone(registry: Registry, type_: str) -> None:
    error = registry.refused("mallory", type_, OWN[type_]("alice"))
    assert error.code == "UNAUTHORIZED"
    assert error.message.endswith("only its own key may register it")
    registry.send("alice", type_, OWN[type_]("alice"))


@pytest.mark.parametrize("type_", OWN)
def test_one_active_entry_a_key_and_a_newer_one_supersedes_it(registry: Registry, type_: str) -> None:
    kind: Any = "node" if type_ == "Reg_Node" else "identity"
    events = [registry.send("alice", type_, OWN[type_]("alice", extra=i)) for i in range(3)]
    other = registry.send("bob", type_, OWN[type_]("bob"))
    for old, new in pairwise(events):
        assert registry.status(old) == new.id
    assert [registry.status(each) for each in (events[-1], other)] == [None, None]
    record = registry.memory.record(kind, person("alice").public)
    assert record == registry.memory.record_of(events[-1].id)
    assert record is not None
    assert (record.entry, record.holder) == (events[-1].id, person("alice").public)
    assert registry.memory.record_of(events[0].id) is None


def test_a_key_has_a_record_of_each_kind(registry: Registry) -> None:
    node = registry.send("alice", "Reg_Node", node_entry("alice"))
    registry.send("alice", "Reg_Identity", identity_entry("alice"))
    assert registry.status(node) is None


def test_an_entry_is_not_updated(registry: Registry, house: House) -> None:
    events = [registry.send("alice", type_, OWN[type_]("alice")) for type_ in OWN]
    events.append(registry.register("alice", house))
    for event in events:
        error = registry.refused("alice", "Update", "x", tags=about(event))
        assert (error.code, error.message) == (
            "INVALID_TARGET",
            f"a {event.type} is not updated: a new one takes its place",
        )


def test_delete_deregisters_and_erases_nothing(registry: Registry) -> None:
    event = registry.send("alice", "Reg_Node", node_entry("alice"))
    assert registry.code("bob", "Delete", GONE, tags=about(event)) == "UNAUTHORIZED"
    registry.send("alice", "Delete", GONE, tags=about(event))
    assert registry.effects.erases == ()
    assert registry.status(event) == DELETED
    record = registry.memory.record("node", person("alice").public)
    assert record is not None
    assert record.entry is None
    assert registry.memory.record_of(event.id) is None
    assert registry.code("alice", "Delete", GONE, tags=about(event)) == "EVENT_DELETED"
    again = registry.send("alice", "Reg_Node", node_entry("alice"))
    assert registry.effects.supersedes == ()
    assert registry.memory.record_of(again.id) is not None


def test_a_superseded_entry_is_not_deleted(registry: Registry) -> None:
    old, new = (registry.send("alice", "Reg_Node", node_entry("alice", extra=i)) for i in range(2))
    error = registry.refused("alice", "Delete", GONE, tags=about(old))
    assert (error.code, error.message) == ("INVALID_TARGET", "the entry was superseded: delete the active one")
    assert registry.memory.record_of(new.id) is not None


@pytest.mark.parametrize("type_", ["Reg_Node", "Reg_Identity", "Reg_Enclave"])
def test_an_entry_is_never_erased(registry: Registry, house: House, type_: str) -> None:
    content = house.entry() if type_ == "Reg_Enclave" else OWN[type_]("alice")
    late = (("auto-delete", str(START + 10 * LIFETIME)),)
    error = registry.refused("alice", type_, content, tags=late)
    assert (error.code, error.message) == ("INVALID_COMMIT", "tags: an entry of a registry is never erased")
    replay = Replay()
    replay.add(registry.events[0])
    with pytest.raises(ReplayFailed, match=f"a {type_} is never erased"):
        replay.add(erase(registry.send("alice", type_, content)))


# Limits and form


def refusal_of(registry: Registry, type_: str, content: Any) -> str:
    error = registry.refused("alice", type_, content)
    assert error.code == "INVALID_COMMIT"
    return error.message


MANY = [{"uri": "https://a.example:443"}] * 11


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"endpoints": MANY}, "content.endpoints: expected a list of 1 to 10"),
        ({"endpoints": []}, "content.endpoints: expected a list of 1 to 10"),
        ({"endpoints": {}}, "content.endpoints: expected a list of 1 to 10"),
        ({"endpoints": ["https://a.example"]}, "content.endpoints[0]: expected an object"),
        (
            {"endpoints": [{"uri": f"https://{'a' * 2041}"}]},
            "content.endpoints[0].uri: expected scheme://…, at most 2048",
        ),
        ({"endpoints": [{"uri": "a.example"}]}, "content.endpoints[0].uri: expected scheme://…"),
        ({"endpoints": [{"uri": "https://a b"}]}, "content.endpoints[0].uri: expected scheme://…"),
        ({"endpoints": [{"priority": 1}]}, "content.endpoints[0].uri: expected scheme://…"),
        (
            {"endpoints": [{"uri": "https://a", "priority": -1}]},
            "content.endpoints[0].priority: expected a non-negative integer",
        ),
        (
            {"endpoints": [{"uri": "https://a", "priority": 1.5}]},
            "content.endpoints[0].priority: expected a non-negative integer",
        ),
        (
            {"endpoints": [{"uri": "https://a", "priority": True}]},
            "content.endpoints[0].priority: expected a non-negative",
        ),
        ({"protocols": ["https"] * 11}, "content.protocols: expected a list of 0 to 10"),
        ({"protocols": [1]}, "content.protocols[0]: expected a string of 1 to 64 characters"),
        ({"protocols": ["a" * 65]}, "content.protocols[0]: expected a string of 1 to 64 characters"),
        ({"enc_v": "2"}, "content.enc_v: expected a version"),
        ({"enc_v": 0}, "content.enc_v: expected a version"),
        ({"enc_v": True}, "content.enc_v: expected a version"),
        ({"seq_pub": NO_POINT}, "content.seq_pub: "),
        ({"seq_pub": "00"}, "content.seq_pub: expected 64 lower-case hex"),
    ],
)
def test_limits_of_a_node(registry: Registry, changes: Json, message: str) -> None:
    assert refusal_of(registry, "Reg_Node", {**node_entry("alice"), **changes}).startswith(message)


@pytest.mark.parametrize(
    "changes",
    [
        {"endpoints": MANY[:10]},
        {"endpoints": [{"uri": f"https://{'a' * 2040}"}]},
        {"endpoints": [{"uri": "wss://[::1]:8443/x?y"}], "protocols": ["a" * 64] * 10},
        {"enc_v": 1, "anything": "else"},
    ],
)
def test_a_node_at_its_limits(registry: Registry, changes: Json) -> None:
    registry.send("alice", "Reg_Node", {**node_entry("alice"), **changes})


def test_required_fields_of_a_node(registry: Registry) -> None:
    for name in ("seq_pub", "endpoints", "enc_v"):
        content = {key: value for key, value in node_entry("alice").items() if key != name}
        assert refusal_of(registry, "Reg_Node", content).startswith(f"content.{name}: ")
    assert refusal_of(registry, "Reg_Node", "[]") == "content: expected a JSON object"


ID = "ab" * 32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"enclaves": {f"e{i}": ID for i in range(257)}}, "content.enclaves: expected an object of at most 256"),
        ({"enclaves": {"e" * 65: ID}}, "content.enclaves: a label: expected a string of 1 to 64"),
        ({"enclaves": {"": ID}}, "content.enclaves: a label: expected a string of 1 to 64"),
        ({"enclaves": {"dm": "AB" * 32}}, "content.enclaves.dm: expected 64 lower-case hex"),
        ({"enclaves": []}, "content.enclaves: expected an object"),
        ({"id_pub": NO_POINT}, "content.id_pub: "),
        ({"sub_pub": NO_POINT}, "content.sub_pub: "),
        ({"sub_pub": None}, "content.sub_pub: "),
    ],
)
def test_limits_of_an_identity(registry: Registry, changes: Json, message: str) -> None:
    assert refusal_of(registry, "Reg_Identity", {**identity_entry("alice"), **changes}).startswith(message)


def test_an_identity_at_its_limits(registry: Registry) -> None:
    many = {f"{i:064}": ID for i in range(256)}
    content = wire_identity(person("alice").public, {}, person("bob").public)
    registry.send("alice", "Reg_Identity", {**content, "enclaves": many})
    registry.send("alice", "Reg_Identity", {"id_pub": pub("alice")})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"app": "a" * 65}, "content.app: expected a string of 1 to 64 characters"),
        ({"app": ""}, "content.app: expected a string of 1 to 64 characters"),
        ({"app": 1}, "content.app: expected a string of 1 to 64 characters"),
        ({"desc": "a" * 1025}, "content.desc: expected a string of 0 to 1024 characters"),
        ({"meta": []}, "content.meta: expected an object"),
        ({"meta": {"a": "b" * MAX_META}}, "content.meta: over 4096 bytes"),
        ({"manifest_event": None}, "manifest_event: expected"),
        ({"sequencer": NO_POINT}, "content.sequencer: "),
        ({"owner_proof": {}}, "owner_proof: "),
        ({"owner_proof": []}, "owner_proof: "),
        ({"migrate_events": []}, "migrate_events: expected a list of 1 to 16"),
        ({"migrate_events": {}}, "migrate_events: expected a list of 1 to 16"),
        ({"migrate_events": [{}]}, "migrate_events[0]: "),
        ({"migrate_event": []}, "migrate_event: "),
        (
            {"migrate_event": {}, "migrate_events": []},
            "migrate_event: conflicts with migrate_events: expected one chain",
        ),
    ],
)
def test_limits_of_an_enclave_s_entry(registry: Registry, house: House, changes: Json, message: str) -> None:
    assert refusal_of(registry, "Reg_Enclave", {**house.entry(), **changes}).startswith(message)


def test_an_enclave_s_entry_at_its_limits(registry: Registry, house: House) -> None:
    meta = {"a": "b" * (MAX_META - 8)}
    registry.register("alice", house, app="a" * 64, desc="d" * 1024, meta=meta)
    assert registry.of(house).app == "a" * 64


def test_a_chain_and_all_passages_have_limits(registry: Registry, house: House) -> None:
    link, proof = house.move_to("node2"), house.proof("alice", node="node")
    assert "expected a list of 1 to 16" in registry.refusal("alice", house, links=[link] * 17)
    assert "expected a list" not in registry.refusal("alice", house, links=[link] * 16)
    half = replace(proof, passage=(link,) * 9)
    refusal = registry.refusal("alice", house, links=[Link(link, half)], owner_proof=half)
    assert refusal == "INVALID_COMMIT passage: over 16 events in all"


def test_a_manifest_has_a_limit(registry: Registry) -> None:
    large = House({**TEAM, "padding": "x" * (256 << 10)})
    refusal = registry.refusal("alice", large)
    assert refusal == "INVALID_COMMIT manifest_event.content: over 262144 bytes"


def test_what_a_search_looks_through(registry: Registry, house: House) -> None:
    registry.register(
        "alice", house, desc="Our STRASSE", meta={"name": "Straße", "description": "x" * 300, "other": "no"}
    )
    assert registry.of(house).text == f"our strasse\nstrasse\n{'x' * 256}"
    registry.register("alice", house, meta={"name": 1, "description": ""})
    assert registry.of(house).text == ""


# The manifest's event


def tamper(change: Callable[[Json], Any]) -> Callable[[Json], None]:
    def work(content: Json) -> None:
        change(content["manifest_event"])

    return work


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("hash", "hash: not the hash of this commit's fields"),
        ("from", "hash: not the hash"),
        ("exp", "hash: not the hash"),
        ("tags", "hash: not the hash"),
        ("content", "hash: not the hash"),
        ("sig", "the Schnorr signature does not check"),
        ("seq_sig", "seq_sig: not the sequencer's signature"),
        ("timestamp", "seq_sig: not the sequencer's signature"),
        ("sequencer", "seq_sig: not the sequencer's signature"),
        ("id", "id: not the hash of seq_sig"),
        ("seq", "seq: a Manifest is event 0"),
        ("type", "expected a Manifest"),
    ],
)
def test_the_manifest_s_event_passes_the_full_check(registry: Registry, house: House, field: str, message: str) -> None:
    other = House({**TEAM, "meta": {"title": "another"}}, by="bob", node="node2")
    other_event = wire_event(other.manifest)
    changed = {"exp": START, "tags": [["a", "b"]], "timestamp": START + 1, "seq": 1, "type": "message"}

    def change(event: Json) -> None:
        event[field] = changed.get(field, other_event[field])

    refusal = registry.refusal("alice", house, tamper(change))
    assert refusal.startswith(f"INVALID_COMMIT manifest_event: {message}")


def test_a_manifest_that_names_another_s_enclave_is_refused(registry: Registry, house: House) -> None:
    """Mallory signs a Manifest commit of her own under the id of Alice's enclave, and her own node finalises it."""
    content = compact_json({**TEAM, "init": init(mallory="OUTSIDER owner")})
    commit = build_commit(person("mallory"), house.state.enclave, "Manifest", content, START + LIFETIME)
    event = finalize(commit, person("node2"), START, 0)
    error = registry.refused("mallory", "Reg_Enclave", wire_enclave(event))
    assert error.code == "INVALID_COMMIT"
    assert error.message == "manifest_event: enclave: not the id of the enclave that this Manifest founds"


def test_a_manifest_that_no_node_would_take_is_refused(registry: Registry) -> None:
    content = compact_json({"enc_v": 2, "init": []})
    event = finalize(build_manifest(person("alice"), content, START + LIFETIME), person("node"), START, 0)
    error = registry.refused("alice", "Reg_Enclave", wire_enclave(event))
    assert (error.code, error.message) == ("INVALID_COMMIT", "manifest_event: init: must name at least one identity")


def test_the_log_of_an_enclave_is_the_same_for_good(registry: Registry, house: House) -> None:
    """Two nodes may have taken one Manifest; the first that is registered wins, also once it is deregistered."""
    entry = registry.register("alice", house)
    twin = House(TEAM, node="node2")
    assert twin.state.enclave == house.state.enclave
    conflict = "REGISTRY_CONFLICT manifest_event: the enclave is registered with another log"
    assert registry.refusal("alice", twin) == conflict
    registry.send("alice", "Delete", GONE, tags=about(entry))
    assert registry.refusal("alice", twin) == conflict
    registry.register("alice", house)


# The update scenarios


def test_the_creator_registers_and_updates_without_a_proof(registry: Registry, house: House) -> None:
    first = registry.register("alice", house)
    record = registry.of(house)
    assert (record.entry, record.manifest, record.creator) == (first.id, house.manifest.id, person("alice").public)
    assert (registry.holder(house), record.proved_size, registry.sequencer(house)) == ("alice", 0, "node")
    second = registry.register("alice", house, app="chat")
    assert registry.status(first) == second.id
    assert registry.of(house).app == "chat"


def test_a_new_owner_registers_with_a_proof(registry: Registry, house: House) -> None:
    first = registry.register("alice", house)
    sold(house)
    missing = "UNAUTHORIZED not by the entry's holder, and without an owner proof"
    assert registry.refusal("bob", house) == missing
    second = registry.register("bob", house, owner_proof=house.proof("bob"))
    assert registry.status(first) == second.id
    assert registry.holder(house) == "bob"
    assert registry.of(house).proved_size == house.state.log.size
    registry.register("bob", house, app="mine now")
    assert registry.of(house).proved_size == house.state.log.size


def test_a_new_owner_registers_after_a_move_with_a_proof_and_the_migrate(registry: Registry, house: House) -> None:
    registry.register("alice", house)
    moved = house.move_to("node2")
    sold(house)
    proof = house.proof("bob")
    assert registry.refusal("bob", house, owner_proof=proof).startswith("UNAUTHORIZED owner_proof.sth: not signed by")
    registry.register("bob", house, owner_proof=proof, links=[moved])
    assert (registry.holder(house), registry.sequencer(house)) == ("bob", "node2")


def test_a_single_migrate_may_stand_where_the_documents_put_it(registry: Registry, house: House) -> None:
    moved = house.move_to("node2")
    sold(house)
    proof = wire_owner_proof(house.proof("bob"))
    for content in (
        {**house.entry(), "owner_proof": proof, "migrate_event": wire_event(moved)},
        {**house.entry(), "owner_proof": {**proof, "migrate_event": wire_event(moved)}},
        {**house.entry(), "owner_proof": {**proof, "migrate_events": [wire_event(moved)]}},
    ):
        fresh = Registry()
        fresh.send("bob", "Reg_Enclave", content)
        assert (fresh.holder(house), fresh.sequencer(house)) == ("bob", "node2")


@pytest.mark.parametrize("forced", [False, True])
def test_the_holder_registers_a_move(registry: Registry, house: House, forced: bool) -> None:
    registry.register("alice", house)
    moved = house.move_to("node2", forced=forced)
    registry.register("alice", house, links=[moved])
    assert registry.sequencer(house) == "node2"


def test_after_a_move_an_entry_without_one_names_the_sequencer(registry: Registry, house: House) -> None:
    registry.register("alice", house, links=[house.move_to("node2")])
    conflict = "REGISTRY_CONFLICT sequencer: another than the one on record needs migrate_events"
    assert registry.refusal("alice", house) == conflict
    assert registry.refusal("alice", house, sequencer=person("node3").public) == conflict
    registry.register("alice", house, sequencer=person("node2").public, app="chat")
    assert (registry.sequencer(house), registry.of(house).app) == ("node2", "chat")
    back = house.move_to("node")
    assert registry.refusal("alice", house, links=[back], sequencer=person("node2").public) == conflict
    registry.register("alice", house, links=[back], sequencer=person("node").public)
    assert registry.sequencer(house) == "node"


def test_what_outlives_a_delete(registry: Registry, house: House) -> None:
    registry.register("alice", house)
    moved = house.move_to("node2")
    sold(house)
    entry = registry.register("bob", house, owner_proof=house.proof("bob"), links=[moved])
    before = registry.of(house)
    assert registry.code("alice", "Delete", GONE, tags=about(entry)) == "UNAUTHORIZED"
    registry.send("bob", "Delete", GONE, tags=about(entry))
    assert registry.of(house) == replace(before, entry=None)
    assert registry.refusal("alice", house, sequencer=person("node2").public).startswith(
        "UNAUTHORIZED not by the entry's"
    )
    registry.register("bob", house, sequencer=person("node2").public)
    assert registry.of(house).proved_size == before.proved_size


def test_an_owner_may_be_the_first_to_register(registry: Registry, house: House) -> None:
    sold(house)
    registry.register("bob", house, owner_proof=house.proof("bob"))
    assert registry.holder(house) == "bob"


def test_a_holder_may_prove_what_it_is_and_so_outdate_older_proofs(registry: Registry, house: House) -> None:
    """Alice sold to Bob, who never registered, and has the enclave back: Bob's old head is of no use any more."""
    sold(house)
    old = house.proof("bob")
    house.transfer("bob", "alice")
    registry.register("alice", house, owner_proof=house.proof("alice", passage=()))
    assert registry.of(house).proved_size == house.state.log.size
    assert registry.refusal("bob", house, owner_proof=old).startswith("UNAUTHORIZED owner_proof.sth.ts: must be above")


# Each step of an owner proof, broken alone


def broken(change: Callable[[Json], Any]) -> Callable[[Json], None]:
    def work(content: Json) -> None:
        change(content["owner_proof"])

    return work


def flipped(text: str) -> str:
    return flip(bytes.fromhex(text)).hex()


class Sale:
    """Alice has sold to Bob; Bob's proof is good as it is."""

    def __init__(self) -> None:
        self.registry, self.house = Registry(), House(TEAM)
        self.house.talk(4)
        self.house.send("alice", "Grant", give("carol", "admin"))
        self.passage = (self.house.transfer("alice", "bob"),)
        self.house.talk()

    def refusal(self, change: Callable[[Json], Any], proof: Any = None) -> str:
        proof = self.house.proof("bob") if proof is None else proof
        return self.registry.refusal("bob", self.house, broken(change), owner_proof=proof)


@pytest.fixture(scope="module")
def sale() -> Sale:
    return Sale()


def keep(proof: Json) -> None:
    """Change nothing."""


def set_to(*path: str, to: Callable[[Any], Any]) -> Callable[[Json], None]:
    def work(proof: Json) -> None:
        for name in path[:-1]:
            proof = proof[name]
        proof[path[-1]] = to(proof[path[-1]])

    return work


BROKEN: dict[str, tuple[Callable[[Json], None], str]] = {
    "head": (set_to("sth", "sig", to=flipped), "sth: not signed by this sequencer"),
    "head's root": (set_to("sth", "r", to=flipped), "sth: not signed by this sequencer"),
    "head's time": (set_to("sth", "t", to=lambda t: t + 1), "sth: not signed by this sequencer"),
    "head's enclave": (set_to("sth", "bound_sig", to=flipped), "sth: bound_sig is not this sequencer's"),
    "size": (set_to("ct_proof", "ts", to=lambda ts: ts + 1), "ct_proof.ts: for another tree size than the head's"),
    "leaf": (set_to("ct_proof", "li", to=lambda li: li - 1), "ct_proof.li: not the head's last leaf"),
    "path": (set_to("ct_proof", "p", to=lambda p: [flipped(p[0]), *p[1:]]), "ct_proof: inclusion: the path leads"),
    "path's length": (set_to("ct_proof", "p", to=lambda p: p[1:]), "ct_proof: inclusion: the path is too short"),
    "events_root": (set_to("events_root", to=flipped), "ct_proof: inclusion: the path leads to another root"),
    "state_hash": (set_to("state_hash", to=flipped), "ct_proof: inclusion: the path leads to another root"),
    "key": (set_to("smt_proof", "k", to=flipped), "smt_proof.k: the key of another identity"),
    "value": (set_to("smt_proof", "v", to=flipped), "smt_proof: state: the path leads to another root"),
    "sibling": (set_to("smt_proof", "s", to=lambda s: [flipped(s[0])]), "smt_proof: state: the path leads to another"),
    "bitmap": (set_to("smt_proof", "b", to=lambda b: "00" * 21), "smt_proof: state: the bitmap and the siblings"),
    "origin's place": (set_to("origin", "bundle", "ei", to=lambda ei: 1), "origin.bundle.ei: a Manifest is event 0"),
    "origin's leaf": (
        set_to("origin", "ct_proof", "li", to=lambda li: 1),
        "origin.ct_proof.li: a Manifest is in leaf 0",
    ),
    "origin's siblings": (
        set_to("origin", "bundle", "s", to=lambda s: [flipped(s[0])]),
        "origin: bundle: the siblings lead to another root",
    ),
    "origin's bundle": (set_to("origin", "bundle", "size", to=lambda size: 3), "origin: bundle: the wrong number"),
    "origin's size": (
        set_to("origin", "ct_proof", "ts", to=lambda ts: ts + 1),
        "origin: inclusion: for another tree size",
    ),
    "origin's events": (
        set_to("origin", "events_root", to=flipped),
        "origin: bundle: the siblings lead to another root",
    ),
    "origin's state": (set_to("origin", "state_hash", to=flipped), "origin: inclusion: the path leads to another root"),
    "origin's path": (
        set_to("origin", "ct_proof", "p", to=lambda p: [flipped(p[0]), *p[1:]]),
        "origin: inclusion: the path leads to another root",
    ),
    "no passage": (set_to("passage", to=lambda p: []), "passage: does not lead from the holder to the claimant"),
    "passage's author": (set_to("passage", to=lambda p: p * 2), "passage[1]: not signed by the owner before"),
    "passage's hash": (
        set_to("passage", to=lambda p: [{**p[0], "exp": p[0]["exp"] + 1}]),
        "passage[0]: hash: not the hash of this commit's fields",
    ),
    "passage's enclave": (
        set_to("passage", to=lambda p: [{**p[0], "enclave": flipped(p[0]["enclave"])}]),
        "passage[0]: of another enclave",
    ),
    "passage's order": (
        set_to("passage", to=lambda p: [{**p[0], "seq": p[0]["seq"] + 1}]),
        "passage[0]: seq_sig: not the sequencer's signature",
    ),
}


def test_the_whole_proof_stands(sale: Sale) -> None:
    fresh = Registry()
    fresh.register("bob", sale.house, owner_proof=sale.house.proof("bob"))


@pytest.mark.parametrize("step", BROKEN)
def test_each_step_of_an_owner_proof_fails_alone_with_its_own_message(sale: Sale, step: str) -> None:
    change, message = BROKEN[step]
    assert sale.refusal(change).startswith(f"UNAUTHORIZED owner_proof.{message}")


def test_a_head_that_is_not_bound_serves_as_in_the_documents(sale: Sale) -> None:
    content = sale.house.entry(owner_proof=sale.house.proof("bob"))
    del content["owner_proof"]["sth"]["bound_sig"]
    Registry().send("bob", "Reg_Enclave", content)
    content["owner_proof"]["sth"]["sig"] = flipped(content["owner_proof"]["sth"]["sig"])
    assert Registry().refused("bob", "Reg_Enclave", content).message == "owner_proof.sth: not signed by this sequencer"


def test_a_value_that_makes_no_owner(registry: Registry, house: House) -> None:
    """Carol has a trait, but not that one: which bit it is, the manifest says. Nobody at all has no leaf."""
    house.send("alice", "Grant", give("carol", "admin"))
    passage = (house.transfer("alice", "bob"),)
    for name in ("carol", "mallory"):
        refusal = registry.refusal(name, house, owner_proof=house.proof(name, passage=passage))
        assert refusal == "UNAUTHORIZED owner_proof.smt_proof.v: does not make an owner"


def test_a_passage_that_is_not_needed_or_not_one(registry: Registry, house: House) -> None:
    message = house.send("alice", "message", "not a Transfer")
    admin = house.send("alice", "Grant", give("bob", "admin"))
    transfer = house.transfer("alice", "bob")
    house.talk()
    for wrong in (message, admin):
        refusal = registry.refusal("bob", house, owner_proof=house.proof("bob", passage=(wrong, transfer)))
        assert refusal == "UNAUTHORIZED owner_proof.passage[0]: does not pass the ownership on"


# Takeovers, each refused


def test_a_forged_migrate(registry: Registry, house: House) -> None:
    """By the documents alone, anyone with a node could take any entry over: Mallory's node signs whatever she likes."""
    registry.register("alice", house)
    content = house.migrate("node3")
    commit = build_commit(person("mallory"), house.state.enclave, "Migrate", compact_json(content), START + LIFETIME)
    forged = finalize(commit, person("node3"), START + 1, house.state.seq + 1)
    refusal = registry.refusal("mallory", house, links=[forged])
    assert (
        refusal == "REGISTRY_CONFLICT migrate_events[0]: not by the holder, and without an owner proof of its author's"
    )
    as_alice = replace(forged, from_=person("alice").public)
    refusal = registry.refusal("mallory", house, links=[as_alice])
    assert refusal.startswith("REGISTRY_CONFLICT migrate_events[0]: hash: not the hash")


def test_a_true_migrate_in_a_stranger_s_hands(registry: Registry, house: House) -> None:
    moved = house.move_to("node2")
    refusal = registry.refusal("mallory", house, links=[moved])
    assert refusal == "REGISTRY_CONFLICT not by the entry's holder, and without an owner proof"


def test_an_owner_proof_of_another_enclave_on_the_same_node(registry: Registry, house: House) -> None:
    """Mallory owns an enclave there, whose heads the same key signs."""
    registry.register("alice", house)
    own = House({**TEAM, "init": init(mallory="OUTSIDER owner")}, by="mallory")
    own.talk(4)
    refusal = registry.refusal("mallory", house, owner_proof=own.proof("mallory", holder="mallory"))
    assert refusal == "UNAUTHORIZED owner_proof.sth: bound_sig is not this sequencer's for this enclave"
    unbound = replace(own.proof("mallory", holder="mallory"), sth=replace(own.proof("mallory").sth, bound_sig=None))
    refusal = registry.refusal("mallory", house, owner_proof=unbound)
    assert refusal == "UNAUTHORIZED owner_proof.origin: bundle: the siblings lead to another root"
    proof = replace(unbound, origin=house.proof("alice").origin)
    refusal = registry.refusal("mallory", house, owner_proof=proof)
    assert refusal.startswith("UNAUTHORIZED owner_proof.origin: inclusion: ")


def test_a_former_owner_after_the_new_one_has_registered(registry: Registry, house: House) -> None:
    registry.register("alice", house)
    before = house.proof("alice", passage=())
    sold(house)
    registry.register("bob", house, owner_proof=house.proof("bob"))
    assert registry.refusal("alice", house).startswith("UNAUTHORIZED not by the entry's holder")
    assert registry.refusal("alice", house, owner_proof=before).startswith(
        "UNAUTHORIZED owner_proof.sth.ts: must be above 2"
    )
    house.talk()
    now = house.proof("alice", passage=())
    assert (
        registry.refusal("alice", house, owner_proof=now)
        == "UNAUTHORIZED owner_proof.smt_proof.v: does not make an owner"
    )


def test_a_former_owner_who_is_not_the_creator(registry: Registry, house: House) -> None:
    sold(house)
    old = house.proof("bob")
    registry.register("bob", house, owner_proof=old)
    house.transfer("bob", "carol")
    registry.register("carol", house, owner_proof=house.proof("carol", holder="bob"))
    assert registry.refusal("bob", house, owner_proof=old).startswith("UNAUTHORIZED owner_proof.sth.ts: must be above")
    assert registry.holder(house) == "carol"


def test_an_old_leaf_under_a_new_head(registry: Registry, house: House) -> None:
    """Alice was the owner at leaf 0, and the newest head still says so: of then."""
    sold(house)
    registry.register("bob", house, owner_proof=house.proof("bob"))
    house.talk()
    old_leaf = house.proof("alice", passage=(), leaf=0)
    assert (
        registry.refusal("alice", house, owner_proof=old_leaf)
        == "UNAUTHORIZED owner_proof.ct_proof.li: not the head's last leaf"
    )


def test_the_same_head_twice(registry: Registry, house: House) -> None:
    sold(house)
    proof = house.proof("bob")
    registry.register("bob", house, owner_proof=proof)
    size = house.state.log.size
    refusal = registry.refusal("bob", house, owner_proof=proof)
    assert refusal == f"UNAUTHORIZED owner_proof.sth.ts: must be above {size}, the size that was proved before"


def test_an_owner_whom_a_hostile_sequencer_invents(registry: Registry, house: House) -> None:
    """The node writes Mallory into its state as it likes, with a Transfer that only she has signed."""
    registry.register("alice", house)
    fake = House(TEAM)
    commit = fake.commit("mallory", "Transfer", give("mallory", "owner"))
    event = finalize(commit, person("node"), START + 1, 1)
    invented = Effects(writes={identity_key(person("mallory").public): (1 << 9).to_bytes(32, "big")})
    fake._keep(event, apply(fake.state, event, invented, fake.memory))
    assert fake.manifest == house.manifest
    for passage in ((), (event,), (house.send("alice", "Grant", give("bob", "admin")),)):
        refusal = registry.refusal("mallory", house, owner_proof=fake.proof("mallory", passage=passage))
        assert refusal.startswith("UNAUTHORIZED owner_proof.passage")
    assert registry.holder(house) == "alice"


def test_a_passage_that_leads_to_somebody_else(registry: Registry, house: House) -> None:
    """Both are owners now; but Alice made Bob one, and a hostile node Mallory."""
    given_to_bob = house.send("alice", "Grant", give("bob", "owner"))
    given_on = house.send("bob", "Grant", give("mallory", "owner"))
    house.settle()
    proof = house.proof("mallory", passage=(given_to_bob,))
    assert registry.refusal("mallory", house, owner_proof=proof).endswith(
        "passage: does not lead from the holder to the claimant"
    )
    registry.register("mallory", house, owner_proof=house.proof("mallory", passage=(given_to_bob, given_on)))


class Returned:
    """Alice gave the enclave to Bob, and he gave it back. Later its node would have it that he is the owner."""

    def __init__(self, *nodes: str) -> None:
        self.registry, self.house = Registry(), House(TEAM)
        self.house.talk(4)
        self.given = self.house.transfer("alice", "bob")
        self.house.transfer("bob", "alice")
        self.registry.register("alice", self.house, links=[self.house.move_to(node) for node in nodes])

    def invent(self) -> None:
        commit, state = self.house.commit("bob", "message", "mine"), self.house.state
        event = finalize(commit, person(NODES[state.sequencer]), state.min_timestamp, state.seq + 1)
        invented = Effects(writes={identity_key(person("bob").public): (1 << 9).to_bytes(32, "big")})
        self.house._keep(event, apply(self.house.state, event, invented, self.house.memory))
        self.house.settle()

    def refusal(self, *passage: Event) -> str:
        self.invent()
        return self.registry.refusal("bob", self.house, owner_proof=self.house.proof("bob", passage=passage))


def test_an_old_passage_that_another_sequencer_has_ordered() -> None:
    sale = Returned("node2")
    assert sale.refusal(sale.given) == ("UNAUTHORIZED owner_proof.passage[0]: not signed by the sequencer on record")
    assert sale.registry.holder(sale.house) == "alice"


def test_an_old_passage_from_before_the_holder_moved_the_enclave() -> None:
    sale = Returned("node2", "node")
    assert (
        sale.refusal(sale.given)
        == "UNAUTHORIZED owner_proof.passage[0]: seq or timestamp is not after the event before"
    )


def test_a_passage_is_in_order_and_in_time(registry: Registry, house: House) -> None:
    first = house.send("alice", "Grant", give("bob", "owner"))
    second = house.send("bob", "Grant", give("carol", "owner"))
    house.settle()
    node = person("node")
    wrong = {
        "passage[1]: seq or timestamp is not after the event before": (
            (finalize(first, node, first.timestamp, second.seq), second),
            (finalize(first, node, second.timestamp + 1, first.seq), second),
        ),
        "passage[0]: timestamp: more than 60 s after exp": (
            (finalize(first, node, first.exp + 60_001, first.seq), second),
        ),
        "passage[0]: exp: more than an hour after timestamp": (
            (finalize(first, node, first.exp - 3_660_001, first.seq), second),
        ),
    }
    for message, passages in wrong.items():
        for passage in passages:
            refusal = registry.refusal("carol", house, owner_proof=house.proof("carol", passage=passage))
            assert refusal == f"UNAUTHORIZED owner_proof.{message}"
    registry.register("carol", house, owner_proof=house.proof("carol", passage=(first, second)))


# Passages


def bundle(*operations: Json) -> Json:
    return {"operations": list(operations)}


def test_ownership_passes_by_transfer_grant_and_ac_bundle(registry: Registry, house: House) -> None:
    house.send("alice", "Transfer", give("bob", "owner"))
    house.send("bob", "Grant", give("carol", "owner"))
    house.send(
        "carol",
        "AC_Bundle",
        bundle({"type": "Grant", **give("mallory", "admin")}, {"type": "Transfer", **give("dave", "owner")}),
    )
    house.settle()
    proof = house.proof("dave")
    assert [event.type for event in proof.passage] == ["Transfer", "Grant", "AC_Bundle"]
    registry.register("dave", house, owner_proof=proof)
    assert registry.holder(house) == "dave"
    assert registry.refusal("dave", house, owner_proof=replace(proof, passage=proof.passage[1:])).startswith(
        "UNAUTHORIZED"
    )


def test_ownership_by_state_passes_by_a_move(registry: Registry) -> None:
    house = House(BY_STATE)
    house.send("alice", "Move", move("bob", "OUTSIDER", "OWNER"))
    registry.register("bob", house, owner_proof=house.proof("bob"))
    house.send("bob", "AC_Bundle", bundle({"type": "Move", **move("carol", "OUTSIDER", "OWNER")}))
    registry.register("carol", house, owner_proof=house.proof("carol", holder="bob"))
    house.send("carol", "Move", move("bob", "OWNER", "OUTSIDER"))
    refusal = registry.refusal("bob", house, owner_proof=house.proof("bob", holder="carol"))
    assert refusal == "UNAUTHORIZED owner_proof.smt_proof.v: does not make an owner"


def test_who_the_manifest_makes_an_owner_needs_no_passage() -> None:
    house = House({**TEAM, "init": init(bob="OUTSIDER owner", carol="OUTSIDER admin")})
    house.talk()
    registry = Registry()
    registry.register("bob", house, owner_proof=house.proof("bob", passage=()))
    assert registry.holder(house) == "bob"
    registry.register("bob", house)
    house.transfer("bob", "carol")
    fresh = Registry()
    proof = house.proof("carol")
    assert [event.type for event in proof.passage] == ["Transfer"]
    fresh.register("carol", house, owner_proof=proof)


def test_the_manifest_speaks_for_its_author_alone(registry: Registry) -> None:
    """Once the entry is another's, those whom the creator named have nothing from the new holder."""
    house = House({**TEAM, "init": init(alice="OUTSIDER owner", bob="OUTSIDER owner")})
    house.transfer("alice", "carol")
    registry.register("carol", house, owner_proof=house.proof("carol"))
    house.talk()
    refusal = registry.refusal("bob", house, owner_proof=house.proof("bob", passage=()))
    assert refusal == "UNAUTHORIZED owner_proof.passage: does not lead from the holder to the claimant"


def test_ownership_of_version_1_passes_by_transfer_owner(registry: Registry) -> None:
    schema = [
        *EXAMPLE,
        {"event": "Transfer_Owner", "role": "Owner", "ops": ["C"]},
        {"event": "message", "role": "Any", "ops": ["C"]},
    ]
    house = House({**manifest(schema, initial(alice="Owner")), "bundle": {"size": 1, "timeout": 1000}})
    registry.register("alice", house)
    moved = house.move_to("node2")
    house.send("alice", "Transfer_Owner", {"new_owner": pub("bob")})
    proof = house.proof("bob")
    assert [event.type for event in proof.passage] == ["Transfer_Owner"]
    registry.register("bob", house, owner_proof=proof, links=[moved])
    assert (registry.holder(house), registry.sequencer(house)) == ("bob", "node2")
    assert registry.refusal("alice", house, sequencer=person("node2").public).startswith("UNAUTHORIZED")


def test_whom_an_event_makes_an_owner() -> None:
    """By the event alone: what passes nothing on, or another right, makes nobody one."""
    world = World(
        {**BY_STATE, "states": ["OWNER", "GUEST"], "moves": [*BY_STATE["moves"], path("OUTSIDER", "GUEST", "OWNER")]}
    )
    guest = world.send("alice", "Move", move("bob", "OUTSIDER", "GUEST"))
    owner = world.send("alice", "Move", move("carol", "OUTSIDER", "OWNER"))
    people = [world.policy.new_owners(event) for event in (world.events[0], guest, owner)]
    assert people == [{person("alice").public}, frozenset(), {person("carol").public}]
    first = World(manifest(EXAMPLE, initial(olga="Owner", bob="Member")), by="olga")
    grant = first.send("olga", "Grant", {"role": "Admin", "identity": pub("bob")})
    assert [first.policy.new_owners(event) for event in (first.events[0], grant)] == [
        {person("olga").public},
        frozenset(),
    ]


def test_endpoints_are_read_in_order_of_priority(registry: Registry) -> None:
    endpoints = [{"uri": "https://b", "priority": 9}, {"uri": "https://a", "priority": 1}, {"uri": "https://c"}]
    node = parse_node(registry.commit("alice", "Reg_Node", {**node_entry("alice"), "endpoints": endpoints}))
    assert [(each.uri, each.priority) for each in node.endpoints] == [
        ("https://a", 1),
        ("https://c", 2),
        ("https://b", 9),
    ]


def test_find_passage_takes_the_latest_way_and_knows_when_there_is_none(house: House) -> None:
    def way(holder: str, owner: str) -> list[int] | None:
        found = find_passage(house.policy, house.events, person(holder).public, person(owner).public)
        return None if found is None else [event.seq for event in found]

    assert (way("alice", "alice"), way("alice", "bob")) == ([], None)
    first = house.transfer("alice", "bob")
    back = house.transfer("bob", "alice")
    second = house.transfer("alice", "bob")
    assert way("alice", "bob") == [second.seq]
    on = house.transfer("bob", "carol")
    assert (way("alice", "carol"), way("bob", "carol")) == ([second.seq, on.seq], [on.seq])
    assert way("bob", "alice") == [back.seq]
    assert (first.seq < second.seq, way("carol", "alice")) == (True, None)


# Chains


def test_a_chain_there_and_back_peaceful_and_forced(registry: Registry, house: House) -> None:
    registry.register("alice", house)
    links = []
    for node, forced in (("node2", False), ("node3", True), ("node", False), ("node2", True)):
        links.append(house.move_to(node, forced=forced))
        house.talk(3)
    registry.register("alice", house, links=links)
    assert registry.sequencer(house) == "node2"
    for wrong in (links[1:], links[:1] + links[3:], links[::-1], links[:1]):
        fresh = Registry()
        fresh.register("alice", house)
        if wrong in (links[1:], links[:1] + links[3:], links[:1]):
            fresh.register("alice", house, links=wrong)  # a forced link says nothing of the sequencer before it
        else:
            assert fresh.refusal("alice", house, links=wrong).startswith(
                "REGISTRY_CONFLICT migrate_events[1]: finalised by"
            )


def test_a_chain_starts_at_the_sequencer_on_record(registry: Registry, house: House) -> None:
    first = house.move_to("node2")
    house.talk(1)
    second = house.move_to("node3")
    registry.register("alice", house, links=[first])
    neither = "finalised by neither the sequencer before it nor its own new_sequencer"
    assert registry.refusal("alice", house, links=[first, second]) == f"REGISTRY_CONFLICT migrate_events[0]: {neither}"
    registry.register("alice", house, links=[second])
    assert registry.sequencer(house) == "node3"


def test_a_gap_in_a_chain(registry: Registry, house: House) -> None:
    house.move_to("node2")
    house.talk(1)
    second = house.move_to("node3")
    assert registry.refusal("alice", house, links=[second]).startswith(
        "REGISTRY_CONFLICT migrate_events[0]: finalised by neither"
    )


def test_a_chain_with_a_foreign_link(registry: Registry, house: House) -> None:
    other = House({**TEAM, "meta": {"title": "another"}})
    foreign, own = other.move_to("node2"), house.move_to("node2")
    refusal = registry.refusal("alice", house, links=[foreign])
    assert refusal == "REGISTRY_CONFLICT migrate_events[0]: of another enclave"
    house.talk(1)
    refusal = registry.refusal("alice", house, links=[own, foreign])
    assert refusal == "REGISTRY_CONFLICT migrate_events[1]: of another enclave"


def test_a_link_that_is_no_migrate_or_not_one_of_this_place(registry: Registry, house: House) -> None:
    talk = house.send("alice", "message", "hello")
    assert registry.refusal("alice", house, links=[talk]) == "REGISTRY_CONFLICT migrate_events[0]: expected a Migrate"
    commit = house.commit("alice", "Migrate", house.migrate("node2", prev_seq=house.state.seq + 5))
    early = finalize(commit, person("node"), house.state.min_timestamp, house.state.seq + 1)
    assert (
        registry.refusal("alice", house, links=[early])
        == "REGISTRY_CONFLICT migrate_events[0]: seq: not the one after prev_seq"
    )
    commit = house.commit("alice", "Migrate", {"new_sequencer": NO_POINT, "prev_seq": 1, "ct_root": "00" * 32})
    nowhere = finalize(commit, person("node"), house.state.min_timestamp, house.state.seq + 1)
    assert registry.refusal("alice", house, links=[nowhere]).startswith(
        "REGISTRY_CONFLICT migrate_events[0]: content.new_sequencer"
    )


@pytest.mark.parametrize("field", ["hash", "sig", "seq_sig", "id", "timestamp", "exp"])
def test_a_link_passes_the_full_check(registry: Registry, house: House, field: str) -> None:
    moved = house.move_to("node2")

    def change(content: Json) -> None:
        link = content["migrate_events"][0]
        link[field] = link[field] + 1 if isinstance(link[field], int) else flipped(link[field])

    assert registry.refusal("alice", house, change, links=[moved]).startswith("REGISTRY_CONFLICT migrate_events[0]: ")


def test_a_link_of_a_new_owner_s_carries_a_proof_under_the_sequencer_before(registry: Registry, house: House) -> None:
    registry.register("alice", house)
    sold(house)
    proof = house.proof("bob")
    moved = house.move_to("node2", by="bob")
    house.talk(1)
    further = house.move_to("node3", by="bob")
    assert registry.refusal("bob", house, links=[moved]).endswith(
        "[0]: not by the holder, and without an owner proof of its author's"
    )
    registry.register("bob", house, links=[Link(moved, proof), Link(further)])
    assert (registry.holder(house), registry.sequencer(house)) == ("bob", "node3")
    assert registry.of(house).proved_size == proof.sth.ts


def test_a_link_s_proof_is_of_the_sequencer_before_and_of_its_author(registry: Registry, house: House) -> None:
    sold(house)
    good = house.proof("bob")
    moved = house.move_to("node2", by="bob")
    after = house.proof("bob")
    wrong = {
        "sth: not signed by this sequencer": after,
        "smt_proof.k: the key of another identity": house.proof("alice", node="node", passage=()),
        "passage: does not lead from the holder to the claimant": replace(good, passage=()),
    }
    for message, proof in wrong.items():
        refusal = registry.refusal("bob", house, links=[Link(moved, proof)])
        assert refusal == f"REGISTRY_CONFLICT migrate_events[0].owner_proof.{message}"


def test_a_chain_may_pass_from_owner_to_owner(registry: Registry, house: House) -> None:
    """Alice moves, sells to Bob, who moves by force, and sells to Carol: she brings all of it."""
    registry.register("alice", house)
    first = house.move_to("node2")
    sold(house)
    bobs = house.proof("bob")
    second = house.move_to("node3", by="bob", forced=True)
    house.transfer("bob", "carol")
    proof = house.proof("carol", holder="bob")
    links = [Link(first), Link(second, bobs)]
    assert (
        registry.refusal("carol", house, links=links)
        == "REGISTRY_CONFLICT not by the entry's holder, and without an owner proof"
    )
    assert registry.refusal("carol", house, links=[*links[:1], Link(second)], owner_proof=proof).startswith(
        "REGISTRY_CONFLICT"
    )
    assert registry.refusal("carol", house, links=links, owner_proof=house.proof("carol")).startswith(
        "REGISTRY_CONFLICT owner_proof.passage[0]: not signed by the owner before"
    )
    registry.register("carol", house, links=links, owner_proof=proof)
    assert (registry.holder(house), registry.sequencer(house)) == ("carol", "node3")
    assert registry.of(house).proved_size == proof.sth.ts > bobs.sth.ts


def test_a_proof_within_a_chain_counts_for_what_follows(registry: Registry, house: House) -> None:
    """The size that a link has proved is what the submitter's own proof must be above."""
    sold(house)
    proof = house.proof("bob")
    moved = house.move_to("node2", by="bob")
    stale = house.proof("bob", size=proof.sth.ts, node="node2", holder="bob")
    refusal = registry.refusal("bob", house, links=[Link(moved, proof)], owner_proof=stale)
    assert refusal.startswith(f"REGISTRY_CONFLICT owner_proof.sth.ts: must be above {proof.sth.ts}")


def test_an_empty_chain_changes_nothing(house: House) -> None:
    known = KnownOwnership(house.manifest, house.policy, person("alice").public, 0, person("node").public)
    assert check_chain([], known) is known


# Building and parsing


def test_what_is_built_is_what_is_parsed(house: House) -> None:
    sold(house)
    proof = house.proof("bob")
    assert parse_owner_proof(wire_owner_proof(proof), "owner_proof") == proof
    link = Link(house.move_to("node2", by="bob"), proof)
    world = Registry()
    commit = world.commit(
        "bob", "Reg_Enclave", wire_enclave(house.manifest, owner_proof=proof, links=[link], app="a", meta={"x": 1})
    )
    assert parse_enclave(commit) == EnclaveEntry(house.manifest, proof, (link,), None, "a", "", {"x": 1})
    assert wire_link(Link(link.event)) == wire_event(link.event)


def test_a_proof_is_not_built_from_half_an_answer(house: House) -> None:
    state, origin, inclusion = house.answers("alice")
    for name in ("sth", "inclusion", "state_hash", "k", "s"):
        with pytest.raises(InvalidCommit, match=r"^the node's answers: "):
            build_owner_proof({key: value for key, value in state.items() if key != name}, origin, inclusion)
    with pytest.raises(InvalidCommit, match=r"^the node's answers: "):
        build_owner_proof(state, {}, inclusion)
    with pytest.raises(InvalidCommit, match=r"^the node's answers: "):
        build_owner_proof(state, origin, {})


# Replay gives the same


def told(registry: Registry) -> Any:
    return registry.memory.records, registry.state_hash


def replayed(registry: Registry) -> Any:
    replay = Replay()
    for event in registry.events:
        replay.add(event)
    return replay.store.records, replay.state_hash()


PEOPLE = ("alice", "bob", "carol")
acts = st.lists(st.tuples(st.sampled_from(PEOPLE), st.integers(0, 6)), max_size=24)


def act(registry: Registry, house: House, name: str, kind: int) -> None:
    """One thing that somebody tries; whether it is refused is not the point."""
    active = [record.entry for record in registry.memory.records.values() if record.entry is not None]
    if kind == 0:
        attempt = ("Reg_Node", node_entry(name), ())
    elif kind == 1:
        attempt = ("Reg_Identity", identity_entry(name), ())
    elif kind == 2 and active:
        attempt = ("Delete", GONE, (("r", min(active).hex()),))
    elif kind == 3:
        attempt = ("Reg_Enclave", house.entry(), ())
    elif kind == 4:
        owner = next(each for each in PEOPLE if house.policy.is_owner(house.bitmask(each)))
        if owner != name:
            house.transfer(owner, name)
        holder = (
            house.proof(name, registry.holder(house))
            if registry.memory.records.get(("enclave", house.state.enclave))
            else house.proof(name)
        )
        attempt = ("Reg_Enclave", house.entry(owner_proof=holder), ())
    elif kind == 5 and registry.events[-1].type.startswith("Reg_"):
        attempt = ("Delete", GONE, about(registry.events[-1]))
    else:
        attempt = ("note", "hello", ())
    if not registry.code(name, attempt[0], attempt[1], tags=attempt[2]):
        registry.send(name, attempt[0], attempt[1], tags=attempt[2])


@examples(40)
@given(acts)
def test_there_is_one_active_entry_a_key_and_replay_equals_life(sequence: list[tuple[str, int]]) -> None:
    registry, house = Registry(), House(TEAM)
    house.talk()
    for name, kind in sequence:
        act(registry, house, name, kind)
    entries: dict[tuple[str, bytes], list[Event]] = {}
    for event in registry.events:
        if event.type in ("Reg_Node", "Reg_Identity", "Reg_Enclave") and registry.status(event) is None:
            key = house.state.enclave if event.type == "Reg_Enclave" else event.from_
            entries.setdefault((event.type, key), []).append(event)
    assert all(len(active) == 1 for active in entries.values())
    active = {record.entry for record in registry.memory.records.values() if record.entry is not None}
    assert active == {event.id for events in entries.values() for event in events}
    assert replayed(registry) == told(registry)
