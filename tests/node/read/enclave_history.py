"""An enclave with a long history, served by a node."""

from typing import Any

from msgspec import Struct
from msgspec.json import encode

from enc.core.machine.replay import Replay
from enc.core.primitives.types import Event, Receipt, TreeHead
from enc.core.trees.proof import (
    LogLeaf,
    check_leaf,
    check_state_proof,
    parse_inclusion,
    parse_state_proof,
)
from enc.core.trees.tree_head import check_bound_head, parse_head
from tests.core.world import give, move
from tests.node.served import NODE, SMALL, Enclave, Json, Served, about


class Life(Struct):
    """An enclave with every kind of event, and what was recorded while they were sent."""

    enclave: Enclave
    heads: dict[int, bytes]
    """The answers of /sth, by tree size."""
    events: list[Event]
    """All events as the store has them now."""
    sent: dict[str, Receipt]

    def replayed(self, seq: int) -> Replay:
        """Replay the log up to and including this event."""
        replay = Replay(self.enclave.id)
        for event in self.events[: seq + 1]:
            replay.add(event)
        return replay

    @property
    def size(self) -> int:
        return max(self.heads)

    def head(self, wire: Json) -> TreeHead:
        """Check a head of an answer: signed by the node, and the same that was served at its size."""
        head = parse_head(encode(wire))
        check_bound_head(head, NODE.public, self.enclave.id)
        assert encode(wire) == self.heads[head.ts]
        return head


def sth(enclave: Enclave) -> bytes:
    return enclave.node.get(f"/{enclave.id.hex()}/sth").content


def lived(node: Served) -> Life:
    enclave = node.create(SMALL)
    heads = {0: sth(enclave)}
    sent = dict[str, Receipt]()

    def send(*what: Any, called: str = "") -> Receipt:
        receipt = enclave.send(*what)
        sent[called or f"{receipt.seq}"] = receipt
        node.settle()
        answer = sth(enclave)
        heads[parse_head(answer).ts] = answer
        return receipt

    for i in range(4):
        send("bob", "message", f"message {i}", ("r", "ab"), ("n", f"{i}"), called=f"m{i}")
    send("mallory", "Move", move("mallory", "OUTSIDER", "PENDING"))
    send("alice", "Grant", give("bob", "helper"))
    node.clock.tick(6000)
    send("bob", "Update", "changed", about(sent["m0"]), called="u0")
    node.clock.tick(6000)
    send("bob", "Shared", {"key": "topic", "value": "plans"})
    send("bob", "Update", "changed again", about(sent["m0"]), called="u1")
    send("carol", "Own", {"key": "profile", "value": {"name": "Carol"}})
    send("alice", "Gate", {"alias": "applications", "state": "closed"})
    send("bob", "Update", "not for long", about(sent["m1"]), called="u2")
    send("bob", "Delete", {"reason": "author"}, about(sent["m1"]), called="d1")
    node.clock.tick(6000)
    node.settle()
    heads[parse_head(sth(enclave)).ts] = sth(enclave)
    send("alice", "Revoke", give("bob", "helper"))
    send("carol", "Own", {"key": "profile", "value": None})
    send("alice", "message", "by alice", ("k",))
    send("alice", "Pause")
    send("alice", "Resume")
    send("bob", "Update", "pending", about(sent["m2"]), called="u3")
    send("alice", "Delete", {"reason": "moderator"}, about(sent["m3"]), called="d3")
    events = node.store.events(enclave.id, 0, 100)
    return Life(enclave, heads, events, sent)


def check_ground(life: Life, inclusion: Json, wire_head: Json) -> LogLeaf:
    """Return the leaf of an inclusion proof, verified up to the head."""
    leaf = LogLeaf(bytes.fromhex(inclusion["events_root"]), bytes.fromhex(inclusion["state_hash"]))
    check_leaf(leaf, parse_inclusion(encode(inclusion)), life.head(wire_head))
    return leaf


def pending(life: Life) -> set[int]:
    bundle = life.replayed(len(life.events) - 1).state.bundle
    return set() if bundle is None else set(range(bundle.first_seq, len(life.events)))


def checked_value(life: Life, key: bytes, answer: Json) -> bytes | None:
    """Return the value that an answer proves, verified up to its head."""
    proof, inclusion = parse_state_proof(encode(answer)), answer["inclusion"]
    leaf = check_ground(life, inclusion, answer["sth"])
    assert (inclusion["li"], inclusion["state_hash"]) == (answer["leaf_index"], answer["state_hash"])
    check_state_proof(key, proof, leaf, parse_inclusion(encode(inclusion)), life.head(answer["sth"]))
    return proof.v
