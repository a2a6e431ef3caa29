"""Co-signed heads: worked examples that another program made, and every field that counts."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from enc.core.errors import InvalidProof, MisuseError
from enc.core.primitives.hashing import sha256
from enc.core.primitives.signing import check_schnorr
from enc.core.primitives.types import TreeHead
from enc.core.trees.cosigning import CosignedHead, check_cosigned, cosign, parse_cosigned, wire_cosigned
from enc.core.trees.tree_head import sign_head
from tests.core.vectors import KEYS, load

EXAMPLE = load("witness")
ENCLAVE = bytes.fromhex(EXAMPLE["enclave"])
SEEN = 1_790_000_000_000


def a_head(ts: int = 7, enclave: bytes = ENCLAVE) -> TreeHead:
    return sign_head(KEYS["node"], enclave, SEEN - 5000, ts, sha256(b"root"))


def made(head: TreeHead | None = None) -> CosignedHead:
    return cosign(KEYS["carol"], ENCLAVE, KEYS["node"].public, head or a_head(), SEEN)


@pytest.mark.parametrize("example", EXAMPLE["cosigned"])
def test_examples(example: Any) -> None:
    wire, witness = example["wire"], KEYS[example["witness"]]
    found = parse_cosigned(json.dumps(wire))
    assert cosign(witness, ENCLAVE, KEYS[example["sequencer"]].public, found.head, wire["seen"]) == found
    assert wire_cosigned(found) == wire
    check_cosigned(found, witness.public, ENCLAVE)
    check_schnorr(witness.public, sha256(bytes.fromhex(example["signed"])), found.sig)


@pytest.mark.parametrize("example", EXAMPLE["refused"], ids=lambda example: example["why"])
def test_what_is_refused(example: Any) -> None:
    with pytest.raises(InvalidProof):
        check_cosigned(parse_cosigned(json.dumps(example["wire"])), KEYS["carol"].public, ENCLAVE)


def test_what_is_signed_has_one_width() -> None:
    assert {len(example["signed"]) // 2 for example in EXAMPLE["cosigned"]} == {260}


@settings(max_examples=300)
@given(st.data())
def test_every_bit_counts(data: st.DataObject) -> None:
    """Change each bit of each field and of the head; numbers are changed as a whole."""
    whole = made()
    name = data.draw(st.sampled_from(["enclave", "sequencer", "witness", "sig", "seen", "t", "ts", "r", "s", "bound"]))
    inside = {"s": "sig", "bound": "bound_sig"}.get(name, name)
    of = whole.head if name in ("t", "ts", "r", "s", "bound") else whole
    value = getattr(of, inside)
    if isinstance(value, int):
        bent: Any = value ^ 1 << data.draw(st.integers(0, 30))
    else:
        bit = data.draw(st.integers(0, 8 * len(value) - 1))
        bent = (int.from_bytes(value, "big") ^ 1 << bit).to_bytes(len(value), "big")
    changed = replace(of, **{inside: bent})
    found = changed if isinstance(changed, CosignedHead) else replace(whole, head=changed)
    with pytest.raises(InvalidProof):
        check_cosigned(found, KEYS["carol"].public, ENCLAVE)


def test_a_witness_signs_nothing_that_is_no_evidence() -> None:
    with pytest.raises(MisuseError):
        made(replace(a_head(), bound_sig=None))
    with pytest.raises(MisuseError):
        made(a_head(0))
    with pytest.raises(MisuseError):
        cosign(KEYS["carol"], ENCLAVE[:31], KEYS["node"].public, a_head(), SEEN)
    with pytest.raises(MisuseError):
        cosign(KEYS["carol"], ENCLAVE, KEYS["node"].public, a_head(), 2**53)
    for seen in (0, 2**53 - 1):
        cosigned = cosign(KEYS["carol"], ENCLAVE, KEYS["node"].public, a_head(), seen)
        check_cosigned(cosigned, KEYS["carol"].public, ENCLAVE)


def test_the_head_s_own_signatures_are_checked_too() -> None:
    """A witness that co-signs a head without a sequencer's signature convinces nobody."""
    forged = replace(a_head(), sig=bytes(64))
    with pytest.raises(InvalidProof, match="not signed by this sequencer"):
        check_cosigned(made(forged), KEYS["carol"].public, ENCLAVE)
    elsewhere = a_head(enclave=bytes(32))
    with pytest.raises(InvalidProof, match="bound_sig"):
        check_cosigned(made(elsewhere), KEYS["carol"].public, ENCLAVE)


@pytest.mark.parametrize("name", ["enclave", "sequencer", "sth", "seen", "witness", "cosig"])
def test_a_missing_or_misspelled_field_is_named(name: str) -> None:
    wire = wire_cosigned(made())
    with pytest.raises(InvalidProof, match=name):
        parse_cosigned(json.dumps({key: value for key, value in wire.items() if key != name}))
    with pytest.raises(InvalidProof, match=name if name == "sth" else f"^{name}: "):
        parse_cosigned(json.dumps({**wire, name: 2**60 if name == "seen" else "AB"}))
