"""Canonical encodings: one spelling each for hex, base64 and JSON, so that all readers agree."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enc.core.errors import DecryptFailed, InvalidCommit, InvalidProof, MisuseError
from enc.core.primitives.encoding import MAX_DEPTH, b64, cbor, compact_json, strict_json, unb64, unhex
from tests.core.strategies import MAX_INT, examples, texts

GOOD = "00ff" + "ab" * 30


# Hex


@examples()
@given(st.binary(max_size=80))
def test_hex_round_trip(raw: bytes) -> None:
    assert unhex(raw.hex(), len(raw), "f") == raw


@pytest.mark.parametrize(
    "text",
    [
        GOOD.upper(),
        GOOD[:-1] + "B",
        "0x" + GOOD,
        "0x" + GOOD[2:],
        " " + GOOD,
        GOOD + " ",
        GOOD + "\n",
        GOOD[:32] + " " + GOOD[32:],
        GOOD[:2] + " " + GOOD[3:],
        GOOD[:-1],
        GOOD[:-2],
        GOOD + "0",
        GOOD + "00",
        "",
        "g" * 64,
        "\u0660" * 64,
        "\uff10" * 64,
        GOOD[:-1] + "\ud800",
        GOOD[:-2] + "\x00\x00",
        None,
        5,
        0x00FF,
        GOOD.encode(),
        bytes.fromhex(GOOD),
        [GOOD],
        {"hex": GOOD},
        True,
        1.5,
    ],
    ids=repr,
)
def test_hex_has_one_spelling(text: object) -> None:
    with pytest.raises(InvalidCommit, match=r"^field: expected 64 lower-case hex"):
        unhex(text, 32, "field")
    with pytest.raises(InvalidProof):
        unhex(text, 32, "field", InvalidProof)


# Base64


@examples()
@given(st.binary(max_size=100))
def test_base64_round_trip(raw: bytes) -> None:
    assert unb64(b64(raw), "f") == raw


@pytest.mark.parametrize(
    "text",
    [
        "AA",  # no padding
        "AA=",
        "AA===",
        "AAA",
        "=",
        "====",
        "AA==AA==",
        "-_-_",  # the URL alphabet
        "AB==",  # stray bits behind the last byte
        "AAB=",
        "AAAA\n",
        "AA==\n",
        "AA\nAA",
        " AAAA",
        "AAAA ",
        "AA AA",
        "A",
        "AAA*",
        "\u0410AAA",
        "AAA\ud800",
        b"AAAA",
        None,
        5,
        ["AAAA"],
        {},
    ],
    ids=repr,
)
def test_base64_has_one_spelling(text: object) -> None:
    with pytest.raises(InvalidCommit, match=r"^field: "):
        unb64(text, "field")
    with pytest.raises(DecryptFailed):
        unb64(text, "field", DecryptFailed)


def test_base64_uses_the_standard_alphabet_with_padding() -> None:
    assert b64(b"\xfb\xff") == "+/8="
    assert unb64("+/8=", "f") == b"\xfb\xff"
    assert unb64("", "f") == b""


# CBOR


def test_cbor_is_deterministic() -> None:
    assert cbor([0, 23, 24, 255, 256]).hex() == "850017181818ff190100"
    assert cbor({"b": 1, "a": 2, "aa": 3}).hex() == "a361610261620162616103"
    assert cbor(("", b"", [])).hex() == "83604080"


# Strict JSON


def nested(levels: int, inside: str = "1") -> str:
    return "[" * levels + inside + "]" * levels


REFUSED = {
    "nothing": "",
    "white space alone": " ",
    "a bare word": "hello",
    "single quotes": "{'a': 1}",
    "no quotes": "{a: 1}",
    "trailing comma in an object": '{"a": 1,}',
    "trailing comma in a list": "[1,]",
    "a comment": "{} // c",
    "trailing garbage": "{} x",
    "two values": "{} {}",
    "an open brace": "{",
    "an open string": '"abc',
    "byte order mark": '\ufeff{"a": 1}',
    "raw control character": '"a\nb"',
    "NUL behind": "{}\x00",
    "non-breaking space": "\u00a0{}",
    "a repeated key": '{"a": 1, "a": 1}',
    "a repeated key, escaped once": '{"a": 1, "\\u0061": 2}',
    "a repeated key, nested": '{"x": [{"y": {"a": 1, "b": 2, "a": 3}}]}',
    "a repeated empty key": '{"": 1, "": 2}',
    "lone high surrogate": '"\\ud800"',
    "lone low surrogate": '"\\udc00"',
    "surrogates the wrong way round": '"\\udc00\\ud800"',
    "lone surrogate between text": '{"a": "x\\ud83dy"}',
    "lone surrogate in a key": '{"\\ud800": 1}',
    "lone surrogate in a nested key": '[{"a": {"\\udfff": []}}]',
    "lone surrogate, deep": '[[["\\udbff"]]]',
    "raw lone surrogate": '"\ud800"',
    "raw lone surrogate in a key": '{"\udc00": 1}',
    "raw surrogate beside an escaped one": '"\ud83d\\ude00"',
    "2^53": "9007199254740992",
    "-2^53": "-9007199254740992",
    "2^53 nested": '{"a": [9007199254740992]}',
    "2^64": "18446744073709551616",
    "many digits": "9" * 5000,
    "many digits, negative": "-" + "9" * 5000,
    "eighteen digits": "123456789012345678",
    "leading zero": "01",
    "plus sign": "+1",
    "hexadecimal": "0x10",
    "a point alone": "1.",
    "Arabic digits": "\u0661",
    "NaN": "NaN",
    "NaN nested": '{"a": NaN}',
    "Infinity": "Infinity",
    "-Infinity": "[-Infinity]",
    "too large for a double": "1e999",
    "too large, negative": "-1e999",
    "too large, written out": "1" * 400 + ".0",
    "65 levels": nested(MAX_DEPTH + 1),
    "65 levels of objects": '{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1),
    "an empty list at level 66": nested(MAX_DEPTH + 1, "[]"),
    "100,000 levels": nested(100_000),
    "100,000 open brackets": "[" * 100_000,
    "100,000 open objects": '{"a":' * 100_000,
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_strict_json_refuses(text: str) -> None:
    with pytest.raises(InvalidCommit, match=r"^content: "):
        strict_json(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", {}),
        (" \t\r\n [ ] ", []),
        ("null", None),
        ('""', ""),
        ("9007199254740991", MAX_INT),
        ("-9007199254740991", -MAX_INT),
        ("-1", -1),
        ("[-5, 0, 7]", [-5, 0, 7]),
        ("-0", 0),
        ('{"a": {"a": {"a": 1}}, "b": {"a": 1}}', {"a": {"a": {"a": 1}}, "b": {"a": 1}}),
        ('{"a": 1, "A": 2, "": 3}', {"a": 1, "A": 2, "": 3}),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('{"\\ud83d\\ude00": 1}', {"\U0001f600": 1}),
        ('"\U0001f600 \u00e9 e\u0301 \\u0000"', "\U0001f600 \u00e9 e\u0301 \x00"),
    ],
)
def test_strict_json_reads(text: str, value: object) -> None:
    assert strict_json(text) == value


def test_strict_json_keeps_integers_apart_from_other_numbers() -> None:
    integer, real, power, negative = strict_json("[1, 1.0, 1e3, -1.5]")
    assert type(integer) is int
    assert all(isinstance(number, float) for number in (real, power, negative))
    assert (integer, real, power, negative) == (1, 1.0, 1000.0, -1.5)
    assert strict_json("1e-999") == 0.0
    assert strict_json("1.7976931348623157e308") == 1.7976931348623157e308


def test_sixty_four_levels_are_read() -> None:
    value = strict_json(nested(MAX_DEPTH))
    for _ in range(MAX_DEPTH):
        (value,) = value
    assert value == 1
    assert MAX_DEPTH == 64
    strict_json('{"a":' * MAX_DEPTH + '"x"' + "}" * MAX_DEPTH)


def test_a_repeated_key_is_refused_even_with_the_same_value() -> None:
    with pytest.raises(InvalidCommit, match="repeated"):
        strict_json('{"k": null, "k": null}')


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INT, MAX_INT)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@examples()
@given(json_values)
def test_strict_json_reads_what_we_and_others_write(value: object) -> None:
    assert strict_json(compact_json(value)) == value
    assert strict_json(json.dumps(value)) == value
    assert strict_json(json.dumps(value, indent=3, ensure_ascii=False)) == value


@examples()
@given(json_values)
def test_compact_json_is_one_fixed_spelling(value: object) -> None:
    assert compact_json(strict_json(compact_json(value))) == compact_json(value)


def test_compact_json_sorts_and_packs() -> None:
    value = {"b": [1, {"z": None, "y": True}], "a": 'é\U0001f600/"\\\n', "B": -1}
    assert compact_json(value) == '{"B":-1,"a":"é\U0001f600/\\"\\\\\\n","b":[1,{"y":true,"z":null}]}'


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        "\ud800",
        {"\udc00": 1},
        b"bytes",
        {1, 2},
        object(),
        {"a": object()},
        {1: 0, "a": 0},
    ],
)
def test_compact_json_of_what_is_not_json_is_misuse(value: object) -> None:
    with pytest.raises(MisuseError, match="not JSON"):
        compact_json(value)


def test_compact_json_of_a_loop_is_misuse() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(MisuseError):
        compact_json(loop)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(MisuseError):
        compact_json(deep)
    while deep:
        deep = deep.pop()  # type: ignore[assignment]
