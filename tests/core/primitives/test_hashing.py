"""Encodings that are assembled by hand equal the general H(), which is sha256 over cbor2's canonical encoding."""

from hashlib import sha256

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enc.core.errors import InvalidCommit
from enc.core.primitives import hashing
from enc.core.primitives.hashing import (
    H,
    commit_hash,
    content_hash,
    enclave_id,
    event_hash,
    log_leaf,
    log_node,
    member_set,
    tag_text,
)
from enc.core.trees.sparse_merkle import _leaf, _node
from tests.core.strategies import WIDTH_BORDERS, examples, hashes, signatures, texts, uints

A, B, C = (bytes([i]) * 32 for i in (1, 2, 3))

LENGTHS = (0, 1, 22, 23, 24, 25, 254, 255, 256, 257, 65_534, 65_535, 65_536, 65_537)


def plain(*fields: object) -> bytes:
    """Compute H() independently, from its definition."""
    return sha256(cbor2.dumps(list(fields), canonical=True)).digest()


long_texts = st.builds(
    lambda size, letter: letter * (size // len(letter.encode())),
    st.sampled_from(LENGTHS),
    st.sampled_from("aé€\U0001f600"),
)
any_text = texts | long_texts
v2_tags = st.lists(st.lists(texts, min_size=1, max_size=4), max_size=30)
plain_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=",[]"))
v1_tags = st.lists(st.lists(plain_texts, min_size=1, max_size=4), max_size=5)


def v1_text(tags: list[list[str]]) -> str:
    return ",".join("[" + ",".join(tag) + "]" for tag in tags)


@examples()
@given(st.lists(uints | hashes | texts | st.lists(texts, max_size=3), max_size=8))
def test_h_is_sha256_of_canonical_cbor(fields: list) -> None:
    assert H(*fields) == plain(*fields)


@examples()
@given(hashes, hashes, any_text, hashes, uints, v2_tags)
def test_commit_hash_of_version_2(enclave, from_, type_, digest, exp, tags) -> None:
    assert commit_hash(2, enclave, from_, type_, digest, exp, tags) == plain(
        0x10, enclave, from_, type_, digest, exp, tags
    )


@examples()
@given(hashes, hashes, any_text, hashes, uints, v1_tags)
def test_commit_hash_of_version_1(enclave, from_, type_, digest, exp, tags) -> None:
    assert commit_hash(1, enclave, from_, type_, digest, exp, tags) == plain(
        0x10, enclave, from_, type_, digest, exp, v1_text(tags)
    )


@examples()
@given(hashes, hashes, v2_tags, v1_tags)
def test_enclave_id_of_both_versions(from_, digest, tags, old_tags) -> None:
    assert enclave_id(2, from_, digest, tags) == plain(0x12, from_, "Manifest", digest, tags)
    assert enclave_id(1, from_, digest, old_tags) == plain(0x12, from_, "Manifest", digest, v1_text(old_tags))


@examples()
@given(uints, uints, hashes, signatures)
def test_event_hash(timestamp, seq, sequencer, sig) -> None:
    assert event_hash(timestamp, seq, sequencer, sig) == plain(0x11, timestamp, seq, sequencer, sig)


@examples()
@given(hashes, hashes)
def test_log_and_tree_nodes(left, right) -> None:
    assert log_leaf(left, right) == plain(0x00, left, right)
    assert log_node(left, right) == plain(0x01, left, right)
    assert _node(left + b"\x58\x20" + right) == plain(0x21, left, right)


@examples()
@given(st.binary(min_size=21, max_size=21), st.binary(min_size=1, max_size=255))
def test_leaf_of_the_sparse_tree(key, value) -> None:
    assert _leaf(key, value) == plain(0x20, key, value)


@pytest.mark.parametrize("size", [1, 22, 23, 24, 25, 32, 254, 255])
def test_leaf_values_at_every_length(size: int) -> None:
    assert _leaf(bytes(21), b"v" * size) == plain(0x20, bytes(21), b"v" * size)


@pytest.mark.parametrize("number", WIDTH_BORDERS)
def test_integers_at_every_width(number: int) -> None:
    assert commit_hash(2, A, B, "t", C, number, ()) == plain(0x10, A, B, "t", C, number, [])
    assert event_hash(number, 0, A, bytes(64)) == plain(0x11, number, 0, A, bytes(64))
    assert event_hash(0, number, A, bytes(64)) == plain(0x11, 0, number, A, bytes(64))


@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("letter", ["a", "é", "€", "\U0001f600"])
def test_texts_at_every_length(size: int, letter: str) -> None:
    text = letter * (size // len(letter.encode())) + "x" * (size % len(letter.encode()))
    assert len(text.encode()) == size
    assert commit_hash(2, A, B, text, C, 0, ()) == plain(0x10, A, B, text, C, 0, [])
    assert commit_hash(2, A, B, "t", C, 0, [[text]]) == plain(0x10, A, B, "t", C, 0, [[text]])
    if size:
        assert commit_hash(1, A, B, "t", C, 0, [[text]]) == plain(0x10, A, B, "t", C, 0, f"[{text}]")


@pytest.mark.parametrize("count", [0, 1, 23, 24, 25, 255, 256, 257])
def test_tags_at_every_count(count: int) -> None:
    many = [["k", str(i)] for i in range(count)]
    assert commit_hash(2, A, B, "t", C, 0, many) == plain(0x10, A, B, "t", C, 0, many)
    wide = [["k"] * count] if count else []
    assert enclave_id(2, A, B, wide) == plain(0x12, A, "Manifest", B, wide)


@pytest.mark.parametrize("size", [0, 1, 23, 24, 255, 256, 4096, 65_536])
def test_member_sets_at_every_size(size: int) -> None:
    keys = [number.to_bytes(32, "big") for number in range(size)]
    assert member_set(keys) == plain("enc:mls:set", keys)


def test_tags_may_be_tuples_or_lists() -> None:
    assert commit_hash(2, A, B, "t", C, 0, (("a", "b"),)) == commit_hash(2, A, B, "t", C, 0, [["a", "b"]])


@pytest.mark.parametrize(
    ("tags", "text"),
    [
        ([], ""),
        ([["r", "abc", "reply"], ["k", "v"]], "[r,abc,reply],[k,v]"),
        ([["k"]], "[k]"),
        ([["k", ""]], "[k,]"),
        ([[""]], "[]"),
        ([["k", "ünï", ""], ["z"]], "[k,ünï,],[z]"),
    ],
)
def test_tag_text_of_version_1(tags: list, text: str) -> None:
    assert tag_text(tags) == text
    assert commit_hash(1, A, B, "t", C, 0, tags) == plain(0x10, A, B, "t", C, 0, text)


@pytest.mark.parametrize("mark", [",", "[", "]"])
@pytest.mark.parametrize("place", ["{}", "{}x", "x{}", "x{}x"])
def test_version_1_refuses_marks_in_any_string_of_a_tag(mark: str, place: str) -> None:
    text = place.format(mark)
    for tags in ([[text]], [["k", text]], [["k"], ["k", "v", text]]):
        with pytest.raises(InvalidCommit, match=r"^tags: "):
            commit_hash(1, A, B, "t", C, 0, tags)
        with pytest.raises(InvalidCommit, match=r"^tags: "):
            enclave_id(1, A, B, tags)
        assert commit_hash(2, A, B, "t", C, 0, tags) == plain(0x10, A, B, "t", C, 0, tags)


@examples()
@given(v1_tags, v1_tags)
def test_version_1_never_gives_two_tag_lists_one_text(one: list, other: list) -> None:
    assert (tag_text(one) == tag_text(other)) is (one == other)


def test_version_1_tells_apart_what_its_marks_would_confuse() -> None:
    assert tag_text([["a"], ["b"]]) != tag_text([["a", "b"]])
    with pytest.raises(InvalidCommit):
        tag_text([["a],[b"]])


@examples()
@given(hashes, hashes, texts, hashes, uints, v1_tags)
def test_the_versions_never_share_a_hash(enclave, from_, type_, digest, exp, tags) -> None:
    one, two = (commit_hash(version, enclave, from_, type_, digest, exp, tags) for version in (1, 2))
    assert one != two
    assert enclave_id(1, from_, digest, tags) != enclave_id(2, from_, digest, tags)


@examples()
@given(texts)
def test_content_hash_is_of_the_utf8_bytes(content: str) -> None:
    assert content_hash(content) == sha256(content.encode("utf-8")).digest()


def test_content_is_not_normalised() -> None:
    assert content_hash("\u00e9") != content_hash("e\u0301")


def test_the_empty_hash() -> None:
    assert hashing.EMPTY_HASH.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
