"""Bundles: the padded tree of event ids, membership, and where one bundle ends and the next begins."""

from hashlib import sha256
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from enc.core.errors import InvalidProof, MisuseError
from enc.core.primitives.hashing import H
from enc.core.primitives.types import BundleProof
from enc.core.trees.bundle import (
    BundleConfig,
    OpenBundle,
    check_membership,
    closes_after,
    closes_before,
    events_root,
    open_bundle,
    prove_membership,
    split,
)
from tests.core.strategies import examples, flip, flips

MOST = 70
IDS = [sha256(b"event %d" % i).digest() for i in range(MOST)]


def padded(ids: list[bytes]) -> list[list[bytes]]:
    """Return every level of the tree, from the padded ids to the root."""
    size = 1
    while size < len(ids):
        size *= 2
    levels = [ids + [ids[-1]] * (size - len(ids))]
    while len(levels[-1]) > 1:
        below = levels[-1]
        levels.append([H(0x01, below[i], below[i + 1]) for i in range(0, len(below), 2)])
    return levels


def refused(proof: BundleProof, event_id: bytes, root: bytes) -> None:
    with pytest.raises(InvalidProof):
        check_membership(proof, event_id, root)


# The tree


@pytest.mark.parametrize("count", range(1, MOST + 1))
def test_the_root_is_that_of_the_padded_tree(count: int) -> None:
    assert events_root(IDS[:count]) == padded(IDS[:count])[-1][0]


def test_one_event_is_its_own_root() -> None:
    assert events_root(IDS[:1]) == IDS[0]
    check_membership(BundleProof(0, (), 1), IDS[0], IDS[0])


def test_a_full_sized_bundle() -> None:
    ids = [i.to_bytes(32, "big") for i in range(65_536)]
    root = events_root(ids)
    proof = prove_membership(ids, 40_000)
    assert len(proof.s) == 16
    check_membership(proof, ids[40_000], root)


def test_a_bundle_holds_at_least_one_event() -> None:
    with pytest.raises(MisuseError):
        events_root([])


@pytest.mark.parametrize("count", range(1, MOST + 1))
def test_every_membership_proof(count: int) -> None:
    ids, levels = IDS[:count], padded(IDS[:count])
    for index in range(count):
        proof = prove_membership(ids, index)
        siblings = tuple(level[(index >> i) ^ 1] for i, level in enumerate(levels[:-1]))
        assert proof == BundleProof(index, siblings, count)
        check_membership(proof, ids[index], events_root(ids))


@pytest.mark.parametrize(("index", "count"), [(0, 1), (0, 2), (2, 3), (4, 5), (6, 8), (8, 9)])
def test_every_bit_of_a_membership_proof_counts(index: int, count: int) -> None:
    ids = IDS[:count]
    proof, root = prove_membership(ids, index), events_root(ids)
    for changed in flips(ids[index]):
        refused(proof, changed, root)
    for changed in flips(root):
        refused(proof, ids[index], changed)
    for i, item in enumerate(proof.s):
        for changed in flips(item):
            refused(replace(proof, s=(*proof.s[:i], changed, *proof.s[i + 1 :])), ids[index], root)


def test_one_flipped_bit_in_any_sibling_of_any_proof() -> None:
    random = Random(4)
    for count in range(1, MOST + 1):
        ids, root = IDS[:count], events_root(IDS[:count])
        for index in range(count):
            proof = prove_membership(ids, index)
            for i, item in enumerate(proof.s):
                changed = flip(item, random.randrange(256))
                refused(replace(proof, s=(*proof.s[:i], changed, *proof.s[i + 1 :])), ids[index], root)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 8, 9])
def test_an_index_at_or_past_the_size_is_refused(count: int) -> None:
    """Also where the padding makes the path fit: otherwise the last event would have two places."""
    ids, levels = IDS[:count], padded(IDS[:count])
    root, width = levels[-1][0], len(levels[0])
    for index in range(count, width):
        siblings = tuple(level[(index >> i) ^ 1] for i, level in enumerate(levels[:-1]))
        refused(BundleProof(index, siblings, count), ids[-1], root)
    last = prove_membership(ids, count - 1)
    for index in (count, count + 1, width, -1, -count, 2**53):
        refused(replace(last, ei=index), ids[-1], root)
        with pytest.raises(MisuseError):
            prove_membership(ids, index)
    refused(BundleProof(0, (), 0), ids[0], ids[0])
    refused(BundleProof(0, (), -1), ids[0], ids[0])


def test_the_number_of_siblings_follows_from_the_size() -> None:
    for count in range(1, 20):
        ids, root = IDS[:count], events_root(IDS[:count])
        for index in range(count):
            proof = prove_membership(ids, index)
            refused(replace(proof, s=(*proof.s, root)), ids[index], root)
            refused(replace(proof, s=(ids[index], *proof.s)), ids[index], root)
            if proof.s:
                refused(replace(proof, s=proof.s[:-1]), ids[index], root)
                refused(replace(proof, s=proof.s[1:]), ids[index], root)
                refused(replace(proof, s=()), ids[index], root)


def test_an_inner_node_is_not_an_event() -> None:
    """One step up, with one sibling less, the path still leads to the root; only the size forbids it."""
    ids = IDS[:4]
    proof, node = prove_membership(ids, 0), H(0x01, ids[0], ids[1])
    refused(BundleProof(0, proof.s[1:], 4), node, events_root(ids))


def test_another_place_is_refused() -> None:
    """The root does not bind the size: a size with as many levels passes for the same index, and no other change does.

    A reader who needs the exact place recomputes the root from all ids.
    """
    for count in range(1, 18):
        ids, root = IDS[:count], events_root(IDS[:count])
        for index in range(count):
            proof = prove_membership(ids, index)
            for other in range(20):
                if other != index:
                    refused(replace(proof, ei=other), ids[index], root)
            for size in range(1, 40):
                levels = (size - 1).bit_length()
                if levels == len(proof.s) and index < size:
                    check_membership(replace(proof, size=size), ids[index], root)
                else:
                    refused(replace(proof, size=size), ids[index], root)


# Boundaries


class Item(Struct, frozen=True):
    """The properties of an event on which boundaries depend."""

    id: bytes
    seq: int
    type: str
    timestamp: int
    sequencer: bytes


def naive(events: list[Item], config: BundleConfig) -> list[list[Item]]:
    """Compute the bundles by the rules, event by event."""
    bundles: list[list[Item]] = []
    is_open = False
    for event in events:
        if is_open:
            first = bundles[-1][0]
            if event.timestamp >= first.timestamp + config.timeout:
                is_open = False
            if event.sequencer != first.sequencer:
                is_open = False
        if not is_open:
            bundles.append([])
            is_open = True
        bundles[-1].append(event)
        if len(bundles[-1]) == config.size or event.type == "Migrate":
            is_open = False
    return bundles


@st.composite
def sequences(draw: st.DrawFn) -> tuple[list[Item], BundleConfig]:
    config = BundleConfig(draw(st.integers(1, 6)), draw(st.sampled_from([1, 2, 10, 100])))
    events: list[Item] = []
    timestamp, sequencer = draw(st.integers(0, 1000)), b"N"
    steps = st.tuples(
        st.sampled_from([0, 0, 1, config.timeout - 1, config.timeout, config.timeout + 1]),
        st.sampled_from(["message"] * 6 + ["Migrate", "Manifest"]),
        st.booleans() if draw(st.booleans()) else st.just(False),
    )
    for seq, (gap, type_, moves) in enumerate(draw(st.lists(steps, max_size=30))):
        timestamp += gap
        sequencer = (b"M" if sequencer == b"N" else b"N") if moves else sequencer
        events.append(Item(sha256(b"%d" % seq).digest(), seq, type_, timestamp, sequencer))
    return events, config


def seen(bundle: OpenBundle) -> tuple[int, int, int, bytes, bytes]:
    return bundle.first_seq, bundle.count, bundle.first_timestamp, bundle.sequencer, bundle.events_root()


@examples(400)
@given(sequences())
def test_split_draws_the_boundaries_of_the_rules(log: tuple[list[Item], BundleConfig]) -> None:
    events, config = log
    expected = naive(events, config)
    assert [seen(bundle) for bundle in split(events, config)] == [
        (bundle[0].seq, len(bundle), bundle[0].timestamp, bundle[0].sequencer, events_root([e.id for e in bundle]))
        for bundle in expected
    ]


@examples(200)
@given(sequences())
def test_what_every_split_keeps_to(log: tuple[list[Item], BundleConfig]) -> None:
    events, config = log
    bundles = list(split(events, config))
    assert sum(bundle.count for bundle in bundles) == len(events)
    for bundle in bundles:
        held = events[bundle.first_seq : bundle.first_seq + bundle.count]
        assert 1 <= bundle.count <= config.size
        assert len({event.sequencer for event in held}) == 1
        assert all(event.type != "Migrate" for event in held[:-1])
        assert held[-1].timestamp < bundle.deadline(config)


@examples(200)
@given(sequences(), st.integers(0, 30))
def test_boundaries_do_not_depend_on_what_comes_later(log: tuple[list[Item], BundleConfig], cut: int) -> None:
    events, config = log
    before, whole = list(split(events[:cut], config)), list(split(events, config))
    assert [seen(bundle) for bundle in before[:-1]] == [seen(bundle) for bundle in whole[: len(before[:-1])]]


def item(seq: int, timestamp: int, type_: str = "message", sequencer: bytes = b"N") -> Item:
    return Item(IDS[seq], seq, type_, timestamp, sequencer)


def test_an_event_at_the_deadline_opens_the_next_bundle() -> None:
    config = BundleConfig(size=10, timeout=5000)
    bundle = open_bundle(item(0, 720))
    assert bundle.deadline(config) == 5720
    assert not closes_before(bundle, item(1, 5719), config)
    assert closes_before(bundle, item(1, 5720), config)
    assert closes_before(bundle, item(1, 5721), config)
    later = bundle.add(item(1, 5719))
    assert later.deadline(config) == 5720
    assert [b.count for b in split([item(0, 720), item(1, 5719), item(2, 5720)], config)] == [2, 1]


def test_another_sequencer_opens_the_next_bundle() -> None:
    config = BundleConfig()
    bundle = open_bundle(item(0, 0))
    assert closes_before(bundle, item(1, 0, "Migrate", b"M"), config)
    assert closes_before(bundle, item(1, 0, "message", b"M"), config)
    assert not closes_before(bundle, item(1, 0, "Migrate"), config)


def test_a_full_bundle_and_a_migrate_close_at_once() -> None:
    config = BundleConfig(size=2)
    one = open_bundle(item(0, 0))
    assert not closes_after(one, item(0, 0), config)
    assert closes_after(one, item(0, 0, "Migrate"), config)
    assert closes_after(one.add(item(1, 0)), item(1, 0), config)
    assert closes_after(one, item(0, 0), BundleConfig(size=1))


def test_the_defaults() -> None:
    assert BundleConfig() == BundleConfig(size=256, timeout=5000)


def test_an_open_bundle_knows_its_root_at_every_count() -> None:
    bundle = open_bundle(item(0, 0))
    for count in range(1, MOST):
        assert (bundle.count, bundle.last_id) == (count, IDS[count - 1])
        assert bundle.events_root() == events_root(IDS[:count])
        bundle = bundle.add(item(count, 0))


def test_events_are_added_one_by_one_or_together() -> None:
    items = [item(seq, seq) for seq in range(6)]
    one_by_one = open_bundle(items[0])
    for each in items[1:]:
        one_by_one = one_by_one.add(each)
    assert open_bundle(items[0]).add_all(items[1:]) == one_by_one
    assert one_by_one.events_root() == events_root([each.id for each in items])
