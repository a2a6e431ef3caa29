"""Signed tree heads: what is signed, by whom, for which enclave."""

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from enc.core.errors import InvalidProof
from enc.core.primitives.signing import check_schnorr
from enc.core.trees.tree_head import check_bound_head, check_head, parse_head, sign_head, wire_head
from tests.core.strategies import MAX_INT, anything, examples, flip, flips, hashes, uints
from tests.core.vectors import KEYS

NODE, OTHER = KEYS["node"], KEYS["node2"]
ENCLAVE, FOREIGN = b"\x0e" * 32, b"\x0f" * 32
ROOT = sha256(b"root").digest()
HEAD = sign_head(NODE, ENCLAVE, 1_790_000_000_123, 19, ROOT)
WIRE = wire_head(HEAD)


@examples()
@given(hashes, uints, uints, hashes)
def test_a_head_checks_and_survives_the_wire(enclave: bytes, t: int, ts: int, root: bytes) -> None:
    head = sign_head(NODE, enclave, t, ts, root)
    assert (head.t, head.ts, head.r) == (t, ts, root)
    check_bound_head(head, NODE.public, enclave)
    check_head(head, NODE.public)
    assert parse_head(json.dumps(wire_head(head))) == head
    assert sign_head(NODE, enclave, t, ts, root) == head


def test_the_bytes_that_are_signed() -> None:
    numbers = (1_790_000_000_123).to_bytes(8, "big") + (19).to_bytes(8, "big")
    plain = b"enc:sth:" + numbers + ROOT
    bound = b"enc:head:" + ENCLAVE + numbers + ROOT
    assert (len(plain), len(bound)) == (56, 89)
    check_schnorr(NODE.public, sha256(plain).digest(), HEAD.sig)
    assert HEAD.bound_sig is not None
    check_schnorr(NODE.public, sha256(bound).digest(), HEAD.bound_sig)


def test_every_bit_of_a_head_counts() -> None:
    for changed in flips(HEAD.sig):
        with pytest.raises(InvalidProof):
            check_head(replace(HEAD, sig=changed), NODE.public)
    assert HEAD.bound_sig is not None
    for changed in flips(HEAD.bound_sig):
        with pytest.raises(InvalidProof, match="bound_sig"):
            check_bound_head(replace(HEAD, bound_sig=changed), NODE.public, ENCLAVE)
    for changed in flips(HEAD.r):
        with pytest.raises(InvalidProof):
            check_head(replace(HEAD, r=changed), NODE.public)
    for changed in flips(ENCLAVE):
        with pytest.raises(InvalidProof, match="bound_sig"):
            check_bound_head(HEAD, NODE.public, changed)


@pytest.mark.parametrize("change", [{"t": 0}, {"t": HEAD.t + 1}, {"ts": 18}, {"ts": 20}, {"t": 19, "ts": HEAD.t}])
def test_another_time_or_size_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(InvalidProof):
        check_head(replace(HEAD, **change), NODE.public)
    with pytest.raises(InvalidProof):
        check_bound_head(replace(HEAD, **change), NODE.public, ENCLAVE)


def test_a_head_is_of_one_sequencer() -> None:
    for key in (OTHER.public, KEYS["alice"].public, (5).to_bytes(32, "big"), b"", NODE.public[:-1]):
        with pytest.raises(InvalidProof):
            check_head(HEAD, key)
        with pytest.raises(InvalidProof):
            check_bound_head(HEAD, key, ENCLAVE)


def test_a_bound_head_needs_both_signatures_of_one_key() -> None:
    other = sign_head(OTHER, ENCLAVE, HEAD.t, HEAD.ts, HEAD.r)
    for mixed in (replace(HEAD, sig=other.sig), replace(HEAD, bound_sig=other.bound_sig)):
        for key in (NODE.public, OTHER.public):
            with pytest.raises(InvalidProof):
                check_bound_head(mixed, key, ENCLAVE)


def test_a_plain_head_is_no_evidence_about_an_enclave() -> None:
    plain = replace(HEAD, bound_sig=None)
    check_head(plain, NODE.public)
    with pytest.raises(InvalidProof, match="missing"):
        check_bound_head(plain, NODE.public, ENCLAVE)


def test_another_enclaves_head_has_the_same_plain_and_another_bound_signature() -> None:
    foreign = sign_head(NODE, FOREIGN, HEAD.t, HEAD.ts, HEAD.r)
    assert foreign.sig == HEAD.sig
    assert foreign.bound_sig != HEAD.bound_sig
    check_head(foreign, NODE.public)
    check_bound_head(foreign, NODE.public, FOREIGN)
    with pytest.raises(InvalidProof, match="bound_sig"):
        check_bound_head(foreign, NODE.public, ENCLAVE)


def test_neither_signature_stands_in_for_the_other() -> None:
    swapped = replace(HEAD, sig=HEAD.bound_sig, bound_sig=HEAD.sig)
    with pytest.raises(InvalidProof):
        check_head(swapped, NODE.public)
    with pytest.raises(InvalidProof):
        check_bound_head(replace(HEAD, bound_sig=HEAD.sig), NODE.public, ENCLAVE)


# Structure


def parse(**changes: Any) -> Any:
    return parse_head(json.dumps({**WIRE, **changes}))


def test_the_wire_form() -> None:
    assert list(WIRE) == ["t", "ts", "r", "sig", "bound_sig"]
    plain = replace(HEAD, bound_sig=None)
    assert "bound_sig" not in wire_head(plain)
    assert parse_head(json.dumps(wire_head(plain))) == plain
    assert parse(bound_sig=None) == plain
    assert parse(extra=1) == HEAD


@pytest.mark.parametrize("field", ["t", "ts", "r", "sig"])
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(InvalidProof, match=f"`{field}`"):
        parse_head(json.dumps({name: value for name, value in WIRE.items() if name != field}))


@pytest.mark.parametrize("field", ["t", "ts"])
def test_numbers_are_integers_in_range(field: str) -> None:
    for value in (0, 1, MAX_INT):
        assert getattr(parse(**{field: value}), field) == value
    for value in anything(-1, MAX_INT + 1, 2**64, 10**40, 1.0, "5", None, True, [], {}):
        with pytest.raises(InvalidProof, match=rf"\b{field}\b"):
            parse(**{field: value})


@pytest.mark.parametrize("field", ["r", "sig", "bound_sig"])
def test_hex_has_one_spelling_and_length(field: str) -> None:
    good = WIRE[field]
    for value in anything(good.upper(), good[:-1], good[:-2], good + "00", "", "0x" + good[2:], 5, True, [], {}):
        with pytest.raises(InvalidProof, match=rf"^{field}: "):
            parse(**{field: value})


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{}", b"\xff", b'"x"', b"[" * 100_000])
def test_what_is_no_head_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidProof):
        parse_head(data)


def test_two_heads_of_one_size_and_two_roots_convict() -> None:
    one, other = HEAD, sign_head(NODE, ENCLAVE, HEAD.t, HEAD.ts, flip(HEAD.r))
    check_bound_head(one, NODE.public, ENCLAVE)
    check_bound_head(other, NODE.public, ENCLAVE)
    assert one.ts == other.ts
    assert one.r != other.r
