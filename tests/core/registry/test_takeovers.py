"""Takeovers of an entry with old evidence, which are refused, and recoveries, which are accepted."""

from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.log.commit import SKEW_MS, build_commit
from enc.core.log.event import finalize
from enc.core.machine.enclave import apply
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Ownership
from enc.core.registry.migrate_chain import Link
from enc.core.registry.owner_proof import OwnerProof, parse_owner_proof, wire_owner_proof
from enc.core.registry.ownership import MAX_FORCED, KnownOwnership
from enc.core.rules.policy_types import Effects
from enc.core.trees.state_key import identity_key
from enc.core.trees.tree_head import sign_head
from tests.core.registry.entries_house import flipped
from tests.core.registry.thief import VERSIONS, forced, pass_on, put_out, shared
from tests.core.registry_world import TEAM, House, Registry
from tests.core.world import LIFETIME, START, Json, move, person

NOT_LATER = "not later than what was submitted before"
NO_START = "passage: does not start at the holder, nor at an owner of that time"


def own(house: House, name: str = "alice", start: int | None = None) -> OwnerProof:
    """Return a proof without a passage; it starts at the claimant, after `start` bundles."""
    proof = house.proof(name, passage=())
    return proof if start is None else replace(proof, start=house.start(name, start))


@pytest.fixture(params=sorted(VERSIONS))
def sold(request: pytest.FixtureRequest) -> House:
    """Return alice's enclave, in either version."""
    return House(VERSIONS[request.param])


def test_an_entry_without_links_forgets_nothing(registry: Registry, sold: House) -> None:
    """It went to node2, belonged to bob there for a while, and came back; bob brings what he kept."""
    gone = sold.move_to("node2")
    given = pass_on(sold, "alice", "bob")
    bobs = sold.proof("bob", passage=(given,))
    pass_on(sold, "bob", "alice")
    registry.register("alice", sold, links=[gone, sold.move_to("node")])
    before = registry.of(sold)
    attack: dict[str, Any] = {"links": [gone], "owner_proof": bobs}
    refusal = registry.refusal("bob", sold, **attack)
    assert refusal == f"REGISTRY_CONFLICT migrate_events[0]: {NOT_LATER}"
    entry = registry.register("alice", sold, sequencer=person("node").public, desc="new text")
    assert registry.of(sold) == replace(before, entry=entry.id, text="new text")
    assert registry.refusal("bob", sold, **attack) == refusal
    assert registry.refusal("alice", sold, links=[gone]) == refusal  # nor does the holder go back by accident


def test_a_migrate_from_before_the_latest_proof(registry: Registry, sold: House) -> None:
    """The registry has never heard of the moves; but it knows the owner as of a later time."""
    gone = sold.move_to("node2")
    sold.talk()
    sold.move_to("node")
    sold.talk()
    registry.register("alice", sold, owner_proof=own(sold))
    refusal = registry.refusal("alice", sold, links=[gone])
    assert refusal == f"REGISTRY_CONFLICT migrate_events[0]: {NOT_LATER}"


def test_the_holder_s_proof_outdates_every_older_head(registry: Registry, sold: House) -> None:
    given = pass_on(sold, "alice", "bob")
    bobs = sold.proof("bob", passage=(given,))
    pass_on(sold, "bob", "alice")
    registry.register("alice", sold, owner_proof=own(sold))
    assert registry.refusal("bob", sold, owner_proof=bobs).startswith("UNAUTHORIZED owner_proof.sth.ts: must be above")


def test_the_owner_gets_the_entry_back_from_a_former_owner(registry: Registry, sold: House) -> None:
    """Bob, a former owner, is faster: nothing newer is registered. Then nothing that he has counts."""
    registry.register("alice", sold)
    given = pass_on(sold, "alice", "bob")
    bobs = sold.proof("bob", passage=(given,))
    back = pass_on(sold, "bob", "alice")
    registry.register("bob", sold, owner_proof=bobs)
    assert registry.refusal("alice", sold).startswith("UNAUTHORIZED neither by")
    registry.register("alice", sold, owner_proof=sold.proof("alice", passage=(back,)))
    assert registry.holder(sold) == "alice"
    assert registry.refusal("bob", sold, owner_proof=bobs).startswith("UNAUTHORIZED owner_proof.sth.ts: must be above")


def test_a_co_owner_gets_the_entry_back_though_no_event_leads_from_the_thief(registry: Registry) -> None:
    house = shared()
    bobs, size = house.proof("bob"), house.state.log.size
    put_out(house)
    registry.register("alice", house)
    registry.register("bob", house, owner_proof=bobs)
    assert registry.refusal("alice", house, owner_proof=own(house)).endswith(NO_START)
    registry.register("alice", house, owner_proof=own(house, start=size))
    assert registry.holder(house) == "alice"
    assert registry.refusal("bob", house, owner_proof=bobs).startswith("UNAUTHORIZED owner_proof.sth.ts: must be above")


def test_an_heir_of_a_co_owner_gets_the_entry_back(registry: Registry) -> None:
    """The start is the author of the first event, not the claimant."""
    house = shared()
    bobs, size = house.proof("bob"), house.state.log.size
    put_out(house)
    heir = house.send("alice", "Move", move("carol", "OUTSIDER", "OWNER"))
    put_out(house, "alice", by="carol")
    registry.register("bob", house, owner_proof=bobs)
    proof = replace(house.proof("carol", passage=(heir,)), start=house.start("alice", size))
    registry.register("carol", house, owner_proof=proof)
    assert registry.holder(house) == "carol"


def broken(proof: OwnerProof, *path: str, to: Any) -> OwnerProof:
    wire = wire_owner_proof(proof)
    part = wire["start"]
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = to(part[path[-1]])
    return parse_owner_proof(wire, "owner_proof")


def test_each_step_of_a_start(registry: Registry) -> None:
    house = shared()
    size, bobs = house.state.log.size, house.proof("bob")
    put_out(house)
    registry.register("bob", house, owner_proof=bobs)
    house.talk(1)
    good = own(house, start=size)
    wrong = {
        "start.smt_proof.k: the key of another identity": replace(good, start=house.start("bob", size)),
        "start.ct_proof.li: not the last leaf": broken(good, "ct_proof", "li", to=lambda li: li - 1),
        "start: inclusion: the path leads to another root": replace(good, start=house.start("alice", size - 1)),
        "start: state: the path leads to another root": broken(good, "smt_proof", "v", to=flipped),
    }
    for message, proof in wrong.items():
        refusal = registry.refusal("alice", house, owner_proof=proof)
        assert refusal.startswith(f"UNAUTHORIZED owner_proof.{message}")
    assert parse_owner_proof(wire_owner_proof(good), "owner_proof") == good
    registry.register("alice", house, owner_proof=good)


def test_who_was_no_owner_under_the_proved_root_starts_nowhere(registry: Registry, house: House) -> None:
    """A hostile sequencer makes mallory an owner; she was none under the root that alice has proved."""
    registry.register("alice", house, owner_proof=own(house))
    size = house.state.log.size
    commit = house.commit("mallory", "message", "mine")
    event = finalize(commit, person("node"), house.state.min_timestamp + 1, house.state.seq + 1)
    invented = Effects(writes={identity_key(person("mallory").public): (1 << 9).to_bytes(32, "big")})
    house._keep(event, apply(house.state, event, invented, house.memory))
    house.settle()
    refusal = registry.refusal("mallory", house, owner_proof=own(house, "mallory", start=size))
    assert refusal == "UNAUTHORIZED owner_proof.start: smt_proof.v: does not make an owner"
    refusal = registry.refusal("mallory", house, owner_proof=own(house, "mallory", start=house.state.log.size))
    assert refusal == "UNAUTHORIZED owner_proof.start: inclusion: the path leads to another root"


# A thief with a node of his own


class Stolen:
    """Bob, a former owner, takes the entry with an old head and moves it to his own node."""

    def __init__(self, *way: str) -> None:
        self.registry, self.house = Registry(), shared()
        self.size, self.old = self.house.state.log.size, self.house.proof("bob")
        put_out(self.house)
        self.registry.register("bob", self.house, owner_proof=self.old)
        self.registry.register("bob", self.house, links=[forced(self.house, "bob", node) for node in way])

    @property
    def sequencer(self) -> bytes:
        return self.registry.of(self.house).sequencer


def test_the_owner_takes_a_thief_s_forced_migrate_back() -> None:
    stolen = Stolen("evil")
    registry, house = stolen.registry, stolen.house
    assert (stolen.sequencer, registry.holder(house)) == (person("evil").public, "bob")
    alice = own(house, start=stolen.size)
    registry.register("alice", house, owner_proof=alice)
    assert (registry.holder(house), registry.sequencer(house)) == ("alice", "node")
    assert registry.of(house).forced_from == ()
    again = [Link(forced(house, "bob", "evil").event, stolen.old)]
    assert "owner_proof.sth.ts: must be above" in registry.refusal("bob", house, links=again)
    assert "neither by the holder" in registry.refusal("bob", house, links=[forced(house, "bob", "evil")])


def test_the_owner_takes_any_number_of_them_back_at_once() -> None:
    stolen = Stolen("evil")
    registry, house = stolen.registry, stolen.house
    for i, node in enumerate(("other", "evil", "other"), 1):
        registry.register("bob", house, links=[forced(house, "bob", node, at=house.next + i)])
    registry.register("alice", house, owner_proof=own(house, start=stolen.size))
    assert (registry.holder(house), registry.sequencer(house)) == ("alice", "node")


def led_back(house: House, at: int) -> Link:
    """Return a Migrate by which bob's node passes the enclave to the true one."""
    seq = house.state.seq + 5
    content = {"new_sequencer": person("node").public.hex(), "prev_seq": seq, "ct_root": "00" * 32}
    commit = build_commit(person("bob"), house.state.enclave, "Migrate", compact_json(content), START + at + LIFETIME)
    return Link(finalize(commit, person("evil"), START + at, seq + 1))


def test_a_thief_who_leads_the_entry_back_gains_nothing() -> None:
    """Bob's nodes date their Migrates as late as the registry allows, as often as it allows."""
    stolen = Stolen()
    registry, house = stolen.registry, stolen.house
    for _ in range(MAX_FORCED - 1):
        latest = registry.send("bob", "note", "").exp + SKEW_MS - START
        registry.register("bob", house, links=[forced(house, "bob", "evil", at=latest - 1), led_back(house, latest)])
    registry.register("bob", house, links=[forced(house, "bob", "evil", at=latest + 1)])
    house.talk(1)
    registry.register("alice", house, owner_proof=own(house, start=stolen.size))
    assert (registry.holder(house), registry.sequencer(house)) == ("alice", "node")
    assert registry.of(house).forced_from == ()


def test_a_head_from_before_a_return_does_not_count_after_a_proof() -> None:
    """Bob, an owner once more, has led his entry back; alice, who owns the enclave too, proves it."""
    stolen = Stolen("evil")
    registry, house = stolen.registry, stolen.house
    house.send("alice", "Move", move("bob", "OUTSIDER", "OWNER"))
    kept = own(house, "bob", start=stolen.size)
    put_out(house)
    back = house.next + 50
    registry.register("bob", house, links=[led_back(house, back)])
    house.send("alice", "message", "later", at=back)
    registry.register("alice", house, owner_proof=own(house, start=stolen.size))
    before = registry.of(house)
    assert before.forced_from != ()
    assert "owner_proof.sth.ts: must be above" in registry.refusal("bob", house, owner_proof=kept)
    assert registry.of(house) == before


def test_a_sequencer_that_was_left_by_force_and_continued_the_log_takes_nothing_back(
    registry: Registry, sold: House
) -> None:
    """It went to node2, by force to node3, to node2 again, and to node. Bob has a head of node2's second term."""
    links = [Link(sold.move_to("node2"))]
    for node, is_forced in (("node3", True), ("node2", False)):
        sold.talk()
        proof = sold.proof("alice", passage=())
        links.append(Link(sold.move_to(node, forced=is_forced), proof))
    given = pass_on(sold, "alice", "bob")
    bobs = sold.proof("bob", passage=(given,))
    pass_on(sold, "bob", "alice")
    registry.register("alice", sold, links=[*links, Link(sold.move_to("node"))])
    assert [left.sequencer for left in registry.of(sold).forced_from] == []
    refusal = registry.refusal("bob", sold, owner_proof=bobs, sequencer=person("node2").public)
    assert refusal == "UNAUTHORIZED owner_proof.sth: not signed by this sequencer"
    assert (registry.holder(sold), registry.sequencer(sold)) == ("alice", "node")


def test_a_head_is_not_from_the_future(registry: Registry, house: House) -> None:
    """Nothing that is true would be later, not even the owner's forced Migrate."""
    latest = registry.commit("alice", "note", "").exp + SKEW_MS
    honest = own(house)

    def dated(t: int) -> OwnerProof:
        head = honest.sth
        return replace(honest, sth=sign_head(person("node"), house.state.enclave, t, head.ts, head.r))

    refusal = registry.refusal("alice", house, owner_proof=dated(latest + 1))
    assert refusal == "UNAUTHORIZED owner_proof.sth.t: in the future"
    registry.register("alice", house, owner_proof=dated(latest))
    late = forced(house, "alice", "node2", at=latest - START)
    registry.register("alice", house, links=[late])


def test_the_owner_who_moved_meanwhile_brings_her_migrate_too() -> None:
    stolen = Stolen("evil")
    registry, house = stolen.registry, stolen.house
    before = own(house, start=stolen.size)
    moved = house.move_to("node2")
    house.talk(1)
    alone = registry.refusal("alice", house, links=[moved])
    assert alone == "REGISTRY_CONFLICT migrate_events[0]: finalised by neither the sequencer before it nor its own " + (
        "new_sequencer"
    )
    registry.register("alice", house, links=[Link(moved, before)], owner_proof=own(house))
    assert (registry.holder(house), registry.sequencer(house)) == ("alice", "node2")


def test_a_peaceful_migrate_is_not_taken_back(registry: Registry) -> None:
    """Bob, an owner until shortly after the move, has a head of the first node that was never registered."""
    house = shared()
    registry.register("alice", house, owner_proof=own(house))
    house.talk(1)
    bobs = house.proof("bob", passage=())
    registry.register("alice", house, links=[house.move_to("node2")])
    put_out(house)
    proof = replace(bobs, start=house.start("bob", registry.of(house).proved_size))
    refusal = registry.refusal("bob", house, owner_proof=proof)
    assert refusal == "UNAUTHORIZED owner_proof.sth: not signed by this sequencer"


def test_a_hostile_node_that_was_left_brings_no_former_owner_back(registry: Registry) -> None:
    """Alice moves by force, with a proof that she is the owner; bob had given the enclave back before."""
    house = House(TEAM)
    registry.register("alice", house)
    given = house.transfer("alice", "bob")
    house.transfer("bob", "alice")
    left, fork = own(house), house.state.log.size
    moved = house.move_to("node2", forced=True)
    registry.register("alice", house, links=[Link(moved, left)])
    fake = House(TEAM)
    fake.transfer("alice", "bob")
    fake.transfer("bob", "alice")
    event = finalize(
        fake.commit("bob", "message", "x"), person("node"), fake.state.min_timestamp + 1, fake.state.seq + 1
    )
    owns = Effects(writes={identity_key(person("bob").public): (1 << 9).to_bytes(32, "big")})
    fake._keep(event, apply(fake.state, event, owns, fake.memory))
    fake.talk(3)
    assert fake.root(fork) == house.root(fork)
    for proof in (
        fake.proof("bob", passage=()),
        fake.proof("bob", passage=(given,)),
        replace(fake.proof("bob", passage=()), start=fake.start("bob", fork)),
    ):
        assert registry.refusal("bob", house, owner_proof=proof).startswith("UNAUTHORIZED owner_proof.")
    assert (registry.holder(house), registry.sequencer(house)) == ("alice", "node2")


def test_owners_under_a_forced_migrate_s_root_count(registry: Registry) -> None:
    """Bob moves a common enclave by force and is put out there; alice was an owner at the fork."""
    house = shared()
    registry.register("bob", house, owner_proof=house.proof("bob"))
    size = house.state.log.size
    registry.register("bob", house, links=[Link(house.move_to("node2", by="bob", forced=True))])
    put_out(house)
    registry.register("alice", house, owner_proof=own(house, start=size), sequencer=person("node2").public)
    assert (registry.holder(house), registry.sequencer(house)) == ("alice", "node2")


def test_a_head_from_before_the_move_is_not_the_new_node_s_word(registry: Registry, sold: House) -> None:
    """The new node signs heads of all earlier sizes, with the times that they had."""
    given = pass_on(sold, "alice", "bob")
    bobs = sold.proof("bob", passage=(given,), node="node2")
    pass_on(sold, "bob", "alice")
    registry.register("alice", sold, links=[sold.move_to("node2")])
    refusal = registry.refusal("bob", sold, owner_proof=bobs)
    assert refusal.startswith("UNAUTHORIZED owner_proof.sth.t: must not be below ")


def test_a_migrate_is_not_from_the_future_nor_outside_its_own_time(registry: Registry, house: House) -> None:
    registry.register("alice", house)
    latest = registry.commit("alice", "note", "").exp + SKEW_MS - START
    future = forced(house, "alice", "node2", at=latest + 1)
    assert registry.refusal("alice", house, links=[future]).endswith("[0]: timestamp: in the future")
    late = replace(future, event=finalize(future.event, person("node2"), future.event.exp + SKEW_MS + 1, 3))
    assert registry.refusal("alice", house, links=[late]).endswith("[0]: timestamp: more than 60 s after exp")
    registry.register("alice", house, links=[forced(house, "alice", "node2", at=latest)])


def test_only_so_many_forced_migrates_are_on_record(registry: Registry, house: House) -> None:
    registry.register("alice", house)
    first, at = own(house), house.next
    for i in range(MAX_FORCED):
        link = forced(house, "alice", ("node2", "node3")[i % 2], at=at + i)
        registry.register("alice", house, links=[link])
    link = forced(house, "alice", "node2", at=at + MAX_FORCED)
    assert registry.refusal("alice", house, links=[link]) == (
        f"REGISTRY_CONFLICT migrate_events[0]: over {MAX_FORCED} forced Migrates on record"
    )
    registry.register("alice", house, owner_proof=first)
    assert registry.sequencer(house) == "node"


def test_a_start_that_is_malformed(registry: Registry, house: House) -> None:
    content: Json = house.entry(owner_proof=own(house, start=house.state.log.size))
    del content["owner_proof"]["start"]["smt_proof"]
    error = registry.refused("alice", "Reg_Enclave", content)
    assert (error.code, error.message.startswith("owner_proof: ")) == ("INVALID_COMMIT", True)


@pytest.mark.parametrize(
    ("ts", "t", "is_current"),
    [(5, 20, True), (6, 20, False), (6, 9, True), (6, 10, False), (6, 50, True), (5, 60, True)],
)
def test_to_which_term_of_a_sequencer_a_head_belongs(house: House, ts: int, t: int, is_current: bool) -> None:
    """Back since time 50, with a proof of size 5 and time 10: a head from between is of the earlier term."""
    node = person("node")
    before = Ownership(sequencer=node.public, holder=person("alice").public)
    known = replace(
        KnownOwnership.of(house.manifest, house.policy, None),
        forced_from=(before,),
        proved_size=5,
        proved_at=10,
        moved_time=50,
    )
    head = sign_head(node, house.state.enclave, t, ts, bytes(32))
    assert (known.signed(head) is known) == is_current
