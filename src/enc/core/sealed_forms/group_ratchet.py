"""A group's epochs (docs/protocol.md, section 26): making and checking them.

    propose(state, members, author, randomness)  an admin makes an epoch: the envelope for all, and the root secret
    accept(state, members, author, envelope)     everyone checks it: returns the next state, or raises
    consume(after, author, envelope, key, …)     a member opens it (in group_opening): returns its secrets

A State is public and follows from the log alone. A member's secrets are private, and kept by the
public keys they belong to. Randomness is an argument: fresh secrets, an ephemeral key, nonces.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from msgspec import UNSET

from enc.core.errors import InvalidCommit, MisuseError
from enc.core.primitives.encoding import unhex
from enc.core.primitives.hashing import member_set
from enc.core.primitives.signing import check_public_key
from enc.core.sealed_forms.group_envelope import Envelope, Fill, PathNode, Wrap, wrap_secret
from enc.core.sealed_forms.group_state import (
    HeldEpoch,
    PublicGroupState,
    Randomness,
    next_secret,
    node_key,
    order_for,
    path_levels,
    public_key_of,
    tree_for,
)
from enc.core.sealed_forms.group_tree import Inner, MemberLeaf, Tree


class _Filler(ABC):
    """Gives the blank nodes of a subtree their keys, children before parents, left before right."""

    def __init__(self, author: bytes) -> None:
        self._author = author

    def fill(self, tree: Tree) -> Tree:
        if isinstance(tree, MemberLeaf) or tree.key is not None:
            return tree
        left, right = self.fill(tree.left), self.fill(tree.right)
        taint = left.taint | right.taint | {self._author}
        return Inner(tree.bit, left, right, self.give(public_key_of(left), public_key_of(right)), taint)

    @abstractmethod
    def give(self, left: bytes, right: bytes) -> bytes:
        """Return the public key of the node over two others."""


def _climb(
    levels: Sequence[tuple[Inner, Tree, bool]], filled: Sequence[Tree], keys: Sequence[bytes], author: bytes
) -> Tree:
    """Return the whole tree: the author's path with new keys, between the filled subtrees beside
    it."""
    tree: Tree = MemberLeaf(author)
    for (node, _, on_right), sibling, key in zip(levels, filled, keys, strict=True):
        pair = (sibling, tree) if on_right else (tree, sibling)
        tree = Inner(node.bit, *pair, key, tree.taint | sibling.taint | {author})
    return tree


# Making an epoch


class _EpochMaker(_Filler):
    def __init__(self, author: bytes, randomness: Randomness) -> None:
        super().__init__(author)
        self._randomness = randomness
        self.fills: list[Fill] = []
        self.secrets: dict[bytes, bytes] = {}

    def wrap(self, to: bytes, secret: bytes) -> Wrap:
        return wrap_secret(self._randomness.eph, to, secret, next(self._randomness.nonces))

    def give(self, left: bytes, right: bytes) -> bytes:
        secret = next(self._randomness.fills)
        public = node_key(secret).public
        self.fills.append(Fill(public.hex(), (self.wrap(left, secret), self.wrap(right, secret))))
        return public


def propose(
    state: PublicGroupState,
    members: frozenset[bytes],
    author: bytes,
    randomness: Randomness,
    subs: Mapping[bytes, bytes] | None = None,
) -> tuple[Envelope, HeldEpoch, PublicGroupState]:
    """Make the next epoch of `author` for `members`; `subs` are registered sub-keys, by member."""
    tree = tree_for(state, members)
    if tree is None or author not in members:
        raise MisuseError("author: only a member can make an epoch")
    maker, secret, order = _EpochMaker(author, randomness), randomness.secret, order_for(state, members)
    own = maker.wrap(author, secret)
    levels = path_levels(tree, author)
    filled = [maker.fill(sibling) for _, sibling, _ in levels]
    path_nodes, secrets, keys = list[PathNode](), dict[bytes, bytes](), list[bytes]()
    for i, sibling in enumerate(filled):
        secret = next_secret(secret) if i else secret
        public = node_key(secret).public
        path_nodes.append(PathNode(public.hex(), maker.wrap(public_key_of(sibling), secret)))
        secrets[public] = secret
        keys.append(public)
    envelope = Envelope(
        n=state.n + 1,
        eph=randomness.eph.public.hex(),
        members=member_set(order).hex(),
        self_=own,
        fill=tuple(maker.fills),
        path=tuple(path_nodes),
        or_wraps=tuple(maker.wrap(subs[m], secret) for m in sorted(subs) if m in members) if subs else UNSET,
    )
    after = PublicGroupState(envelope.n, members, _climb(levels, filled, keys, author), order)
    return envelope, HeldEpoch(envelope.n, secret, secrets), after


# Checking an epoch


class _FillChecker(_Filler):
    """Reads the fills of an envelope in order, and checks that each is the expected one."""

    def __init__(self, author: bytes, envelope: Envelope) -> None:
        super().__init__(author)
        self._fills = iter(envelope.fill)
        self.taken = 0

    def give(self, left: bytes, right: bytes) -> bytes:
        fill = next(self._fills, None)
        if fill is None:
            raise InvalidCommit("epoch.fill: a node without a key is not filled")
        name = f"epoch.fill[{self.taken}]"
        if [wrap.to for wrap in fill.wraps] != [left.hex(), right.hex()]:
            raise InvalidCommit(f"{name}.wraps: not sealed to the node's two children")
        self.taken += 1
        return _point(fill.pub, f"{name}.pub")


def accept(state: PublicGroupState, members: frozenset[bytes], author: bytes, envelope: Envelope) -> PublicGroupState:
    """Return the state after a valid epoch. Raises InvalidCommit otherwise; then the event changes
    no key.

    The caller checks that the event is valid, that its author is an admin after it, and that it has
    no `auto-delete` tag.
    """
    if envelope.n != state.n + 1:
        raise InvalidCommit(f"epoch.n: expected {state.n + 1}")
    if author not in members:
        raise InvalidCommit("epoch: its author is not a member")
    order = order_for(state, members)
    if unhex(envelope.members, 32, "epoch.members") != member_set(order):
        raise InvalidCommit("epoch.members: not the members after the event")
    _point(envelope.eph, "epoch.eph")
    if envelope.self_.to != author.hex():
        raise InvalidCommit("epoch.self.to: not the author")
    tree = tree_for(state, members)
    assert tree is not None  # noqa: S101  # the author is in it
    levels = path_levels(tree, author)
    if len(envelope.path) != len(levels):
        raise InvalidCommit(f"epoch.path: expected {len(levels)} nodes")
    reader = _FillChecker(author, envelope)
    filled = [reader.fill(sibling) for _, sibling, _ in levels]
    if reader.taken != len(envelope.fill):
        raise InvalidCommit("epoch.fill: more fills than nodes without a key")
    keys = []
    for i, (path_node, sibling) in enumerate(zip(envelope.path, filled, strict=True)):
        if path_node.wrap.to != public_key_of(sibling).hex():
            raise InvalidCommit(f"epoch.path[{i}].wrap.to: not the sibling's key")
        keys.append(_point(path_node.pub, f"epoch.path[{i}].pub"))
    return PublicGroupState(envelope.n, members, _climb(levels, filled, keys, author), order)


def _point(text: str, field: str) -> bytes:
    public = unhex(text, 32, field)
    check_public_key(public, field)
    return public
