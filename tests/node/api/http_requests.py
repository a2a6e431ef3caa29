"""Requests and raw connections for tests of the HTTP API."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import httpx
from msgspec.json import decode, encode

from enc.core.log.commit import build_commit, wire_commit
from enc.core.primitives.sealing import NONCE_SIZE, seal_text
from enc.core.primitives.types import Commit, Receipt
from enc.core.session.session import Session, client_keys
from tests.core.world import person, pub
from tests.node.served import NODE, PATHS, PATIENCE_S, Enclave, Json, Served, bad

HOUR, SKEW = 3_600_000, 60_000


def again(enclave: Enclave, exp: int, name: str = "alice") -> Commit:
    """Return the enclave's Manifest with another `exp`: another commit for the same enclave."""
    manifest = enclave.manifest
    return build_commit(person(name), enclave.id, "Manifest", manifest.content or "", exp, manifest.tags)


def migrate(enclave: Enclave, to: str, hold: int = 0) -> Receipt:
    found = enclave.ask("alice", "Checkpoint", hold=hold)
    content = {"new_sequencer": pub(to), "prev_seq": found["seq"], "ct_root": found["ct_root"]}
    return enclave.send("alice", "Migrate", content)


def refused(node: Served, commit: Commit, **wrong: Any) -> str:
    return bad(node.post({**wire_commit(commit), **wrong})).code


BODIES: dict[str, Json] = {
    "Query": {"filter": {}},
    "Inclusion_Proof": {"leaf_index": 0},
    "Bundle_Proof": {"leaf_index": 0},
    "State_Proof": {"namespace": "kv", "key": "00" * 32},
    "State_Batch": {"keys": [{"namespace": "kv", "key": "00" * 32}]},
    "Checkpoint": {},
    "Export": {},
    "Pull": {"url": "https://a.example", "push_seq": 1},
    "Deliveries": {},
}
"""A valid body of each type."""


def sealed(session: Session, enclave: Enclave, type_: str, plaintext: bytes) -> Json:
    """Return a request with this plaintext sealed inside."""
    content = seal_text(client_keys(session, NODE.public, enclave.id).query, plaintext, os.urandom(NONCE_SIZE))
    return {
        "type": type_,
        "enclave": enclave.id.hex(),
        "from": session.from_.hex(),
        "session": session.token.hex(),
        "content": content,
    }


def code(node: Served, request: Json, type_: str) -> str:
    return bad(node.post(request, PATHS.get(type_, "/"))).code


@contextmanager
def dialed(node: Served) -> Iterator[socket.socket]:
    url = httpx.URL(node.url)
    with socket.create_connection((url.host, url.port or 0), timeout=PATIENCE_S) as peer:
        yield peer


def posted(body: Any, *headers: str, version: str = "1.1") -> bytes:
    raw = encode(body)
    head = "\r\n".join((f"POST / HTTP/{version}", "Host: localhost", f"Content-Length: {len(raw)}", *headers))
    return head.encode() + b"\r\n\r\n" + raw


def read_response(file: BinaryIO) -> tuple[int, dict[str, str], Json]:
    """Return one response: status, headers, body."""
    status = int(file.readline().split()[1])
    lines = iter(lambda: file.readline().strip().decode(), "")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return status, headers, decode(file.read(int(headers["content-length"])))
