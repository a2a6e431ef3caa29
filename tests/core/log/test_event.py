"""Events and receipts: finalise, parse, check, erase. A change of any field is detected."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from enc.core.errors import InvalidCommit, InvalidHash, InvalidProof, InvalidSignature, PeerError
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import check_event, check_sequenced, erase, finalize, parse_event, wire_event
from enc.core.log.receipt import build_receipt, check_receipt, parse_receipt, wire_receipt
from enc.core.primitives.hashing import event_hash, sha256
from enc.core.primitives.types import Event, Receipt
from tests.core.strategies import MAX_INT, anything, examples, flip, flips, texts, uints
from tests.core.vectors import KEYS

ALICE, BOB, NODE, OTHER = KEYS["alice"], KEYS["bob"], KEYS["node"], KEYS["node2"]
ENCLAVE = b"\x0e" * 32
EXP = 1_790_000_000_000
COMMIT = build_commit(ALICE, ENCLAVE, "message", "hello", EXP, (("k", "v"),))
EVENT = finalize(COMMIT, NODE, EXP - 5, 7)
ERASED = erase(EVENT)
WIRE, ERASED_WIRE = wire_event(EVENT), wire_event(ERASED)
RECEIPT = build_receipt(EVENT)
RECEIPT_WIRE = wire_receipt(RECEIPT)


def without(wire: dict[str, Any], field: str) -> str:
    return json.dumps({name: value for name, value in wire.items() if name != field})


def parse(wire: Any = WIRE, **changes: Any) -> Event:
    return parse_event(json.dumps({**wire, **changes}))


# The chain


@pytest.mark.parametrize("enc_v", [1, 2])
@pytest.mark.parametrize("alg", ["schnorr", "ecdsa"])
def test_a_finalised_commit_checks(enc_v: int, alg) -> None:
    if (enc_v, alg) == (1, "ecdsa"):
        pytest.skip("version 1 supports schnorr only")
    commit = build_commit(ALICE, ENCLAVE, "m", "x", EXP, (("k",),), alg=alg, enc_v=enc_v)
    event = finalize(commit, NODE, 0, 0)
    check_event(event, enc_v)
    assert event.sequencer == NODE.public
    assert event.id == sha256(event.seq_sig)
    assert event.seq_sig == NODE.sign_schnorr(event_hash(0, 0, NODE.public, commit.sig))
    assert {name: getattr(event, name) for name in commit.__struct_fields__} == {
        name: getattr(commit, name) for name in commit.__struct_fields__
    }


@examples()
@given(texts, uints, uints)
def test_events_survive_the_wire(content: str, timestamp: int, seq: int) -> None:
    event = finalize(build_commit(ALICE, ENCLAVE, "m", content, EXP), NODE, timestamp, seq)
    for data in (msgspec.json.encode(wire_event(event)), json.dumps(wire_event(event))):
        assert parse_event(data) == event
    gone = erase(event)
    assert parse_event(msgspec.json.encode(wire_event(gone))) == gone
    check_event(gone, 2)


@pytest.mark.parametrize("field", ["hash", "enclave", "from", "sig", "sequencer", "seq_sig", "id"])
def test_every_bit_of_every_hash_key_and_signature_counts(field: str) -> None:
    raw = bytes.fromhex(WIRE[field])
    for changed in flips(raw):
        with pytest.raises((InvalidHash, InvalidSignature)):
            check_event(parse(**{field: changed.hex()}), 2)


@pytest.mark.parametrize(
    "change",
    [
        {"type": "Message"},
        {"content": "hello "},
        {"content": ""},
        {"exp": EXP + 1},
        {"exp": 0},
        {"tags": []},
        {"tags": [["k", "v"], ["k", "v"]]},
        {"tags": [["k", "V"]]},
        {"alg": "ecdsa"},
        {"timestamp": EXP - 4},
        {"timestamp": 0},
        {"seq": 8},
        {"seq": 6},
        {"sequencer": OTHER.public.hex()},
        {"from": BOB.public.hex()},
        {"seq_sig": OTHER.sign_schnorr(event_hash(EXP - 5, 7, OTHER.public, COMMIT.sig)).hex()},
        {"sig": BOB.sign_schnorr(COMMIT.hash).hex()},
        {"sig": ALICE.sign_ecdsa(COMMIT.hash).hex()},
    ],
    ids=lambda change: "-".join(f"{name}={str(value)[:12]}" for name, value in change.items()),
)
def test_any_altered_field_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((InvalidHash, InvalidSignature)):
        check_event(parse(**change), 2)


def test_what_breaks_names_the_link() -> None:
    with pytest.raises(InvalidSignature, match=r"^seq_sig: "):
        check_sequenced(replace(EVENT, seq=8))
    with pytest.raises(InvalidSignature, match=r"^seq_sig: "):
        check_sequenced(replace(EVENT, seq_sig=flip(EVENT.seq_sig), id=sha256(flip(EVENT.seq_sig))))
    with pytest.raises(InvalidHash, match=r"^id: "):
        check_sequenced(replace(EVENT, id=flip(EVENT.id)))


def test_a_sequencer_that_is_no_point_is_refused() -> None:
    with pytest.raises(InvalidSignature):
        check_sequenced(replace(EVENT, sequencer=(5).to_bytes(32, "big")))


def test_an_event_resequenced_by_another_node_is_that_nodes_event() -> None:
    other = finalize(COMMIT, OTHER, EVENT.timestamp, EVENT.seq)
    check_event(other, 2)
    assert (other.hash, other.sig) == (EVENT.hash, EVENT.sig)
    assert other.id != EVENT.id


def test_a_manifest_has_seq_0() -> None:
    commit = build_manifest(ALICE, '{"enc_v":2}', EXP)
    check_event(finalize(commit, NODE, EXP, 0), 2)
    with pytest.raises(PeerError):
        check_event(finalize(commit, NODE, EXP, 1), 2)


# Erasure


def test_an_erased_event_still_checks() -> None:
    assert ERASED.content is None
    assert ERASED.content_hash == EVENT.content_hash
    assert replace(ERASED, content="hello") == EVENT
    check_event(ERASED, 2)
    assert erase(ERASED) == ERASED


def test_an_erased_event_on_the_wire() -> None:
    assert {**WIRE, "content": None, "content_hash": EVENT.content_hash.hex()} == ERASED_WIRE
    assert "content_hash" not in WIRE
    assert parse(ERASED_WIRE) == ERASED


def test_every_bit_of_an_erased_contents_hash_counts() -> None:
    for changed in flips(ERASED.content_hash):
        with pytest.raises(InvalidHash):
            check_event(parse(ERASED_WIRE, content_hash=changed.hex()), 2)


def test_a_null_content_needs_its_hash() -> None:
    with pytest.raises(InvalidCommit, match=r"^content_hash: "):
        parse(content=None)
    with pytest.raises(InvalidCommit, match=r"^content_hash: "):
        parse(ERASED_WIRE, content_hash=None)


def test_a_hash_beside_a_present_content_must_be_its_own() -> None:
    assert parse(content_hash=EVENT.content_hash.hex()) == EVENT
    for wrong in (flip(EVENT.content_hash), bytes(32), sha256(b"")):
        with pytest.raises(InvalidCommit, match=r"^content_hash: "):
            parse(content_hash=wrong.hex())


def test_an_empty_content_is_not_an_erased_one() -> None:
    event = finalize(build_commit(ALICE, ENCLAVE, "m", "", EXP), NODE, EXP, 0)
    assert wire_event(event)["content"] == ""
    assert parse_event(json.dumps(wire_event(event))).content == ""


# Structure


@pytest.mark.parametrize(
    "field",
    ["hash", "enclave", "from", "type", "content", "exp", "sig", "id", "timestamp", "sequencer", "seq", "seq_sig"],
)
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(InvalidCommit, match=f"`{field}`"):
        parse_event(without(WIRE, field))


@pytest.mark.parametrize("field", ["hash", "enclave", "from", "sig", "id", "sequencer", "seq_sig", "content_hash"])
def test_hex_fields_have_one_spelling_and_length(field: str) -> None:
    good = ERASED_WIRE[field]
    for value in (good.upper(), good[:-1], good[:-2], good + "00", "", "0x" + good[2:], good[:-1] + " "):
        with pytest.raises(InvalidCommit, match=rf"^{field}: "):
            parse(ERASED_WIRE, **{field: value})
    for value in (5, True, ["x"], {}):
        with pytest.raises(InvalidCommit, match=rf"^{field}: "):
            parse(ERASED_WIRE, **{field: value})


@pytest.mark.parametrize("field", ["timestamp", "seq", "exp"])
def test_numbers_are_integers_in_range(field: str) -> None:
    for value in (0, 1, MAX_INT):
        name = "exp" if field == "exp" else field
        assert getattr(parse(**{field: value}), name) == value
    for value in anything(-1, MAX_INT + 1, 2**64, 10**40, 1.0, 1.5, "5", None, True, [5], {}):
        with pytest.raises(InvalidCommit, match=rf"^{field}: "):
            parse(**{field: value})


@pytest.mark.parametrize("content", [5, True, [], {}, {"a": 1}, ["x"]], ids=repr)
def test_content_is_text_or_null(content: Any) -> None:
    with pytest.raises(InvalidCommit, match=r"^content: "):
        parse(content=content)


def test_what_a_commit_may_not_be_an_event_may_not_be() -> None:
    for change in anything(
        {"tags": [[]]}, {"tags": None}, {"type": ""}, {"alg": "rsa"}, {"tags": [["auto-delete", "x"]]}
    ):
        with pytest.raises(InvalidCommit):
            parse(**change)
    for data in (b"", b"[]", b"null", b"{}", json.dumps([WIRE]).encode(), json.dumps(WIRE).encode() + b"}"):
        with pytest.raises(InvalidCommit):
            parse_event(data)


def test_a_nodes_limits_are_not_asked_of_what_is_finalised() -> None:
    tags = [["k" * 5000] * 20] * 70
    event = parse(content="x" * ((1 << 20) + 1), type="t" * 65, tags=tags)
    assert (len(event.type), len(event.tags), len(event.tags[0])) == (65, 70, 20)


# Receipts


def test_a_receipt_is_the_events_word() -> None:
    check_receipt(RECEIPT, COMMIT, NODE.public)
    assert parse_receipt(json.dumps(RECEIPT_WIRE)) == RECEIPT
    assert {
        "type": "Receipt",
        "id": EVENT.id.hex(),
        "hash": COMMIT.hash.hex(),
        "timestamp": EXP - 5,
        "sequencer": NODE.public.hex(),
        "seq": 7,
        "sig": COMMIT.sig.hex(),
        "seq_sig": EVENT.seq_sig.hex(),
    } == RECEIPT_WIRE


def test_a_receipt_says_alg_when_it_is_not_schnorr() -> None:
    commit = build_commit(ALICE, ENCLAVE, "m", "x", EXP, alg="ecdsa")
    receipt = build_receipt(finalize(commit, NODE, EXP, 0))
    assert wire_receipt(receipt)["alg"] == "ecdsa"
    assert parse_receipt(json.dumps(wire_receipt(receipt))) == receipt
    check_receipt(receipt, commit, NODE.public)
    with pytest.raises(InvalidProof):
        check_receipt(replace(receipt, alg="schnorr"), commit, NODE.public)


@pytest.mark.parametrize("field", ["id", "hash", "sequencer", "sig", "seq_sig"])
def test_every_bit_of_a_receipt_counts(field: str) -> None:
    for changed in flips(bytes.fromhex(RECEIPT_WIRE[field])):
        receipt = parse_receipt(json.dumps({**RECEIPT_WIRE, field: changed.hex()}))
        with pytest.raises((InvalidProof, InvalidHash, InvalidSignature)):
            check_receipt(receipt, COMMIT, NODE.public)


def test_a_receipt_with_another_time_place_or_algorithm_is_refused() -> None:
    for change in ({"timestamp": EXP}, {"seq": 8}, {"seq": 0}, {"alg": "ecdsa"}):
        receipt = parse_receipt(json.dumps({**RECEIPT_WIRE, **change}))
        with pytest.raises((InvalidProof, InvalidSignature)):
            check_receipt(receipt, COMMIT, NODE.public)


def test_a_receipt_is_for_one_commit_and_of_one_sequencer() -> None:
    other = build_commit(ALICE, ENCLAVE, "message", "hello", EXP + 1, (("k", "v"),))
    with pytest.raises(InvalidProof, match="another commit"):
        check_receipt(RECEIPT, other, NODE.public)
    with pytest.raises(InvalidProof, match="another sequencer"):
        check_receipt(RECEIPT, COMMIT, OTHER.public)
    foreign = build_receipt(finalize(COMMIT, OTHER, EXP, 7))
    check_receipt(foreign, COMMIT, OTHER.public)
    with pytest.raises(InvalidProof, match="another sequencer"):
        check_receipt(foreign, COMMIT, NODE.public)
    claimed: Receipt = replace(foreign, sequencer=NODE.public)
    with pytest.raises(InvalidProof, match="seq_sig"):
        check_receipt(claimed, COMMIT, NODE.public)


@pytest.mark.parametrize("field", ["id", "hash", "timestamp", "sequencer", "seq", "sig", "seq_sig"])
def test_a_receipts_missing_field_is_named(field: str) -> None:
    with pytest.raises(InvalidProof, match=f"`{field}`"):
        parse_receipt(without(RECEIPT_WIRE, field))


@pytest.mark.parametrize("field", ["id", "hash", "sequencer", "sig", "seq_sig"])
@pytest.mark.parametrize("value", [None, 5, "", "00", "AB" * 32, "AB" * 64, "ab" * 33, []], ids=repr)
def test_a_receipts_hex_has_one_spelling(field: str, value: Any) -> None:
    with pytest.raises(InvalidProof, match=rf"^{field}: "):
        parse_receipt(json.dumps({**RECEIPT_WIRE, field: value}))


@pytest.mark.parametrize("field", ["timestamp", "seq"])
@pytest.mark.parametrize("value", [-1, MAX_INT + 1, 2**64, 1.0, "5", None, True, []], ids=repr)
def test_a_receipts_numbers_are_integers_in_range(field: str, value: Any) -> None:
    with pytest.raises(InvalidProof, match=rf"^{field}: "):
        parse_receipt(json.dumps({**RECEIPT_WIRE, field: value}))


@pytest.mark.parametrize("value", ["rsa", "", None, 5], ids=repr)
def test_a_receipts_alg_takes_two_values(value: Any) -> None:
    with pytest.raises(InvalidProof, match=r"^alg: "):
        parse_receipt(json.dumps({**RECEIPT_WIRE, "alg": value}))


@examples()
@given(st.sampled_from(["schnorr", "ecdsa"]), uints, uints)
def test_receipts_survive_the_wire(alg, timestamp: int, seq: int) -> None:
    commit = build_commit(BOB, ENCLAVE, "m", "x", EXP, alg=alg)
    receipt = build_receipt(finalize(commit, NODE, timestamp, seq))
    again = parse_receipt(msgspec.json.encode(wire_receipt(receipt)))
    assert again == receipt
    check_receipt(again, commit, NODE.public)
