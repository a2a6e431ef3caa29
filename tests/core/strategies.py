"""Helpers of the kernel's tests: hypothesis strategies, single-bit changes, a counting store."""

from collections.abc import Iterator
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st


def examples(count: int = 100) -> settings:
    """Return settings with this number of examples and no deadline, for slow machines."""
    return settings(max_examples=count, deadline=None)


MAX_INT = 2**53 - 1

WIDTH_BORDERS = (0, 1, 23, 24, 25, 255, 256, 257, 65_535, 65_536, 65_537, 2**32 - 1, 2**32, 2**32 + 1, MAX_INT)
"""Integers below, at and above each change of the width of a CBOR head, and our largest number."""

uints = st.one_of(st.sampled_from(WIDTH_BORDERS), st.integers(0, MAX_INT))
hashes = st.binary(min_size=32, max_size=32)
signatures = st.binary(min_size=64, max_size=64)
texts = st.text(st.characters(exclude_categories=["Cs"]))
"""Any Unicode text: everything but surrogates."""


def anything(*values: Any) -> tuple[Any, ...]:
    """Return values of any types, for loops over malformed input."""
    return values


def flips(raw: bytes) -> Iterator[bytes]:
    """Yield every single-bit change of `raw`."""
    for i in range(8 * len(raw)):
        changed = bytearray(raw)
        changed[i >> 3] ^= 1 << i % 8
        yield bytes(changed)


def flip(raw: bytes, bit: int = 0) -> bytes:
    """Return `raw` with one bit changed."""
    changed = bytearray(raw)
    changed[bit >> 3] ^= 1 << bit % 8
    return bytes(changed)


class CountingStore:
    """A Reader of log and sparse tree that counts what is read."""

    def __init__(self) -> None:
        self.log_nodes: dict[tuple[int, int], bytes] = {}
        self.tree_nodes: dict[bytes, bytes] = {}
        self.reads = 0

    def read_hash(self, level: int, index: int) -> bytes:
        self.reads += 1
        return self.log_nodes[level, index]

    def read_node(self, node_hash: bytes) -> bytes:
        self.reads += 1
        return self.tree_nodes[node_hash]
