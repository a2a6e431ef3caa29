"""A registry in memory, and enclaves elsewhere whose logs it never sees."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from enc.core.primitives.types import Event, KeyRecord
from enc.core.registry.migrate_chain import Link
from enc.core.registry.owner_proof import FormerOwner, OwnerProof, build_owner_proof, build_start, find_passage
from enc.core.registry.reg_entry import wire_enclave, wire_identity, wire_node
from enc.core.trees.bundle import prove_membership
from enc.core.trees.merkle_log import prove_inclusion, read_edge
from enc.core.trees.proof import wire_bundle_proof, wire_inclusion, wire_state_proof
from enc.core.trees.sparse_merkle import prove
from enc.core.trees.state_key import identity_key
from enc.core.trees.tree_head import sign_head, wire_head
from tests.core.world import COMMON, NODES, Json, World, give, init, path, person, rule

REGISTRY: Json = {
    "enc_v": 2,
    "registry": True,
    "RBAC": {
        "traits": ["owner(0)", "dataview(1)"],
        "readers": [{"type": "Public", "reads": "*"}],
        "lifecycle": [rule(event, "owner", "C") for event in ("Pause", "Resume", "Terminate")],
        "customs": [
            entry
            for type_ in ("Reg_Node", "Reg_Enclave", "Reg_Identity")
            for entry in (rule(type_, "Public", "C"), rule(type_, "Sender", "U D"), rule(type_, "dataview", "P"))
        ]
        + [rule("note", "Public", "C"), rule("note", "Sender", "U D")],
        "init": init(olga="OUTSIDER owner"),
    },
    "bundle": {"size": 4, "timeout": 1000},
}
"""A registry that olga owns, on the node `registry`."""

TEAM: Json = {
    **COMMON,
    "bundle": {"size": 2, "timeout": 1000},
    "traits": ["admin(1)", "owner(0)"],
    "grants": [{"event": "Grant", "operator": "owner", "scope": ["OUTSIDER"], "trait": ["owner", "admin"]}],
    "transfers": [{"trait": "owner", "scope": ["OUTSIDER"]}],
    "lifecycle": [rule(event, "owner", "C") for event in ("Pause", "Resume", "Terminate")],
    "customs": [rule("message", "Public", "C")],
    "init": init(alice="OUTSIDER owner"),
}
"""An enclave of alice's, whose owner is bit 9: that follows from the manifest, not from the
protocol."""

BY_STATE: Json = {
    **COMMON,
    "bundle": {"size": 1, "timeout": 1000},
    "states": ["OWNER"],
    "traits": ["admin(0)"],
    "moves": [path("OUTSIDER", "OWNER", "OWNER"), path("OWNER", "OUTSIDER", "OWNER")],
    "customs": [rule("message", "Public", "C")],
    "init": init(alice="OWNER"),
}
"""An enclave whose owner is the identity with a certain State."""


class House(World):
    """An enclave on a node, with the answers of its node."""

    def talk(self, events: int = 2) -> None:
        """Add events until a bundle closes."""
        for _ in range(events):
            self.send("bob", "message", "hello")

    def transfer(self, from_: str, to: str) -> Event:
        event = self.send(from_, "Transfer", give(to, "owner"))
        self.settle()
        return event

    def settle(self) -> None:
        """Close the open bundle, if there is one."""
        if self.state.bundle is not None:
            self.seal(self.state.bundle.deadline(self.policy.bundle) - self.events[0].timestamp)

    def move_to(self, node: str, by: str = "alice", forced: bool = False) -> Event:
        return self.send(by, "Migrate", self.migrate(node), node=node if forced else None, takeover=forced)

    @property
    def manifest(self) -> Event:
        return self.events[0]

    # Answers of a node

    def answers(
        self, name: str, size: int | None = None, *, node: str | None = None, leaf: int | None = None
    ) -> tuple[Json, Json, Json]:
        """Return State_Proof, Bundle_Proof and Inclusion_Proof, under the head of `size`
        bundles."""
        size = self.state.log.size if size is None else size
        leaf = size - 1 if leaf is None else leaf
        signer = person(node or NODES[self.state.sequencer])
        head = sign_head(signer, self.state.enclave, self.events[-1].timestamp, size, self.root(size))
        state_hash, sth = self.memory.bundles[leaf].state_hash, wire_head(head)
        proof = prove(self.memory, state_hash, identity_key(person(name).public))
        state = {**wire_state_proof(proof), "state_hash": state_hash.hex(), "sth": sth}
        first = self.memory.bundles[0]
        ids = [event.id for event in self.events[: first.count]]
        bundle = {**wire_bundle_proof(prove_membership(ids, 0)), "events_root": first.events_root.hex(), "sth": sth}
        return {**state, "inclusion": self.inclusion(leaf, size)}, bundle, {**self.inclusion(0, size), "sth": sth}

    def root(self, size: int) -> bytes:
        return read_edge(self.memory, size).root()

    def inclusion(self, leaf: int, size: int) -> Json:
        bundle = self.memory.bundles[leaf]
        proof = wire_inclusion(prove_inclusion(self.memory, leaf, size))
        return {**proof, "events_root": bundle.events_root.hex(), "state_hash": bundle.state_hash.hex()}

    def proof(
        self, name: str, holder: str = "alice", passage: Sequence[Event] | None = None, **more: Any
    ) -> OwnerProof:
        """Return the owner proof that `name` would submit to a registry where `holder` is the
        holder."""
        if passage is None:
            passage = find_passage(self.policy, self.events, person(holder).public, person(name).public) or ()
        return build_owner_proof(*self.answers(name, **more), passage)

    def start(self, name: str, size: int) -> FormerOwner:
        """Return what shows the value of `name` under the root of `size` bundles."""
        return build_start(self.answers(name, size)[0])

    def entry(self, **more: Any) -> Json:
        """Return the content of a Reg_Enclave; `links` may be events."""
        links = [each if isinstance(each, Link) else Link(each) for each in more.pop("links", ())]
        return wire_enclave(self.manifest, links=links, **more)


class Registry(World):
    def __init__(self, **changes: Any) -> None:
        super().__init__({**REGISTRY, **changes}, by="olga")

    def register(self, name: str, house: House, **more: Any) -> Event:
        return self.send(name, "Reg_Enclave", house.entry(**more))

    def refusal(self, name: str, house: House, *changes: Callable[[Json], None], **more: Any) -> str:
        """Return code and message of a rejected registration; `changes` tamper with the content
        before it is signed."""
        content = house.entry(**more)
        for change in changes:
            change(content)
        error = self.refused(name, "Reg_Enclave", content)
        return f"{error.code} {error.message}"

    def of(self, house: House) -> KeyRecord:
        record = self.memory.record("enclave", house.state.enclave)
        assert record is not None
        return record

    def holder(self, house: House) -> str:
        return name_of(self.of(house).holder)

    def sequencer(self, house: House) -> str:
        return NODES[self.of(house).sequencer]


def name_of(key: bytes) -> str:
    return next(name for name in ("alice", "bob", "carol", "dave", "mallory", "olga") if person(name).public == key)


def node_entry(name: str, *uris: str, **more: Any) -> Json:
    return {**wire_node(person(name).public, uris or ("https://node.example:443",)), **more}


def identity_entry(name: str, enclaves: Iterable[tuple[str, bytes]] = (), **more: Any) -> Json:
    return {**wire_identity(person(name).public, dict(enclaves)), **more}
