"""Archives: round trips, streams, truncated, extended, oversized and foreign bytes, and bounds."""

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest
import zstandard
from msgspec.structs import replace

from enc.core.errors import InvalidArchive, PeerError
from enc.core.log.commit import build_commit
from enc.core.log.event import finalize, wire_event
from enc.core.machine.archive import parse_header, read_archive, wire_header, write_archive
from enc.core.machine.archive_check import verify_archive
from enc.core.primitives.types import Event
from tests.core.machine.archive_logs import (
    ALICE,
    EVENT_LINES,
    HEAD_LINE,
    LOG,
    MOVED,
    NODE,
    VERSION_1,
    Log,
    lines,
    packed,
    read,
    refused,
    squeeze,
)
from tests.core.strategies import flip
from tests.core.vectors import load

# Round trips


@pytest.mark.parametrize("log", [LOG, MOVED, VERSION_1], ids=["log", "log_moved", "log_v1"])
def test_a_log_survives_its_archive(log: Log) -> None:
    header, events = read(log.bytes)
    assert header == log.header
    assert events == log.events
    replay = verify_archive(header, events)
    assert replay.checkpoint_root() == log.replay.checkpoint_root()
    assert packed(header, events) == log.bytes


@pytest.mark.parametrize("log", [LOG, MOVED, VERSION_1], ids=["log", "log_moved", "log_v1"])
def test_an_archive_is_json_lines_a_header_then_the_events(log: Log) -> None:
    assert log.text.endswith(b"\n")
    first, *lines = log.text.splitlines()
    assert json.loads(first) == wire_header(log.header)
    assert [json.loads(line) for line in lines] == json.loads(json.dumps([wire_event(event) for event in log.events]))
    assert any(json.loads(line)["content"] is None for line in lines)


def test_the_header_says_what_the_log_is() -> None:
    wire = wire_header(MOVED.header)
    assert wire == {
        "format": "enc-archive",
        "version": 1,
        "enclave": MOVED.enclave.hex(),
        "enc_v": 2,
        "sequencers": load("log_moved")["sequencers"],
        "events": 11,
        "sth": None,
        "checkpoint": {"seq": 10, "ct_root": load("log_moved")["after_each_event"][-1]["checkpoint_root"]},
    }
    with_head = replace(MOVED.header, sth=MOVED.head(False))
    assert parse_header(json.dumps(wire_header(with_head)).encode()) == with_head


@pytest.mark.parametrize("level", [1, 3, 19])
def test_any_compression_level_reads_back(level: int) -> None:
    assert read(write_archive(LOG.header, LOG.events, level)) == (LOG.header, LOG.events)


def test_archives_of_other_writers_read_back() -> None:
    unsized = zstandard.ZstdCompressor(write_content_size=False, write_checksum=False).compress(LOG.text)
    spaced = b"".join(json.dumps(json.loads(line), indent=None).encode() + b"\n" for line in LOG.text.splitlines())
    for archive in (unsized, squeeze(LOG.text), squeeze(spaced)):
        assert read(archive) == (LOG.header, LOG.events)


def test_chunks_of_any_size() -> None:
    assert read(LOG.bytes[i : i + 1] for i in range(len(LOG.bytes))) == (LOG.header, LOG.events)
    random = Random(8)
    for _ in range(20):
        chunks, at = [], 0
        while at < len(LOG.bytes):
            size = random.choice([0, 1, 2, 511, 512, 513, 1025])
            chunks.append(LOG.bytes[at : at + size])
            at += size
        assert read([b"", *chunks, b""]) == (LOG.header, LOG.events)


# Streams


def bulky(count: int) -> list[Event]:
    """Return events whose contents do not compress."""
    random = Random(9)
    commits = (build_commit(ALICE, LOG.enclave, "m", random.randbytes(50_000).hex(), i) for i in range(count))
    return [finalize(commit, NODE, 0, i) for i, commit in enumerate(commits)]


def test_writing_and_reading_go_event_by_event() -> None:
    events, taken = bulky(60), [0]

    def source() -> Iterator[Event]:
        for event in events:
            taken[0] += 1
            yield event

    pieces = []
    for piece in write_archive(LOG.header, source()):
        pieces.append((taken[0], piece))
    assert len(pieces) > 3
    assert pieces[0][0] < 15
    assert all(later[0] - earlier[0] < 15 for earlier, later in pairwise(pieces))

    archive = b"".join(piece for _, piece in pieces)
    served = [0]

    def chunks() -> Iterator[bytes]:
        for at in range(0, len(archive), 10_000):
            served[0] += 1
            yield archive[at : at + 10_000]

    header, found = read_archive(chunks())
    total = len(archive) // 10_000
    assert header == LOG.header
    assert served[0] < total / 10
    assert next(found) == events[0]
    assert served[0] < total / 5
    assert list(found) == events[1:]


def test_reading_holds_little_at_a_time() -> None:
    archive = packed(LOG.header, bulky(60))
    tracemalloc.start()
    try:
        _, events = read_archive([archive])
        for _ in events:
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


# Bytes that are wrong


def test_an_archive_cut_anywhere_is_noticed() -> None:
    for size in range(len(MOVED.bytes)):
        refused(MOVED.bytes[:size])
    refused([])
    refused([b"", b""])


def test_text_cut_anywhere_but_after_a_line_is_noticed() -> None:
    for size in range(len(MOVED.text)):
        cut = MOVED.text[:size]
        if cut.endswith(b"\n"):
            header, events = read(squeeze(cut))
            assert header == MOVED.header
            assert events == MOVED.events[: len(events)]
            assert len(events) < len(MOVED.events)
            with pytest.raises(PeerError):
                verify_archive(header, events)
        else:
            refused(squeeze(cut))


@pytest.mark.parametrize(
    "more", [b"\x00", b"x", b"\n", b"\x28\xb5\x2f\xfd", LOG.bytes, squeeze(b""), bytes(600)], ids=len
)
def test_nothing_may_follow(more: bytes) -> None:
    refused(LOG.bytes + more, "follows")
    refused([LOG.bytes, more], "follows")
    refused([LOG.bytes, b"", more, b""], "follows")


@pytest.mark.parametrize(
    "data",
    [b"x", LOG.text, gzip.compress(LOG.text), bytes(100), b"\xff" * 5000, LOG.bytes[1:], LOG.bytes[4:]],
    ids=["a letter", "plain text", "gzip", "zeros", "ones", "first byte lost", "magic lost"],
)
def test_what_is_not_zstd_is_refused(data: bytes) -> None:
    refused(data)


def test_a_changed_bit_is_noticed_or_changes_nothing() -> None:
    for bit in range(0, 8 * len(MOVED.bytes), 23):
        try:
            found = read(flip(MOVED.bytes, bit))
        except InvalidArchive:
            continue
        assert found == (MOVED.header, MOVED.events)


def test_a_window_beyond_128_mib_is_refused() -> None:
    def frame(window_log: int) -> bytes:
        block = len(LOG.text) << 3 | 1
        return b"\x28\xb5\x2f\xfd\x00" + bytes([window_log - 10 << 3]) + block.to_bytes(3, "little") + LOG.text

    assert read(frame(20)) == (LOG.header, LOG.events)
    assert read(frame(27)) == (LOG.header, LOG.events)
    refused(frame(28))
    refused(frame(41))


# Lines that are wrong


@pytest.mark.parametrize(
    "line", [b"", b" ", b"{}", b"null", b"[]", b"x", b"\xff", b"\x00", HEAD_LINE, EVENT_LINES[1][:-1]], ids=range(10)
)
def test_a_line_that_is_no_event_is_named(line: bytes) -> None:
    refused(lines(HEAD_LINE, EVENT_LINES[0], line, EVENT_LINES[1]), "line 3")


def test_the_events_before_a_bad_line_were_handed_out() -> None:
    _, events = read_archive([lines(HEAD_LINE, *EVENT_LINES[:4], b"{}")])
    assert [next(events) for _ in range(4)] == LOG.events[:4]
    with pytest.raises(InvalidArchive):
        next(events)


def test_the_events_before_what_is_no_archive_were_handed_out() -> None:
    """An invalid event before the fault is reported first."""
    _, events = read_archive([lines(HEAD_LINE, *EVENT_LINES[:4]) + bytes(2000)])
    assert [next(events) for _ in range(4)] == LOG.events[:4]
    with pytest.raises(InvalidArchive, match="data follows"):
        next(events)


def test_the_last_line_ends_like_the_others() -> None:
    refused(squeeze(LOG.text[:-1]), "truncated within a line")
    refused(squeeze(HEAD_LINE))


def test_the_first_line_is_the_header() -> None:
    refused(lines(*EVENT_LINES))
    refused(lines(b"", HEAD_LINE, *EVENT_LINES))
    refused(squeeze(b""), "empty")
    refused(squeeze(b"\n"))


# Bounds


def test_the_bounds_are_exact() -> None:
    longest, total = max(len(line) for line in LOG.text.splitlines()), len(LOG.text)
    assert read(LOG.bytes, max_line=longest, max_total=total) == (LOG.header, LOG.events)
    refused(LOG.bytes, "a line is over", max_line=longest - 1)
    refused(LOG.bytes, "the archive is over", max_total=total - 1)
    refused(LOG.bytes, max_total=0)


def test_a_long_line_is_refused_before_it_ends() -> None:
    served = [0]

    def lengthy() -> Iterator[bytes]:
        compressor = zstandard.ZstdCompressor().compressobj()
        random = Random(10)
        yield compressor.compress(HEAD_LINE + b"\n")
        for _ in range(300):
            served[0] += 1
            yield compressor.compress(random.randbytes(5000).hex().encode())

    refused(lengthy(), "a line is over", max_line=100_000)
    assert served[0] < 100


def bomb(byte: bytes, mebibytes: int, start: bytes = b"") -> bytes:
    compressor = zstandard.ZstdCompressor().compressobj()
    pieces = [compressor.compress(start), *(compressor.compress(byte * (1 << 20)) for _ in range(mebibytes))]
    return b"".join(pieces) + compressor.flush()


@pytest.mark.parametrize("start", [b"", HEAD_LINE + b"\n"], ids=["in the header", "in an event"])
@pytest.mark.parametrize("bound", ["max_total", "max_line"])
def test_a_bomb_meets_the_bound_before_it_fills_memory(start: bytes, bound: str) -> None:
    archive = bomb(b"0", 1024, start)
    assert len(archive) < 1 << 16
    tracemalloc.start()
    try:
        refused(archive, "over", **{bound: 1 << 20})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20


def test_a_bomb_of_empty_lines_does_not_fill_memory() -> None:
    archive = bomb(b"\n", 64)
    tracemalloc.start()
    try:
        refused(archive)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
