"""Statements of evacuation and orders for warm copies: worked examples, and what is rejected."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.errors import InvalidProof, InvalidQuery, MisuseError, PeerError, Unauthorized
from enc.core.primitives.hashing import sha256
from enc.core.primitives.signing import check_schnorr
from enc.core.registry.evacuation import check_evacuation, parse_evacuation, sign_evacuation, wire_evacuation
from enc.core.registry.warm_copy_order import MAX_ENCLAVES, WINDOW_MS, OrderedCopy, parse_order, wire_order
from tests.core.vectors import KEYS, load

EXAMPLE = load("evacuation")
NODE, NODE2 = KEYS["node"], KEYS["node2"]
AT = EXAMPLE["orders"][0]["wire"]["at"]


@pytest.mark.parametrize("example", EXAMPLE["statements"])
def test_statements(example: Any) -> None:
    wire, node = example["wire"], KEYS[example["node"]]
    found = parse_evacuation(json.dumps(wire))
    assert sign_evacuation(node, found.to, found.to_key, found.since, found.deadline) == found
    assert wire_evacuation(found) == wire
    check_evacuation(found, node.public)
    check_schnorr(node.public, sha256(bytes.fromhex(example["signed"])), found.sig)


@pytest.mark.parametrize("example", EXAMPLE["refused"], ids=lambda example: example["why"])
def test_rejected_statements(example: Any) -> None:
    with pytest.raises(InvalidProof):
        check_evacuation(parse_evacuation(json.dumps(example["wire"])), NODE.public)


def test_a_statement_of_another_node_is_rejected() -> None:
    found = sign_evacuation(NODE2, "https://new.example", NODE.public, 1)
    with pytest.raises(InvalidProof, match="not the node that shows it"):
        check_evacuation(found, NODE.public)


@pytest.mark.parametrize("to", ["", "new.example", "https://new.example/a b", "https://new.example/\x1b[2J", "ftp://x"])
def test_an_address_that_readers_would_reject_is_not_signed(to: str) -> None:
    with pytest.raises(MisuseError, match="to: "):
        sign_evacuation(NODE, to, NODE2.public, 1)


def test_a_node_does_not_evacuate_to_itself() -> None:
    with pytest.raises(MisuseError, match="the node itself"):
        sign_evacuation(NODE, "https://new.example", NODE.public, 1)


@pytest.mark.parametrize("example", EXAMPLE["orders"])
def test_orders(example: Any) -> None:
    found = parse_order(json.dumps(example["wire"]).encode(), NODE2.public, AT)
    assert wire_order(KEYS[example["node"]], found) == example["wire"]
    check_schnorr(NODE.public, sha256(bytes.fromhex(example["signed"])), bytes.fromhex(example["wire"]["sig"]))


@pytest.mark.parametrize("example", EXAMPLE["orders_refused"], ids=lambda example: example["why"])
def test_rejected_orders(example: Any) -> None:
    with pytest.raises(Unauthorized):
        parse_order(json.dumps(example["wire"]).encode(), NODE2.public, AT)


@pytest.mark.parametrize("shift", [-WINDOW_MS - 1, WINDOW_MS + 1])
def test_an_order_of_another_time_is_rejected(shift: int) -> None:
    line = json.dumps(EXAMPLE["orders"][0]["wire"]).encode()
    parse_order(line, NODE2.public, AT + shift - (1 if shift > 0 else -1))
    with pytest.raises(Unauthorized, match="clock"):
        parse_order(line, NODE2.public, AT + shift)


def test_an_order_of_too_many_enclaves_is_rejected() -> None:
    order = parse_order(json.dumps(EXAMPLE["orders"][0]["wire"]).encode(), NODE2.public, AT)
    many = replace(order, enclaves=tuple(OrderedCopy(bytes(32), n) for n in range(MAX_ENCLAVES + 1)))
    with pytest.raises(InvalidQuery, match="at most 256"):
        parse_order(json.dumps(wire_order(NODE, many)).encode(), NODE2.public, AT)


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b'{"node":1}', b'{"at":-1}'])
def test_orders_of_another_form_are_rejected(line: bytes) -> None:
    with pytest.raises(PeerError):
        parse_order(line, NODE2.public, AT)
