"""Owner proofs: each step broken alone, takeovers, passages, building and parsing."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.errors import InvalidCommit
from enc.core.log.commit import build_commit
from enc.core.log.event import finalize, wire_event
from enc.core.machine.enclave import apply
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Event
from enc.core.registry.migrate_chain import Link, wire_link
from enc.core.registry.owner_proof import (
    build_owner_proof,
    find_passage,
    parse_owner_proof,
    wire_owner_proof,
)
from enc.core.registry.reg_entry import EnclaveEntry, parse_enclave, parse_node, wire_enclave
from enc.core.rules.policy_types import Effects
from enc.core.trees.state_key import identity_key
from tests.core.registry.entries_house import flipped, sold
from tests.core.registry_world import BY_STATE, TEAM, House, Registry, node_entry
from tests.core.world import LIFETIME, NODES, START, Json, World, give, init, move, path, person, pub
from tests.core.world_v1 import EXAMPLE, initial, manifest

# Each step of an owner proof, broken alone


def broken(change: Callable[[Json], Any]) -> Callable[[Json], None]:
    def work(content: Json) -> None:
        change(content["owner_proof"])

    return work


class Sale:
    """A scene: Alice has sold to Bob, and Bob's proof is valid."""

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
    "no passage": (
        set_to("passage", to=lambda p: []),
        "passage: does not start at the holder, nor at an owner of that time",
    ),
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
    """Carol has a trait, but another one: the manifest determines the bit. Somebody without traits has no leaf."""
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
    """By the documents alone, anyone with a node could take over any entry: Mallory's node signs whatever she likes."""
    registry.register("alice", house)
    content = house.migrate("node3")
    commit = build_commit(person("mallory"), house.state.enclave, "Migrate", compact_json(content), START + LIFETIME)
    forged = finalize(commit, person("node3"), START + 1, house.state.seq + 1)
    refusal = registry.refusal("mallory", house, links=[forged])
    assert refusal == "REGISTRY_CONFLICT migrate_events[0]: neither by the holder nor with an owner proof of its author"
    as_alice = replace(forged, from_=person("alice").public)
    refusal = registry.refusal("mallory", house, links=[as_alice])
    assert refusal.startswith("REGISTRY_CONFLICT migrate_events[0]: hash: not the hash")


def test_a_true_migrate_in_a_stranger_s_hands(registry: Registry, house: House) -> None:
    moved = house.move_to("node2")
    refusal = registry.refusal("mallory", house, links=[moved])
    assert refusal == "REGISTRY_CONFLICT neither by the entry's holder nor with an owner proof"


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
    assert registry.refusal("alice", house).startswith("UNAUTHORIZED neither by the entry's holder")
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
    """Alice was the owner at leaf 0, and the newest head still proves that leaf, though it is outdated."""
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
    """The node makes Mallory an owner in its state, with a Transfer that only she has signed."""
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
    """Both are owners now; but Alice made Bob an owner, and a hostile node Mallory."""
    given_to_bob = house.send("alice", "Grant", give("bob", "owner"))
    given_on = house.send("bob", "Grant", give("mallory", "owner"))
    house.settle()
    proof = house.proof("mallory", passage=(given_to_bob,))
    assert registry.refusal("mallory", house, owner_proof=proof).endswith("passage: does not lead to the claimant")
    registry.register("mallory", house, owner_proof=house.proof("mallory", passage=(given_to_bob, given_on)))


class Returned:
    """Alice gave the enclave to Bob, and he gave it back. Later its node claims that he is the owner."""

    def __init__(self, *nodes: str) -> None:
        self.registry, self.house = Registry(), House(TEAM)
        self.house.talk(4)
        self.given = self.house.transfer("alice", "bob")
        self.house.transfer("bob", "alice")
        links = [self.house.move_to(node) for node in nodes]
        self.registry.register("alice", self.house, links=links, owner_proof=self.house.proof("alice", passage=()))

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
    assert sale.refusal(sale.given) == "UNAUTHORIZED owner_proof.passage[0]: timestamp: from before what was proved"
    assert sale.registry.holder(sale.house) == "alice"


def test_an_old_passage_from_before_the_holder_moved_the_enclave() -> None:
    sale = Returned("node2", "node")
    assert sale.refusal(sale.given) == "UNAUTHORIZED owner_proof.passage[0]: timestamp: from before what was proved"


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


def test_events_of_one_millisecond_are_in_order(registry: Registry, house: House) -> None:
    """Of each other, and of the head that was proved before them."""
    now = house.state.min_timestamp - START
    house.send("alice", "Grant", give("bob", "owner"), at=now)
    house.send("bob", "Grant", give("carol", "owner"), at=now)
    house.talk()
    proof = house.proof("carol")
    assert [event.timestamp for event in proof.passage] == [START + now] * 2
    registry.register("carol", house, owner_proof=proof)
    now = registry.of(house).proved_at - START
    house.send("carol", "Transfer", give("dave", "owner"), at=now)
    house.talk()
    registry.register("dave", house, owner_proof=house.proof("dave", holder="carol"))
    assert registry.holder(house) == "dave"


def test_a_start_shows_nothing_before_the_first_proof(registry: Registry, house: House) -> None:
    """No root is known that could fix who was an owner then."""
    sold(house)
    proof = replace(house.proof("bob"), passage=(), start=house.start("bob", house.state.log.size))
    refusal = registry.refusal("bob", house, owner_proof=proof)
    assert refusal == "UNAUTHORIZED owner_proof.passage: does not start at the holder, nor at an owner of that time"


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


def test_the_manifest_names_the_owners_until_a_proof_fixes_them(registry: Registry) -> None:
    """After a proof, an owner whom the Manifest names shows that he is one still."""
    house = House({**TEAM, "init": init(alice="OUTSIDER owner", bob="OUTSIDER owner")})
    house.transfer("alice", "carol")
    registry.register("carol", house, owner_proof=house.proof("carol"))
    size = house.state.log.size
    house.talk()
    bobs = house.proof("bob", passage=())
    refusal = registry.refusal("bob", house, owner_proof=bobs)
    assert refusal == "UNAUTHORIZED owner_proof.passage: does not start at the holder, nor at an owner of that time"
    registry.register("bob", house, owner_proof=replace(bobs, start=house.start("bob", size)))


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
    """Judged by the event alone: one that transfers no ownership, or grants another right, makes nobody an owner."""
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


@pytest.mark.parametrize("field", ["events_root", "state_hash"])
def test_a_malformed_field_is_named(house: House, field: str) -> None:
    wire = wire_owner_proof(house.proof("alice"))
    with pytest.raises(InvalidCommit, match=f"^owner_proof: {field}: expected 64 lower-case hex"):
        parse_owner_proof({**wire, field: "zz"}, "owner_proof")


def test_a_proof_is_not_built_from_half_an_answer(house: House) -> None:
    state, origin, inclusion = house.answers("alice")
    for name in ("sth", "inclusion", "state_hash", "k", "s"):
        with pytest.raises(InvalidCommit, match=r"^the node's answers: "):
            build_owner_proof({key: value for key, value in state.items() if key != name}, origin, inclusion)
    with pytest.raises(InvalidCommit, match=r"^the node's answers: "):
        build_owner_proof(state, {}, inclusion)
    with pytest.raises(InvalidCommit, match=r"^the node's answers: "):
        build_owner_proof(state, origin, {})
