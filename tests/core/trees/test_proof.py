"""The whole chain from an event or a piece of state to a signed head, on a real log; each link broken alone."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from enc.core.errors import InvalidProof
from enc.core.log.event import parse_event
from enc.core.machine.replay import Replay
from enc.core.primitives.hashing import EMPTY_HASH, log_leaf, sha256
from enc.core.primitives.types import BundleProof, ConsistencyProof, InclusionProof, StateProof, TreeHead
from enc.core.trees import sparse_merkle
from enc.core.trees.bundle import prove_membership
from enc.core.trees.merkle_log import Edge, check_consistency, prove_consistency, prove_inclusion, read_edge
from enc.core.trees.proof import (
    LogLeaf,
    check_event_proof,
    check_leaf,
    check_state_proof,
    parse_bundle_proof,
    parse_consistency,
    parse_inclusion,
    parse_state_proof,
    wire_bundle_proof,
    wire_consistency,
    wire_inclusion,
    wire_state_proof,
)
from enc.core.trees.state_key import (
    CLOSED,
    DELETED,
    LIFECYCLE_KEY,
    gate_slot,
    identity_key,
    shared_slot,
    status_key,
    tree_key,
)
from enc.core.trees.tree_head import check_bound_head, sign_head
from tests.core.stored import memory_of
from tests.core.strategies import MAX_INT, CountingStore, anything, examples, flip, flips, hashes, uints
from tests.core.vectors import KEYS, load

NODE, ALICE, BOB = KEYS["node"], KEYS["alice"], KEYS["bob"]


class World:
    """The enclave of vectors/log.json, with a signed head for every size."""

    def __init__(self) -> None:
        replay = Replay()
        self.events = [parse_event(json.dumps(wire)) for wire in load("log")["events"]]
        for event in self.events:
            replay.add(event)
        replay.finish()
        self.store, self.enclave = memory_of(replay), replay.state.enclave
        self.bundles = self.store.bundles
        self.size = len(self.bundles)
        self.heads = [
            sign_head(NODE, self.enclave, 1000 + size, size, read_edge(self.store, size).root())
            for size in range(self.size + 1)
        ]

    def leaf(self, index: int) -> LogLeaf:
        return LogLeaf(self.bundles[index].events_root, self.bundles[index].state_hash)

    def ids(self, index: int) -> list[bytes]:
        bundle = self.bundles[index]
        return [event.id for event in self.events[bundle.first_seq : bundle.first_seq + bundle.count]]

    def event_proof(self, seq: int, size: int) -> tuple[bytes, BundleProof, LogLeaf, InclusionProof, TreeHead]:
        index = next(i for i, b in enumerate(self.bundles) if b.first_seq <= seq < b.first_seq + b.count)
        membership = prove_membership(self.ids(index), seq - self.bundles[index].first_seq)
        inclusion = prove_inclusion(self.store, index, size)
        return self.events[seq].id, membership, self.leaf(index), inclusion, self.heads[size]

    def state_proof(
        self, key: bytes, index: int, size: int
    ) -> tuple[bytes, StateProof, LogLeaf, InclusionProof, TreeHead]:
        proof = sparse_merkle.prove(self.store, self.bundles[index].state_hash, key)
        return key, proof, self.leaf(index), prove_inclusion(self.store, index, size), self.heads[size]


WORLD = World()
CLOSED_EVENTS = sum(bundle.count for bundle in WORLD.bundles)
KEYS_OF_STATE = {
    "alice": identity_key(ALICE.public),
    "bob": identity_key(BOB.public),
    "nobody": identity_key(KEYS["carol"].public),
    "deleted": status_key(WORLD.events[3].id),
    "updated": status_key(WORLD.events[4].id),
    "active": status_key(WORLD.events[5].id),
    "topic": tree_key("kv", shared_slot("topic")),
    "gate": tree_key("kv", gate_slot("applications")),
    "lifecycle": LIFECYCLE_KEY,
}


# Events


def test_every_event_is_proved_under_every_later_head() -> None:
    assert (WORLD.size, CLOSED_EVENTS) == (4, 13)
    for index, bundle in enumerate(WORLD.bundles):
        for seq in range(bundle.first_seq, bundle.first_seq + bundle.count):
            for size in range(index + 1, WORLD.size + 1):
                check_event_proof(*WORLD.event_proof(seq, size))
                check_bound_head(WORLD.heads[size], NODE.public, WORLD.enclave)


def refused_event(seq: int, size: int, change: Callable[..., tuple[Any, ...]]) -> None:
    with pytest.raises(InvalidProof):
        check_event_proof(*change(*WORLD.event_proof(seq, size)))


@pytest.mark.parametrize(("seq", "size"), [(0, 1), (0, 4), (5, 2), (9, 3), (12, 4)])
def test_each_link_of_an_event_proof_broken_alone(seq: int, size: int) -> None:
    for id_ in (WORLD.events[seq + 1].id, flip(WORLD.events[seq].id), bytes(32)):
        refused_event(seq, size, lambda event_id, m, leaf, i, h, id_=id_: (id_, m, leaf, i, h))
    refused_event(seq, size, lambda e, m, leaf, i, h: (e, replace(m, ei=m.ei + 1), leaf, i, h))
    refused_event(seq, size, lambda e, m, leaf, i, h: (e, replace(m, s=(*m.s, e)), leaf, i, h))
    refused_event(seq, size, lambda e, m, leaf, i, h: (e, m, replace(leaf, events_root=flip(leaf.events_root)), i, h))
    refused_event(seq, size, lambda e, m, leaf, i, h: (e, m, replace(leaf, state_hash=flip(leaf.state_hash)), i, h))
    refused_event(seq, size, lambda e, m, leaf, i, h: (e, m, LogLeaf(leaf.state_hash, leaf.events_root), i, h))
    refused_event(seq, size, lambda e, m, leaf, i, h: (e, m, leaf, replace(i, p=(*i.p, e)), h))
    refused_event(seq, size, lambda e, m, leaf, i, h: (e, m, leaf, replace(i, li=i.ts), h))
    refused_event(seq, size, lambda e, m, leaf, i, h: (e, m, leaf, replace(i, ts=i.ts + 1), h))
    refused_event(seq, size, lambda e, m, leaf, i, h: (e, m, leaf, i, replace(h, ts=h.ts + 1)))
    refused_event(seq, size, lambda e, m, leaf, i, h: (e, m, leaf, i, replace(h, r=flip(h.r))))
    for other in range(WORLD.size + 1):
        if other != size:
            refused_event(seq, size, lambda e, m, leaf, i, h, other=other: (e, m, leaf, i, WORLD.heads[other]))


def test_every_bit_of_an_opened_leaf_counts() -> None:
    leaf, inclusion, head = WORLD.leaf(1), prove_inclusion(WORLD.store, 1, 4), WORLD.heads[4]
    check_leaf(leaf, inclusion, head)
    for field in ("events_root", "state_hash"):
        for changed in flips(getattr(leaf, field)):
            with pytest.raises(InvalidProof):
                check_leaf(replace(leaf, **{field: changed}), inclusion, head)


def test_an_inclusion_proof_is_for_the_heads_size() -> None:
    """Sizes 3 and 4 fold the path of leaf 0 alike, so only the comparison with the head distinguishes them."""
    inclusion = prove_inclusion(WORLD.store, 0, 4)
    with pytest.raises(InvalidProof, match="another tree size"):
        check_leaf(WORLD.leaf(0), replace(inclusion, ts=3), WORLD.heads[4])


def test_the_proof_of_one_event_does_not_serve_another() -> None:
    proofs = [WORLD.event_proof(seq, 4) for seq in range(CLOSED_EVENTS)]
    for i, one in enumerate(proofs):
        for j, other in enumerate(proofs):
            if i != j:
                with pytest.raises(InvalidProof):
                    check_event_proof(one[0], *other[1:])


def test_heads_of_all_sizes_are_consistent() -> None:
    for first in range(1, WORLD.size + 1):
        for second in range(first, WORLD.size + 1):
            proof = prove_consistency(WORLD.store, first, second)
            check_consistency(proof, WORLD.heads[first].r, WORLD.heads[second].r)


# State


def test_the_state_after_every_bundle_is_proved_under_every_later_head() -> None:
    for index in range(WORLD.size):
        for size in range(index + 1, WORLD.size + 1):
            for key in KEYS_OF_STATE.values():
                check_state_proof(*WORLD.state_proof(key, index, size))


def test_what_the_proofs_say() -> None:
    def proved_value(index: int, name: str) -> bytes | None:
        return WORLD.state_proof(KEYS_OF_STATE[name], index, 4)[1].v

    masks = {
        (i, name): int.from_bytes(proved_value(i, name) or b"", "big") for i in range(4) for name in ("alice", "bob")
    }
    assert masks == {
        (0, "alice"): 0x302,
        (0, "bob"): 0x2,
        (1, "alice"): 0x302,
        (1, "bob"): 0x2,
        (2, "alice"): 0x302,
        (2, "bob"): 0x202,
        (3, "alice"): 0x202,
        (3, "bob"): 0x302,
    }
    assert [proved_value(i, "nobody") for i in range(4)] == [None] * 4
    assert [proved_value(i, "deleted") for i in range(4)] == [None, None, DELETED, DELETED]
    assert [proved_value(i, "updated") for i in range(4)] == [None, *[WORLD.events[5].id] * 3]
    assert [proved_value(i, "active") for i in range(4)] == [None] * 4
    assert [proved_value(i, "topic") for i in range(4)] == [None, *[WORLD.events[6].content_hash] * 3]
    assert [proved_value(i, "gate") for i in range(4)] == [None, None, CLOSED, CLOSED]
    assert [proved_value(i, "lifecycle") for i in range(4)] == [None, None, None, sha256(b"paused")]


def refused_state(name: str, index: int, change: Callable[..., tuple[Any, ...]]) -> None:
    with pytest.raises(InvalidProof):
        check_state_proof(*change(*WORLD.state_proof(KEYS_OF_STATE[name], index, 4)))


@pytest.mark.parametrize("name", KEYS_OF_STATE)
@pytest.mark.parametrize("index", [0, 2, 3])
def test_each_link_of_a_state_proof_broken_alone(name: str, index: int) -> None:
    refused_state(name, index, lambda k, p, leaf, i, h: (flip(k, 7), p, leaf, i, h))
    refused_state(name, index, lambda k, p, leaf, i, h: (flip(k, 7), replace(p, k=flip(k, 7)), leaf, i, h))
    refused_state(name, index, lambda k, p, leaf, i, h: (k, replace(p, v=b"\x05"), leaf, i, h))
    refused_state(
        name, index, lambda k, p, leaf, i, h: (k, replace(p, v=EMPTY_HASH if p.v is None else None), leaf, i, h)
    )
    refused_state(name, index, lambda k, p, leaf, i, h: (k, replace(p, b=flip(p.b)), leaf, i, h))
    refused_state(name, index, lambda k, p, leaf, i, h: (k, replace(p, s=(*p.s, k + bytes(11))), leaf, i, h))
    refused_state(name, index, lambda k, p, leaf, i, h: (k, p, replace(leaf, state_hash=flip(leaf.state_hash)), i, h))
    refused_state(name, index, lambda k, p, leaf, i, h: (k, p, replace(leaf, events_root=flip(leaf.events_root)), i, h))
    refused_state(name, index, lambda k, p, leaf, i, h: (k, p, leaf, replace(i, li=(i.li + 1) % 4), h))
    refused_state(name, index, lambda k, p, leaf, i, h: (k, p, leaf, replace(i, p=i.p[:-1]), h))
    refused_state(name, index, lambda k, p, leaf, i, h: (k, p, leaf, i, replace(h, r=flip(h.r))))
    refused_state(name, index, lambda k, p, leaf, i, h: (k, p, leaf, i, replace(h, ts=5)))


def test_the_state_of_one_bundle_is_not_that_of_another() -> None:
    key = KEYS_OF_STATE["bob"]
    _, before, leaf_before, inclusion_before, head = WORLD.state_proof(key, 0, 4)
    _, after, leaf_after, inclusion_after, _ = WORLD.state_proof(key, 3, 4)
    for proof, leaf, inclusion in [
        (before, leaf_after, inclusion_after),
        (after, leaf_before, inclusion_before),
        (before, leaf_before, inclusion_after),
    ]:
        with pytest.raises(InvalidProof):
            check_state_proof(key, proof, leaf, inclusion, head)


def stated(key: bytes, value: bytes) -> tuple[StateProof, LogLeaf, InclusionProof, TreeHead]:
    """Return the proof of a state of one value that a node has put into its log."""
    store = CountingStore()
    root, store.tree_nodes = sparse_merkle.update(store, EMPTY_HASH, {key: value})
    leaf = LogLeaf(bytes(32), root)
    log, store.log_nodes = Edge().append(log_leaf(leaf.events_root, leaf.state_hash))
    head = sign_head(NODE, WORLD.enclave, 0, 1, log.root())
    return sparse_merkle.prove(store, root, key), leaf, prove_inclusion(store, 0, 1), head


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (identity_key(bytes(32)), bytes(32)),
        (identity_key(bytes(32)), b"\x01"),
        (status_key(bytes(32)), b"\x01"),
        (tree_key("kv", bytes(32)), b"\x00"),
    ],
    ids=["a bitmask of zero", "a bitmask of one byte", "a status other than deleted", "a KV value of one byte"],
)
def test_a_value_has_its_namespaces_form(key: bytes, value: bytes) -> None:
    with pytest.raises(InvalidProof):
        check_state_proof(key, *stated(key, value))


@pytest.mark.parametrize(
    ("key", "value"),
    [(tree_key("kv", bytes(32)), bytes(32)), (status_key(bytes(32)), bytes(32)), (status_key(bytes(32)), DELETED)],
    ids=["a KV value of zeros", "an update by an event of that id", "a deletion"],
)
def test_what_is_no_bitmask_may_be_zero(key: bytes, value: bytes) -> None:
    check_state_proof(key, *stated(key, value))


# On the wire

paths = st.lists(hashes, max_size=64).map(tuple)
keys21 = st.binary(min_size=21, max_size=21)


@examples()
@given(uints, uints, paths)
def test_proofs_survive_the_wire(one: int, other: int, path: tuple[bytes, ...]) -> None:
    inclusion = InclusionProof(one, other, path)
    assert parse_inclusion(json.dumps(wire_inclusion(inclusion))) == inclusion
    consistency = ConsistencyProof(one, other, path)
    assert parse_consistency(json.dumps(wire_consistency(consistency))) == consistency
    bundle = BundleProof(one, path, other)
    assert parse_bundle_proof(json.dumps(wire_bundle_proof(bundle))) == bundle


@examples()
@given(
    keys21, st.none() | st.binary(min_size=1, max_size=1) | hashes, keys21, st.lists(hashes, max_size=168).map(tuple)
)
def test_state_proofs_survive_the_wire(k: bytes, v: bytes | None, b: bytes, s: tuple[bytes, ...]) -> None:
    proof = StateProof(k, v, b, s)
    assert parse_state_proof(json.dumps(wire_state_proof(proof))) == proof


H1 = "ab" * 32
FORMS: dict[str, tuple[Callable[[str | bytes], Any], dict[str, Any]]] = {
    "inclusion": (parse_inclusion, {"ts": 2, "li": 1, "p": [H1]}),
    "consistency": (parse_consistency, {"ts1": 1, "ts2": 2, "p": [H1]}),
    "bundle": (parse_bundle_proof, {"ei": 1, "s": [H1], "size": 2}),
    "state": (parse_state_proof, {"k": "ab" * 21, "v": H1, "b": "ab" * 21, "s": [H1]}),
}
FIELDS = [(form, field) for form, (_, wire) in FORMS.items() for field in wire]
NUMBERS = [(form, field) for form, field in FIELDS if isinstance(FORMS[form][1][field], int)]
LISTS = [(form, field) for form, field in FIELDS if isinstance(FORMS[form][1][field], list)]


def refuse(form: str, field: str, value: Any) -> None:
    parser, wire = FORMS[form]
    with pytest.raises(InvalidProof, match=rf"^{field}\b"):
        parser(json.dumps({**wire, field: value}))


@pytest.mark.parametrize("form", FORMS)
def test_the_forms_parse_and_ignore_what_stands_beside(form: str) -> None:
    parser, wire = FORMS[form]
    assert parser(json.dumps(wire)) == parser(json.dumps({**wire, "events_root": H1, "sth": {}}).encode())


@pytest.mark.parametrize(("form", "field"), FIELDS)
def test_a_missing_field_is_named(form: str, field: str) -> None:
    parser, wire = FORMS[form]
    with pytest.raises(InvalidProof, match=f"`{field}`"):
        parser(json.dumps({name: value for name, value in wire.items() if name != field}))


@pytest.mark.parametrize(("form", "field"), NUMBERS)
def test_numbers_are_integers_in_range(form: str, field: str) -> None:
    parser, wire = FORMS[form]
    for value in (0, MAX_INT):
        assert getattr(parser(json.dumps({**wire, field: value})), field) == value
    for value in anything(-1, MAX_INT + 1, 2**64, 10**40, 1.0, 1.5, "1", None, True, [], {}):
        refuse(form, field, value)


@pytest.mark.parametrize(("form", "field"), LISTS)
def test_lists_are_of_hashes_and_bounded(form: str, field: str) -> None:
    parser, wire = FORMS[form]
    most = 168 if form == "state" else 64
    for count in (0, most):
        assert len(getattr(parser(json.dumps({**wire, field: [H1] * count})), field)) == count
    refuse(form, field, [H1] * (most + 1))
    for value in anything(None, H1, 5, {}, True):
        refuse(form, field, value)
    for item in anything(H1.upper(), H1[:-1], H1[:-2], H1 + "00", "", "0x" + H1[2:], None, 5, [], {}, [H1]):
        refuse(form, field, [item])
        refuse(form, field, [H1, item])


@pytest.mark.parametrize("field", ["k", "b"])
def test_key_and_bitmap_are_hex_of_21_bytes(field: str) -> None:
    good = "ab" * 21
    for value in anything(good.upper(), good[:-1], good[:-2], good + "00", "", H1, None, 5, [], {}):
        refuse("state", field, value)


def test_a_value_is_null_one_byte_or_32() -> None:
    parser, wire = FORMS["state"]
    for text in (None, "00", "ff", H1):
        proof = parser(json.dumps({**wire, "v": text}))
        assert proof.v == (None if text is None else bytes.fromhex(text))
    for value in anything("", "0", "000", "0000", "AB", H1.upper(), H1[:-2], H1 + "00", "zz", " 0", 0, False, [], {}):
        refuse("state", "v", value)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{}", b"5", b"\xff", b"{", b"[" * 100_000], ids=range(8))
def test_what_is_no_proof_is_refused(form: str, data: bytes) -> None:
    with pytest.raises(InvalidProof):
        FORMS[form][0](data)
