"""A former owner who brings old evidence, and a node of his own."""

from enc.core.log.commit import build_commit
from enc.core.log.event import finalize
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Event
from enc.core.registry.migrate_chain import Link
from tests.core.registry_world import BY_STATE, TEAM, House
from tests.core.world import LIFETIME, START, move, person, pub
from tests.core.world_v1 import EXAMPLE, initial, manifest, row

V1 = {
    **manifest(
        [
            *EXAMPLE,
            row("Transfer_Owner", "Owner", "C"),
            row("message", "Any", "C"),
        ],
        initial(alice="Owner"),
    ),
    "bundle": {"size": 1, "timeout": 1000},
}
VERSIONS = {"version 1": V1, "version 2": TEAM}


def pass_on(house: House, from_: str, to: str) -> Event:
    """Transfer the ownership, in either version."""
    if house.policy.enc_v == 1:
        return house.send(from_, "Transfer_Owner", {"new_owner": pub(to)})
    return house.transfer(from_, to)


def forced(house: House, by: str, to: str, *, at: int | None = None, prev_seq: int | None = None) -> Link:
    """Return a Migrate that a node of the author's own finalised; the log does not have it."""
    at = house.next if at is None else at
    seq = house.state.seq if prev_seq is None else prev_seq
    content = {"new_sequencer": pub(to), "prev_seq": seq, "ct_root": "00" * 32}
    exp = START + at + LIFETIME
    commit = build_commit(
        person(by), house.state.enclave, "Migrate", compact_json(content), exp, enc_v=house.policy.enc_v
    )
    return Link(finalize(commit, person(to), START + at, seq + 1))


def shared() -> House:
    """Return an enclave of alice's, of which bob was an owner too for a while."""
    house = House(BY_STATE)
    house.send("alice", "Move", move("bob", "OUTSIDER", "OWNER"))
    return house


def put_out(house: House, name: str = "bob", by: str = "alice") -> None:
    house.send(by, "Move", move(name, "OWNER", "OUTSIDER"))
