"""Proof files and evidence of every kind, made by hand from the kernel's parts, without node, clock or event loop."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from enc.client.evidence.evidence import (
    Evidence,
    answer_evidence,
    split_event,
    split_head,
    two_events,
    two_heads,
    unconnected,
    with_cosignature,
)
from enc.client.evidence.log_evidence import order_parts, single_parts
from enc.client.verify.facts import Anchor, EventFact, StateFact
from enc.client.verify.proof_file import Proof
from enc.client.verify.sequencer_history import history_of
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import erase, finalize, wire_event
from enc.core.log.receipt import build_receipt, wire_receipt
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import EMPTY_HASH, log_leaf, sha256
from enc.core.primitives.signing import Alg, PrivateKey
from enc.core.primitives.types import Event, Tags, TreeHead
from enc.core.trees import sparse_merkle
from enc.core.trees.bundle import events_root, prove_membership
from enc.core.trees.cosigning import cosign
from enc.core.trees.merkle_log import Edge, LogNodes, prove_consistency, prove_inclusion
from enc.core.trees.proof import LogLeaf
from enc.core.trees.state_key import DELETED, Namespace, shared_slot, tree_key
from enc.core.trees.tree_head import sign_head, wire_head
from tests.core.world import START, person, withheld

NODE, OTHER, ALICE, BOB = (person(name) for name in ("node", "node2", "alice", "bob"))
TOPIC = shared_slot("topic")


class Made:
    """One enclave's log: events in bundles, and a state after each of them."""

    def __init__(self, enc_v: int = 2, key: PrivateKey = NODE) -> None:
        commit = build_manifest(ALICE, compact_json({"enc_v": enc_v}), START + 60_000, (("k", "v"),), enc_v=enc_v)
        self.enc_v, self.key, self.enclave = enc_v, key, commit.enclave
        self.events = [finalize(commit, key, START, 0)]
        self.places: dict[bytes, int] = {}
        self.bundles: list[tuple[list[bytes], bytes]] = []
        self.edge, self.log, self.tree, self.root = Edge(), LogNodes(), dict[bytes, bytes](), EMPTY_HASH
        self.waiting = [self.events[0]]

    def say(
        self,
        content: str,
        type_: str = "message",
        tags: Tags = (),
        alg: Alg = "schnorr",
        by: PrivateKey = BOB,
        key: PrivateKey | None = None,
    ) -> Event:
        seq = len(self.events)
        commit = build_commit(by, self.enclave, type_, content, START + 60_000 + seq, tags, alg=alg, enc_v=self.enc_v)
        self.events.append(finalize(commit, key or self.key, START + seq, seq))
        self.waiting.append(self.events[-1])
        return self.events[-1]

    def move(self, to: PrivateKey, *, by_force: bool = False) -> Event:
        content = {"new_sequencer": to.public.hex(), "prev_seq": len(self.events) - 1, "ct_root": "ab" * 32}
        event = self.say(compact_json(content), "Migrate", by=ALICE, key=to if by_force else None)
        self.key = to
        return event

    def close(self, changes: Mapping[bytes, bytes | None] | None = None) -> None:
        ids = [event.id for event in self.waiting]
        self.root, nodes = sparse_merkle.update(self, self.root, changes or {}) if changes else (self.root, {})
        self.tree.update(nodes)
        self.places.update((id_, len(self.bundles)) for id_ in ids)
        self.bundles.append((ids, self.root))
        self.edge, found = self.edge.append(log_leaf(events_root(ids), self.root))
        self.log.update(found)
        self.waiting = []

    def read_hash(self, level: int, index: int) -> bytes:
        return self.log[level, index]

    def read_node(self, node_hash: bytes) -> bytes:
        return self.tree[node_hash]

    def head(self, key: PrivateKey | None = None, t: int = 0, root: bytes | None = None) -> TreeHead:
        return sign_head(key or self.key, self.enclave, START + t, self.edge.size, root or self.edge.root())

    def anchor(self, index: int) -> Anchor:
        ids, state = self.bundles[index]
        return Anchor(LogLeaf(events_root(ids), state), prove_inclusion(self, index, self.edge.size), self.head())

    def state(self, namespace: Namespace, raw: bytes, after: int | None = None) -> StateFact:
        anchor = self.anchor(len(self.bundles) - 1 if after is None else after)
        proof = sparse_merkle.prove(self, anchor.leaf.state_hash, tree_key(namespace, raw))
        return StateFact(namespace, raw, proof, anchor)

    def fact(self, event: Event, *, status: bool = True) -> EventFact:
        index = self.places[event.id]
        ids = self.bundles[index][0]
        found = self.state("event_status", event.id) if status else None
        return EventFact(event, prove_membership(ids, ids.index(event.id)), self.anchor(index), found)

    def proof(self, fact: EventFact | StateFact, moves: Sequence[Event] = ()) -> bytes:
        return Proof(self.enclave, self.key.public, fact, history_of(None, moves, self.enclave).moves).json()


def _status(event: Event) -> bytes:
    return tree_key("event_status", event.id)


def log_of(enc_v: int = 2) -> tuple[Made, dict[str, Event]]:
    """Return a log of seven bundles of one to five events; some events are updated, deleted, or signed with ECDSA."""
    made = Made(enc_v)
    told = {"manifest": made.events[0], "plain": made.say("hello", tags=(("r", "abc", "reply"), ("k", "")))}
    made.close({tree_key("rbac", ALICE.public): b"\x00" * 31 + b"\x03", tree_key("kv", TOPIC): sha256(b"plans")})
    told["updated"], told["deleted"] = made.say("to be changed"), made.say("to be gone")
    told["odd"] = made.say('ünï "quoted" \u2028 😀\n\x00', tags=() if enc_v == 1 else (("a,b", "[c]"),))
    made.close()
    for size in (1, 5, 3):
        for n in range(size):
            made.say(f"number {n} of {size}")
        made.close({tree_key("kv", sha256(b"%d" % size)): sha256(b"%d" % size)})
    if enc_v == 2:
        told["ecdsa"] = made.say("by an older wallet", alg="ecdsa")
    told["last"] = made.say("last but one")
    told["update"] = made.say("one line\n", "Update", (("r", told["updated"].id.hex()),))
    made.close({_status(told["updated"]): told["update"].id, _status(told["deleted"]): DELETED})
    made.say("the end")
    made.close({tree_key("kv", TOPIC): sha256(b"games")})
    return made, told


def proofs() -> dict[str, bytes]:
    """Return valid proofs."""
    made, told = log_of()
    old, old_told = log_of(1)
    was, update = told["updated"], told["update"]
    files = {
        "update": made.proof(replace(made.fact(erase(was)), update=update)),
        "erased update": made.proof(replace(made.fact(erase(was)), update=erase(update))),
        "plain": made.proof(made.fact(told["plain"])),
        "manifest": made.proof(made.fact(told["manifest"])),
        "erased": made.proof(made.fact(erase(told["updated"]))),
        "withheld": made.proof(made.fact(withheld(told["plain"]))),
        "withheld by another key": made.proof(made.fact(withheld(told["plain"], "node2"))),
        "withheld update": made.proof(replace(made.fact(erase(was)), update=withheld(update))),
        "deleted": made.proof(made.fact(erase(told["deleted"]))),
        "odd": made.proof(made.fact(told["odd"])),
        "ecdsa": made.proof(made.fact(told["ecdsa"])),
        "without a status": made.proof(made.fact(told["last"], status=False)),
        "value": made.proof(made.state("kv", TOPIC)),
        "old value": made.proof(made.state("kv", TOPIC, after=0)),
        "nothing": made.proof(made.state("kv", shared_slot("agenda"))),
        "bitmask": made.proof(made.state("rbac", ALICE.public)),
        "deletion": made.proof(made.state("event_status", told["deleted"].id)),
        "version 1": old.proof(old.fact(old_told["plain"])),
        "version 1 manifest": old.proof(old.fact(old_told["manifest"])),
        "version 1 odd": old.proof(old.fact(old_told["odd"], status=False)),
    }
    return files | _moved()


def _moved() -> dict[str, bytes]:
    made = Made()
    first = made.say("at the first node")
    away = made.move(OTHER)
    made.close()
    second = made.say("at the second")
    made.close()
    back = made.move(NODE, by_force=True)
    third = made.say("taken back")
    made.close()
    moves = [away, back]
    files = {f"moved {n}": made.proof(made.fact(each), moves) for n, each in enumerate((first, second, third))}
    return {
        **files,
        "taken": made.proof(made.fact(third), [back]),
        "moved update": _moved_update(),
        "moved state": made.proof(made.state("kv", TOPIC), moves),
    }


def _moved_update() -> bytes:
    made = Made()
    event = made.say("at the first node")
    away = made.move(OTHER)
    update = made.say("at the second", "Update", (("r", event.id.hex()),))
    made.close({_status(event): update.id})
    return made.proof(replace(made.fact(event), update=update), [away])


# Evidence


def evidence() -> dict[str, bytes]:
    """Return evidence of every kind except `log`: some convicts, some does not, some contradicts nothing."""
    made, told = log_of()
    smaller, _ = log_of()
    grown, before = made.head(), smaller.edge.size
    smaller.say("one more")
    smaller.close()
    larger, false = smaller.head(t=1), sha256(b"false")
    empty = sign_head(NODE, made.enclave, START, 0, EMPTY_HASH)
    fork = two_heads("fork", made.enclave, NODE.public, "a fork", grown, made.head(root=false))
    link = prove_consistency(smaller, before, smaller.edge.size)
    files = {
        "fork": fork,
        "fork, attested": with_cosignature(fork, cosign(BOB, made.enclave, NODE.public, grown, START)),
        "fork of two nodes": two_heads(
            "fork", made.enclave, OTHER.public, "", grown, made.head(OTHER, root=false), NODE.public
        ),
        "no fork": two_heads("fork", made.enclave, NODE.public, "", grown, made.head(t=5)),
        "cut": two_heads("rollback", made.enclave, NODE.public, "", larger, made.head(t=2)),
        "rollback": two_heads("rollback", made.enclave, NODE.public, "", larger, grown),
        "rollback of one time": two_heads("rollback", made.enclave, NODE.public, "", larger, made.head(t=1)),
        "rollback to the same": two_heads("rollback", made.enclave, NODE.public, "", grown, made.head(t=1)),
        "rollback of two nodes": two_heads(
            "rollback", made.enclave, OTHER.public, "", larger, made.head(OTHER, t=2), NODE.public
        ),
        "no rollback": two_heads("rollback", made.enclave, NODE.public, "", grown, larger),
        "connected": unconnected(made.enclave, NODE.public, "", grown, larger, link),
        "unconnected": unconnected(made.enclave, NODE.public, "", made.head(root=false), larger, link),
        "unconnected to a larger": unconnected(made.enclave, NODE.public, "", grown, smaller.head(root=false), link),
        "from nothing": unconnected(made.enclave, NODE.public, "", empty, larger, None),
        "refused": unconnected(made.enclave, NODE.public, "", grown, larger, None),
        "answer": answer_evidence("answer", made.enclave, NODE.public, "odd", b'{"seq_pub": "\xff"}'),
        "foreign": answer_evidence("foreign", made.enclave, NODE.public, "odd", b"words"),
        "connected by other sizes": _by_other_sizes(),
        **_of_events(made, told),
        **_splits(),
    }
    return {name: each.json() for name, each in files.items()}


def _by_other_sizes() -> Evidence:
    """Return evidence with other sizes: the path from two bundles to three is that from four to five."""
    made = Made()
    heads = []
    for n in range(5):
        made.say(f"number {n}")
        made.close()
        heads.append(made.head())
    link = replace(prove_consistency(made, 4, 5), ts1=2, ts2=3)
    return unconnected(made.enclave, NODE.public, "", heads[3], heads[4], link)


def _of_events(made: Made, told: Mapping[str, Event]) -> dict[str, Evidence]:
    def of(kind: Any, parts: dict[str, Any]) -> Evidence:
        return Evidence(kind=kind, enclave=made.enclave, sequencer=NODE.public, message="found", parts=parts)

    def placed(text: str, seq: int, time: int, key: PrivateKey = NODE) -> Event:
        return finalize(build_commit(BOB, made.enclave, "message", text, START + 60_000), key, START + time, seq)

    plain = told["plain"]
    bent, unsigned = wire_event(plain) | {"content": "forged"}, wire_event(plain) | {"sig": told["last"].sig.hex()}
    renamed = wire_event(plain) | {"id": "00" * 32}
    strange = wire_event(plain) | {"enclave": "00" * 32}
    lines = {"bent": bent, "unsigned": unsigned, "renamed": renamed, "strange": strange}
    line = {name: compact_json(wire).encode() for name, wire in lines.items()}
    return {
        "equivocation": two_events(placed("to you", 3, 0), placed("to others", 3, 0), ""),
        "equivocation, erased": two_events(erase(placed("to you", 3, 0)), erase(placed("to others", 3, 9)), ""),
        "one event twice": two_events(placed("to you", 3, 0), placed("to you", 3, 0), ""),
        "no equivocation": two_events(placed("to you", 3, 0), placed("to others", 4, 0), ""),
        "order": of("order", order_parts(placed("a", 3, 9), placed("b", 4, 8))),
        "order of two": of("order", order_parts(placed("a", 3, 9, OTHER), placed("b", 4, 8))),
        "order by another": of("order", order_parts(placed("a", 3, 9), placed("b", 4, 8, OTHER))),
        "order the wrong way round": of("order", order_parts(placed("a", 5, 9), placed("b", 4, 8))),
        "no order": of("order", order_parts(placed("a", 3, 8), placed("b", 4, 8))),
        "altered": of("event", single_parts("altered_content", line["bent"], 2)),
        "unsigned": of("event", single_parts("invalid_signature", line["unsigned"], 2)),
        "with another id": of("event", single_parts("altered_content", line["renamed"], 2)),
        "wrongly named": of("event", single_parts("invalid_signature", line["bent"], 2)),
        "another version": of("event", single_parts("altered_content", compact_json(wire_event(plain)).encode(), 1)),
        "unharmed": of("event", single_parts("altered_content", compact_json(wire_event(plain)).encode(), 2)),
        "of a stranger": of("event", single_parts("altered_content", line["strange"], 2)),
        "with a vast number": of("event", single_parts("altered_content", b'{"x":1e400,' + line["bent"][1:], 2)),
        "cut line": of("event", single_parts("altered_content", line["bent"][:-9], 2)),
        "cut line, wrongly named": of("event", single_parts("gap", line["bent"][:-9], 2)),
    }


def _splits() -> dict[str, Evidence]:
    made = Made()
    away = made.move(OTHER)
    after, later = made.say("still here", key=NODE), made.say("and here", key=NODE)
    made.close()
    forced = made.move(BOB, by_force=True)
    unaware = made.say("who am I", key=OTHER)
    head = made.head(NODE)

    def placed(seq: int, key: PrivateKey, type_: str = "message", content: str = "x") -> Event:
        return finalize(build_commit(ALICE, made.enclave, type_, content, START + 60_000), key, START, seq)

    home = compact_json({"new_sequencer": NODE.public.hex(), "prev_seq": away.seq, "ct_root": "ab" * 32})
    both = split_event(away, after, "")
    return {
        "split": split_event(away, after, ""),
        "split later": split_event(away, later, ""),
        "split and returned": split_event(away, placed(away.seq + 1, NODE, "Migrate", home), ""),
        "split in one place": split_event(away, placed(away.seq, NODE), ""),
        "split by force": split_event(forced, unaware, ""),
        "no split": split_event(forced, away, ""),
        "split by who was named": split_event(away, placed(away.seq + 1, OTHER), ""),
        "split by a pause": split_event(placed(away.seq, NODE, "Pause", away.content or ""), after, ""),
        "split of both": replace(both, parts={**both.parts, "head": wire_head(head), "size": 0}),
        "split head": split_head(away, 0, head, NODE.public, ""),
        "split head of less than nothing": split_head(away, -1, head, NODE.public, ""),
        "no split head": split_head(away, 1, head, NODE.public, ""),
    }


def receipt() -> dict[str, Any]:
    return wire_receipt(build_receipt(log_of()[1]["plain"]))
