"""The keys of a fleet's people, nodes and strangers, derived from its seed."""

from functools import lru_cache
from typing import Literal

from enc.core.primitives.hashing import sha256
from enc.core.primitives.signing import CURVE_ORDER, PrivateKey

Role = Literal["person", "node", "stranger"]

NODES = 8
"""Nodes that host a fleet."""
SOURCES = ("alice", "bob", "carol", "dave", "erin", "frank")
"""People who collect heads."""


@lru_cache(maxsize=8192)
def key_of(seed: int, role: Role, number: int) -> PrivateKey:
    """Return a participant's key, the same in every process. Cached, since people write often."""
    digest = int.from_bytes(sha256(f"enc-bench:{seed}:{role}:{number}".encode()), "big")
    return PrivateKey((1 + digest % (CURVE_ORDER - 1)).to_bytes(32, "big"))


def population(enclaves: int) -> int:
    """Return the number of people of a fleet: most are in several enclaves."""
    return min(4096, max(32, 2 * enclaves))
