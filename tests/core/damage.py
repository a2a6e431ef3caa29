"""Random damage to a manifest: one value replaced, removed or repeated."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from enc.core.log.commit import build_commit, build_manifest, parse_commit, wire_commit
from enc.core.log.event import erase, finalize, parse_event, wire_event
from enc.core.log.receipt import build_receipt, parse_receipt, wire_receipt
from enc.core.trees.cosigning import parse_cosigned, wire_cosigned
from enc.core.trees.proof import (
    parse_bundle_proof,
    parse_consistency,
    parse_inclusion,
    parse_state_proof,
    wire_bundle_proof,
    wire_consistency,
    wire_inclusion,
    wire_state_proof,
)
from enc.core.trees.tree_head import parse_head, sign_head, wire_head
from tests.core.vectors import KEYS, load

ALICE, NODE = KEYS["alice"], KEYS["node"]


EXP = 1_790_000_000_000


def encoded(*wires: Any) -> list[bytes]:
    return [msgspec.json.encode(wire) for wire in wires]


LOGS = {name: load(name) for name in ("log", "log_moved", "log_v1")}


ENCLAVE = bytes.fromhex(LOGS["log"]["enclave"])


COMMITS = [
    build_commit(ALICE, ENCLAVE, "m", "hi", EXP, (("r", "ab", "reply"), ("auto-delete", str(EXP + 5)), ("k",))),
    build_commit(ALICE, ENCLAVE, "Move", '{"target":"x"}', EXP, alg="ecdsa"),
    build_commit(ALICE, ENCLAVE, "é", '\x00\n"\\\U0001f600', 0),
    build_manifest(ALICE, '{"enc_v":2}', EXP),
]


EVENTS = [finalize(commit, NODE, EXP, seq) for seq, commit in enumerate(COMMITS)]


EVENTS.append(erase(EVENTS[0]))


HEAD = sign_head(NODE, ENCLAVE, EXP, 19, bytes(range(32)))


CT, SMT, BUNDLES = load("ct_log"), load("smt"), load("bundles")


def same(parse: Callable[[Any], Any], wire: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Check that an accepted manifest is the same after it is written and read again."""

    def check(data: Any) -> None:
        found = parse(data)
        assert parse(msgspec.json.encode(wire(found))) == found

    return check


PARSERS: dict[str, tuple[Callable[[Any], Any], list[bytes]]] = {
    "commit": (same(parse_commit, wire_commit), encoded(*map(wire_commit, COMMITS))),
    "event": (same(parse_event, wire_event), encoded(*map(wire_event, EVENTS))),
    "receipt": (
        same(parse_receipt, wire_receipt),
        encoded(*(wire_receipt(build_receipt(event)) for event in EVENTS)),
    ),
    "head": (same(parse_head, wire_head), encoded(wire_head(HEAD), CT["sth"])),
    "cosigned": (same(parse_cosigned, wire_cosigned), encoded(load("witness")["cosigned"][0]["wire"])),
    "inclusion": (same(parse_inclusion, wire_inclusion), encoded(*CT["inclusion"][:40:3])),
    "consistency": (same(parse_consistency, wire_consistency), encoded(*CT["consistency"][:40:3])),
    "bundle proof": (
        same(parse_bundle_proof, wire_bundle_proof),
        encoded(*({"ei": 0, "s": item["siblings"][0], "size": len(item["ids"])} for item in BUNDLES)),
    ),
    "state proof": (
        same(parse_state_proof, wire_state_proof),
        encoded(*(proof for tree in SMT[:4] for proof in (tree["members"] + tree["absent"])[:3])),
    ),
}


WORDS: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 255, 256, 65_536, 65_537, 3_600_000, 3_600_001, 2**53 - 1, 1.0, 1.5, 1e300),
    *("", "*", "C", "R", "_C", "__C", "_", "CRUD", "none", "Self", "Sender", "Public", "Node", "OUTSIDER", "OWNER"),
    *("owner", "owner(0)", "owner(1)", "admin(-1)", "x(99999999999999999)", "MEMBER", "member", "A" * 300, "é", "a b"),
    *("Move", "Grant", "Revoke", "Transfer", "Gate", "Shared", "Own", "Pause", "Migrate", "Manifest", "AC_Bundle"),
    *("Owner", "Any", "Member", "Grant_Push", "Revoke_Self", "Force_Move", "0x0", "0x300000002", "https://x.example"),
    *("lifecycle", "ab" * 32, "AB" * 32, ALICE.public.hex(), "00" * 32, "ff" * 32, "\x00", "a\n"),
    *([], {}, [[]], [None], [{}], {"operator": "owner"}, {"operator": []}, ["owner", "owner"], ["C", "C"], [1]),
]


NAMES = (
    "enc_v use_temp RBAC registry meta bundle size timeout states traits readers init moves grants transfers slots "
    "lifecycle customs event operator ops from to preserve alias gate scope trait key type reads retention identity "
    "state schema initial_state role target_roles endpoint Owner Member"
).split()


def damage(random: Random, manifest: Any) -> None:
    """Change one place somewhere in the tree."""
    node = manifest
    while True:
        places = [
            i
            for i, item in enumerate(node.values() if isinstance(node, dict) else node)
            if item and isinstance(item, dict | list)
        ]
        if not places or random.random() < 0.35:
            break
        inner = list(node.values()) if isinstance(node, dict) else node
        node = inner[random.choice(places)]
    value = random.choice(WORDS)
    if isinstance(value, dict | list):
        value = json.loads(json.dumps(value))
    kind = random.random()
    if isinstance(node, dict):
        name = random.choice(list(node)) if node and random.random() < 0.7 else random.choice(NAMES)
        if kind < 0.2:
            node.pop(name, None)
        elif kind < 0.3 and node:
            node[name] = [node.get(name)]
        else:
            node[name] = value
        return
    at = random.randrange(len(node) + 1)
    if kind < 0.2 and at < len(node):
        del node[at]
    elif kind < 0.5 and at < len(node):
        node[at] = value
    elif kind < 0.7 and at < len(node):
        node.insert(random.randrange(len(node)), node[at])
    else:
        node.insert(at, value)
