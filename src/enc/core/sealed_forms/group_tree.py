"""The tree of a group's keys (docs/protocol.md, section 26.1): binary, radix, over the members'
public keys.

An inner node marks the bit at which the keys below it first differ, 0 to the left. The tree is
immutable: a change makes new nodes above what changed and shares all others, which keep their keys.
Costs grow with the depth, about log N.
"""

from collections.abc import Iterable

from msgspec import Struct

from enc.core.primitives.hashing import member_set

_EMPTY: frozenset[bytes] = frozenset()


def set_id(members: Iterable[bytes]) -> bytes:
    """Return the id of a set of members."""
    return member_set(sorted(members))


class MemberLeaf(Struct, frozen=True):
    """A member. Its key pair is the member's identity."""

    key: bytes
    taint: frozenset[bytes] = _EMPTY

    @property
    def first(self) -> bytes:
        return self.key


class Inner(Struct, frozen=True):
    """A node at the first bit in which the keys below differ."""

    bit: int
    """The position, 0 first, at which the keys on the left have 0 and those on the right have 1."""
    left: "Tree"
    right: "Tree"
    key: bytes | None = None
    """Public key. If a node has one, so have all nodes below it: a change below removes the keys
    above."""
    taint: frozenset[bytes] = _EMPTY
    """Identities that may know its secret, whether they are below it or not. It includes the taints
    of all nodes below, because a node's key is made with theirs or after them."""

    @property
    def first(self) -> bytes:
        node: Tree = self
        while isinstance(node, Inner):
            node = node.left
        return node.key


Tree = MemberLeaf | Inner


def is_one(key: bytes, bit: int) -> bool:
    return bool(key[bit >> 3] >> (7 - (bit & 7)) & 1)


def _first_difference(a: bytes, b: bytes) -> int:
    """Return the first bit in which two keys differ."""
    return 256 - (int.from_bytes(a, "big") ^ int.from_bytes(b, "big")).bit_length()


def insert(tree: Tree | None, key: bytes) -> Tree:
    """Return the tree with one more member; nodes above it have no key."""
    if tree is None:
        return MemberLeaf(key)
    bit = _first_difference(tree.first, key)
    if isinstance(tree, MemberLeaf) or bit < tree.bit:
        pair = (tree, MemberLeaf(key)) if is_one(key, bit) else (MemberLeaf(key), tree)
        return Inner(bit, *pair)
    if is_one(key, tree.bit):
        return Inner(tree.bit, tree.left, insert(tree.right, key))
    return Inner(tree.bit, insert(tree.left, key), tree.right)


def remove(tree: Tree | None, key: bytes) -> Tree | None:
    """Return the tree without a member; nodes above it have no key."""
    if tree is None or isinstance(tree, MemberLeaf):
        return None
    if is_one(key, tree.bit):
        rest = remove(tree.right, key)
        return tree.left if rest is None else Inner(tree.bit, tree.left, rest)
    rest = remove(tree.left, key)
    return tree.right if rest is None else Inner(tree.bit, rest, tree.right)


def forget(tree: Tree, gone: frozenset[bytes]) -> Tree:
    """Return a tree, of which every node has a key, without the keys that a removed member may
    know."""
    if isinstance(tree, MemberLeaf) or tree.taint.isdisjoint(gone):
        return tree
    return Inner(tree.bit, forget(tree.left, gone), forget(tree.right, gone))


def path_to(tree: Tree, key: bytes) -> list[Inner]:
    """Return the inner nodes from the root to the member's leaf."""
    found: list[Inner] = []
    while isinstance(tree, Inner):
        found.append(tree)
        tree = tree.right if is_one(key, tree.bit) else tree.left
    return found
