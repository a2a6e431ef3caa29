"""An old Migrate of an enclave that has come back does not move its entry again."""

from enc.core.log.event import finalize
from enc.core.machine.enclave import apply
from enc.core.rules.policy_types import Effects
from enc.core.trees.state_key import identity_key
from tests.core.registry_world import TEAM, House, Registry
from tests.core.world import START, person


def test_a_former_owner_with_an_old_migrate_and_a_former_node() -> None:
    """Alice's log went to node2 and came back; she gave it to bob and got it back; all of it is registered.

    Bob and node2 submit her old Migrate again, with her old Transfer and a head by node2.
    """
    registry, house = Registry(), House(TEAM)
    registry.register("alice", house)
    old = house.move_to("node2")
    house.talk()
    back = house.move_to("node")
    house.talk()
    registry.register("alice", house, links=[old, back])
    sale = house.transfer("alice", "bob")
    registry.register("bob", house, owner_proof=house.proof("bob"))
    house.transfer("bob", "alice")
    registry.register("alice", house, owner_proof=house.proof("alice", holder="bob"), sequencer=person("node").public)
    fake = House(TEAM)
    commit = fake.commit("bob", "message", "x")
    event = finalize(commit, person("node2"), START + 1, 1)
    owns = Effects(writes={identity_key(person("bob").public): (1 << 9).to_bytes(32, "big")})
    fake._keep(event, apply(fake.state, event, owns, fake.memory))
    while fake.state.log.size <= registry.of(house).proved_size:
        fake.talk()
    proof = fake.proof("bob", passage=[sale], node="node2")
    assert "REGISTRY_CONFLICT" in registry.refusal("bob", house, links=[old], owner_proof=proof)
    assert (registry.holder(house), registry.sequencer(house)) == ("alice", "node")


def test_the_holder_may_go_back_to_an_older_copy() -> None:
    """The seq of the forced Migrate is lower, its time is later."""
    registry, house = Registry(), House(TEAM)
    registry.register("alice", house)
    copy = House(TEAM)
    house.talk(4)
    moved = house.move_to("node2")
    registry.register("alice", house, links=[moved])
    copy.send("bob", "message", "later", at=house.next)
    back = copy.move_to("node3", forced=True)
    assert back.seq < moved.seq
    registry.register("alice", house, links=[back])
    assert registry.sequencer(house) == "node3"
