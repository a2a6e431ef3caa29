"""Commits: malformed fields one by one, and the rules for hash, signature and time."""

import json
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from enc.core.errors import EncError, Expired, InvalidCommit, InvalidHash, InvalidSignature, MisuseError
from enc.core.log.commit import (
    auto_delete_at,
    build_commit,
    build_manifest,
    check_author,
    check_commit,
    check_expiry,
    check_hash,
    manifest_version,
    parse_commit,
    wire_commit,
)
from enc.core.primitives.hashing import enclave_id
from enc.core.primitives.signing import Alg
from enc.core.primitives.types import CommitLimits
from tests.core.strategies import MAX_INT, anything, examples, flip, flips, hashes, texts
from tests.core.vectors import KEYS

ALICE, BOB = KEYS["alice"], KEYS["bob"]
ENCLAVE = b"\x0e" * 32
EXP = 1_790_000_000_000
COMMIT = build_commit(ALICE, ENCLAVE, "message", "hello", EXP, (("r", "ab", "reply"), ("k",)))
WIRE = wire_commit(COMMIT)

HEX_FIELDS = {"hash": 64, "enclave": 64, "from": 64, "sig": 128}


def parse(**changes: Any) -> Any:
    return parse_commit(json.dumps({**WIRE, **changes}))


def refused(field: str, **changes: Any) -> None:
    with pytest.raises(InvalidCommit, match=rf"\b{field}\b"):
        parse(**changes)


# Structure


def test_a_commit_survives_the_wire() -> None:
    assert parse() == COMMIT
    assert parse_commit(json.dumps(WIRE).encode()) == COMMIT
    assert parse_commit(msgspec.json.encode(WIRE)) == COMMIT
    check_commit(parse(), 2)


@pytest.mark.parametrize("field", ["hash", "enclave", "from", "type", "content", "exp", "sig"])
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(InvalidCommit, match=f"`{field}`"):
        parse_commit(json.dumps({name: value for name, value in WIRE.items() if name != field}))


def test_absent_tags_are_no_tags_and_an_absent_alg_is_schnorr() -> None:
    wire = wire_commit(build_commit(ALICE, ENCLAVE, "m", "", EXP))
    assert "alg" not in wire
    del wire["tags"]
    commit = parse_commit(json.dumps(wire))
    assert commit.tags == ()
    assert commit.alg == "schnorr"
    check_commit(commit, 2)


@pytest.mark.parametrize("field", ["hash", "enclave", "from", "type", "content", "sig"])
@pytest.mark.parametrize("value", [None, 5, 1.5, True, [], ["x"], {}, {"a": "b"}], ids=repr)
def test_a_text_field_of_another_type_is_named(field: str, value: Any) -> None:
    refused(field, **{field: value})


@pytest.mark.parametrize("value", [None, "5", True, False, 1.0, 1.5, [], [5], {}], ids=repr)
def test_exp_is_an_integer(value: Any) -> None:
    refused("exp", exp=value)


@pytest.mark.parametrize(
    "spelling", ["1e3", "1.0", "5e0", "-1", "9007199254740992", "1e400", "9" * 5000, "-" + "9" * 30]
)
def test_exp_in_no_other_spelling_and_range(spelling: str) -> None:
    with pytest.raises(InvalidCommit, match=r"^exp: "):
        parse_commit(json.dumps({**WIRE, "exp": 5}).replace('"exp": 5', f'"exp": {spelling}'))


@pytest.mark.parametrize("value", [0, 1, MAX_INT])
def test_exp_from_0_to_the_largest_integer(value: int) -> None:
    assert parse(exp=value).exp == value


@pytest.mark.parametrize("value", [-1, MAX_INT + 1, 2**63, 2**64, 10**30])
def test_exp_beyond_is_refused(value: int) -> None:
    refused("exp", exp=value)


@pytest.mark.parametrize(
    "value",
    [None, "x", 5, {}, ["x"], [["x"], "y"], [[5]], [["x", None]], [[["x"]]], [{}], [[]], [["x"], []]],
    ids=repr,
)
def test_tags_are_lists_of_at_least_one_string(value: Any) -> None:
    refused("tags", tags=value)


@pytest.mark.parametrize("field", HEX_FIELDS)
def test_hex_fields_have_one_spelling_and_length(field: str) -> None:
    good = WIRE[field]
    wrong = [good.upper(), good[:-1], good[:-2], good + "0", good + "00", "", "0x" + good[2:], " " + good[1:]]
    wrong += [good[:-1] + "g", good[:-1] + "\n", "é" * len(good), good[: len(good) // 2]]
    assert len(good) == HEX_FIELDS[field]
    for value in wrong:
        with pytest.raises(InvalidCommit, match=rf"^{field}: "):
            parse(**{field: value})


@pytest.mark.parametrize("value", ["ecdsa", "schnorr"])
def test_alg_takes_two_values(value: str) -> None:
    assert parse(alg=value).alg == value


@pytest.mark.parametrize("value", ["", "Schnorr", "ECDSA", "ed25519", "schnorr ", None, 1, ["schnorr"]], ids=repr)
def test_any_other_alg_is_refused(value: Any) -> None:
    refused("alg", alg=value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"null",
        b"5",
        b'"x"',
        b"[]",
        b"{}",
        b"{",
        b"\xff\xfe",
        b"\xef\xbb\xbf" + json.dumps(WIRE).encode(),
        json.dumps(WIRE).encode() + b"x",
        json.dumps(WIRE).encode() + b"{}",
        json.dumps(WIRE).encode()[:-1],
        json.dumps([WIRE]).encode(),
        json.dumps(WIRE).encode("utf-16"),
        json.dumps({**WIRE, "type": "TYPE"}).encode().replace(b"TYPE", b"\xff"),
        json.dumps({**WIRE, "type": "TYPE"}).encode().replace(b"TYPE", b"\xed\xa0\x80"),
        json.dumps({**WIRE, "type": "TYPE"}).encode().replace(b"TYPE", b"\xc0\xaf"),
        json.dumps({**WIRE, "type": "TYPE"}).encode().replace(b"TYPE", b"a\nb"),
        b"[" * 100_000,
        json.dumps(WIRE).encode()[:-1] + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "\ud800",
        json.dumps(WIRE) + "\udc00",
    ],
    ids=range(23),
)
def test_what_is_not_a_json_object_is_refused(data: bytes | str) -> None:
    with pytest.raises(InvalidCommit):
        parse_commit(data)


@pytest.mark.parametrize("escape", ["\\ud800", "\\udc00", "x\\ud83dy", "\\ude00\\ud83d"])
@pytest.mark.parametrize("field", ["content", "type", "tags"])
def test_a_lone_surrogate_is_not_text(field: str, escape: str) -> None:
    wire = json.dumps({**WIRE, field: [["MARK"]] if field == "tags" else "MARK"}).replace("MARK", escape)
    with pytest.raises(InvalidCommit):
        parse_commit(wire)
    with pytest.raises(InvalidCommit):
        parse_commit(json.dumps({**WIRE, "content": "MARK"}).replace("MARK", "\ud800"))


def test_fields_that_are_not_listed_are_no_part_of_a_commit() -> None:
    assert parse(content_hash="00" * 32, seq=5, surprise={"a": [1]}) == COMMIT


# Limits


@pytest.mark.parametrize(
    "content",
    ["a" * (1 << 20), "é" * (1 << 19), "\U0001f600" * (1 << 18), "€" * 349_525 + "a"],
    ids=["1 byte", "2 bytes", "4 bytes", "3 bytes and 1"],
)
def test_content_up_to_a_mebibyte_of_utf8(content: str) -> None:
    assert len(content.encode()) == 1 << 20
    assert parse(content=content).content == content
    with pytest.raises(InvalidCommit, match=r"^content: "):
        parse(content=content + "a")
    with pytest.raises(InvalidCommit, match=r"^content: "):
        parse(content=content[:-1] + "\U0001f600a")


def test_type_of_1_to_64_bytes() -> None:
    for type_ in ("m", "m" * 64, "é" * 32, "\U0001f600" * 16):
        assert parse(type=type_).type == type_
    for type_ in ("", "m" * 65, "é" * 32 + "m", "\U0001f600" * 16 + "m", "é" * 64):
        with pytest.raises(InvalidCommit, match=r"^type: "):
            parse(type=type_)


def test_up_to_64_tags() -> None:
    assert len(parse(tags=[["k"]] * 64).tags) == 64
    with pytest.raises(InvalidCommit, match=r"^tags: "):
        parse(tags=[["k"]] * 65)


def test_up_to_16_strings_a_tag() -> None:
    assert len(parse(tags=[["k"] * 16]).tags[0]) == 16
    with pytest.raises(InvalidCommit, match=r"^tags\[1\]: "):
        parse(tags=[["k"], ["k"] * 17])


def test_up_to_4_kib_a_string() -> None:
    for text in ("k" * 4096, "é" * 2048, "\U0001f600" * 1024):
        assert parse(tags=[["k", text]]).tags == (("k", text),)
        with pytest.raises(InvalidCommit, match=r"^tags\[0\]: "):
            parse(tags=[["k", text + "k"]])
        with pytest.raises(InvalidCommit, match=r"^tags\[2\]: "):
            parse(tags=[["k"], ["k"], [text + "k"]])
    assert parse(tags=[[""]]).tags == (("",),)


def test_a_node_may_set_its_own_limits() -> None:
    limits = CommitLimits(content=3, type=2, tags=1, tag_strings=2, tag_string=4)
    fits: dict[str, Any] = {**WIRE, "content": "abc", "type": "ab", "tags": [["abcd", "abcd"]]}
    assert parse_commit(json.dumps(fits), limits).content == "abc"
    over = anything(
        {"content": "abcd"}, {"content": "éé"}, {"type": "abc"}, {"tags": [["a"]] * 2}, {"tags": [["a"] * 3]}
    )
    for change in (*over, {"tags": [["abcde"]]}):
        with pytest.raises(InvalidCommit):
            parse_commit(json.dumps({**fits, **change}), limits)


def test_the_defaults_are_the_documented_limits() -> None:
    assert CommitLimits() == CommitLimits(content=1_048_576, type=64, tags=64, tag_strings=16, tag_string=4096)


# auto-delete


def test_auto_delete_lies_after_exp() -> None:
    for when in (EXP + 1, EXP + 10**9, MAX_INT):
        commit = parse(tags=[["auto-delete", str(when)]])
        assert auto_delete_at(commit) == when
    for when in (EXP, EXP - 1, 0, 1):
        with pytest.raises(InvalidCommit, match="auto-delete"):
            parse(tags=[["auto-delete", str(when)]])


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "soon",
        f"0{EXP + 1}",
        f"+{EXP + 1}",
        f"-{EXP + 1}",
        f" {EXP + 1}",
        f"{EXP + 1} ",
        f"{EXP + 1}\n",
        f"{EXP + 1}.0",
        "1.8e12",
        "1_800_000_000_000",
        hex(EXP + 1),
        "".join(chr(0x0660 + int(digit)) for digit in str(EXP + 1)),
        "".join(chr(0xFF10 + int(digit)) for digit in str(EXP + 1)),
        str(MAX_INT + 1),
        "9" * 16,
        "9" * 17,
        "9" * 4096,
    ],
)
def test_auto_delete_is_a_decimal_timestamp(text: str) -> None:
    with pytest.raises(InvalidCommit, match="auto-delete"):
        parse(tags=[["auto-delete", text]])


def test_auto_delete_needs_its_time_and_stands_once() -> None:
    when = ["auto-delete", str(EXP + 1)]
    for tags in (
        [["auto-delete"]],
        [when, when],
        [when, ["k"], ["auto-delete", str(EXP + 2)]],
        [["auto-delete"], when],
    ):
        with pytest.raises(InvalidCommit, match="auto-delete"):
            parse(tags=tags)


def test_only_the_first_string_names_a_tag() -> None:
    assert auto_delete_at(parse(tags=[["k", "auto-delete", "1"], ["Auto-Delete", "1"], ["auto-delete ", "1"]])) is None
    assert auto_delete_at(parse(tags=[])) is None


def test_auto_delete_at_exp_zero() -> None:
    assert auto_delete_at(parse(exp=0, tags=[["auto-delete", "1"]])) == 1
    with pytest.raises(InvalidCommit):
        parse(exp=0, tags=[["auto-delete", "0"]])


# Hash


@pytest.mark.parametrize("enc_v", [1, 2])
def test_the_hash_is_of_every_field(enc_v: int) -> None:
    commit = build_commit(ALICE, ENCLAVE, "message", "hello", EXP, (("r", "ab"), ("k",)), enc_v=enc_v)
    check_hash(commit, enc_v)
    altered = [
        replace(commit, enclave=flip(ENCLAVE)),
        replace(commit, from_=BOB.public),
        replace(commit, type="message "),
        replace(commit, content_hash=flip(commit.content_hash)),
        replace(commit, exp=EXP + 1),
        replace(commit, exp=0),
        replace(commit, tags=()),
        replace(commit, tags=(("k",), ("r", "ab"))),
        replace(commit, tags=(("r", "ab"), ("k", ""))),
        replace(commit, tags=(("r", "ab", "k"),)),
        *(replace(commit, hash=changed) for changed in flips(commit.hash)),
    ]
    for changed in altered:
        with pytest.raises(InvalidHash):
            check_hash(changed, enc_v)
    with pytest.raises(InvalidHash):
        check_hash(commit, 3 - enc_v)


def test_another_content_on_the_wire_is_another_hash() -> None:
    with pytest.raises(InvalidHash):
        check_hash(parse(content="hello "), 2)


def test_version_1_knows_schnorr_only() -> None:
    commit = build_commit(ALICE, ENCLAVE, "m", "", EXP, alg="ecdsa")
    check_commit(commit, 2)
    old = replace(build_commit(ALICE, ENCLAVE, "m", "", EXP, enc_v=1), alg="ecdsa")
    with pytest.raises(InvalidCommit, match=r"^alg: "):
        check_hash(old, 1)
    with pytest.raises(InvalidCommit, match=r"^alg: "):
        check_commit(replace(old, sig=ALICE.sign_ecdsa(old.hash)), 1)


@pytest.mark.parametrize("text", ["a,b", "[", "]", "x],[y"])
def test_version_1_refuses_a_tag_that_its_text_cannot_hold(text: str) -> None:
    commit = build_commit(ALICE, ENCLAVE, "m", "", EXP, (("k", text),))
    check_hash(commit, 2)
    with pytest.raises(InvalidCommit, match=r"^tags: "):
        check_hash(commit, 1)


@pytest.mark.parametrize("enc_v", [1, 2])
@pytest.mark.parametrize("tags", [(), (("k", "v"),)])
def test_a_manifest_names_the_enclave_that_it_creates(enc_v: int, tags) -> None:
    commit = build_manifest(ALICE, '{"enc_v":2}', EXP, tags, enc_v=enc_v)
    assert commit.enclave == enclave_id(enc_v, ALICE.public, commit.content_hash, tags)
    check_commit(commit, enc_v)
    for enclave in (ENCLAVE, flip(commit.enclave), enclave_id(3 - enc_v, ALICE.public, commit.content_hash, tags)):
        foreign = build_commit(ALICE, enclave, "Manifest", '{"enc_v":2}', EXP, tags, enc_v=enc_v)
        with pytest.raises(InvalidCommit, match=r"^enclave: "):
            check_hash(foreign, enc_v)


def test_an_enclave_id_depends_on_author_content_and_tags_and_not_on_exp() -> None:
    def id_of(key=ALICE, content='{"enc_v":2}', exp=EXP, tags=()) -> bytes:
        return build_manifest(key, content, exp, tags).enclave

    assert id_of() == id_of(exp=EXP + 5)
    assert len({id_of(), id_of(key=BOB), id_of(content='{"enc_v": 2}'), id_of(tags=(("k",),))}) == 4


@pytest.mark.parametrize(("content", "version"), [('{"enc_v":1}', 1), ('{"enc_v": 2, "x": []}', 2)])
def test_the_version_of_a_manifest(content: str, version: int) -> None:
    assert manifest_version(build_manifest(ALICE, content, EXP)) == version


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        "2",
        "null",
        "not JSON",
        '{"enc_v":0}',
        '{"enc_v":3}',
        '{"enc_v":-2}',
        '{"enc_v":"2"}',
        '{"enc_v":2.0}',
        '{"enc_v":2e0}',
        '{"enc_v":true}',
        '{"enc_v":null}',
        '{"enc_v":[2]}',
        '{"Enc_v":2}',
        '{"enc_v":2,"enc_v":2}',
        '{"enc_v":2,"x":{"y":1,"y":2}}',
        '[{"enc_v":2}]',
        '{"enc_v":9007199254740994}',
    ],
)
def test_an_unsupported_version_is_refused(content: str) -> None:
    with pytest.raises(InvalidCommit):
        manifest_version(build_manifest(ALICE, content, EXP))


# Signature and time


@pytest.mark.parametrize("alg", ["schnorr", "ecdsa"])
def test_the_author_signs_the_hash_by_the_named_algorithm(alg) -> None:
    commit = build_commit(ALICE, ENCLAVE, "m", "x", EXP, alg=alg)
    check_author(commit)
    other: Alg = "ecdsa" if alg == "schnorr" else "schnorr"
    wrong = [
        replace(commit, alg=other),
        replace(commit, from_=BOB.public),
        replace(commit, from_=(5).to_bytes(32, "big")),
        replace(commit, hash=flip(commit.hash)),
        replace(commit, sig=flip(commit.sig, 300)),
        replace(commit, sig=BOB.sign(alg, commit.hash)),
        replace(commit, sig=ALICE.sign(other, commit.hash)),
        replace(commit, sig=b""),
    ]
    for changed in wrong:
        with pytest.raises(InvalidSignature):
            check_author(changed)


def test_a_high_s_is_an_invalid_signature() -> None:
    commit = build_commit(ALICE, ENCLAVE, "m", "x", EXP, alg="ecdsa")
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    high = order - int.from_bytes(commit.sig[32:], "big")
    with pytest.raises(InvalidSignature):
        check_author(replace(commit, sig=commit.sig[:32] + high.to_bytes(32, "big")))


def test_the_hash_is_judged_before_the_signature() -> None:
    with pytest.raises(InvalidHash):
        check_commit(replace(COMMIT, hash=flip(COMMIT.hash), sig=bytes(64)), 2)


@pytest.mark.parametrize("ahead", [0, 1, 3_600_000, 3_659_999, 3_660_000])
def test_exp_from_now_to_an_hour_and_a_minute(ahead: int) -> None:
    check_expiry(COMMIT, EXP - ahead)


def test_exp_in_the_past_and_too_far_ahead() -> None:
    for now in (EXP + 1, EXP + 60_000, MAX_INT):
        with pytest.raises(Expired):
            check_expiry(COMMIT, now)
    for now in (EXP - 3_660_001, 0):
        with pytest.raises(InvalidCommit, match=r"^exp: "):
            check_expiry(COMMIT, now)


# Building


@examples()
@given(
    hashes,
    texts.filter(bool),
    texts,
    st.integers(0, MAX_INT),
    st.lists(st.lists(texts, min_size=1, max_size=3), max_size=3),
)
def test_what_is_built_checks_and_survives_the_wire(enclave, type_, content, exp, tags) -> None:
    tags = tuple(tuple(tag) for tag in tags if tag[0] != "auto-delete")
    limits = CommitLimits(type=1 << 20, tag_string=1 << 20)
    for alg in ("schnorr", "ecdsa"):
        commit = build_commit(BOB, enclave, type_, content, exp, tags, alg=alg)
        if type_ != "Manifest":
            check_commit(commit, 2)
        wire = wire_commit(commit)
        for data in (msgspec.json.encode(wire), json.dumps(wire), json.dumps(wire, ensure_ascii=False)):
            assert parse_commit(data, limits) == commit


@pytest.mark.parametrize(
    "content",
    [
        "",
        " \t\r\n",
        "\x00",
        "a\x00b\x1f\x7f",
        "\u00e9",
        "e\u0301",
        "\ufeffx",
        "\u202eabc",
        "\ufffd\uffff\U0010ffff",
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",
        '"\\/\b\f',
        '{"b":1,\n "a":  1}',
        "\u2028\u2029",
    ],
    ids=ascii,
)
def test_content_is_kept_byte_for_byte(content: str) -> None:
    commit = build_commit(ALICE, ENCLAVE, "m", content, EXP)
    assert commit.content_hash == sha256(content.encode()).digest()
    for data in (msgspec.json.encode(wire_commit(commit)), json.dumps(wire_commit(commit))):
        parsed = parse_commit(data)
        assert parsed.content is not None
        assert parsed.content.encode() == content.encode()
        assert parsed.content_hash == commit.content_hash
        check_commit(parsed, 2)


def test_a_commit_is_built_deterministically() -> None:
    again = build_commit(ALICE, ENCLAVE, "message", "hello", EXP, [["r", "ab", "reply"], ["k"]])  # type: ignore[arg-type]
    assert again == COMMIT


@pytest.mark.parametrize("enclave", [b"", bytes(31), bytes(33), bytes(64)], ids=len)
def test_an_enclave_of_another_length_is_misuse(enclave: bytes) -> None:
    with pytest.raises(MisuseError):
        build_commit(ALICE, enclave, "m", "", EXP)


@pytest.mark.parametrize("enc_v", [1, 2])
def test_text_that_cannot_be_hashed_is_misuse(enc_v: int) -> None:
    for change in anything(
        {"content": "\ud800"},
        {"type_": "a\udc00"},
        {"tags": (("k", "\udfff"),)},
        {"exp": -1},
        {"exp": 2**64},
    ):
        with pytest.raises(MisuseError):
            build_commit(
                **{"key": ALICE, "enclave": ENCLAVE, "type_": "m", "content": "", "exp": EXP, "enc_v": enc_v, **change}
            )


def test_what_no_node_would_take_is_not_built() -> None:
    for change in anything({"type_": ""}, {"exp": MAX_INT + 1}, {"tags": ((),)}, {"tags": (("auto-delete", "5"),)}):
        with pytest.raises(EncError):
            build_commit(**{"key": ALICE, "enclave": ENCLAVE, "type_": "m", "content": "", "exp": EXP, **change})


@pytest.mark.parametrize(
    "change", [{"content": "\ud800"}, {"content": "{}", "tags": (("k", "\ud800"),)}], ids=["content", "tag"]
)
def test_a_manifest_that_cannot_be_hashed_is_misuse(change) -> None:
    with pytest.raises(MisuseError):
        build_manifest(ALICE, exp=EXP, **change)
