"""Requests a node for proofs, and checks the answers."""

import os
import random
from typing import Any

import msgspec
from node_commits import AUTHORS, now_ms
from node_load import Result
from node_process import SAMPLE, Node, describe, load

from enc.core.log.receipt import parse_receipt
from enc.core.primitives.types import TreeHead
from enc.core.session.envelope import RequestType, open_answer, seal_request
from enc.core.session.session import Session, client_keys, open_session
from enc.core.trees.bundle import check_membership
from enc.core.trees.proof import (
    LogLeaf,
    check_leaf,
    check_state_proof,
    parse_bundle_proof,
    parse_inclusion,
    parse_state_proof,
)
from enc.core.trees.state_key import tree_key
from enc.core.trees.tree_head import check_bound_head, parse_head

READERS = 16
"""The number of connections that send requests."""

KINDS: dict[str, RequestType] = {
    "inclusion": "Inclusion_Proof",
    "bundle": "Bundle_Proof",
    "state": "State_Proof",
}


class Reader:
    """An author who sends requests, in one session or several."""

    def __init__(self, seq_pub: bytes, sessions: int = 1) -> None:
        expires = now_ms() // 1000 + 3600
        self.seq_pub = seq_pub
        self.sessions = [open_session(AUTHORS[0], expires + i) for i in range(sessions)]

    def session(self, i: int) -> Session:
        return self.sessions[i % len(self.sessions)]

    def ask(self, i: int, enclave: bytes, type_: RequestType, body: dict[str, Any]) -> bytes:
        return msgspec.json.encode(
            seal_request(self.session(i), self.seq_pub, enclave, type_, body, os.urandom(24)),
        )

    def open(self, i: int, enclave: bytes, answer: bytes) -> Any:
        return open_answer(client_keys(self.session(i), self.seq_pub, enclave), answer)


class Proofs:
    """Requests for proofs of one enclave, and the checks of the answers."""

    def __init__(self, enclave: bytes, seq_pub: bytes, events: list[bytes], size: int) -> None:
        self.enclave, self.seq_pub, self.events, self.size = enclave, seq_pub, events, size

    def _head(self, body: Any) -> TreeHead:
        head = parse_head(msgspec.json.encode(body["sth"]))
        check_bound_head(head, self.seq_pub, self.enclave)
        return head

    def ask(self, kind: str, i: int) -> dict[str, Any]:
        if kind == "inclusion":
            return {"leaf_index": i % self.size}
        if kind == "bundle":
            return {"event_id": self.events[i % len(self.events)].hex()}
        return {"namespace": "rbac", "key": AUTHORS[i % len(AUTHORS)].public.hex()}

    def check(self, kind: str, i: int, body: Any) -> None:
        if kind == "bundle":
            proof = parse_bundle_proof(msgspec.json.encode(body))
            check_membership(proof, self.events[i % len(self.events)], bytes.fromhex(body["events_root"]))
            return
        wire = body["inclusion"] if kind == "state" else body
        leaf = LogLeaf(bytes.fromhex(wire["events_root"]), bytes.fromhex(wire["state_hash"]))
        inclusion = parse_inclusion(msgspec.json.encode(wire))
        if kind == "inclusion":
            check_leaf(leaf, inclusion, self._head(body))
        else:
            key = tree_key("rbac", AUTHORS[i % len(AUTHORS)].public)
            check_state_proof(key, parse_state_proof(msgspec.json.encode(body)), leaf, inclusion, self._head(body))


def bench_proofs(node: Node, written: Result, enclave: bytes, size: int) -> None:
    """Measure proofs a second; `written` are the enclave's receipts, of which the early ones lie in closed bundles."""
    heads = load(node, [b""] * size, path=f"/{enclave.hex()}/sth", window=READERS)
    head = parse_head(heads.answers[-1])
    check_bound_head(head, node.seq_pub, enclave)
    print(f"STH over HTTP, {READERS} connections: {heads.per_second:,.0f}/s; {describe(heads)}")
    receipts = [parse_receipt(answer) for answer in written.answers[:SAMPLE]]
    proofs = Proofs(enclave, node.seq_pub, [receipt.id for receipt in receipts], head.ts)
    reader = Reader(node.seq_pub, READERS)
    for kind, type_ in KINDS.items():
        bodies = [reader.ask(i, enclave, type_, proofs.ask(kind, i)) for i in range(size)]
        result = load(node, bodies, path=f"/{kind}", window=READERS)
        for i in random.sample(range(size), min(SAMPLE, size)):
            proofs.check(kind, i, reader.open(i, enclave, result.answers[i]))
        print(f"{kind} proofs over HTTP, {READERS} connections: {result.per_second:,.0f}/s; {describe(result)}")
