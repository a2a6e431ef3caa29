"""The state of a group: its epochs, key derivations, and the tree over its members."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct

from enc.core.errors import MisuseError
from enc.core.primitives.derivation import hkdf
from enc.core.primitives.signing import CURVE_ORDER, PrivateKey
from enc.core.sealed_forms.group_tree import Inner, Tree, forget, insert, is_one, path_to, remove


class PublicGroupState(Struct, frozen=True):
    """The public state of a group after its last valid epoch."""

    n: int = -1
    members: frozenset[bytes] = frozenset()
    tree: Tree | None = None
    order: tuple[bytes, ...] = ()
    """The members, sorted, as the id of a set hashes them. Kept, so that no epoch has to sort them
    all again."""


NO_EPOCH = PublicGroupState()

Secrets = Mapping[bytes, bytes]
"""A member's node secrets, by the public keys that they derive."""
NO_SECRETS: Mapping[bytes, bytes] = MappingProxyType({})


class Randomness(Struct, frozen=True):
    """Random values for one epoch, never used twice. `fills` and `nonces` are consumed as
    needed."""

    secret: bytes
    eph: PrivateKey
    fills: Iterator[bytes]
    nonces: Iterator[bytes]


class HeldEpoch(Struct, frozen=True):
    """What a member holds of an epoch that counts."""

    n: int
    root_secret: bytes
    secrets: Secrets

    @property
    def secret(self) -> bytes:
        return epoch_secret(self.root_secret)


def node_key(secret: bytes) -> PrivateKey:
    """Return the key pair of an inner node."""
    number = int.from_bytes(hkdf(secret, "enc:mls:node"), "big") % CURVE_ORDER
    return PrivateKey(number.to_bytes(32, "big"))


def next_secret(secret: bytes) -> bytes:
    """Return the secret of the next node up the path."""
    return hkdf(secret, "enc:mls:path")


def epoch_secret(root_secret: bytes) -> bytes:
    return hkdf(root_secret, "enc:mls:epoch")


# The tree of an epoch


def tree_for(state: PublicGroupState, members: frozenset[bytes]) -> Tree | None:
    """Return the last epoch's tree over these members. Nodes over the same members keep their keys,
    unless a former member may know them."""
    tree, gone = state.tree, state.members - members
    if gone and tree is not None:
        tree = forget(tree, gone)
    for key in gone:
        tree = remove(tree, key)
    for key in members - state.members:
        tree = insert(tree, key)
    return tree


def order_for(state: PublicGroupState, members: frozenset[bytes]) -> tuple[bytes, ...]:
    """Return these members, sorted; fast if few have joined or left."""
    order = list(state.order)
    for key in state.members - members:
        del order[bisect_left(order, key)]
    for key in members - state.members:
        insort(order, key)
    return tuple(order)


def path_levels(tree: Tree, member: bytes) -> list[tuple[Inner, Tree, bool]]:
    """Return, from the member's parent to the root: node, its other child, and whether the member
    is on the right."""
    found = []
    for node in reversed(path_to(tree, member)):
        on_right = is_one(member, node.bit)
        found.append((node, node.left if on_right else node.right, on_right))
    return found


def public_key_of(tree: Tree) -> bytes:
    if tree.key is None:
        raise MisuseError("the node has no key yet")
    return tree.key
