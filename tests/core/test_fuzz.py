"""Every parser against 20,000 damaged inputs (more under `make soak`): it succeeds or raises a PeerError, nothing else.

Inputs are valid ones with bytes changed, lost, added and moved, or with whole JSON tokens and values replaced by values
that parsers often mishandle. The random numbers are seeded: every run is the same.
"""

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
import zstandard

from enc.core.errors import PeerError
from enc.core.log.event import parse_event
from enc.core.machine.archive import read_archive, write_archive
from enc.core.machine.archive_check import header_of
from enc.core.machine.replay import Replay
from enc.core.primitives.encoding import compact_json, strict_json
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.session.session import open_session, parse_token
from tests.core.damage import ALICE, EXP, HEAD, LOGS, PARSERS, damage
from tests.tiers import rounds

pytestmark = pytest.mark.sweep
COUNT = rounds(20_000)


TOKENS = [
    *(b"null true false 0 -0 -1 1 5 1.0 1e3 1.5 1e999 -1e999 1e-999 NaN Infinity -Infinity 01 +1 0x10 .5 5.".split()),
    *(b"9007199254740991 9007199254740992 -9007199254740992 9223372036854775808 18446744073709551616".split()),
    b"9" * 30,
    b"9" * 400,
    b"9" * 5000,
    b"-" + b"9" * 5000,
    *(b'{} [] [[]] [{}] [null] [0] {"a":1} {"a":1,"a":2} {"":{}} { } [ ] , : "'.split()),
    b'""',
    b'"a"',
    b'"\\u0000"',
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\\ud83d\\ude00"',
    b'"\\q"',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"\xc3\xa9"',
    b"\xef\xbb\xbf",
    b"\x00",
    b"\n",
    b'"auto-delete"',
    b'"r"',
    b'"Manifest"',
    b'"ecdsa"',
    b'"schnorr"',
    b'"' + b"ab" * 32 + b'"',
    b'"' + b"AB" * 32 + b'"',
    b'"' + b"00" * 64 + b'"',
    b'"' + b"0" * 63 + b'"',
    b'"' + b"x" * 5000 + b'"',
    b"[" * 70 + b"]" * 70,
    b"[" * 2000 + b"]" * 2000,
    b"[" * 3000,
    b'{"a":' * 2000,
    b"[" + b"[]," * 200 + b"[]]",
]


TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9.eE+]+|null|true|false|[\[\]{},:]')


class Seed:
    """A valid input, with the places of its JSON tokens."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.spans = [match.span() for match in TOKEN.finditer(data)] or [(0, len(data))]


class Mutator:
    """Damages seeds. One input may get several kinds of damage."""

    def __init__(self, seed: int, seeds: list[bytes]) -> None:
        self.real = Random(seed).random
        self.seeds = [Seed(data) for data in seeds]
        self.kinds = [self.flip, self.flip, self.cut, self.insert, self.truncate, self.repeat, self.swap]

    def below(self, n: int) -> int:
        return int(self.real() * n)

    def __iter__(self) -> Iterator[bytes]:
        below, seeds, kinds = self.below, self.seeds, self.kinds
        while True:
            seed = seeds[below(len(seeds))]
            data = seed.data
            if self.real() < 0.6:
                start, end = seed.spans[below(len(seed.spans))]
                data = data[:start] + self.token(seed) + data[end:]
            else:
                data = kinds[below(len(kinds))](data)
            while self.real() < 0.15:
                data = kinds[below(len(kinds))](data)
            yield data

    def token(self, seed: Seed) -> bytes:
        """Return a difficult token, another token of the same input, or nothing."""
        choice = self.below(20)
        if choice == 0:
            return b""
        if choice < 6:
            start, end = seed.spans[self.below(len(seed.spans))]
            return seed.data[start:end]
        return TOKENS[self.below(len(TOKENS))]

    def span(self, data: bytes, most: int = 20) -> tuple[int, int]:
        start = self.below(len(data) + 1)
        return start, start + self.below(most)

    def flip(self, data: bytes) -> bytes:
        if not data:
            return data
        at = self.below(len(data))
        return data[:at] + bytes([data[at] ^ 1 << self.below(8)]) + data[at + 1 :]

    def cut(self, data: bytes) -> bytes:
        start, end = self.span(data)
        return data[:start] + data[end:]

    def insert(self, data: bytes) -> bytes:
        at = self.below(len(data) + 1)
        return data[:at] + bytes([self.below(256) for _ in range(1 + self.below(4))]) + data[at:]

    def truncate(self, data: bytes) -> bytes:
        return data[: self.below(len(data) + 1)]

    def repeat(self, data: bytes) -> bytes:
        start, end = self.span(data, 100)
        return data[:end] + data[start:]

    def swap(self, data: bytes) -> bytes:
        one, other = sorted((self.below(len(data) + 1), self.below(len(data) + 1)))
        return data[other:] + data[one:other] + data[:one]


def survives(parse: Callable[[Any], Any], inputs: Iterator[Any], count: int = COUNT) -> None:
    """Check that `parse` accepts or rejects each of `count` inputs; it must accept some and reject some."""
    taken = refused = 0
    for _, data in zip(range(count), inputs, strict=False):
        try:
            parse(data)
        except PeerError:
            refused += 1
        except Exception as e:
            pytest.fail(f"{type(e).__name__}: {e}\nfor {data[:2000]!r}")
        else:
            taken += 1
    assert taken + refused == count
    assert taken > count / 1000
    assert refused > count / 10


# Valid inputs


MANIFESTS = [
    LOGS["log"]["events"][0]["content"],
    LOGS["log_moved"]["events"][0]["content"],
    LOGS["log_v1"]["events"][0]["content"],
    json.dumps(
        {"enc_v": 2, "RBAC": {"states": ["A"], "init": [{"identity": ALICE.public.hex(), "state": "A", "traits": []}]}}
    ),
]


@pytest.mark.parametrize("name", PARSERS)
def test_wire_parsers(name: str) -> None:
    parse, seeds = PARSERS[name]
    survives(parse, iter(Mutator(11, seeds)))


def test_wire_parsers_given_text() -> None:
    """The same parsers take str; damaged bytes become lone surrogates there."""
    for number, (parse, seeds) in enumerate(PARSERS.values()):
        texts = (data.decode("utf-8", "surrogateescape") for data in Mutator(number, seeds))
        survives(parse, texts, 2000)


def test_strict_json() -> None:
    def check(text: str) -> None:
        value = strict_json(text)
        assert strict_json(compact_json(value)) == value

    contents = [event["content"] or "[]" for log in LOGS.values() for event in log["events"]]
    seeds = [content.encode() for content in contents] + [b'{"a":[1,-2.5e3,"\\ud83d\\ude00"],"b":{"":null}}']
    survives(check, (data.decode("utf-8", "surrogateescape") for data in Mutator(12, seeds)))


def test_token() -> None:
    seeds = [open_session(ALICE, expires).token.hex().encode() for expires in (0, EXP // 1000, 2**32 - 1)]

    def texts() -> Iterator[str]:
        random = Random(13)
        for data in Mutator(13, seeds):
            text = data.decode("utf-8", "surrogateescape")
            # Most damage changes the length: keep that of a token often enough to pass the check of the length.
            yield text if random.random() < 0.5 else text[:136].ljust(136, random.choice("0af "))

    def check(text: str) -> None:
        assert parse_token(text).hex() == text

    survives(check, texts())


def test_token_of_any_type() -> None:
    for value in (None, 5, 1.5, True, b"", bytes(68), [], {}, object(), [bytes(68)], memoryview(bytes(68))):
        with pytest.raises(PeerError):
            parse_token(value)


# Manifests: values replaced in the tree, so that the damage passes the JSON reader


def test_manifest_by_structure() -> None:
    def texts() -> Iterator[str]:
        random = Random(14)
        while True:
            manifest = json.loads(random.choice(MANIFESTS))
            for _ in range(1 + (random.random() < 0.3)):
                damage(random, manifest)
            yield json.dumps(manifest)

    survives(parse_manifest, texts(), COUNT * 6 // 10)


def test_manifest_by_bytes() -> None:
    seeds = [manifest.encode() for manifest in MANIFESTS]
    texts = (data.decode("utf-8", "surrogateescape") for data in Mutator(15, seeds))
    survives(parse_manifest, texts, COUNT * 4 // 10)


# Archives


def tiny_archive() -> bytes:
    replay = Replay()
    events = [parse_event(json.dumps(wire)) for wire in LOGS["log_moved"]["events"][:2]]
    for event in events:
        replay.add(event)
    return b"".join(write_archive(header_of(replay, HEAD), events))


def read_whole(archive: bytes) -> None:
    _, events = read_archive([archive[:100], archive[100:]], max_total=1 << 20, max_line=1 << 18)
    for _ in events:
        pass


def test_archive_by_compressed_bytes() -> None:
    survives(read_whole, iter(Mutator(16, [tiny_archive()])), COUNT // 2)


def test_archive_by_its_text() -> None:
    text = zstandard.ZstdDecompressor().decompressobj().decompress(tiny_archive())
    compress = zstandard.ZstdCompressor(level=1).compress
    survives(read_whole, (compress(data) for data in Mutator(17, [text])), COUNT // 2)
