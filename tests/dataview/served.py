"""Enclaves on real nodes in this process, for executors in others: real sockets and the real clock."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from enc.client import Client, Enclave, Identity
from enc.core.primitives.signing import PrivateKey
from tests.core.world import PERSONAL, person
from tests.node.running import free_port
from tests.node.served import Clock, Served

PUBLIC = {
    "enc_v": 2,
    "meta": {},
    "bundle": {"size": 256, "timeout": 5000},
    "states": ["OWNER"],
    "traits": ["dataview(1)"],
    "readers": [{"type": "Public", "reads": "*"}],
    "grants": [{"event": "Grant", "operator": ["OWNER"], "scope": ["OUTSIDER"], "trait": ["dataview"]}],
    "lifecycle": [{"event": "Migrate", "operator": "OWNER", "ops": ["C"]}],
    "customs": [
        {"event": "post", "operator": "OWNER", "ops": ["C", "U", "D"]},
        {"event": "note", "operator": "OWNER", "ops": ["C"]},
        {"event": "post", "operator": "dataview", "ops": ["P"]},
        {"event": "note", "operator": "dataview", "ops": ["N"]},
    ],
}


def real_clock() -> Clock:
    clock = Clock()
    clock.now = time.time_ns() // 1_000_000
    return clock


@contextmanager
def serving(key: PrivateKey | None = None) -> Iterator[Served]:
    """Serve a node whose clock stands at the current time."""
    with Served(clock=real_clock(), key=key or person("node")) as node:
        yield node


def create_enclave(node: Served, name: str, posts: int = 0, by: str = "alice") -> Enclave:
    """Create a public enclave of `by` with this many posts."""
    owner = Identity(person(by))
    client = Client(node.url, owner, pins=None)
    init = [{"identity": owner.hex, "state": "OWNER", "traits": []}]
    enclave = client.create({**PUBLIC, "meta": {"description": name}, "init": init})
    write(enclave, posts)
    return enclave


def write(enclave: Enclave, posts: int, type_: str = "post", start: int = 0) -> None:
    for n in range(start, start + posts):
        enclave.commit(type_, f"{type_} {n}")


def key_file(directory: Path, name: str) -> str:
    path = directory / f"{name}.key"
    Identity(person(name)).save(path)
    return str(path)


__all__ = ["PERSONAL", "PUBLIC", "create_enclave", "free_port", "key_file", "real_clock", "serving", "write"]
