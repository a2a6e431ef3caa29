"""The rules of a registry: which entry is active, who may replace it, and attempts to take it over."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.errors import ReplayFailed
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import erase, finalize, wire_event
from enc.core.machine.replay import Replay
from enc.core.primitives.encoding import compact_json
from enc.core.registry.migrate_chain import Link
from enc.core.registry.owner_proof import (
    wire_owner_proof,
)
from enc.core.registry.reg_entry import (
    MAX_META,
    EnclaveEntry,
    parse_enclave,
    wire_enclave,
    wire_identity,
    wire_node,
)
from enc.core.trees.state_key import DELETED
from tests.core.registry.entries_house import GONE, sold
from tests.core.registry_world import REGISTRY, TEAM, House, Registry, identity_entry, node_entry
from tests.core.world import LIFETIME, NO_POINT, START, Json, World, about, init, person, pub

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
    nothing = (("r", "00" * 32),)
    assert [registry.code("bob", type_, GONE, tags=nothing) for type_ in ("Update", "Delete")] == [
        "EVENT_NOT_FOUND"
    ] * 2
    assert registry.code("bob", "Pause") == "UNAUTHORIZED"
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


@pytest.mark.parametrize(("type_", "field"), [("Reg_Node", "seq_pub"), ("Reg_Identity", "id_pub")])
def test_a_node_and_an_identity_register_themselves_alone(registry: Registry, type_: str, field: str) -> None:
    error = registry.refused("mallory", type_, OWN[type_]("alice"))
    assert (error.code, error.message) == ("UNAUTHORIZED", f"content.{field}: only its own key may register it")
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
            f"a {event.type} cannot be updated: register a new entry instead",
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


NO_URI = "content.endpoints[0].uri: expected scheme://…, at most 2048 characters"
NO_KEY = "not the x-coordinate of a point on secp256k1"
MANY = [{"uri": "https://a.example:443"}] * 11


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"endpoints": MANY}, "content.endpoints: expected a list of 1 to 10"),
        ({"endpoints": []}, "content.endpoints: expected a list of 1 to 10"),
        ({"endpoints": {}}, "content.endpoints: expected a list of 1 to 10"),
        ({"endpoints": ["https://a.example"]}, "content.endpoints[0]: expected an object"),
        ({"endpoints": {"uri": "https://a"}}, "content.endpoints: expected a list of 1 to 10"),
        ({"endpoints": [{"uri": f"https://{'a' * 2041}"}]}, NO_URI),
        ({"endpoints": [{"uri": "a.example"}]}, NO_URI),
        ({"endpoints": [{"uri": "https://a b"}]}, NO_URI),
        ({"endpoints": [{"priority": 1}]}, NO_URI),
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
            "content.endpoints[0].priority: expected a non-negative integer",
        ),
        (
            {"endpoints": [{"uri": "https://a", "priority": 1 << 53}]},
            "content: an integer is above 2^53 - 1",
        ),
        ({"protocols": ["https"] * 11}, "content.protocols: expected a list of 0 to 10"),
        ({"protocols": "https"}, "content.protocols: expected a list of 0 to 10"),
        ({"protocols": [1]}, "content.protocols[0]: expected a string of 1 to 64 characters"),
        ({"protocols": ["a" * 65]}, "content.protocols[0]: expected a string of 1 to 64 characters"),
        ({"enc_v": "2"}, "content.enc_v: expected a version of the protocol"),
        ({"enc_v": 0}, "content.enc_v: expected a version of the protocol"),
        ({"enc_v": True}, "content.enc_v: expected a version of the protocol"),
        ({"seq_pub": NO_POINT}, f"content.seq_pub: {NO_KEY}"),
        ({"seq_pub": "00"}, "content.seq_pub: expected 64 lower-case hex characters"),
    ],
)
def test_limits_of_a_node(registry: Registry, changes: Json, message: str) -> None:
    assert refusal_of(registry, "Reg_Node", {**node_entry("alice"), **changes}) == message


@pytest.mark.parametrize(
    "changes",
    [
        {"endpoints": MANY[:10]},
        {"endpoints": [{"uri": f"https://{'a' * 2040}"}]},
        {"endpoints": [{"uri": "wss://[::1]:8443/x?y"}], "protocols": ["a" * 64] * 10},
        {"endpoints": [{"uri": "https://a", "priority": (1 << 53) - 1}], "protocols": ["a"]},
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
NO_ENCLAVES = "content.enclaves: expected an object of at most 256 entries"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"enclaves": {f"e{i}": ID for i in range(257)}},
            "content.enclaves: expected an object of at most 256 entries",
        ),
        ({"enclaves": {"e" * 65: ID}}, "content.enclaves: a label: expected a string of 1 to 64 characters"),
        ({"enclaves": {"": ID}}, "content.enclaves: a label: expected a string of 1 to 64 characters"),
        ({"enclaves": {"dm": "AB" * 32}}, "content.enclaves.dm: expected 64 lower-case hex characters"),
        ({"enclaves": []}, NO_ENCLAVES),
        ({"id_pub": NO_POINT}, f"content.id_pub: {NO_KEY}"),
        ({"sub_pub": NO_POINT}, f"content.sub_pub: {NO_KEY}"),
        ({"sub_pub": None}, "content.sub_pub: expected 64 lower-case hex characters"),
    ],
)
def test_limits_of_an_identity(registry: Registry, changes: Json, message: str) -> None:
    assert refusal_of(registry, "Reg_Identity", {**identity_entry("alice"), **changes}) == message


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
        ({"manifest_event": None}, "manifest_event: expected `object`, got `null`"),
        ({"sequencer": NO_POINT}, f"content.sequencer: {NO_KEY}"),
        ({"owner_proof": {}}, "owner_proof: object missing required field `sth`"),
        ({"owner_proof": []}, "owner_proof: expected `object`, got `array`"),
        ({"migrate_events": []}, "migrate_events: expected a list of 1 to 16"),
        ({"migrate_events": {}}, "migrate_events: expected a list of 1 to 16"),
        ({"migrate_events": {"hash": "00"}}, "migrate_events: expected a list of 1 to 16"),
        ({"migrate_events": [{}]}, "migrate_events[0]: object missing required field `hash`"),
        ({"migrate_event": []}, "migrate_event: expected `object`, got `array`"),
        (
            {"migrate_event": {}, "migrate_events": []},
            "migrate_event: conflicts with migrate_events: expected one chain",
        ),
    ],
)
def test_limits_of_an_enclave_s_entry(registry: Registry, house: House, changes: Json, message: str) -> None:
    assert refusal_of(registry, "Reg_Enclave", {**house.entry(), **changes}) == message


def test_a_chain_stands_in_one_place(registry: Registry, house: House) -> None:
    proof, link = wire_owner_proof(house.proof("alice")), wire_event(house.move_to("node2"))
    content = {**house.entry(), "migrate_event": link, "owner_proof": {**proof, "migrate_event": link}}
    message = "owner_proof.migrate_event: conflicts with migrate_event: expected one chain"
    assert refusal_of(registry, "Reg_Enclave", content) == message


def test_an_enclave_s_entry_at_its_limits(registry: Registry, house: House) -> None:
    registry.register("alice", house, app="a")
    meta = {"a": "b" * (MAX_META - 8)}
    registry.register("alice", house, app="a" * 64, desc="d" * 1024, meta=meta)
    assert registry.of(house).app == "a" * 64


def test_a_chain_and_all_passages_have_limits(registry: Registry, house: House) -> None:
    link, proof = house.move_to("node2"), house.proof("alice", node="node")
    assert "expected a list of 1 to 16" in registry.refusal("alice", house, links=[link] * 17)
    assert "expected a list" not in registry.refusal("alice", house, links=[link] * 16)
    half, more = (replace(proof, passage=(link,) * count) for count in (8, 9))
    refusal = registry.refusal("alice", house, links=[Link(link, half)], owner_proof=more)
    assert refusal == "INVALID_COMMIT passage: over 16 events in all"
    refusal = registry.refusal("alice", house, links=[Link(link, half)], owner_proof=half)
    assert refusal.startswith("REGISTRY_CONFLICT migrate_events[0].owner_proof.")


def test_a_manifest_has_a_limit(registry: Registry) -> None:
    large = House({**TEAM, "padding": "x" * (256 << 10)})
    refusal = registry.refusal("alice", large)
    assert refusal == "INVALID_COMMIT manifest_event.content: over 262144 bytes"
    padding = (256 << 10) - len(compact_json({**TEAM, "padding": ""}))
    registry.register("alice", House({**TEAM, "padding": "x" * padding}))


def test_a_manifest_is_registered_with_its_content(registry: Registry, house: House) -> None:
    content = {**house.entry(), "manifest_event": wire_event(erase(house.manifest))}
    message = "manifest_event: expected a Manifest with its content"
    assert refusal_of(registry, "Reg_Enclave", content) == message


def test_what_the_builders_of_entries_write(house: House) -> None:
    alice, bob, dm = person("alice").public, person("bob").public, bytes(32)
    assert wire_node(alice, ["https://a", "https://b"], protocols=["wss"]) == {
        "seq_pub": alice.hex(),
        "endpoints": [{"uri": "https://a", "priority": 1}, {"uri": "https://b", "priority": 2}],
        "protocols": ["wss"],
        "enc_v": 2,
    }
    identity = {"id_pub": alice.hex(), "enclaves": {"dm": dm.hex()}}
    assert wire_identity(alice, {"dm": dm}) == identity
    assert wire_identity(alice, {"dm": dm}, bob) == {**identity, "sub_pub": bob.hex()}
    assert wire_enclave(house.manifest) == {"manifest_event": wire_event(house.manifest)}


def test_an_entry_without_optional_fields(registry: Registry, house: House) -> None:
    entry = parse_enclave(registry.commit("alice", "Reg_Enclave", house.entry()))
    assert entry == EnclaveEntry(house.manifest, None, (), None, "", "", {})
    assert entry == EnclaveEntry(house.manifest)
    assert (entry.declared_sequencer, entry.text) == (person("node").public, "")


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
        ("sig", "the Schnorr signature is invalid"),
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
    assert error.message == "manifest_event: enclave: not the id of the enclave that this Manifest creates"


def test_a_manifest_that_no_node_would_take_is_refused(registry: Registry) -> None:
    content = compact_json({"enc_v": 2, "init": []})
    event = finalize(build_manifest(person("alice"), content, START + LIFETIME), person("node"), START, 0)
    error = registry.refused("alice", "Reg_Enclave", wire_enclave(event))
    assert (error.code, error.message) == ("INVALID_COMMIT", "manifest_event: init: must name at least one identity")


def test_the_log_of_an_enclave_is_the_same_for_good(registry: Registry, house: House) -> None:
    """Two nodes may have accepted one Manifest; the first one registered wins, even after its entry is deleted."""
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
    assert (record.moved_at, record.moved_time, record.proved_at, record.proved_root) == (-1, 0, 0, b"")
    second = registry.register("alice", house, app="chat")
    assert registry.status(first) == second.id
    assert registry.of(house).app == "chat"


def test_a_new_owner_registers_with_a_proof(registry: Registry, house: House) -> None:
    first = registry.register("alice", house)
    sold(house)
    missing = "UNAUTHORIZED neither by the entry's holder nor with an owner proof"
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
    assert registry.of(house).proved_size == 0


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
        "UNAUTHORIZED neither by the entry's"
    )
    registry.register("bob", house, sequencer=person("node2").public)
    assert registry.of(house).proved_size == before.proved_size


def test_an_owner_may_be_the_first_to_register(registry: Registry, house: House) -> None:
    sold(house)
    registry.register("bob", house, owner_proof=house.proof("bob"))
    assert registry.holder(house) == "bob"


def test_a_holder_may_prove_what_it_is_and_so_outdate_older_proofs(registry: Registry, house: House) -> None:
    """Alice sold to Bob, who never registered, and has the enclave back: Bob's old head is useless now."""
    sold(house)
    old = house.proof("bob")
    house.transfer("bob", "alice")
    registry.register("alice", house, owner_proof=house.proof("alice", passage=()))
    assert registry.of(house).proved_size == house.state.log.size
    assert registry.refusal("bob", house, owner_proof=old).startswith("UNAUTHORIZED owner_proof.sth.ts: must be above")
