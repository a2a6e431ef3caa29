"""The sparse Merkle tree of an enclave's present state: 168 levels, almost all empty
(docs/protocol.md, section 10).

    leaf = H(0x20, key, value)    node = H(0x21, left, right)    a node with two empty children is empty: sha256("")

**What is stored.** Only leaves and forks (nodes with two non-empty children), immutable. The key of each is the hash at
the top of its run of single-child nodes, which is also the hash in its parent fork:

    fork   0x01  depth  path to it, cut to whole bytes  left hash  0x5820  right hash
    leaf   0x00  length of value  key  value  marks

So a tree of n random keys stores two nodes a leaf, an update stores O(log n) nodes a key, and every
older root remains readable without a copy. A fork ends in exactly the bytes that are hashed after
the fixed beginning. A leaf's *marks* are the hashes of its run at the depths MARKS, deepest first,
as far as they are below its top. When a new key branches off the run, they give the leaf's hash
further down in a few steps instead of up to 168.

All functions read through a TreeNodeReader and return new nodes. They write nothing.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from itertools import chain, islice
from typing import Protocol

from enc.core.errors import InvalidProof, MisuseError
from enc.core.primitives.hashing import EMPTY_HASH as EMPTY
from enc.core.primitives.types import StateProof

DEPTH = 168
KEY_SIZE = 21
MARKS = (40, 32, 24, 16)

TreeNodes = dict[bytes, bytes]
"""New nodes to store, by hash."""


class TreeNodeReader(Protocol):
    """Reads stored nodes by hash."""

    def read_node(self, node_hash: bytes) -> bytes: ...


_NODE = b"\x83\x18\x21\x58\x20"  # CBOR of [0x21, bytes(32) …
_BYTES32 = b"\x58\x20"
_NO_RIGHT = _BYTES32 + EMPTY
# Copying a hash object that has consumed the fixed beginning is faster than making a new one.
_begin = sha256(_NODE).copy
_begin_no_left = sha256(_NODE + EMPTY + _BYTES32).copy
# For each byte of a key, whether its run turns right at its eight depths, deepest first.
_turns = [tuple(byte >> bit & 1 for bit in range(8)) for byte in range(256)].__getitem__


def _node(pair: bytes) -> bytes:
    """Return the hash of a node, given its two children as `left || 0x5820 || right`."""
    hasher = _begin()
    hasher.update(pair)
    return hasher.digest()


def _leaf(key: bytes, value: bytes) -> bytes:
    size = len(value)
    head = b"\x58%c" % size if size > 23 else b"%c" % (0x40 + size)
    return sha256(b"\x83\x18\x20\x55%b%b%b" % (key, head, value)).digest()


def _climb(key: bytes, node: bytes, start: int, end: int) -> bytes:
    """Return the hash at depth `end` of a run along `key` whose hash at depth `start` is `node`.

    Nine tenths of all hashing happens in this loop.
    """
    begin, begin_no_left, no_right = _begin, _begin_no_left, _NO_RIGHT
    turns = chain.from_iterable(map(_turns, key[start - 1 >> 3 :: -1]))
    for right in islice(turns, -start % 8, -start % 8 + start - end):
        if right:
            hasher = begin_no_left()
            hasher.update(node)
        else:
            hasher = begin()
            hasher.update(node + no_right)
        node = hasher.digest()
    return node


def _number(key: bytes) -> int:
    return int.from_bytes(key, "big")


def _shared(a: int, b: int) -> int:
    """Return how many leading bits two keys share."""
    return DEPTH - (a ^ b).bit_length()


# Stored nodes are handled in their stored form. The first byte distinguishes a fork from a leaf.


def _end(record: bytes) -> int:
    """Return the depth of a fork; for a leaf, whose run ends at the bottom, DEPTH."""
    return record[1] if record[0] else DEPTH


def _path(record: bytes) -> int:
    """Return some key below this node, as a number."""
    if record[0]:
        return _number(record[2:-66]) << DEPTH - 8 * (len(record) - 68)
    return _number(record[2:23])


def _value(record: bytes) -> bytes:
    return record[23 : 23 + record[1]]


def _fork_head(depth: int, number: int) -> bytes:
    return b"\x01%c%b" % (depth, (number >> DEPTH - depth << -depth % 8).to_bytes(depth + 7 >> 3, "big"))


def _fork_at(record: bytes, top: int) -> bytes:
    """Return the hash of a fork's run at depth `top`."""
    node, depth = _node(record[-66:]), record[1]
    return _climb(_path(record).to_bytes(KEY_SIZE, "big"), node, depth, top) if depth > top else node


@lru_cache(maxsize=4_096)
def _leaf_at_mark(key: bytes, value: bytes) -> bytes:
    """Return the hash of a leaf's run at its deepest mark. Cached, because an identity that joins
    and leaves has one of few values each time."""
    return _climb(key, _leaf(key, value), DEPTH, MARKS[0])


def hash_leaves(changes: Mapping[bytes, bytes | None]) -> Iterator[None]:
    """Hash the leaves of these changes, one by one, for an `update` that follows soon: it then takes
    a third of the time."""
    for key, value in changes.items():
        if value is not None:
            _leaf_at_mark(key, value)
            yield


def _leaf_up(key: bytes, marks: bytes, node: bytes, at: int, top: int) -> tuple[bytes, bytes]:
    """Return the hash of a leaf's run at depth `top`, climbing from `node` at depth `at`; and the
    marks, including those passed on the way."""
    for mark in MARKS[len(marks) >> 5 :]:
        if mark <= top:
            break
        if mark < at:
            at, node = mark, _climb(key, node, at, mark)
        marks += node
    return (_climb(key, node, at, top) if at > top else node), marks


def _leaf_down(record: bytes, top: int) -> tuple[bytes, bytes]:
    """Return the hash of a leaf's run at a depth `top` below its own, from the nearest mark; and
    the marks below."""
    key, value, marks = record[2:23], _value(record), record[23 + record[1] :]
    kept = len(marks) >> 5
    while kept and MARKS[kept - 1] <= top:
        kept -= 1
    marks = marks[: 32 * kept]
    at, node = (MARKS[kept - 1], marks[-32:]) if kept else (DEPTH, _leaf(key, value))
    return _climb(key, node, at, top), marks


class _Update:
    """One batch: the sorted changes, and the nodes made so far.

    A subtree is given by the hash at its top, at the depth just below its parent fork; None if it
    is empty.
    """

    def __init__(self, reader: TreeNodeReader, changes: Mapping[bytes, bytes | None]) -> None:
        if any(len(k) != KEY_SIZE or not (v is None or 0 < len(v) < 256) for k, v in changes.items()):
            raise MisuseError("a key must be 21 bytes, a value 1 to 255")
        self.read = reader.read_node
        self.keys = sorted(changes)
        self.numbers = [_number(key) for key in self.keys]
        self.values = [changes[key] for key in self.keys]
        self.nodes: TreeNodes = {}

    def apply(self, node: bytes, top: int, low: int, high: int) -> bytes | None:
        """Return the subtree `node` after changes [low, high), all below its parent. Without
        changes it is not read."""
        if high - low > 1:
            return self._merge(self.read(node), node, top, top, low, high)
        return node if low == high else self._change(node, top, low)

    def build(self, low: int, high: int, top: int) -> bytes | None:
        """Return a new subtree from changes [low, high) alone."""
        if high - low < 2:
            return None if low == high else self._put_leaf(low, top)
        number = self.numbers[low]
        depth = _shared(number, self.numbers[high - 1])
        middle = self._split(number, depth, low, high)
        left, right = self.build(low, middle, depth + 1), self.build(middle, high, depth + 1)
        return self._join(_fork_head(depth, number), number, top, left, right)

    def _merge(self, record: bytes, node: bytes, at: int, top: int, low: int, high: int) -> bytes | None:
        """Place the stored `record`, whose hash at depth `at` is `node`, with changes [low, high)
        at depth `top`."""
        number, end = _path(record), _end(record)
        # Depth at which the changes first branch off the run that leads here. They are sorted, so the outermost two
        # determine it.
        parting = DEPTH - ((self.numbers[low] ^ number) | (self.numbers[high - 1] ^ number)).bit_length()
        if parting < end:
            middle, below = self._split(number, parting, low, high), parting + 1
            if number >> DEPTH - below & 1:
                left = self.build(low, middle, below)
                right = self._merge_or_move(record, node, at, below, middle, high)
            else:
                left = self._merge_or_move(record, node, at, below, low, middle)
                right = self.build(middle, high, below)
            return self._join(_fork_head(parting, number), number, top, left, right)
        if end == DEPTH:
            return self._put_leaf(low, top)
        middle = self._split(number, end, low, high)
        left = self.apply(record[-66:-34], end + 1, low, middle)
        right = self.apply(record[-32:], end + 1, middle, high)
        return self._join(record[:-66], number, top, left, right)

    def _merge_or_move(self, record: bytes, node: bytes, at: int, top: int, low: int, high: int) -> bytes | None:
        if low == high:
            return self._move(record, node, at, top)
        return self._merge(record, node, at, top, low, high)

    def _change(self, node: bytes, top: int, index: int) -> bytes | None:
        """Do what `apply` does for one change, the most common case: a loop down and a loop up.

        The first loop descends to some leaf without comparing paths. The forks below the depth
        where that leaf branches off the key are not on the key's path, so the new leaf belongs
        above them.
        """
        number, value, start, read = self.numbers[index], self.values[index], node, self.read
        forks: list[tuple[bytes, int, int]] = []
        while (record := read(node))[0]:
            depth = record[1]
            right = number >> DEPTH - 1 - depth & 1
            forks.append((record, right, top))
            node, top = record[-32:] if right else record[-66:-34], depth + 1
        parting = DEPTH - (number ^ int.from_bytes(record[2:23], "big")).bit_length()
        if value == (_value(record) if parting == DEPTH else None):
            return start
        if parting == DEPTH:
            return self._rise(forks, index, self._put_leaf(index, top))
        while forks and forks[-1][0][1] > parting:
            record, _, top = forks.pop()
        near, far = self._put_leaf(index, parting + 1), self._move(record, node, top, parting + 1)
        left, right_ = (far, near) if number >> DEPTH - 1 - parting & 1 else (near, far)
        return self._rise(forks, index, self._join(_fork_head(parting, number), number, top, left, right_))

    def _rise(self, forks: list[tuple[bytes, int, int]], index: int, tree: bytes | None) -> bytes | None:
        """Rebuild the forks above a changed subtree, up to the top."""
        key, nodes, begin = self.keys[index], self.nodes, _begin
        for record, right, top in reversed(forks):
            if tree is None:
                tree = self._lift(record[-66:-34] if right else record[-32:], record[1] + 1, top)
                continue
            record = record[:-32] + tree if right else record[:-66] + tree + record[-34:]
            hasher = begin()
            hasher.update(record[-66:])
            tree = hasher.digest()
            if record[1] > top:
                tree = _climb(key, tree, record[1], top)
            nodes[tree] = record
        return tree

    def _split(self, number: int, depth: int, low: int, high: int) -> int:
        """Return the first change in [low, high) that goes right at `depth`; above it, all follow
        `number`'s path."""
        below = DEPTH - 1 - depth
        return bisect_left(self.numbers, (number >> below | 1) << below, low, high)

    def _join(self, head: bytes, number: int, top: int, left: bytes | None, right: bytes | None) -> bytes | None:
        """Place a fork of two subtrees, or the one that is not empty, at depth `top`."""
        depth = head[1]
        if left is None or right is None:
            only = right if left is None else left
            return only and self._lift(only, depth + 1, top)
        node = _node(pair := left + _BYTES32 + right)
        if depth > top:
            node = _climb(number.to_bytes(KEY_SIZE, "big"), node, depth, top)
        self.nodes[node] = head + pair
        return node

    def _put_leaf(self, index: int, top: int) -> bytes | None:
        """Build the leaf of one change from the bottom up; return None if the change removes it."""
        key, value = self.keys[index], self.values[index]
        if value is None:
            return None
        mark = MARKS[0]
        if top < mark:
            found = _leaf_at_mark(key, value)
            node, marks = _leaf_up(key, found, found, mark, top)
        else:
            node, marks = _leaf_up(key, b"", _leaf(key, value), DEPTH, top)
        self.nodes[node] = b"\x00%c%b%b%b" % (len(value), key, value, marks)
        return node

    def _lift(self, node: bytes, at: int, top: int) -> bytes:
        """Place a subtree that lost its sibling higher up. If this batch made it, drop it from its
        old place."""
        return self._move(self.nodes.pop(node, b"") or self.read(node), node, at, top)

    def _move(self, record: bytes, node: bytes, at: int, top: int) -> bytes:
        """Place the stored `record`, whose hash at depth `at` is `node`, at depth `top`."""
        if record[0]:
            node = _fork_at(record, top)
            self.nodes[node] = record
            return node
        size = 23 + record[1]
        if top > at:
            node, marks = _leaf_down(record, top)
        else:
            node, marks = _leaf_up(record[2:23], record[size:], node, at, top)
        self.nodes[node] = record[:size] + marks
        return node


def update(reader: TreeNodeReader, root: bytes, changes: Mapping[bytes, bytes | None]) -> tuple[bytes, TreeNodes]:
    """Set these keys, or remove those with None; return the new root and the new nodes. Each is
    hashed once."""
    batch = _Update(reader, changes)
    count = len(batch.keys)
    tree = batch.build(0, count, 0) if root == EMPTY else batch.apply(root, 0, 0, count)
    return tree or EMPTY, batch.nodes


def children(record: bytes) -> tuple[bytes, ...]:
    """Return the hashes of the two nodes below a stored fork; a leaf has none."""
    return (record[-66:-34], record[-32:]) if record[0] else ()


def is_node(node_hash: bytes, record: bytes) -> bool:
    """Return whether a record is exactly what some tree stores under this hash."""
    kind, size = record[:1], len(record)
    if kind == b"\x00" and size > KEY_SIZE and size >= 23 + record[1]:
        key, value = record[2:23], _value(record)
        top = _top(key, node := _leaf(key, value), DEPTH, node_hash)
        return top is not None and record[23 + record[1] :] == _leaf_up(key, b"", node, DEPTH, top)[1]
    if kind == b"\x01" and size > KEY_SIZE and size == 68 + (record[1] + 7 >> 3) and record[1] < DEPTH:
        number = _path(record)
        top = _top(number.to_bytes(KEY_SIZE, "big"), _node(record[-66:]), record[1], node_hash)
        return top is not None and record[:-66] == _fork_head(record[1], number)
    return False


def _top(key: bytes, node: bytes, depth: int, wanted: bytes) -> int | None:
    """Return the depth at which the run along `key` has the wanted hash, if it has."""
    while node != wanted and depth:
        depth, node = depth - 1, _climb(key, node, depth, depth - 1)
    return depth if node == wanted else None


def get(reader: TreeNodeReader, root: bytes, key: bytes) -> bytes | None:
    """Return the value at `key` under `root`; None if there is none."""
    for record in _walk(reader, root, key):
        if not record[0]:
            return _value(record) if record[2:23] == key else None
    return None


def _walk(reader: TreeNodeReader, root: bytes, key: bytes) -> Iterator[bytes]:
    """Yield the stored nodes from the root towards `key`, down to a leaf or to the fork whose run
    branches off it."""
    number, node = _number(key), root
    while node != EMPTY:
        record = reader.read_node(node)
        yield record
        if _shared(number, _path(record)) < record[1] or not record[0]:
            return
        node = record[-32:] if number >> DEPTH - 1 - record[1] & 1 else record[-66:-34]


def prove(reader: TreeNodeReader, root: bytes, key: bytes) -> StateProof:
    """Prove the value at `key` under `root`, or that there is none. O(log n) reads."""
    number, bitmap, siblings, value = _number(key), bytearray(KEY_SIZE), [], None
    for record in _walk(reader, root, key):
        depth = min(_shared(number, _path(record)), _end(record))
        if depth == DEPTH:
            value = _value(record)
            break
        if not record[0]:
            sibling = _leaf_down(record, depth + 1)[0]
        elif depth < record[1]:
            sibling = _fork_at(record, depth + 1)
        else:
            sibling = record[-66:-34] if number >> DEPTH - 1 - depth & 1 else record[-32:]
        siblings.append(sibling)
        bitmap[depth >> 3] |= 1 << depth % 8
    return StateProof(key, value, bytes(bitmap), tuple(siblings))


def check_state(proof: StateProof, key: bytes, root: bytes) -> None:
    """Check that the tree with this root holds `proof.v` at `key`, or nothing if that is None.

    Raises InvalidProof, also for another key, for more or fewer siblings than the bitmap says, and
    for a listed sibling that is the empty hash.
    """
    if proof.k != key:
        raise InvalidProof("state: the proof is for another key")
    if len(proof.b) != KEY_SIZE or len(key) != KEY_SIZE:
        raise InvalidProof("state: key and bitmap have 21 bytes")
    if proof.v is not None and not 0 < len(proof.v) < 256:
        raise InvalidProof("state: a value has 1 to 255 bytes")
    if EMPTY in proof.s:
        raise InvalidProof("state: an empty sibling is listed")
    if sum(byte.bit_count() for byte in proof.b) != len(proof.s):
        raise InvalidProof("state: the bitmap and the siblings differ in number")
    node = EMPTY if proof.v is None else _leaf(key, proof.v)
    siblings = list(proof.s)
    for depth in reversed(range(DEPTH)):
        sibling = siblings.pop() if proof.b[depth >> 3] >> depth % 8 & 1 else EMPTY
        if node == sibling == EMPTY:
            continue
        right = key[depth >> 3] >> 7 - depth % 8 & 1
        node = _node(sibling + _BYTES32 + node if right else node + _BYTES32 + sibling)
    if node != root:
        raise InvalidProof("state: the path leads to another root")


def leaves(reader: TreeNodeReader, root: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield every (key, value) under `root`, by rising key."""
    waiting = [] if root == EMPTY else [root]
    while waiting:
        record = reader.read_node(waiting.pop())
        if record[0]:
            waiting += reversed(children(record))
        else:
            yield record[2:23], _value(record)
