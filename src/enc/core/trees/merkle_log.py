"""The log: an append-only Merkle tree over bundles, RFC 9162 section 2.1 with H() (protocol section
4).

Only perfect subtrees are stored, each once, under (level, index): the subtree over leaves [index ·
2^level, (index + 1) · 2^level). All other hashes are computed from them. A proof reads O(log n) of
them through a LogNodeReader. Appending reads none, because the right edge holds the subtrees that a
new leaf may join.
"""

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from enc.core.errors import InvalidProof, InvalidRange, LeafNotFound
from enc.core.primitives.hashing import EMPTY_HASH, log_node
from enc.core.primitives.types import ConsistencyProof, InclusionProof


class LogNodeReader(Protocol):
    """Reads stored perfect subtrees. Level 0 holds the leaves."""

    def read_hash(self, level: int, index: int) -> bytes: ...


LogNodes = dict[tuple[int, int], bytes]
"""New perfect subtrees to store, by (level, index)."""


class Edge(Struct, frozen=True):
    """The right edge of a log of `size` leaves: the roots of its perfect subtrees, largest
    first."""

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def append(self, leaf: bytes) -> tuple["Edge", LogNodes]:
        """Return the edge after one more leaf, and the new nodes."""
        return self.extend([leaf])

    def with_leaf(self, leaf: bytes) -> "Edge":
        """Return the edge after one more leaf, for callers that store no nodes."""
        node, index, peaks = leaf, self.size, self.peaks
        end = len(peaks)
        while index & 1:
            end, index = end - 1, index >> 1
            node = log_node(peaks[end], node)
        return Edge(self.size + 1, (*peaks[:end], node))

    def with_leaves(self, leaves: Iterable[bytes]) -> "Edge":
        """Return the edge after these leaves, for callers that store no nodes."""
        size, peaks = self.size, list(self.peaks)
        for leaf in leaves:
            node, index = leaf, size
            while index & 1:
                node, index = log_node(peaks.pop(), node), index >> 1
            peaks.append(node)
            size += 1
        return Edge(size, tuple(peaks))

    def extend(self, leaves: Iterable[bytes]) -> tuple["Edge", LogNodes]:
        """Return the edge after these leaves, and the new nodes. One hash a leaf, amortised."""
        size, peaks, new = self.size, list(self.peaks), {}
        for leaf in leaves:
            node, level, index = leaf, 0, size
            new[0, index] = leaf
            while index & 1:
                node, level, index = log_node(peaks.pop(), node), level + 1, index >> 1
                new[level, index] = node
            peaks.append(node)
            size += 1
        return Edge(size, tuple(peaks)), new

    def root(self) -> bytes:
        """Return the root: O(log n) hashes."""
        if not self.peaks:
            return EMPTY_HASH
        *rest, root = self.peaks
        for peak in reversed(rest):
            root = log_node(peak, root)
        return root


def read_edge(reader: LogNodeReader, size: int) -> Edge:
    """Return the edge that a log had at `size`: one read for each bit that is set in `size`."""
    peaks, start = [], 0
    for level in reversed(range(size.bit_length())):
        if size >> level & 1:
            peaks.append(reader.read_hash(level, start >> level))
            start += 1 << level
    return Edge(size, tuple(peaks))


def _split(size: int) -> int:
    """Return the largest power of two below `size` (size > 1)."""
    return 1 << (size - 1).bit_length() - 1


def _subtree(reader: LogNodeReader, start: int, size: int) -> bytes:
    """Return MTH(D[start : start + size]); `start` is a multiple of the largest power of two in
    `size`."""
    peaks, end = [], start + size
    while start < end:
        level = (end - start).bit_length() - 1
        peaks.append(reader.read_hash(level, start >> level))
        start += 1 << level
    root = peaks.pop()
    while peaks:
        root = log_node(peaks.pop(), root)
    return root


def prove_inclusion(reader: LogNodeReader, index: int, size: int) -> InclusionProof:
    """Prove by RFC 9162 section 2.1.3.1 that leaf `index` is in the log of `size` leaves. O(log
    size) reads.

    The caller bounds `size`: the LogNodeReader must hold that many leaves.
    """
    if not 0 <= index < size:
        raise LeafNotFound(f"leaf_index: {index} is not below the tree size {size}")
    path: list[bytes] = []
    start, left = 0, size
    while left > 1:
        half = _split(left)
        if index - start < half:
            path.append(_subtree(reader, start + half, left - half))
            left = half
        else:
            path.append(_subtree(reader, start, half))
            start, left = start + half, left - half
    return InclusionProof(size, index, tuple(reversed(path)))


def check_inclusion(proof: InclusionProof, leaf: bytes, root: bytes) -> None:
    """Check an inclusion proof by RFC 9162 section 2.1.3.2; raise InvalidProof if it fails."""
    if not 0 <= proof.li < proof.ts:
        raise InvalidProof("inclusion: the leaf index is not below the tree size")
    fn, sn, found = proof.li, proof.ts - 1, leaf
    for p in proof.p:
        if sn == 0:
            raise InvalidProof("inclusion: the path is too long")
        if fn & 1 or fn == sn:
            found = log_node(p, found)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            found = log_node(found, p)
        fn, sn = fn >> 1, sn >> 1
    if sn:
        raise InvalidProof("inclusion: the path is too short")
    if found != root:
        raise InvalidProof("inclusion: the path leads to another root")


def prove_consistency(reader: LogNodeReader, first: int, second: int) -> ConsistencyProof:
    """Prove by RFC 9162 section 2.1.4.1 that the log of `first` leaves is a prefix of that of
    `second`.

    O(log second) reads. For equal sizes the path is the one root. The caller bounds `second`: the
    LogNodeReader must hold that many leaves.
    """
    if not 0 < first <= second:
        raise InvalidRange(f"from must be 1 to {second}")
    if first == second:
        return ConsistencyProof(first, second, (_subtree(reader, 0, first),))
    path: list[bytes] = []
    start, left, end, whole = 0, second, first, True
    while end - start != left:
        half = _split(left)
        if end - start <= half:
            path.append(_subtree(reader, start + half, left - half))
            left = half
        else:
            path.append(_subtree(reader, start, half))
            start, left, whole = start + half, left - half, False
    if not whole:
        path.append(_subtree(reader, start, left))
    return ConsistencyProof(first, second, tuple(reversed(path)))


def check_consistency(proof: ConsistencyProof, first_root: bytes, second_root: bytes) -> None:
    """Check a consistency proof by RFC 9162 section 2.1.4.2; raise InvalidProof if it fails."""
    first, second, path = proof.ts1, proof.ts2, list(proof.p)
    if not 0 < first <= second:
        raise InvalidProof("consistency: the sizes are out of order or zero")
    if first == second:
        if path != [first_root] or first_root != second_root:
            raise InvalidProof("consistency: equal sizes with different roots")
        return
    if first & (first - 1) == 0:
        path.insert(0, first_root)
    found_first, found_second = _fold_consistency(first, second, path)
    if found_first != first_root:
        raise InvalidProof("consistency: the path does not lead to the first root")
    if found_second != second_root:
        raise InvalidProof("consistency: the path does not lead to the second root")


def _fold_consistency(first: int, second: int, path: list[bytes]) -> tuple[bytes, bytes]:
    """Do steps 3 to 6: return the two roots that the path leads to."""
    if not path:
        raise InvalidProof("consistency: the path is too short")
    fn, sn = first - 1, second - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    fr = sr = path[0]
    for c in path[1:]:
        if sn == 0:
            raise InvalidProof("consistency: the path is too long")
        if fn & 1 or fn == sn:
            fr, sr = log_node(c, fr), log_node(c, sr)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = log_node(sr, c)
        fn, sn = fn >> 1, sn >> 1
    if sn:
        raise InvalidProof("consistency: the path is too short")
    return fr, sr
