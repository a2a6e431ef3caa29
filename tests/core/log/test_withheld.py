"""Withheld contents: worked examples that another program made, and every field that counts."""

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from enc.core.errors import InvalidCommit, MisuseError
from enc.core.log.commit import build_commit
from enc.core.log.event import (
    check_event,
    erase,
    finalize,
    parse_event,
    restore_content,
    signed_statement,
    wire_event,
    withheld_by,
    withhold,
)
from enc.core.log.withheld import REASONS, is_signed, sign_withheld, wire_withheld
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import Event
from tests.core.strategies import flips
from tests.core.vectors import KEYS, load

EXAMPLE = load("withheld")
ENCLAVE = b"\x0e" * 32
TS = 1_790_000_000_000
NODE, OTHER = KEYS["node"], KEYS["node2"]
EVENT = finalize(build_commit(KEYS["alice"], ENCLAVE, "message", "hello", TS), NODE, TS - 5, 7)
STATEMENT = sign_withheld(NODE, ENCLAVE, EVENT.id, "abuse", TS)
WITHHELD = withhold(EVENT, STATEMENT)


def through_the_wire(event: Event) -> Event:
    return parse_event(msgspec.json.encode(wire_event(event)))


# Worked examples


@pytest.mark.parametrize("example", EXAMPLE["signed"])
def test_examples(example: Any) -> None:
    event = parse_event(json.dumps(load(example["log"])["events"][example["seq"]]))
    key, wire = KEYS[example["node"]], example["withheld"]
    statement = sign_withheld(key, event.enclave, event.id, wire["reason"], wire["ts"])
    assert wire_withheld(statement) == wire
    assert key.sign("schnorr", sha256(bytes.fromhex(example["signed"]))) == statement.sig
    withheld = withhold(event, statement)
    assert through_the_wire(withheld) == withheld
    assert withheld_by(withheld, {key.public}) == statement


def test_every_reason_has_an_example() -> None:
    assert {example["withheld"]["reason"] for example in EXAMPLE["signed"]} == set(REASONS)


@pytest.mark.parametrize("example", EXAMPLE["malformed"], ids=lambda example: example["why"])
def test_malformed_events(example: Any) -> None:
    with pytest.raises(InvalidCommit, match="withheld"):
        parse_event(json.dumps(example["event"]))


# Events


def test_a_withheld_event_still_checks_and_is_whole_again_with_its_content() -> None:
    assert WITHHELD.content is None
    check_event(through_the_wire(WITHHELD), 2)
    assert restore_content(WITHHELD, "hello") == EVENT
    assert erase(WITHHELD) == erase(EVENT)
    with pytest.raises(InvalidCommit, match="its hash is not content_hash"):
        restore_content(WITHHELD, "hallo")


def test_null_is_no_statement() -> None:
    assert parse_event(json.dumps({**wire_event(erase(EVENT)), "withheld": None})) == erase(EVENT)
    assert parse_event(json.dumps({**wire_event(EVENT), "withheld": None})) == EVENT


def test_an_event_without_a_statement_has_no_such_field() -> None:
    assert "withheld" not in wire_event(EVENT)
    assert "withheld" not in wire_event(erase(EVENT))


def test_a_reason_of_32_characters_and_unknown_codes_are_read() -> None:
    for reason in ("a" * 32, "_", "reason_of_tomorrow"):
        wire = {**wire_event(WITHHELD), "withheld": {**wire_withheld(STATEMENT), "reason": reason}}
        found = parse_event(json.dumps(wire)).withheld
        assert found is not None
        assert found.reason == reason


# Which statements count


@pytest.mark.parametrize("name", ["node", "sig"])
def test_every_bit_of_key_and_signature_counts(name: str) -> None:
    for changed in flips(getattr(STATEMENT, name)):
        assert not is_signed(replace(STATEMENT, **{name: changed}), ENCLAVE, EVENT.id)


def test_every_other_signed_field_counts() -> None:
    assert is_signed(STATEMENT, ENCLAVE, EVENT.id)
    assert not is_signed(replace(STATEMENT, ts=TS + 1), ENCLAVE, EVENT.id)
    assert not is_signed(replace(STATEMENT, reason="other"), ENCLAVE, EVENT.id)
    assert not is_signed(STATEMENT, bytes(32), EVENT.id)
    assert not is_signed(STATEMENT, ENCLAVE, bytes(32))


def test_only_the_nodes_of_the_log_count_and_only_for_a_missing_content() -> None:
    assert signed_statement(WITHHELD) == withheld_by(WITHHELD, {NODE.public}) == STATEMENT
    assert withheld_by(WITHHELD, {OTHER.public}) is None
    assert withheld_by(erase(EVENT), {NODE.public}) is None
    assert signed_statement(replace(WITHHELD, content="hello")) is None
    forged = replace(WITHHELD, withheld=replace(STATEMENT, ts=TS + 1))
    assert signed_statement(forged) is withheld_by(forged, {NODE.public}) is None


# Misuse


def test_a_node_signs_only_well_formed_statements() -> None:
    with pytest.raises(MisuseError, match="'spam' is not one of illegal, court_order"):
        sign_withheld(NODE, ENCLAVE, EVENT.id, "spam", TS)
    for enclave, event_id, ts in ((ENCLAVE[1:], EVENT.id, TS), (ENCLAVE, b"", TS), (ENCLAVE, EVENT.id, 2**53)):
        with pytest.raises(MisuseError):
            sign_withheld(NODE, enclave, event_id, "abuse", ts)


def test_a_statement_about_another_event_withholds_nothing() -> None:
    other = finalize(build_commit(KEYS["alice"], ENCLAVE, "message", "hi", TS), NODE, TS - 5, 8)
    with pytest.raises(MisuseError, match="did not sign this statement about event 8"):
        withhold(other, STATEMENT)
