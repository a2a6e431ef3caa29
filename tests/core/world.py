"""A small world for tests: people with fixed keys, one enclave in memory, and a clock that only the
test advances."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from enc.core.errors import EncError
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import finalize, withhold
from enc.core.log.withheld import sign_withheld
from enc.core.machine.enclave import apply, apply_manifest, checkpoint_root, judge, judge_manifest, seal, state_hash
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.state import Transition, view
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import sha256
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Commit, Event, Tags
from enc.core.rules.policy_types import Effects, ReadScope
from enc.core.trees.state_key import LIFECYCLE_KEY, gate_slot, own_slot, shared_slot, status_key, tree_key
from enc.testing.clock import START
from tests.core.vectors import KEYS

Json = dict[str, Any]

LIFETIME = 60_000
NO_POINT = "ff" * 32
"""32 bytes in hex that are not the x-coordinate of a point."""


@cache
def person(name: str) -> PrivateKey:
    return KEYS.get(name) or PrivateKey(sha256(name.encode()))


def pub(name: str) -> str:
    return person(name).public.hex()


def withheld(event: Event, name: str = "node") -> Event:
    """Return the event without its content, with the signed statement of `name`."""
    return withhold(event, sign_withheld(person(name), event.enclave, event.id, "court_order", START))


NODES = {person(name).public: name for name in ("node", "node2", "node3")}


class World:
    """One enclave. `at` is in milliseconds after its Manifest; by default an event follows the last
    by one."""

    def __init__(self, manifest: Mapping[str, Any], by: str = "alice", node: str = "node") -> None:
        commit = build_manifest(person(by), compact_json(manifest), START + LIFETIME, enc_v=manifest["enc_v"])
        self.policy: Any
        self.policy, self.effects = judge_manifest(commit)
        self.memory, self.events = EnclaveMemory(), list[Event]()
        event = finalize(commit, person(node), START, 0)
        self._keep(event, apply_manifest(event, self.policy, self.effects))

    def _keep(self, event: Event | None, transition: Transition) -> None:
        self.state, self.step = transition.state, transition
        self.memory.put(event, transition)
        self.events += [event] if event else []

    # Acting

    @property
    def next(self) -> int:
        return self.state.min_timestamp - START + 1

    def commit(self, name: str, type_: str, content: Any = "", *, tags: Tags = (), at: int | None = None) -> Commit:
        """Build the commit that `name` would send; a content that is not a string is written as JSON."""
        text = content if isinstance(content, str) else compact_json(content)
        exp = START + (self.next if at is None else at) + LIFETIME
        return build_commit(person(name), self.state.enclave, type_, text, exp, tags, enc_v=self.policy.enc_v)

    def judge(self, commit: Commit, node: str | None = None, takeover: bool = False) -> Effects:
        sequencer = person(node).public if node else self.state.sequencer
        return judge(self.state, commit, self.memory, sequencer=sequencer, takeover=takeover)

    def send(self, *what: Any, at: int | None = None, node: str | None = None, takeover: bool = False, **more) -> Event:
        """send(name, type, content, tags=…): add an event, finalised by `node` or by the expected
        node."""
        at = self.next if at is None else at
        commit = self.commit(*what, at=at, **more)
        self.effects = self.judge(commit, node, takeover)
        sequencer = person(node or NODES[self.state.sequencer])
        event = finalize(commit, sequencer, START + at, self.state.seq + 1)
        self._keep(event, apply(self.state, event, self.effects, self.memory))
        return event

    def refused(self, *what: Any, node: str | None = None, takeover: bool = False, **more) -> EncError:
        """Return the error that the same call of `send` would raise."""
        with pytest.raises(EncError) as caught:
            self.judge(self.commit(*what, **more), node, takeover)
        return caught.value

    def code(self, *what: Any, **more) -> str:
        """Return the code of the error that `send` would raise, or "" if it would succeed."""
        try:
            self.judge(self.commit(*what, **more))
        except EncError as e:
            return e.code
        return ""

    def seal(self, at: int) -> Transition | None:
        transition = seal(self.state, START + at, self.memory)
        if transition:
            self._keep(None, transition)
        return transition

    def migrate(self, to: str, **wrong: Any) -> Json:
        """Return the content of a Migrate to the node `to`."""
        root = checkpoint_root(self.state, self.memory).hex()
        return {"new_sequencer": pub(to), "prev_seq": self.state.seq, "ct_root": root, **wrong}

    # Looking

    def leaf(self, key: bytes) -> bytes | None:
        return view(self.state, self.memory).leaf(key)

    def bitmask(self, name: str) -> int:
        return view(self.state, self.memory).bitmask(person(name).public)

    def status(self, event: Event) -> bytes | None:
        return self.leaf(status_key(event.id))

    def shared(self, key: str) -> bytes | None:
        return self.leaf(tree_key("kv", shared_slot(key)))

    def own(self, name: str, key: str) -> bytes | None:
        return self.leaf(tree_key("kv", own_slot(person(name).public, key)))

    def gate(self, alias: str) -> bytes | None:
        return self.leaf(tree_key("kv", gate_slot(alias)))

    @property
    def lifecycle_leaf(self) -> bytes | None:
        return self.leaf(LIFECYCLE_KEY)

    @property
    def state_hash(self) -> bytes:
        return state_hash(self.state, self.memory)

    def rights(self, name: str, event: Event, target: Event | None = None) -> str:
        """Return which of R, P and N `name` has on an event now; `target` is that of an Update or
        Delete."""
        subject = self.policy.subject(event, self.memory.target(target.id) if target else None)
        closed, is_author = self.state.closed_gates, event.from_ == person(name).public
        found = self.policy.rights(
            subject, self.bitmask(name), is_author=is_author, closed=closed, is_node=self.is_node(name)
        )
        return "".join(op for op in "RPN" if op in found)

    def scope(self, name: str) -> ReadScope:
        return self.policy.read_scope(self.bitmask(name), self.state.closed_gates, is_node=self.is_node(name))

    def is_node(self, name: str) -> bool:
        return person(name).public == self.state.sequencer


# Contents and entries, shorter than JSON


def move(target: str, from_: str, to: str, **more: Any) -> Json:
    return {"target": pub(target), "from": from_, "to": to, **more}


def give(target: str, trait: str, **more: Any) -> Json:
    """Return the content of a Grant, Revoke or Transfer."""
    return {"target": pub(target), "trait": trait, **more}


def about(event: Event) -> Tags:
    """Return the tags of an Update or Delete of this event."""
    return (("r", event.id.hex()),)


def init(**people: str) -> list[Json]:
    """init(bob="MEMBER admin", …): each name with its State, then its traits."""
    words = {name: text.split() for name, text in people.items()}
    return [{"identity": pub(name), "state": text[0], "traits": text[1:]} for name, text in words.items()]


def rule(event: str, operator: str | list[str], ops: str, **more: Any) -> Json:
    """Return an entry of customs, slots or lifecycle; `ops` are separated by blanks."""
    return {"event": event, "operator": operator, "ops": ops.split(), **more}


def path(from_: str, to: str, operator: str | list[str], ops: str = "C", **more: Any) -> Json:
    """Return an entry of moves."""
    return rule("Move", operator, ops, **{"from": from_, "to": to, **more})


def grant(event: str, operator: str | list[str], trait: str, scope: str = "MEMBER", **more: Any) -> Json:
    """Return an entry of grants."""
    return {"event": event, "operator": operator, "scope": scope.split(), "trait": trait.split(), **more}


def gated(alias: str, *operators: str) -> Json:
    return {"alias": alias, "gate": {"operator": list(operators)}}


# The manifests of the three applications, all owned by alice

COMMON: Json = {"enc_v": 2, "meta": {"description": "a test"}, "bundle": {"size": 256, "timeout": 5000}}

DM: Json = {
    **COMMON,
    "states": ["OWNER", "FRIEND", "BLOCKED"],
    "traits": [],
    "readers": [{"type": "OWNER", "reads": "*"}],
    "moves": [
        {"event": "Move", "from": "OUTSIDER", "to": "FRIEND", "operator": "OWNER", "ops": ["C"]},
        {"event": "Move", "from": "OUTSIDER", "to": "BLOCKED", "operator": "OWNER", "ops": ["C"]},
        {"event": "Move", "from": "FRIEND", "to": "OUTSIDER", "operator": "OWNER", "ops": ["C"]},
        {"event": "Move", "from": "FRIEND", "to": "BLOCKED", "operator": "OWNER", "ops": ["C"]},
        {"event": "Move", "from": "BLOCKED", "to": "FRIEND", "operator": "OWNER", "ops": ["C"]},
        {"event": "Move", "from": "BLOCKED", "to": "OUTSIDER", "operator": "OWNER", "ops": ["C"]},
    ],
    "grants": [],
    "transfers": [],
    "slots": [],
    "lifecycle": [{"event": "Terminate", "operator": "OWNER", "ops": ["C"]}],
    "customs": [
        {"event": "invite", "operator": "OUTSIDER", "ops": ["C"], "alias": "invites", "gate": {"operator": ["OWNER"]}},
        {"event": "invite", "operator": "OWNER", "ops": ["D"]},
        {"event": "message", "operator": "OWNER", "ops": ["D"]},
        {"event": "message", "operator": "FRIEND", "ops": ["C"]},
        {"event": "message", "operator": "Sender", "ops": ["U", "D"]},
        {"event": "message", "operator": "BLOCKED", "ops": ["_U", "_D"]},
        {"event": "sent", "operator": "OWNER", "ops": ["C", "U"]},
        {"event": "rotate", "operator": "OWNER", "ops": ["C"]},
    ],
    "init": init(alice="OWNER"),
}

PERSONAL: Json = {
    **COMMON,
    "states": ["OWNER"],
    "traits": ["dataview(1)"],
    "readers": [{"type": "OWNER", "reads": "*", "retention": "current"}],
    "moves": [],
    "grants": [
        {"event": "Grant", "operator": ["OWNER"], "scope": ["OUTSIDER"], "trait": ["dataview"]},
        {"event": "Revoke", "operator": ["OWNER"], "scope": ["OUTSIDER"], "trait": ["dataview"]},
    ],
    "transfers": [],
    "slots": [
        {"event": "Shared", "operator": "OWNER", "ops": ["C", "U", "D"], "key": "profile"},
        {"event": "Shared", "operator": "dataview", "ops": ["P"], "key": "profile"},
    ],
    "lifecycle": [{"event": "Terminate", "operator": "OWNER", "ops": ["C"]}],
    "customs": [
        {"event": "public", "operator": "OWNER", "ops": ["C", "U", "D"]},
        {"event": "public", "operator": "dataview", "ops": ["P"]},
        {"event": "private", "operator": "OWNER", "ops": ["C", "U", "D"]},
        {"event": "notice", "operator": "OUTSIDER", "ops": ["C"], "alias": "notices", "gate": {"operator": ["OWNER"]}},
        {"event": "notice", "operator": "OWNER", "ops": ["D"]},
        {"event": "notice", "operator": "dataview", "ops": ["P"]},
    ],
    "init": init(alice="OWNER"),
}

GROUP: Json = {
    **COMMON,
    "states": ["PENDING", "MEMBER", "BLOCKED"],
    "traits": ["owner(0)", "admin(1)", "muted(2)", "dataview(3)"],
    "readers": [{"type": "MEMBER", "reads": "*", "retention": "snapshot"}],
    "moves": [
        path("OUTSIDER", "PENDING", "Self", **gated("applications", "owner", "admin")),
        path("OUTSIDER", "MEMBER", "Self", **gated("auto_join", "owner")),
        path("OUTSIDER", "MEMBER", "admin"),
        path("OUTSIDER", "BLOCKED", "admin"),
        path("PENDING", "MEMBER", "admin"),
        path("PENDING", "OUTSIDER", "admin"),
        path("PENDING", "OUTSIDER", "Self"),
        path("MEMBER", "OUTSIDER", "Self"),
        path("MEMBER", "OUTSIDER", "admin"),
        path("MEMBER", "BLOCKED", "admin"),
        path("BLOCKED", "OUTSIDER", "admin"),
    ],
    "grants": [
        grant("Grant", ["admin"], "muted"),
        grant("Revoke", ["admin"], "muted"),
        grant("Grant", ["owner"], "admin"),
        grant("Revoke", ["owner", "Self"], "admin"),
        grant("Grant", ["owner"], "dataview", "OUTSIDER MEMBER"),
        grant("Revoke", ["owner"], "dataview", "OUTSIDER MEMBER"),
    ],
    "transfers": [{"trait": "owner", "scope": ["MEMBER"]}],
    "slots": [rule("Shared", "admin", "C U D", key="topic"), rule("Own", "MEMBER", "C U D", key="profile")],
    "lifecycle": [rule(event, "owner", "C") for event in ("Pause", "Resume", "Terminate", "Migrate")],
    "customs": [
        rule("message", "MEMBER", "C"),
        rule("message", "Sender", "U D"),
        rule("message", "admin", "D"),
        rule("message", "muted", "_C _U"),
        rule("message", "BLOCKED", "_U _D"),
        rule("message", ["OUTSIDER", "PENDING"], "_U"),
        rule("message", "dataview", "P"),
        rule("reaction", "MEMBER", "C"),
        rule("reaction", "Sender", "D"),
        rule("reaction", "muted", "_C"),
        rule("reaction", "BLOCKED", "_D"),
        rule("notice", "admin", "C D"),
        rule("notice", "Sender", "U"),
        rule("notice", ["OUTSIDER", "PENDING", "BLOCKED"], "_U"),
        rule("rotate", "admin", "C"),
    ],
    "init": init(alice="MEMBER owner admin"),
}
