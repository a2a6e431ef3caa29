"""The sparse Merkle tree against a naive one that walks all 168 levels, and against a dictionary."""

from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from enc.core.errors import InvalidProof, MisuseError
from enc.core.primitives.hashing import EMPTY_HASH, H
from enc.core.primitives.types import StateProof
from enc.core.trees.sparse_merkle import check_state, get, hash_leaves, is_node, leaves, prove, update
from enc.core.trees.state_key import identity_key, status_key, tree_key
from enc.core.trees.stepwise_update import update_in_steps
from tests.core.strategies import CountingStore, examples, flip, flips
from tests.steps import run_steps
from tests.tiers import rounds

DEPTH = 168
Model = dict[bytes, bytes]
Changes = dict[bytes, bytes | None]


# The rules, naively


def bit(key: bytes, depth: int) -> int:
    return key[depth // 8] >> (7 - depth % 8) & 1


@lru_cache(maxsize=500_000)
def alone(key: bytes, value: bytes, depth: int) -> bytes:
    """Return the subtree at `depth` that holds this one leaf."""
    if depth == DEPTH:
        return H(0x20, key, value)
    below = alone(key, value, depth + 1)
    return H(0x21, EMPTY_HASH, below) if bit(key, depth) else H(0x21, below, EMPTY_HASH)


def subtree(model: Model, depth: int = 0) -> bytes:
    if not model:
        return EMPTY_HASH
    if len(model) == 1:
        ((key, value),) = model.items()
        return alone(key, value, depth)
    left = subtree({key: value for key, value in model.items() if not bit(key, depth)}, depth + 1)
    right = subtree({key: value for key, value in model.items() if bit(key, depth)}, depth + 1)
    return H(0x21, left, right)


def naive_proof(model: Model, key: bytes) -> StateProof:
    bitmap, siblings = bytearray(21), []
    for depth in range(DEPTH):
        sibling = subtree({k: v for k, v in model.items() if bit(k, depth) != bit(key, depth)}, depth + 1)
        model = {k: v for k, v in model.items() if bit(k, depth) == bit(key, depth)}
        if sibling != EMPTY_HASH:
            bitmap[depth // 8] |= 1 << depth % 8
            siblings.append(sibling)
    return StateProof(key, model.get(key), bytes(bitmap), tuple(siblings))


# The tree under test


class Tree:
    """A tree that is updated batch by batch, beside a model of it; it keeps all old nodes."""

    def __init__(self) -> None:
        self.store = CountingStore()
        self.root = EMPTY_HASH
        self.model: Model = {}

    def apply(self, changes: Changes) -> dict[bytes, bytes]:
        before = dict(self.store.tree_nodes)
        root, nodes = update(self.store, self.root, changes)
        assert self.store.tree_nodes == before, "an update writes nothing itself"
        for node, record in nodes.items():
            assert before.get(node, record) == record, "one hash, one record"
        self.store.tree_nodes.update(nodes)
        self.root = root
        for key, value in changes.items():
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value
        return nodes

    def reachable(self) -> dict[bytes, bytes]:
        return dict(walk(self.store.tree_nodes, self.root))


def walk(nodes: dict[bytes, bytes], root: bytes) -> Iterator[tuple[bytes, bytes]]:
    waiting = [] if root == EMPTY_HASH else [root]
    while waiting:
        node = waiting.pop()
        record = nodes[node]
        yield node, record
        if record[0]:
            waiting += [record[-66:-34], record[-32:]]


def built(model: Model) -> Tree:
    tree = Tree()
    tree.apply(dict(model))
    return tree


def check_everything(tree: Tree, absent: list[bytes]) -> None:
    assert tree.root == subtree(tree.model)
    assert list(leaves(tree.store, tree.root)) == sorted(tree.model.items())
    for key in [*tree.model, *absent]:
        value = tree.model.get(key)
        assert get(tree.store, tree.root, key) == value
        proof = prove(tree.store, tree.root, key)
        assert (proof.k, proof.v) == (key, value)
        check_state(proof, key, tree.root)


# Keys that share long prefixes: each is some key before it with one bit, or everything from one bit on, changed.

values = st.sampled_from([b"\x00", b"\x01", sha256(b"a").digest(), sha256(b"b").digest(), bytes(31) + b"\x02"])
depths = st.sampled_from(
    [0, 6, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, 33, 39, 40, 41, 42, 80, 159, 166, 167]
) | st.integers(6, DEPTH - 1)


@st.composite
def key_pools(draw: st.DrawFn) -> list[bytes]:
    pool = [bytes([draw(st.integers(0, 2))]) + draw(st.binary(min_size=20, max_size=20))]
    for _ in range(draw(st.integers(1, 14))):
        number, depth = int.from_bytes(draw(st.sampled_from(pool)), "big"), draw(depths)
        flipped = 1 << (DEPTH - 1 - depth)
        tail = draw(st.sampled_from([0, flipped - 1])) & draw(st.integers(0, flipped))
        pool.append((number ^ flipped ^ tail).to_bytes(21, "big"))
    return pool


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[bytes], list[Changes]]:
    pool = draw(key_pools())
    batch = st.dictionaries(st.sampled_from(pool), st.none() | values, max_size=8)
    single = st.dictionaries(st.sampled_from(pool), st.none() | values, min_size=1, max_size=1)
    return pool, draw(st.lists(single | batch, min_size=1, max_size=8))


@pytest.mark.sweep
@examples(rounds(150))
@given(histories())
def test_any_history_agrees_with_the_rules_and_the_dictionary(history: tuple[list[bytes], list[Changes]]) -> None:
    pool, batches = history
    tree, past = Tree(), []
    for changes in batches:
        before, stored = tree.root, dict(tree.store.tree_nodes)
        root, stepwise = run_steps(update_in_steps(tree.store, before, changes, step=2))
        nodes = tree.apply(changes)
        assert root == tree.root
        assert {**stored, **stepwise} == tree.store.tree_nodes, "steps leave nothing superfluous"
        assert set(nodes) <= set(tree.reachable()), "every stored node is reachable from a root"
        check_everything(tree, pool)
        past.append((tree.root, dict(tree.model)))
    assert tree.reachable() == built(tree.model).reachable(), "the stored form depends on the content alone"
    for root, model in past:
        assert dict(leaves(tree.store, root)) == model
        for key in pool:
            proof = prove(tree.store, root, key)
            assert proof.v == model.get(key)
            check_state(proof, key, root)


@examples(60)
@given(st.dictionaries(st.sampled_from(range(40)), values, max_size=12), key_pools())
def test_proofs_are_the_naive_ones(chosen: dict[int, bytes], pool: list[bytes]) -> None:
    model = {pool[i % len(pool)]: value for i, value in chosen.items()}
    tree = built(model)
    for key in pool:
        assert prove(tree.store, tree.root, key) == naive_proof(model, key)


@given(key_pools(), st.data())
def test_a_record_belongs_under_its_own_hash_only(pool: list[bytes], data: st.DataObject) -> None:
    stored = built({key: sha256(key).digest() for key in pool}).store.tree_nodes
    assert all(is_node(each, record) for each, record in stored.items())
    each = data.draw(st.sampled_from(sorted(stored)))
    assert not is_node(flip(each, data.draw(st.integers(0, 8 * len(each) - 1))), stored[each])
    bit = 8 * len(stored[each]) - data.draw(st.integers(1, 160))  # the hash does not cover a fork's depth
    assert not is_node(each, flip(stored[each], bit))
    assert not is_node(each, stored[each][: data.draw(st.integers(0, len(stored[each]) - 1))])
    assert not is_node(each, stored[each] + b"\x00")


def test_what_is_no_record_belongs_nowhere() -> None:
    pool = [bytes([0, 1 << i]) + bytes(19) for i in range(7)]
    stored = built(dict.fromkeys(pool, b"v")).store.tree_nodes
    leaf, fork = ({r[0]: r for r in stored.values()}[kind] for kind in (0, 1))
    of = {record: each for each, record in stored.items()}
    for record in (
        b"",
        b"\x00",
        b"\x01",
        bytes(23),
        bytes(24),
        bytes(90),
        b"\x01" + bytes(89),
        b"\x01\xff" + bytes(98),
    ):
        assert not is_node(sha256(record).digest(), record)
    for record in (leaf, fork):
        wrong = [
            bytes([record[0] + 2]) + record[1:],
            bytes([1 - record[0]]) + record[1:],
            record + b"\x00",
            record[:-1],
            record[:2] + b"\x00" + record[2:],
            record[:1] + bytes([record[1] ^ 1]) + record[2:],
        ]
        assert is_node(of[record], record)
        assert not any(is_node(of[record], each) for each in wrong)


def test_a_leaf_says_how_long_its_value_is() -> None:
    keys = [bytes(20) + bytes([i]) for i in range(2)]  # they part so low that their records have no marks
    for each, record in built(dict.fromkeys(keys, b"value")).store.tree_nodes.items():
        if not record[0]:
            assert record[1:2] == b"\x05"
            assert not any(is_node(each, b"\x00" + bytes([size]) + record[2:]) for size in (0, 4, 6, 200))


def test_the_path_of_a_fork_has_no_bits_beyond_its_depth() -> None:
    keys = [bytes(21), bytes([0, 0x10]) + bytes(19)]  # they part at depth 11
    ((each, record),) = [pair for pair in built(dict.fromkeys(keys, b"v")).store.tree_nodes.items() if pair[1][0]]
    assert record[:4] == bytes([1, 11, 0, 0])
    assert is_node(each, record)
    for bit in range(5):
        assert not is_node(each, record[:3] + bytes([1 << bit]) + record[4:])


def test_a_step_leaves_what_it_replaced_out() -> None:
    tree = built({bytes([i]) + bytes(20): b"v" for i in range(8)})
    changes: Changes = {bytes([i, 1]) + bytes(19): b"w" for i in range(8)}
    root, nodes = run_steps(update_in_steps(tree.store, tree.root, changes, step=1))
    before = dict(tree.store.tree_nodes)
    tree.apply(changes)
    assert root == tree.root
    assert {**before, **nodes} == tree.store.tree_nodes


@examples(50)
@given(key_pools(), st.randoms(use_true_random=False))
def test_the_order_and_the_grouping_of_changes_do_not_matter(pool: list[bytes], random: Random) -> None:
    model = {key: sha256(key).digest() for key in pool}
    whole, single = built(model), Tree()
    order = list(model)
    random.shuffle(order)
    for key in order:
        single.apply({key: b"\x00"})
    for key in order:
        single.apply({key: model[key]})
    assert single.root == whole.root
    assert single.reachable() == whole.reachable()
    random.shuffle(order)
    for key in order:
        single.apply({key: None})
        assert single.root == subtree(single.model)
    assert single.root == EMPTY_HASH
    assert whole.apply(dict.fromkeys(model)) == {}
    assert whole.root == EMPTY_HASH


@examples(50)
@given(key_pools())
def test_changes_that_change_nothing_keep_the_root(pool: list[bytes]) -> None:
    model = {key: sha256(key).digest() for key in pool[::2]}
    tree = built(model)
    absent = [key for key in pool if key not in model]
    root, stored = tree.root, tree.reachable()
    for changes in ({}, dict(model), dict.fromkeys(absent), {**model, **dict.fromkeys(absent)}):
        tree.apply(dict(changes))
        assert tree.root == root
    for key, value in model.items():
        assert tree.apply({key: value}) == {}
    for key in absent:
        assert tree.apply({key: None}) == {}
    assert tree.root == root
    assert tree.reachable() == stored


def test_the_empty_tree() -> None:
    store, key = CountingStore(), b"\x02" + bytes(20)
    assert update(store, EMPTY_HASH, {}) == (EMPTY_HASH, {})
    assert update(store, EMPTY_HASH, {key: None}) == (EMPTY_HASH, {})
    assert update(store, EMPTY_HASH, {key: None, bytes(21): None}) == (EMPTY_HASH, {})
    assert get(store, EMPTY_HASH, key) is None
    assert list(leaves(store, EMPTY_HASH)) == []
    proof = prove(store, EMPTY_HASH, key)
    assert proof == StateProof(key, None, bytes(21), ())
    check_state(proof, key, EMPTY_HASH)
    for changed in flips(EMPTY_HASH):
        with pytest.raises(InvalidProof):
            check_state(proof, key, changed)


@pytest.mark.parametrize("depth", range(DEPTH))
def test_two_keys_that_part_at_every_depth(depth: int) -> None:
    one = bytes([2]) + sha256(b"one").digest()[:20]
    other = flip(one, 8 * (depth // 8) + 7 - depth % 8)
    tree = built({one: b"\x00", other: b"\x01"})
    check_everything(tree, [flip(one, 100), flip(other, 167)])
    proof = prove(tree.store, tree.root, one)
    assert len(proof.s) == 1
    assert proof.b == bytes(1 << depth % 8 if i == depth // 8 else 0 for i in range(21))
    tree.apply({other: None})
    check_everything(tree, [other])
    tree.apply({other: b"\x05"})
    check_everything(tree, [])


# Proofs that must fail


def small_tree() -> Tree:
    keys = [identity_key(bytes([i]) * 32) for i in range(6)] + [status_key(bytes([i]) * 32) for i in range(4)]
    keys += [tree_key("kv", bytes([i]) * 32) for i in range(4)]
    keys.append(flip(keys[0], 167))
    return built({key: b"\x00" if key[0] == 1 else sha256(key).digest() for key in keys})


TREE = small_tree()
PRESENT = [identity_key(bytes(32)), status_key(bytes(32)), tree_key("kv", bytes(32))]
ABSENT = [identity_key(b"\x77" * 32), status_key(b"\x77" * 32), tree_key("kv", b"\x77" * 32), flip(PRESENT[0], 160)]


def refused(proof: StateProof, key: bytes, root: bytes = TREE.root) -> None:
    with pytest.raises(InvalidProof):
        check_state(proof, key, root)


@pytest.mark.parametrize("key", PRESENT + ABSENT, ids=bytes.hex)
def test_every_bit_of_a_proof_counts(key: bytes) -> None:
    proof = prove(TREE.store, TREE.root, key)
    check_state(proof, key, TREE.root)
    for changed in flips(TREE.root):
        refused(proof, key, changed)
    for changed in flips(key):
        refused(proof, changed)
        refused(replace(proof, k=changed), key)
    for changed in flips(proof.b):
        refused(replace(proof, b=changed), key)
    for changed in flips(proof.v or b""):
        refused(replace(proof, v=changed), key)
    for i, item in enumerate(proof.s):
        for changed in flips(item):
            refused(replace(proof, s=(*proof.s[:i], changed, *proof.s[i + 1 :])), key)


@pytest.mark.parametrize("key", PRESENT, ids=bytes.hex)
def test_a_leaf_cannot_be_denied_moved_or_replaced(key: bytes) -> None:
    proof = prove(TREE.store, TREE.root, key)
    refused(replace(proof, v=None), key)
    assert proof.v is not None
    for value in (b"", b"\x00" if proof.v != b"\x00" else b"\x01", bytes(32), proof.v + b"\x00", proof.v[:-1]):
        refused(replace(proof, v=value), key)
    for changed in flips(key):
        refused(replace(proof, k=changed), changed)


@pytest.mark.parametrize("key", ABSENT, ids=bytes.hex)
def test_an_absent_key_cannot_be_given_a_value(key: bytes) -> None:
    proof = prove(TREE.store, TREE.root, key)
    for value in (b"\x00", bytes(32), EMPTY_HASH, TREE.root):
        refused(replace(proof, v=value), key)


@pytest.mark.parametrize("key", ABSENT, ids=bytes.hex)
def test_an_absence_proof_serves_its_whole_empty_subtree_and_no_key_beyond(key: bytes) -> None:
    """A proof of absence for another key is valid if that key lies in the same empty subtree, and only then."""
    proof = prove(TREE.store, TREE.root, key)
    lowest = max(d for d in range(DEPTH) if proof.b[d // 8] >> d % 8 & 1)
    for depth in range(DEPTH):
        other = flip(key, 8 * (depth // 8) + 7 - depth % 8)
        if depth > lowest:
            assert get(TREE.store, TREE.root, other) is None
            check_state(replace(proof, k=other), other, TREE.root)
        else:
            refused(replace(proof, k=other), other)


@pytest.mark.parametrize("key", PRESENT + ABSENT, ids=bytes.hex)
def test_siblings_are_exactly_as_many_as_the_bitmap_says_and_none_is_empty(key: bytes) -> None:
    proof = prove(TREE.store, TREE.root, key)
    refused(replace(proof, s=proof.s[:-1]), key)
    refused(replace(proof, s=proof.s[1:]), key)
    refused(replace(proof, s=()), key)
    refused(replace(proof, s=(*proof.s, proof.s[0])), key)
    refused(replace(proof, s=(proof.s[0], *proof.s)), key)
    refused(replace(proof, s=(TREE.root, *proof.s)), key)
    refused(replace(proof, s=(*proof.s, EMPTY_HASH)), key)
    refused(replace(proof, s=(EMPTY_HASH, *proof.s)), key)
    if len(proof.s) > 1:
        refused(replace(proof, s=proof.s[::-1]), key)
    free = [d for d in range(DEPTH) if not proof.b[d // 8] >> d % 8 & 1]
    for depth in (free[0], free[len(free) // 2], free[-1]):
        bitmap = flip(proof.b, depth)
        at = sum(1 for d in range(depth) if proof.b[d // 8] >> d % 8 & 1)
        # The fold is the same without it: only the rule against listed empty siblings rejects this.
        refused(replace(proof, b=bitmap, s=(*proof.s[:at], EMPTY_HASH, *proof.s[at:])), key)
        refused(replace(proof, b=bitmap), key)


@pytest.mark.parametrize("key", PRESENT + ABSENT, ids=bytes.hex)
def test_a_sibling_belongs_to_its_depth(key: bytes) -> None:
    proof = prove(TREE.store, TREE.root, key)
    taken = [d for d in range(DEPTH) if proof.b[d // 8] >> d % 8 & 1]
    for depth in taken:
        for other in (depth - 1, depth + 1, 7 - depth % 8 + depth // 8 * 8):
            if 0 <= other < DEPTH and other not in taken:
                refused(replace(proof, b=flip(flip(proof.b, depth), other)), key)


def test_the_bitmap_is_read_least_significant_bit_first_and_the_key_most_significant() -> None:
    one, other = bytes(21), b"\x80" + bytes(20)
    tree = built({one: b"\x00", other: b"\x01"})
    proof = prove(tree.store, tree.root, one)
    assert proof.b == b"\x01" + bytes(20)
    assert proof.s == (alone(other, b"\x01", 1),)
    assert tree.root == H(0x21, alone(one, b"\x00", 1), alone(other, b"\x01", 1))


@pytest.mark.parametrize("size", [0, 1, 20, 22, 32])
def test_key_and_bitmap_have_21_bytes(size: int) -> None:
    proof = prove(TREE.store, TREE.root, PRESENT[0])
    refused(replace(proof, b=(proof.b + bytes(20))[:size]), PRESENT[0])
    key = (PRESENT[0] + bytes(20))[:size]
    refused(replace(proof, k=key), key)
    refused(StateProof(key, None, bytes(21), ()), key, EMPTY_HASH)


def test_a_sibling_of_another_length_is_refused() -> None:
    proof = prove(TREE.store, TREE.root, PRESENT[0])
    for sibling in (b"", proof.s[0][:-1], proof.s[0] + b"\x00", proof.s[0] * 2):
        refused(replace(proof, s=(sibling, *proof.s[1:])), PRESENT[0])


def test_a_proof_is_for_one_root() -> None:
    other = Tree()
    other.store, other.root, other.model = TREE.store, TREE.root, dict(TREE.model)
    other.apply({PRESENT[0]: sha256(b"new").digest()})
    for key in PRESENT + ABSENT:
        refused(prove(TREE.store, TREE.root, key), key, other.root)
        refused(prove(other.store, other.root, key), key, TREE.root)
        check_state(prove(other.store, other.root, key), key, other.root)
        check_state(prove(other.store, TREE.root, key), key, TREE.root)


# Keys


def test_namespaces_keep_equal_raw_keys_apart() -> None:
    raw = sha256(b"raw").digest()
    digest = sha256(raw).digest()[:20]
    assert identity_key(raw) == tree_key("rbac", raw) == b"\x00" + digest
    assert status_key(raw) == tree_key("event_status", raw) == b"\x01" + digest
    assert tree_key("kv", raw) == b"\x02" + digest


# Cost


COUNT = 5_000


@pytest.fixture(scope="module")
def large() -> Tree:
    keys = (sha256(b"%d" % i).digest()[:20] for i in range(COUNT))
    return built({bytes([i % 3]) + key: key + bytes(12) for i, key in enumerate(keys)})


def test_a_large_build_stores_at_most_two_nodes_a_leaf(large: Tree) -> None:
    assert len(large.store.tree_nodes) <= 2 * COUNT
    assert len(list(leaves(large.store, large.root))) == COUNT


def test_reading_a_large_tree_takes_few_nodes(large: Tree) -> None:
    random, store = Random(5), large.store
    keys = random.sample(sorted(large.model), 300)
    keys += [bytes([i % 3]) + random.randbytes(20) for i in range(300)]
    total = 0
    for key in keys:
        store.reads = 0
        proof = prove(store, large.root, key)
        assert store.reads <= 40
        total += store.reads
        check_state(proof, key, large.root)
        store.reads = 0
        assert get(store, large.root, key) == large.model.get(key)
        assert store.reads <= 40
    assert total / len(keys) < 18


def test_changing_a_large_tree_stores_and_reads_few_nodes(large: Tree) -> None:
    random, store = Random(6), large.store
    for i in range(200):
        key = random.choice(sorted(large.model)[:50]) if i % 2 else bytes([i % 3]) + random.randbytes(20)
        for value in (b"\x01", None):
            store.reads = 0
            root, nodes = update(store, large.root, {key: value})
            assert root != large.root or key not in large.model
            assert store.reads <= 42
            assert len(nodes) <= 42


def test_a_batch_costs_no_more_than_its_changes_one_by_one(large: Tree) -> None:
    random, store = Random(7), large.store
    changes: Changes = {bytes([i % 3]) + random.randbytes(20): b"\x01" for i in range(256)}
    alone_total, root = 0, large.root
    trial = Tree()
    trial.store.tree_nodes = dict(store.tree_nodes)
    for key, value in changes.items():
        root, nodes = update(trial.store, root, {key: value})
        trial.store.tree_nodes.update(nodes)
        alone_total += len(nodes)
    together, nodes = update(store, large.root, changes)
    assert together == root
    assert len(nodes) < alone_total


# What is stored

KEY, OTHER = identity_key(bytes(32)), status_key(bytes(32))


def test_a_leaf_is_stored_with_the_hashes_of_its_run_at_four_depths() -> None:
    """Stores of earlier versions have these, so they are the same for good."""
    (record,) = built({KEY: b"value"}).store.tree_nodes.values()
    marks = b"".join(alone(KEY, b"value", depth) for depth in (40, 32, 24, 16))
    assert record == b"\x00\x05" + KEY + b"value" + marks


def test_leaves_are_hashed_ahead_except_those_to_remove() -> None:
    assert len(list(hash_leaves({KEY: b"value", OTHER: None}))) == 1


# Bounds


@pytest.mark.parametrize("size", [1, 23, 24, 255])
def test_a_value_of_any_length_is_hashed_as_cbor(size: int) -> None:
    check_everything(built({identity_key(bytes(32)): bytes(size)}), [])


@pytest.mark.parametrize(
    ("key", "value"), [(bytes(20), b"x"), (bytes(22), b"x"), (bytes(21), b""), (bytes(21), bytes(256))]
)
def test_a_leaf_that_cannot_be_stored_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(MisuseError, match="a key must be 21 bytes, a value 1 to 255"):
        update(CountingStore(), EMPTY_HASH, {bytes(21): b"x", key: value})


@pytest.mark.parametrize("value", [b"", bytes(256)])
def test_a_proof_of_a_value_that_no_tree_can_hold_is_refused(value: bytes) -> None:
    tree = built({KEY: b"value"})
    with pytest.raises(InvalidProof, match="a value has 1 to 255 bytes"):
        check_state(replace(prove(tree.store, tree.root, KEY), v=value), KEY, tree.root)
