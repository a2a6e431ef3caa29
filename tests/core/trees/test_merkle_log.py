"""The log against RFC 9162's recursive definitions, implemented here independently."""

from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from math import log2
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from enc.core.errors import InvalidProof, InvalidRange, LeafNotFound
from enc.core.primitives.hashing import EMPTY_HASH, H
from enc.core.primitives.types import ConsistencyProof, InclusionProof
from enc.core.trees.merkle_log import (
    Edge,
    check_consistency,
    check_inclusion,
    prove_consistency,
    prove_inclusion,
    read_edge,
)
from tests.core.strategies import CountingStore, examples, flip, flips

MOST, SMALL = 300, 40
LEAVES = [sha256(b"leaf %d" % i).digest() for i in range(MOST)]


# RFC 9162 section 2.1, over leaves [start, end)


def power_below(n: int) -> int:
    k = 1
    while 2 * k < n:
        k *= 2
    return k


@cache
def root(start: int, end: int) -> bytes:
    n = end - start
    if n == 0:
        return sha256(b"").digest()
    if n == 1:
        return LEAVES[start]
    k = power_below(n)
    return H(0x01, root(start, start + k), root(start + k, end))


def path(m: int, start: int, end: int) -> list[bytes]:
    n = end - start
    if n == 1:
        return []
    k = power_below(n)
    if m < k:
        return [*path(m, start, start + k), root(start + k, end)]
    return [*path(m - k, start + k, end), root(start, start + k)]


def subproof(m: int, start: int, end: int, whole: bool) -> list[bytes]:
    n = end - start
    if m == n:
        return [] if whole else [root(start, end)]
    k = power_below(n)
    if m <= k:
        return [*subproof(m, start, start + k, whole), root(start + k, end)]
    return [*subproof(m - k, start + k, end, False), root(start, start + k)]


# The side from which each step of a path comes: two proofs of one shape are folded alike.


def inclusion_shape(m: int, n: int) -> str:
    if n == 1:
        return ""
    k = power_below(n)
    return inclusion_shape(m, k) + "r" if m < k else inclusion_shape(m - k, n - k) + "l"


def consistency_shape(m: int, n: int, whole: bool = True) -> str:
    if m == n:
        return "whole " if whole else "part "
    k = power_below(n)
    if m <= k:
        return consistency_shape(m, k, whole) + "r"
    return consistency_shape(m - k, n - k, False) + "l"


def stored(leaves: Sequence[bytes]) -> CountingStore:
    store = CountingStore()
    store.log_nodes = Edge().extend(leaves)[1]
    return store


STORE = stored(LEAVES)


def pairs(most: int) -> Iterator[tuple[int, int]]:
    return ((first, second) for second in range(1, most + 1) for first in range(1, second + 1))


# Roots


def test_the_root_of_every_size() -> None:
    edge = Edge()
    assert edge.root() == EMPTY_HASH
    for size in range(MOST + 1):
        assert edge.size == size
        assert edge.root() == root(0, size)
        if size < MOST:
            edge, _ = edge.append(LEAVES[size])


def test_a_stored_edge_is_read_back_at_every_size() -> None:
    edge = Edge()
    for size in range(MOST):
        assert read_edge(STORE, size) == edge
        edge, _ = edge.append(LEAVES[size])
    assert read_edge(STORE, MOST) == edge


def test_an_edge_grows_the_same_where_nodes_are_not_stored() -> None:
    edge = Edge()
    for size in range(300):
        leaf = sha256(b"%d" % size).digest()
        assert edge.with_leaf(leaf) == edge.with_leaves([leaf]) == edge.append(leaf)[0]
        edge = edge.with_leaf(leaf)


def test_an_edge_that_was_read_back_grows_on() -> None:
    for size in (0, 1, 7, 8, 63, 100):
        edge, nodes = read_edge(STORE, size).extend(LEAVES[size:])
        assert edge.root() == root(0, MOST)
        assert nodes.items() <= STORE.log_nodes.items()


@examples()
@given(st.lists(st.integers(0, 9), max_size=30))
def test_leaves_one_by_one_or_in_batches_give_the_same_nodes(batches: list[int]) -> None:
    edge, nodes, size = Edge(), {}, 0
    for count in batches:
        edge, new = edge.extend(LEAVES[size : size + count])
        size += count
        nodes.update(new)
    assert (edge, nodes) == Edge().extend(LEAVES[:size])
    assert edge.root() == root(0, size)


def test_what_is_stored_are_the_perfect_subtrees_each_once() -> None:
    for (level, index), node in STORE.log_nodes.items():
        assert node == root(index << level, (index + 1) << level)
    expected = {(level, index) for level in range(10) for index in range(MOST >> level)}
    assert set(STORE.log_nodes) == expected


def test_fewer_than_two_new_nodes_a_leaf() -> None:
    edge, total = Edge(), 0
    for size in range(1, MOST + 1):
        edge, new = edge.append(LEAVES[size - 1])
        total += len(new)
        assert total < 2 * size
        assert len(new) <= log2(size) + 1


# Inclusion


def test_every_inclusion_proof_up_to_40_leaves() -> None:
    for size in range(1, SMALL + 1):
        for index in range(size):
            proof = prove_inclusion(STORE, index, size)
            assert proof == InclusionProof(size, index, tuple(path(index, 0, size)))
            check_inclusion(proof, LEAVES[index], root(0, size))


@examples(300)
@given(st.integers(1, MOST).flatmap(lambda size: st.tuples(st.integers(0, size - 1), st.just(size))))
def test_inclusion_proofs_up_to_300_leaves(place: tuple[int, int]) -> None:
    index, size = place
    proof = prove_inclusion(STORE, index, size)
    assert list(proof.p) == path(index, 0, size)
    check_inclusion(proof, LEAVES[index], root(0, size))


def refuse_inclusion(proof: InclusionProof, leaf: bytes, top: bytes) -> None:
    with pytest.raises(InvalidProof):
        check_inclusion(proof, leaf, top)


@pytest.mark.parametrize(("index", "size"), [(0, 1), (0, 2), (1, 2), (2, 3), (5, 7), (6, 7), (0, 8), (10, 13)])
def test_every_bit_of_an_inclusion_proof_counts(index: int, size: int) -> None:
    proof, leaf, top = prove_inclusion(STORE, index, size), LEAVES[index], root(0, size)
    for changed in flips(leaf):
        refuse_inclusion(proof, changed, top)
    for changed in flips(top):
        refuse_inclusion(proof, leaf, changed)
    for i, item in enumerate(proof.p):
        for changed in flips(item):
            refuse_inclusion(replace(proof, p=(*proof.p[:i], changed, *proof.p[i + 1 :])), leaf, top)


def test_one_flipped_bit_in_any_step_of_any_small_proof() -> None:
    random = Random(1)
    for size in range(1, SMALL + 1):
        for index in range(size):
            proof = prove_inclusion(STORE, index, size)
            for i, item in enumerate(proof.p):
                changed = flip(item, random.randrange(256))
                refuse_inclusion(
                    replace(proof, p=(*proof.p[:i], changed, *proof.p[i + 1 :])), LEAVES[index], root(0, size)
                )


def test_an_inclusion_path_has_one_length_and_order() -> None:
    for size in range(1, SMALL + 1):
        for index in range(size):
            proof, leaf, top = prove_inclusion(STORE, index, size), LEAVES[index], root(0, size)
            refuse_inclusion(replace(proof, p=(*proof.p, LEAVES[0])), leaf, top)
            refuse_inclusion(replace(proof, p=(LEAVES[0], *proof.p)), leaf, top)
            refuse_inclusion(replace(proof, p=(*proof.p, *[top] * 60)), leaf, top)
            if proof.p:
                refuse_inclusion(replace(proof, p=proof.p[:-1]), leaf, top)
                refuse_inclusion(replace(proof, p=proof.p[1:]), leaf, top)
                refuse_inclusion(replace(proof, p=()), leaf, top)
            if len(proof.p) > 1:
                refuse_inclusion(replace(proof, p=proof.p[::-1]), leaf, top)


def test_another_index_or_size_is_refused_unless_it_folds_the_very_same_way() -> None:
    """A path does not bind the numbers beside it: (0, 3) and (0, 4) turn the same way at every step.

    So the size must come from a signed head, and only such twins may pass.
    """
    twins = 0
    for size in range(1, 20):
        for index in range(size):
            proof, leaf, top = prove_inclusion(STORE, index, size), LEAVES[index], root(0, size)
            for other_size in range(1, 22):
                for other in range(other_size + 2):
                    if (other, other_size) == (index, size):
                        continue
                    altered = replace(proof, li=other, ts=other_size)
                    if other < other_size and inclusion_shape(other, other_size) == inclusion_shape(index, size):
                        assert other_size != size
                        check_inclusion(altered, leaf, top)
                        twins += 1
                    else:
                        refuse_inclusion(altered, leaf, top)
    assert twins


def test_an_index_at_or_past_the_size_is_refused() -> None:
    for index, size in [(0, 0), (1, 1), (5, 5), (6, 5), (-1, 5), (-1, 0), (0, -1), (-2, -1)]:
        with pytest.raises(LeafNotFound):
            prove_inclusion(STORE, index, size)
        refuse_inclusion(InclusionProof(size, index, ()), LEAVES[0], LEAVES[0])


def test_one_leaf_is_its_own_root() -> None:
    check_inclusion(InclusionProof(1, 0, ()), LEAVES[0], LEAVES[0])
    refuse_inclusion(InclusionProof(1, 0, ()), LEAVES[0], LEAVES[1])


def test_numbers_at_the_far_end_are_checked_in_bounded_steps() -> None:
    most = 2**53 - 1
    refuse_inclusion(InclusionProof(most, most - 1, ()), LEAVES[0], LEAVES[0])
    refuse_inclusion(InclusionProof(most, most - 1, tuple(LEAVES[:53])), LEAVES[0], LEAVES[0])
    refuse_inclusion(InclusionProof(most, 0, tuple(LEAVES[:64])), LEAVES[0], LEAVES[0])
    with pytest.raises(InvalidProof):
        check_consistency(ConsistencyProof(most - 1, most, tuple(LEAVES[:64])), LEAVES[0], LEAVES[1])
    with pytest.raises(InvalidProof):
        check_consistency(ConsistencyProof(1, most, tuple(LEAVES[:64])), LEAVES[0], LEAVES[1])


# Consistency


def test_every_consistency_proof_up_to_40_leaves() -> None:
    for first, second in pairs(SMALL):
        proof = prove_consistency(STORE, first, second)
        expected = [root(0, first)] if first == second else subproof(first, 0, second, True)
        assert proof == ConsistencyProof(first, second, tuple(expected))
        check_consistency(proof, root(0, first), root(0, second))


@examples(300)
@given(st.integers(1, MOST).flatmap(lambda second: st.tuples(st.integers(1, second), st.just(second))))
def test_consistency_proofs_up_to_300_leaves(sizes: tuple[int, int]) -> None:
    first, second = sizes
    proof = prove_consistency(STORE, first, second)
    if first < second:
        assert list(proof.p) == subproof(first, 0, second, True)
    check_consistency(proof, root(0, first), root(0, second))


def refuse_consistency(proof: ConsistencyProof, one: bytes, two: bytes) -> None:
    with pytest.raises(InvalidProof):
        check_consistency(proof, one, two)


@pytest.mark.parametrize(("first", "second"), [(1, 1), (1, 2), (2, 3), (3, 7), (4, 7), (6, 8), (5, 13), (7, 7), (8, 8)])
def test_every_bit_of_a_consistency_proof_counts(first: int, second: int) -> None:
    proof, one, two = prove_consistency(STORE, first, second), root(0, first), root(0, second)
    for changed in flips(one):
        refuse_consistency(proof, changed, two)
    for changed in flips(two):
        refuse_consistency(proof, one, changed)
    for i, item in enumerate(proof.p):
        for changed in flips(item):
            refuse_consistency(replace(proof, p=(*proof.p[:i], changed, *proof.p[i + 1 :])), one, two)


def test_one_flipped_bit_in_any_step_of_any_small_consistency_proof() -> None:
    random = Random(2)
    for first, second in pairs(SMALL):
        proof, one, two = prove_consistency(STORE, first, second), root(0, first), root(0, second)
        for i, item in enumerate(proof.p):
            changed = flip(item, random.randrange(256))
            refuse_consistency(replace(proof, p=(*proof.p[:i], changed, *proof.p[i + 1 :])), one, two)


def test_a_consistency_path_has_one_length_and_order() -> None:
    for first, second in pairs(SMALL):
        proof, one, two = prove_consistency(STORE, first, second), root(0, first), root(0, second)
        refuse_consistency(replace(proof, p=(*proof.p, LEAVES[0])), one, two)
        refuse_consistency(replace(proof, p=(one, *proof.p)), one, two)
        refuse_consistency(replace(proof, p=proof.p[:-1]), one, two)
        refuse_consistency(replace(proof, p=proof.p[1:]), one, two)
        refuse_consistency(replace(proof, p=()), one, two)
        if len(proof.p) > 1:
            refuse_consistency(replace(proof, p=proof.p[::-1]), one, two)


def test_other_sizes_are_refused_unless_they_fold_the_very_same_way() -> None:
    """As with inclusion: the sizes must come from the two signed heads."""
    twins = 0
    for first, second in pairs(14):
        proof, one, two = prove_consistency(STORE, first, second), root(0, first), root(0, second)
        for other in range(16):
            for another in range(16):
                if (other, another) == (first, second):
                    continue
                altered = replace(proof, ts1=other, ts2=another)
                same = 0 < other <= another and consistency_shape(other, another) == consistency_shape(first, second)
                if same:
                    check_consistency(altered, one, two)
                    twins += 1
                else:
                    refuse_consistency(altered, one, two)
    assert twins


def test_roots_of_other_sizes_are_refused() -> None:
    for first, second in pairs(12):
        proof = prove_consistency(STORE, first, second)
        for other in range(13):
            if other != first:
                refuse_consistency(proof, root(0, other), root(0, second))
            if other != second:
                refuse_consistency(proof, root(0, first), root(0, other))


def test_a_log_that_was_rewritten_is_not_consistent() -> None:
    for first, second in pairs(16):
        forged = [*LEAVES[: first - 1], flip(LEAVES[first - 1]), *LEAVES[first:second]]
        store, new = stored(forged), Edge().extend(forged)[0].root()
        refuse_consistency(prove_consistency(store, first, second), root(0, first), new)


def test_equal_sizes_take_the_one_root() -> None:
    proof = prove_consistency(STORE, 9, 9)
    assert proof.p == (root(0, 9),)
    check_consistency(proof, root(0, 9), root(0, 9))
    refuse_consistency(replace(proof, p=()), root(0, 9), root(0, 9))
    refuse_consistency(replace(proof, p=(root(0, 9),) * 2), root(0, 9), root(0, 9))
    refuse_consistency(proof, root(0, 9), root(0, 8))
    refuse_consistency(replace(proof, p=(root(0, 8),)), root(0, 8), root(0, 9))


def test_ranges_that_no_prover_and_no_verifier_takes() -> None:
    for first, second in [(0, 0), (0, 5), (6, 5), (-1, 5), (5, 0), (5, -1), (-3, -2)]:
        with pytest.raises(InvalidRange):
            prove_consistency(STORE, first, second)
        for p in ((), (root(0, 5),), (EMPTY_HASH,)):
            refuse_consistency(ConsistencyProof(first, second, p), EMPTY_HASH, root(0, 5))
            refuse_consistency(ConsistencyProof(first, second, p), EMPTY_HASH, EMPTY_HASH)


# Cost


def test_proofs_of_a_long_log_read_few_nodes() -> None:
    size, random = 100_000, Random(3)
    store = stored([i.to_bytes(32, "big") for i in range(size)])
    assert len(store.log_nodes) < 2 * size
    sizes = [size, 65_536, 65_537, 99_999, *(random.randrange(2, size) for _ in range(50))]
    for at in sizes:
        bound = 2 * log2(at) + 2
        store.reads = 0
        edge = read_edge(store, at)
        assert store.reads == at.bit_count()
        for index in (0, at - 1, at // 2, random.randrange(at)):
            store.reads = 0
            proof = prove_inclusion(store, index, at)
            assert store.reads <= bound
            check_inclusion(proof, index.to_bytes(32, "big"), edge.root())
        for first in (1, at, at - 1, random.randrange(1, at)):
            store.reads = 0
            consistency = prove_consistency(store, first, at)
            assert store.reads <= bound
            check_consistency(consistency, read_edge(store, first).root(), edge.root())
