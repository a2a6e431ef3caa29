"""A group's epochs (docs/protocol.md, section 26): making, checking and opening them.

    propose(state, members, author, randomness)  an admin makes an epoch: the envelope for all, and the root secret
    accept(state, members, author, envelope)     everyone checks it: returns the next state, or raises
    consume(after, author, envelope, key, …)     a member opens it: returns the member's secrets

A State is public and follows from the log alone. A member's secrets are private, and kept by the
public keys they belong to. Randomness is an argument: fresh secrets, an ephemeral key, nonces.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import UNSET, Struct

from enc.core.apps.group_envelope import Envelope, Fill, PathNode, Wrap, unwrap, wrap_secret
from enc.core.apps.group_tree import Inner, Leaf, Tree, forget, insert, is_one, path_to, remove
from enc.core.errors import DecryptFailed, InvalidCommit, MisuseError
from enc.core.primitives.encoding import unhex
from enc.core.primitives.hashing import member_set
from enc.core.primitives.sealing import hkdf
from enc.core.primitives.signing import CURVE_ORDER, PrivateKey, check_public_key


class State(Struct, frozen=True):
    """The public state of a group after its last valid epoch."""

    n: int = -1
    members: frozenset[bytes] = frozenset()
    tree: Tree | None = None
    order: tuple[bytes, ...] = ()
    """The members, sorted, as the id of a set hashes them. Kept, so that no epoch has to sort them
    all again."""


NO_EPOCH = State()

Secrets = Mapping[bytes, bytes]
"""A member's node secrets, by the public keys that they derive."""
_NONE: Mapping[bytes, bytes] = MappingProxyType({})


class Randomness(Struct, frozen=True):
    """Random values for one epoch, never used twice. `fills` and `nonces` are consumed as
    needed."""

    secret: bytes
    eph: PrivateKey
    fills: Iterator[bytes]
    nonces: Iterator[bytes]


class Epoch(Struct, frozen=True):
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


def tree_for(state: State, members: frozenset[bytes]) -> Tree | None:
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


def order_for(state: State, members: frozenset[bytes]) -> tuple[bytes, ...]:
    """Return these members, sorted; fast if few have joined or left."""
    order = list(state.order)
    for key in state.members - members:
        del order[bisect_left(order, key)]
    for key in members - state.members:
        insort(order, key)
    return tuple(order)


def _siblings(tree: Tree, member: bytes) -> list[tuple[Inner, Tree, bool]]:
    """Return, from the member's parent to the root: node, its other child, and whether the member
    is on the right."""
    found = []
    for node in reversed(path_to(tree, member)):
        on_right = is_one(member, node.bit)
        found.append((node, node.left if on_right else node.right, on_right))
    return found


def _key(tree: Tree) -> bytes:
    if tree.key is None:
        raise MisuseError("the node has no key yet")
    return tree.key


class _Filler(ABC):
    """Gives the blank nodes of a subtree their keys, children before parents, left before right."""

    def __init__(self, author: bytes) -> None:
        self._author = author

    def fill(self, tree: Tree) -> Tree:
        if isinstance(tree, Leaf) or tree.key is not None:
            return tree
        left, right = self.fill(tree.left), self.fill(tree.right)
        taint = left.taint | right.taint | {self._author}
        return Inner(tree.bit, left, right, self.give(_key(left), _key(right)), taint)

    @abstractmethod
    def give(self, left: bytes, right: bytes) -> bytes:
        """Return the public key of the node over two others."""


def _climb(
    levels: Sequence[tuple[Inner, Tree, bool]], filled: Sequence[Tree], keys: Sequence[bytes], author: bytes
) -> Tree:
    """Return the whole tree: the author's path with new keys, between the filled subtrees beside
    it."""
    tree: Tree = Leaf(author)
    for (node, _, on_right), sibling, key in zip(levels, filled, keys, strict=True):
        pair = (sibling, tree) if on_right else (tree, sibling)
        tree = Inner(node.bit, *pair, key, tree.taint | sibling.taint | {author})
    return tree


# Making an epoch


class _Maker(_Filler):
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
    state: State, members: frozenset[bytes], author: bytes, randomness: Randomness, subs: Mapping[bytes, bytes] = _NONE
) -> tuple[Envelope, Epoch, State]:
    """Make the next epoch of `author` for `members`; `subs` are registered sub-keys, by member."""
    tree = tree_for(state, members)
    if tree is None or author not in members:
        raise MisuseError("author: only a member can make an epoch")
    maker, secret, order = _Maker(author, randomness), randomness.secret, order_for(state, members)
    own = maker.wrap(author, secret)
    levels = _siblings(tree, author)
    filled = [maker.fill(sibling) for _, sibling, _ in levels]
    rungs, secrets, keys = list[PathNode](), dict[bytes, bytes](), list[bytes]()
    for i, sibling in enumerate(filled):
        secret = next_secret(secret) if i else secret
        public = node_key(secret).public
        rungs.append(PathNode(public.hex(), maker.wrap(_key(sibling), secret)))
        secrets[public] = secret
        keys.append(public)
    envelope = Envelope(
        n=state.n + 1,
        eph=randomness.eph.public.hex(),
        members=member_set(order).hex(),
        self_=own,
        fill=tuple(maker.fills),
        path=tuple(rungs),
        or_wraps=tuple(maker.wrap(subs[m], secret) for m in sorted(subs) if m in members) if subs else UNSET,
    )
    after = State(envelope.n, members, _climb(levels, filled, keys, author), order)
    return envelope, Epoch(envelope.n, secret, secrets), after


# Checking an epoch


class _Reader(_Filler):
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


def accept(state: State, members: frozenset[bytes], author: bytes, envelope: Envelope) -> State:
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
    levels = _siblings(tree, author)
    if len(envelope.path) != len(levels):
        raise InvalidCommit(f"epoch.path: expected {len(levels)} nodes")
    reader = _Reader(author, envelope)
    filled = [reader.fill(sibling) for _, sibling, _ in levels]
    if reader.taken != len(envelope.fill):
        raise InvalidCommit("epoch.fill: more fills than nodes without a key")
    keys = []
    for i, (rung, sibling) in enumerate(zip(envelope.path, filled, strict=True)):
        if rung.wrap.to != _key(sibling).hex():
            raise InvalidCommit(f"epoch.path[{i}].wrap.to: not the sibling's key")
        keys.append(_point(rung.pub, f"epoch.path[{i}].pub"))
    return State(envelope.n, members, _climb(levels, filled, keys, author), order)


def _point(text: str, field: str) -> bytes:
    public = unhex(text, 32, field)
    check_public_key(public, field)
    return public


# Opening an epoch


def consume(
    after: State,
    author: bytes,
    envelope: Envelope,
    key: PrivateKey,
    secrets: Secrets = _NONE,
    fitting: dict[bytes, bytes] | None = None,
) -> Epoch:
    """Return the secrets of the epoch that made `after`, for the member with identity `key` and the
    earlier `secrets`.

    Raises DecryptFailed if the author left this member out, by mistake or not. The public state is
    valid all the same. Also then, `fitting` collects every secret that derives its announced key:
    later epochs may be sealed to such a key.
    """
    if after.tree is None or key.public not in after.members:
        raise MisuseError("key: only a member can open an epoch")
    eph = unhex(envelope.eph, 32, "epoch.eph")
    held = {} if fitting is None else fitting
    held |= secrets
    if key.public == author:
        return _from_self(after, envelope, unwrap(key, eph, envelope.self_), key.public, held)
    _open_fills(envelope, eph, key, held)
    path = path_to(after.tree, author)
    meeting = next(i for i, node in enumerate(path) if is_one(key.public, node.bit) != is_one(author, node.bit))
    rung = len(path) - 1 - meeting
    secret = _open_wrap(envelope.path[rung].wrap, eph, key, held)
    return _finish(after, envelope, rung, secret, key.public, held)


def _from_self(after: State, envelope: Envelope, secret: bytes, member: bytes, held: dict[bytes, bytes]) -> Epoch:
    if not envelope.path:
        return Epoch(after.n, secret, {})
    return _finish(after, envelope, 0, secret, member, held)


def consume_handoff(envelope: Envelope, root_secret: bytes) -> Epoch:
    """Return the epoch of a root secret that was handed over. Raises DecryptFailed unless it
    derives the announced root key."""
    if envelope.path and node_key(root_secret).public.hex() != envelope.path[-1].pub:
        raise DecryptFailed("handoff: not the root secret of this epoch")
    return Epoch(envelope.n, root_secret, {})


def _open_fills(envelope: Envelope, eph: bytes, key: PrivateKey, held: dict[bytes, bytes]) -> None:
    """Add the secrets of filled nodes above the member to `held`, each opened with the key of the
    node below."""
    for i, fill in enumerate(envelope.fill):
        for wrap in fill.wraps:
            if wrap.to == key.public.hex() or bytes.fromhex(wrap.to) in held:
                secret = _open_wrap(wrap, eph, key, held)
                held |= _announced(fill.pub, secret, f"epoch.fill[{i}]")
                break


def _open_wrap(wrap: Wrap, eph: bytes, key: PrivateKey, held: Secrets) -> bytes:
    to = bytes.fromhex(wrap.to)
    if to == key.public:
        return unwrap(key, eph, wrap)
    if to not in held:
        raise DecryptFailed("epoch: sealed to a key that this member does not have")
    return unwrap(node_key(held[to]), eph, wrap)


def _announced(pub: str, secret: bytes, field: str) -> dict[bytes, bytes]:
    public = node_key(secret).public
    if public.hex() != pub:
        raise DecryptFailed(f"{field}: the secret does not derive the announced key")
    return {public: secret}


def _finish(
    after: State, envelope: Envelope, rung: int, secret: bytes, member: bytes, held: dict[bytes, bytes]
) -> Epoch:
    """Derive the secrets from one node of the path up to the root. Of `held`, only keys above the
    member stay."""
    for i in range(rung, len(envelope.path)):
        secret = next_secret(secret) if i > rung else secret
        held |= _announced(envelope.path[i].pub, secret, f"epoch.path[{i}]")
    assert after.tree is not None  # noqa: S101  # the caller checked
    above = {node.key for node in path_to(after.tree, member)}
    return Epoch(after.n, secret, {public: known for public, known in held.items() if public in above})
