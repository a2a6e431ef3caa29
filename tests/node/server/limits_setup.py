"""Enclaves, raw requests and peers for tests of the limits of HTTP."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from enc.core.log.commit import build_commit, build_manifest
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Commit
from enc.node.config import LimitSettings, NodeConfig
from enc.node.sequence.admitted import AdmittedCommit
from enc.node.sequence.sequencer import Sequencer
from enc.testing.memory_store import MemoryStore
from tests.core.world import LIFETIME, person
from tests.node.api.http_requests import dialed, read_response
from tests.node.served import DEV, NODE, SMALL, Clock, Enclave, Json, Served

KIB, MIB = 1 << 10, 1 << 20


WIDE: Json = {
    **SMALL,
    "customs": [
        *SMALL["customs"],
        {"event": "t" * 64, "operator": "MEMBER", "ops": ["C"]},
    ],
}
"""A commit with a type of the maximum length."""


def limited(**limits: Any) -> NodeConfig:
    return replace(DEV, limits=LimitSettings(**limits))


def read_last_response(peer: socket.socket) -> tuple[int, dict[str, str], Json]:
    """Return one response, after which the connection is closed."""
    with peer.makefile("rb") as file:
        return read_response(file)


def spoken(node: Served, sent: bytes) -> tuple[int, dict[str, str], Json]:
    with dialed(node) as peer:
        peer.sendall(sent)
        return read_last_response(peer)


@contextmanager
def filled(config: NodeConfig, contents: list[str]) -> Iterator[Enclave]:
    """Return a node with one enclave, to which bob has sent these messages."""
    clock, store = Clock(), MemoryStore()
    manifest = build_manifest(person("alice"), compact_json(SMALL), clock.now + LIFETIME)
    exps = range(clock.now + LIFETIME, clock.now + LIFETIME + len(contents))
    commits: list[Commit] = [
        build_commit(person("bob"), manifest.enclave, "message", content, exp)
        for content, exp in zip(contents, exps, strict=True)
    ]
    sequencer = Sequencer(store, NODE, lambda: clock.now, deliver=lambda outcomes: None)
    sequencer.run_once([AdmittedCommit(commit) for commit in (manifest, *commits)])
    with Served(config, store, clock) as node:
        yield Enclave(node, manifest)
