"""Honest enclaves of every form: what each of their nodes signed, all of it by the rules.

A scene has one enclave or several lines of one: a node that goes on after a forced move that it
does not know of, and a second node on which the same Manifest created another log.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from msgspec import Struct, field

from enc.apps.group.manifest import RULES
from enc.core.errors import EncError
from enc.core.machine.claim import Claim
from enc.core.machine.enclave import apply
from enc.core.machine.state import Transition
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.types import ConsistencyProof, Event, TreeHead
from enc.core.trees.bundle import prove_membership
from enc.core.trees.cosigning import CosignedHead, cosign
from enc.core.trees.merkle_log import Edge, prove_consistency, prove_inclusion
from enc.core.trees.proof import LogLeaf
from enc.core.trees.tree_head import sign_head
from tests.core.registry_world import REGISTRY, House, identity_entry, node_entry
from tests.core.registry_world import TEAM as HOUSE
from tests.core.world import GROUP, NODES, Json, World, about, give, init, move, person, rule
from tests.core.world_v1 import EXAMPLE, has, initial, manifest, row
from tests.core.world_v1 import REGISTRY as REGISTRY_V1

SMALL = {"size": 4, "timeout": 40}
TEAM: Json = {**GROUP, "bundle": SMALL}
ENTRIES: Json = {**REGISTRY, "bundle": SMALL}
ENTRIES["RBAC"] = {
    **REGISTRY["RBAC"],
    "lifecycle": [rule(event, "owner", "C") for event in ("Pause", "Resume", "Terminate", "Migrate")],
}
CIRCLE: Json = {**RULES, "init": init(alice="MEMBER owner admin"), "bundle": SMALL}
"""A group, as the app creates it."""
ENTRIES_V1: Json = {
    "registry": True,
    **manifest([*REGISTRY_V1, row("note", "Any", "C")], initial(olga="Owner"), bundle=SMALL),
}
FIRST: Json = manifest(EXAMPLE, initial(alice="Owner", bob="Admin Member"), bundle=SMALL)


class SignedHead(Struct, frozen=True):
    """A head, and by whom it is said to be."""

    key: bytes
    head: TreeHead


class Scene(Struct):
    """Everything that honest nodes signed for one enclave."""

    enclave: bytes
    enc_v: int
    lines: list[list[Event]] = field(default_factory=list)
    heads: list[SignedHead] = field(default_factory=list)
    claims: list[tuple[Claim, SignedHead]] = field(default_factory=list)
    consistency: list[ConsistencyProof] = field(default_factory=list)
    cosigned: list[CosignedHead] = field(default_factory=list)
    """What a witness has signed, who has seen the heads of one line."""


class Line(World):
    """One log of an enclave, which remembers when each bundle closed."""

    closed_at: list[int]

    def _keep(self, event: Event | None, transition: Transition) -> None:
        times = self.__dict__.setdefault("closed_at", [])
        super()._keep(event, transition)
        times += [event.timestamp if event else transition.state.min_timestamp] * len(transition.closed)

    def try_send(self, *what: Any, **more: Any) -> Event | None:
        """Do what an honest node does with any commit: reject it, or finalise it."""
        try:
            return self.send(*what, **more)
        except EncError:
            return None

    def heads(self, node: str) -> list[SignedHead]:
        """Return the head of every size, as `node` signs it."""
        edge, found = Edge(), list[SignedHead]()
        for size, (bundle, time) in enumerate(zip(self.memory.bundles, self.closed_at, strict=True), 1):
            edge = edge.with_leaf(log_leaf(bundle.events_root, bundle.state_hash))
            head = sign_head(person(node), self.state.enclave, time, size, edge.root())
            found.append(SignedHead(person(node).public, head))
        return found

    def claim(self, index: int, at: int, over: SignedHead) -> tuple[Claim, SignedHead]:
        """Return a node's proof of event number `at` of a bundle, under one of its heads."""
        bundle = self.memory.bundles[index]
        ids = [event.id for event in self.events[bundle.first_seq : bundle.first_seq + bundle.count]]
        proof = Claim(
            seq=bundle.first_seq + at,
            membership=prove_membership(ids, at),
            leaf=LogLeaf(bundle.events_root, bundle.state_hash),
            inclusion=prove_inclusion(self.memory, index, over.head.ts),
        )
        return proof, over


# What people do in them


def _group(world: Line, rng: Random) -> None:
    messages = [event for event in world.events if event.type == "message"]
    who, other = rng.choice(["alice", "bob", "carol"]), rng.choice(["bob", "carol", "dave"])
    state = rng.choice([("OUTSIDER", "MEMBER"), ("MEMBER", "OUTSIDER"), ("OUTSIDER", "PENDING"), ("MEMBER", "BLOCKED")])
    acts: list[tuple[Any, ...]] = [
        (who, "message", f"hello {rng.random()}"),
        ("alice", "Move", move(other, *state)),
        ("alice", "Grant", give(other, rng.choice(["admin", "muted"]))),
        ("alice", "Shared", {"key": "topic", "value": rng.random()}),
        (who, "Own", {"key": "profile", "value": rng.choice([None, 1, 2])}),
        ("alice", "Gate", {"alias": "auto_join", "state": rng.choice(["open", "closed"])}),
        (other, "Move", move(other, "OUTSIDER", "MEMBER")),
        ("alice", rng.choice(["Pause", "Resume"])),
    ]
    if messages:
        target = about(rng.choice(messages))
        acts += [(who, "Update", "edited", target), (who, "Delete", {"reason": "author"}, target)]
    act = rng.choice(acts)
    world.try_send(*act[:3], **({"tags": act[3]} if len(act) == 4 else {}))


def _circle(world: Line, rng: Random) -> None:
    """Act in a group: its members, admins, gates, epochs, slots, reactions, and its owner."""
    who, other = rng.choice(["alice", "bob", "carol"]), rng.choice(["bob", "carol", "dave"])
    messages = [event for event in world.events if event.type in ("message", "reaction", "notice")]
    path = [("OUTSIDER", "MEMBER"), ("OUTSIDER", "PENDING"), ("PENDING", "MEMBER"), ("MEMBER", "BLOCKED")]
    acts: list[tuple[Any, ...]] = [
        ("alice", "Move", move(other, *rng.choice(path))),
        (other, "Move", move(other, *rng.choice([*path, ("MEMBER", "OUTSIDER")]))),
        ("alice", rng.choice(["Grant", "Revoke"]), give(other, rng.choice(["admin", "muted"]))),
        (
            "alice",
            "Gate",
            {"alias": rng.choice(["auto_join", "applications"]), "state": rng.choice(["open", "closed"])},
        ),
        (rng.choice(["alice", "bob"]), "rotate", {"n": rng.random()}),
        (who, "message", f"sealed {rng.random()}"),
        (who, "Own", {"key": "profile", "value": rng.choice([None, 1])}),
        ("alice", "Shared", {"key": "topic", "value": rng.random()}),
    ]
    if messages:
        target = about(rng.choice(messages))
        acts += [(who, "reaction", "+1", target), (who, "Update", "edited", target)]
        acts.append((who, "Delete", {"reason": rng.choice(["author", "moderator"])}, target))
    act = rng.choice(acts)
    world.try_send(*act[:3], **({"tags": act[3]} if len(act) == 4 else {}))
    if rng.random() < 0.1 and world.try_send("alice", "Transfer", give("bob", "owner")):
        world.send("bob", "Transfer", give("alice", "owner"))  # the scene's owner stays the same


def _registry(world: Line, rng: Random) -> None:
    who = rng.choice(["alice", "bob", "carol"])
    entries = [event for event in world.events if event.type.startswith("Reg_")]
    house = House({**HOUSE, "meta": {"n": rng.randrange(2)}})
    acts: list[tuple[Any, ...]] = [
        (who, "Reg_Node", node_entry(who, f"https://n{rng.randrange(9)}.example")),
        (who, "Reg_Identity", identity_entry(who)),
        (rng.choice(["alice", "bob"]), "Reg_Enclave", house.entry()),
        (who, "note", "words"),
    ]
    if entries:
        entry = rng.choice(entries)
        by = next(name for name in ("alice", "bob", "carol") if person(name).public == entry.from_)
        acts.append((by, "Delete", {"reason": "author"}, about(entry)))
    act = rng.choice(acts)
    world.try_send(*act[:3], **({"tags": act[3]} if len(act) == 4 else {}))


def _first(world: Line, rng: Random) -> None:
    messages = [event for event in world.events if event.type == "Chat_Message"]
    who, other = rng.choice(["bob", "carol"]), rng.choice(["carol", "dave"])
    acts: list[tuple[Any, ...]] = [
        (who, "Chat_Message", f"hello {rng.random()}"),
        ("bob", rng.choice(["Grant", "Revoke"]), has(other, "Member")),
        (other, "Revoke_Self", {"role": "Member"}),
    ]
    if messages:
        target = about(rng.choice(messages))
        acts += [(who, "Update", "edited", target), (who, "Delete", {"reason": "author"}, target)]
    act = rng.choice(acts)
    world.try_send(*act[:3], **({"tags": act[3]} if len(act) == 4 else {}))


Acting = Callable[[Line, Random], None]
FORMS: Sequence[tuple[Json, str, Acting]] = [
    (TEAM, "alice", _group),
    (ENTRIES, "olga", _registry),
    (FIRST, "alice", _first),
    (CIRCLE, "alice", _circle),
    (ENTRIES_V1, "olga", _registry),
]
MOVES = ("none", "peaceful", "forced", "there and back", "created twice", "copied")


def _go_on(world: Line, act: Acting, rng: Random, events: int) -> None:
    end = len(world.events) + events
    for _ in range(events * 8):
        act(world, rng)
        if rng.random() < 0.15:
            world.seal(world.next + rng.choice([0, 60]))
        if len(world.events) >= end:
            return


def _copy(world: Line, form: Json, by: str) -> Line:
    """Return the same log in another node's hands: replayed, event by event."""
    made = Line(form, by)
    for event in world.events[1:]:
        effects = made.judge(event, NODES[event.sequencer], takeover=True)
        made._keep(event, apply(made.state, event, effects, made.memory))
    return made


def scene(rng: Random, form: tuple[Json, str, Acting], moves: str) -> Scene:
    """Return an honest enclave, unlike any other, and what its nodes signed."""
    text, by, act = {**form[0], "meta": {"description": str(rng.random())}}, form[1], form[2]
    world = Line(text, by)
    found = Scene(world.state.enclave, world.policy.enc_v)
    if moves == "copied":
        return _copied(found, world, form=(text, by, act), rng=rng)
    _go_on(world, act, rng, rng.randrange(6, 14))
    lines: list[tuple[Line, list[str]]] = [(world, ["node"])]
    if moves in ("peaceful", "there and back"):
        old = _copy(world, text, by)
        world.send(by, "Migrate", world.migrate("node2"))
        found.heads += world.heads("node")
        world = _copy(world, text, by)
        lines = [(world, ["node2"])]
        _go_on(world, act, rng, rng.randrange(4, 9))
        assert old.events == world.events[: len(old.events)]
    if moves == "there and back":
        world.send(by, "Migrate", world.migrate("node"))
        found.heads += world.heads("node2")
        _go_on(world, act, rng, rng.randrange(3, 6))
        sizes = {each.head.ts for each in found.heads if each.key == person("node").public}
        found.heads += [each for each in world.heads("node") if each.head.ts not in sizes]
        lines = [(world, [])]
    if moves == "forced":
        copy = _copy(world, text, by)
        copy.send(by, "Migrate", copy.migrate("node2"), node="node2", takeover=True)
        _go_on(copy, act, rng, rng.randrange(4, 9))
        _go_on(world, act, rng, rng.randrange(1, 9))
        lines.append((copy, ["node2"]))
    if moves == "created twice":
        twin = Line(text, by, node="node3")
        _go_on(twin, act, rng, rng.randrange(4, 12))
        lines.append((twin, ["node3"]))
    for line, nodes in lines:
        _add_line(found, line, [head for node in nodes for head in line.heads(node)], rng)
    return found


def _copied(found: Scene, world: Line, form: tuple[Json, str, Acting], rng: Random) -> Scene:
    """Someone sends a copy of the Manifest to node2, whose clock closes its bundle; then the owner
    moves the enclave there, perhaps before anything else was written.
    """
    text, by, act = form
    copy = Line(text, by, node="node2")
    copy.seal(100)
    _add_line(found, copy, copy.heads("node2"), rng)
    _go_on(world, act, rng, rng.choice([0, 0, 2, 3]))
    found.lines.append(list(world.events))
    world.send(by, "Migrate", world.migrate("node2"), node="node2", takeover=True, at=max(world.next, 101))
    _go_on(world, act, rng, rng.randrange(4, 9))
    sealed = max(each.head.t for each in found.heads)
    heads = [each for each in world.heads("node2") if each.head.ts > 1 and each.head.t >= sealed]
    _add_line(found, world, heads, rng)
    return found


def _add_line(found: Scene, line: Line, heads: Sequence[SignedHead], rng: Random) -> None:
    found.lines.append(line.events)
    found.heads += heads
    _add_claims(found, line, rng)
    sizes = line.state.log.size
    if sizes > 1:
        found.consistency += [prove_consistency(line.memory, first, sizes) for first in {1, sizes - 1}]
    for each in heads if not found.cosigned else ():
        found.cosigned.append(cosign(person("witness"), found.enclave, each.key, each.head, each.head.t + 5))


def _add_claims(found: Scene, line: Line, rng: Random) -> None:
    roots = {(each.head.ts, each.head.r) for each in line.heads("node")}
    over = [each for each in found.heads if (each.head.ts, each.head.r) in roots]
    for _ in range(4 if over else 0):
        head = rng.choice(over)
        index = rng.randrange(head.head.ts)
        found.claims.append(line.claim(index, rng.randrange(line.memory.bundles[index].count), head))
