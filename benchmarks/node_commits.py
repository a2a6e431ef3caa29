"""Commits for a node under load: signed before the clock starts, by all cores."""

import time
from collections.abc import Sequence
from itertools import count
from multiprocessing.pool import Pool as Workers

import msgspec

from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Commit

LIFE_MS = 50 * 60_000

AUTHORS = [PrivateKey(bytes([i + 1] * 32)) for i in range(4)]
numbers = count()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def manifest(n: int) -> Commit:
    """Return the Manifest of bench enclave `n`: every author may write messages and read everything."""
    content = {
        "enc_v": 2,
        "states": ["MEMBER"],
        "readers": [{"type": "MEMBER", "reads": "*"}],
        "customs": [{"event": "message", "operator": "MEMBER", "ops": ["C"]}],
        "init": [{"identity": key.public.hex(), "state": "MEMBER", "traits": []} for key in AUTHORS],
        "meta": {"n": n},
    }
    return build_manifest(AUTHORS[0], compact_json(content), now_ms() + LIFE_MS)


def text(i: int) -> str:
    return f"{i:09}" + "x" * 191


def wire(commit: Commit) -> bytes:
    return msgspec.json.encode(wire_commit(commit))


def sign_some(enclaves: Sequence[bytes], first: int, size: int) -> list[bytes]:
    exp = now_ms() + LIFE_MS
    return [
        wire(build_commit(AUTHORS[i % len(AUTHORS)], enclaves[i % len(enclaves)], "message", text(i), exp))
        for i in range(first, first + size)
    ]


def sign(pool: Workers, enclaves: Sequence[bytes], size: int) -> list[bytes]:
    """Sign commits for the enclaves in turn, on all cores; no two are ever the same."""
    first = next(numbers) * 1_000_000
    tasks = [(enclaves, first + i, min(500, size - i)) for i in range(0, size, 500)]
    return [body for part in pool.starmap(sign_some, tasks) for body in part]
