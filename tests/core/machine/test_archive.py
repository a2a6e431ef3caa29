"""Archives: bytes that are cut, stretched, swollen or foreign, and headers that say what the events do not."""

import gzip
import json
import tracemalloc
from collections.abc import Iterable, Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest
import zstandard
from msgspec.structs import replace

from enc.core.errors import InvalidArchive, InvalidProof, PeerError, ReplayFailed
from enc.core.log.commit import build_commit
from enc.core.log.event import erase, finalize, parse_event, wire_event
from enc.core.machine.archive import (
    Header,
    header_of,
    parse_header,
    read_archive,
    verify_archive,
    wire_header,
    write_archive,
)
from enc.core.machine.replay import Replay
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import Event, TreeHead
from enc.core.trees.tree_head import sign_head, wire_head
from tests.core.strategies import MAX_INT, flip
from tests.core.vectors import KEYS, load
from tests.core.world import START, World, person, pub

MOVABLE = {
    "enc_v": 2,
    "states": ["OWNER"],
    "customs": [{"event": "note", "operator": "OWNER", "ops": ["C"]}],
    "init": [{"identity": pub("alice"), "state": "OWNER", "traits": []}],
}

NODE, OTHER, ALICE = KEYS["node"], KEYS["node2"], KEYS["alice"]


class Log:
    """One of the logs of vectors/, replayed, and as an archive."""

    def __init__(self, name: str, count: int | None = None) -> None:
        self.events = [parse_event(json.dumps(wire)) for wire in load(name)["events"]][:count]
        self.replay = Replay()
        for event in self.events:
            self.replay.add(event)
        self.state = self.replay.state
        self.enclave = self.state.enclave
        self.header = header_of(self.replay, None)
        self.bytes = packed(self.header, self.events)
        self.text = zstandard.ZstdDecompressor().decompressobj().decompress(self.bytes)

    def head(self, closed: bool, key=NODE, enclave: bytes | None = None) -> TreeHead:
        """A head with the trailing bundle open or closed."""
        size, root = self.state.log.size, self.state.log.root()
        if closed:
            size, root = size + 1, self.replay.checkpoint_root()
        return sign_head(key, enclave or self.enclave, 5, size, root)

    def verify(self, **changes: Any) -> Replay:
        return verify_archive(replace(self.header, **changes), self.events)


def packed(header: Header, events: Iterable[Event]) -> bytes:
    return b"".join(write_archive(header, events))


def squeeze(text: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(text)


def read(chunks: bytes | Iterable[bytes], **bounds: int) -> tuple[Header, list[Event]]:
    header, events = read_archive([chunks] if isinstance(chunks, bytes) else chunks, **bounds)
    return header, list(events)


def refused(chunks: bytes | Iterable[bytes], match: str | None = None, **bounds: int) -> None:
    with pytest.raises(InvalidArchive, match=match):
        read(chunks, **bounds)


LOG, MOVED, VERSION_1 = Log("log"), Log("log_moved"), Log("log_v1")
HANDED = Log("log_moved", 6)
"""The second log up to its first Migrate: the old node finalised it, the new one is expected next."""


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
    """Events whose contents do not compress."""
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


def lines(*items: bytes) -> bytes:
    return squeeze(b"".join(item + b"\n" for item in items))


HEAD_LINE, *EVENT_LINES = LOG.text.splitlines()


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
    """What is wrong with one of them comes first, and is told."""
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


# The header's form


def header_line(**changes: Any) -> bytes:
    return json.dumps({**wire_header(LOG.header), **changes}).encode()


@pytest.mark.parametrize("field", wire_header(LOG.header))
def test_a_missing_header_field_is_named(field: str) -> None:
    wire = {name: value for name, value in wire_header(LOG.header).items() if name != field}
    with pytest.raises(InvalidArchive, match=f"`{field}`"):
        parse_header(json.dumps(wire).encode())


H1 = "ab" * 32
SEQUENCER = {"seq_pub": H1, "from_seq": 0}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("format", value) for value in ["", "enc", "ENC-ARCHIVE", None, 1]),
        *(("version", value) for value in [0, 2, "1", 1.0, None, True, [1]]),
        *(("enclave", value) for value in ["", H1[:-2], H1 + "00", H1.upper(), None, 5]),
        *(("enc_v", value) for value in [-1, MAX_INT + 1, "2", 2.0, None, True]),
        *(("events", value) for value in [-1, MAX_INT + 1, "15", 15.0, None, True]),
        *(("sequencers", value) for value in [None, {}, "x", [None], [H1], [{}], [[H1, 0]]]),
        *(("sequencers", [{**SEQUENCER, "seq_pub": value}]) for value in ["", H1.upper(), H1[:-1], None, 5]),
        *(("sequencers", [{**SEQUENCER, "from_seq": value}]) for value in [-1, MAX_INT + 1, "0", 0.0, None, True]),
        *(("sequencers", [{name: SEQUENCER[name]}]) for name in SEQUENCER),
        *(("checkpoint", value) for value in [None, {}, [], H1, {"seq": 14}, {"ct_root": H1}]),
        *(("checkpoint", {"seq": value, "ct_root": H1}) for value in [-1, MAX_INT + 1, "14", 14.0, None]),
        *(("checkpoint", {"seq": 14, "ct_root": value}) for value in ["", H1.upper(), H1 + "00", None, 5]),
        *(("sth", value) for value in [{}, [], "x", 5, False]),
        *(("sth", {**wire_head(LOG.head(False)), "t": value}) for value in [-1, MAX_INT + 1, "5", None]),
        *(("sth", {**wire_head(LOG.head(False)), "r": value}) for value in ["", H1.upper(), None]),
        *(("sth", {**wire_head(LOG.head(False)), "sig": value}) for value in ["", H1, None]),
        *(("sth", {**wire_head(LOG.head(False)), "bound_sig": value}) for value in ["", H1, 5]),
    ],
    ids=lambda item: repr(item)[:30],
)
def test_a_header_field_of_another_form_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidArchive):
        parse_header(header_line(**{field: value}))
    refused(lines(header_line(**{field: value}), *EVENT_LINES))


@pytest.mark.parametrize("line", [b"", b"[]", b"null", b"\xff", b"{", HEAD_LINE + b"x", b"[" * 100_000], ids=range(7))
def test_what_is_no_header_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidArchive):
        parse_header(line)


def test_header_numbers_reach_the_largest_integer() -> None:
    wire = header_line(
        enc_v=MAX_INT,
        events=MAX_INT,
        sequencers=[{**SEQUENCER, "from_seq": MAX_INT}],
        checkpoint={"seq": MAX_INT, "ct_root": H1},
    )
    header = parse_header(wire)
    assert (header.enc_v, header.events, header.checkpoint_seq) == (MAX_INT,) * 3
    assert header.sequencers[0][1] == MAX_INT
    parse_header(header_line(enc_v=0, events=0))


def test_unknown_header_fields_are_ignored() -> None:
    assert (
        parse_header(header_line(comment="x", checkpoint={**wire_header(LOG.header)["checkpoint"], "x": 1}))
        == LOG.header
    )


# The header against the events


@pytest.mark.parametrize("log", [LOG, MOVED, HANDED], ids=["log", "log_moved", "handed over"])
def test_a_header_must_be_true(log: Log) -> None:
    log.verify()
    (key, _), *rest = log.header.sequencers
    wrong: list[dict[str, Any]] = [
        {"enclave": flip(log.enclave)},
        {"enclave": MOVED.enclave if log is LOG else LOG.enclave},
        {"enc_v": 1},
        {"enc_v": 3},
        {"events": log.header.events - 1},
        {"events": log.header.events + 1},
        {"events": 0},
        {"sequencers": ()},
        {"sequencers": ((OTHER.public, 0), *rest)},
        {"sequencers": ((key, 1), *rest)},
        {"sequencers": (*log.header.sequencers, (ALICE.public, log.header.events))},
        {"sequencers": log.header.sequencers[:-1]},
        {"checkpoint_seq": log.header.checkpoint_seq - 1},
        {"checkpoint_seq": log.header.checkpoint_seq + 1},
        {"checkpoint_root": flip(log.header.checkpoint_root)},
        {"checkpoint_root": bytes(32)},
    ]
    for change in wrong:
        with pytest.raises((InvalidArchive, InvalidProof, ReplayFailed)):
            log.verify(**change)


def test_both_readings_of_the_trailing_bundle_are_right() -> None:
    assert LOG.state.bundle is not None
    for closed in (False, True):
        LOG.verify(sth=LOG.head(closed))
        MOVED.verify(sth=MOVED.head(closed))
        LOG.verify(sth=replace(LOG.head(closed), bound_sig=None))


def test_after_a_migrate_nothing_trails() -> None:
    assert HANDED.state.bundle is None
    HANDED.verify(sth=HANDED.head(False))
    with pytest.raises((InvalidArchive, InvalidProof)):
        HANDED.verify(sth=HANDED.head(True))


def test_a_handed_over_log_may_have_the_head_of_either_node() -> None:
    for key in (NODE, OTHER):
        HANDED.verify(sth=HANDED.head(False, key))
    with pytest.raises((InvalidArchive, InvalidProof)):
        HANDED.verify(sth=HANDED.head(False, ALICE))


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_a_head_of_another_size_root_signer_or_enclave_is_refused(closed: bool) -> None:
    good = LOG.head(closed)
    other = LOG.head(not closed)
    earlier = load("log")["after_each_event"][10]
    wrong = [
        replace(good, r=flip(good.r)),
        replace(good, ts=good.ts + 1),
        replace(good, ts=good.ts - 1),
        replace(good, t=good.t + 1),
        replace(good, sig=flip(good.sig)),
        replace(good, sig=good.bound_sig),
        replace(good, bound_sig=flip(good.bound_sig)),
        replace(good, bound_sig=other.bound_sig),
        replace(good, sig=flip(good.sig), bound_sig=None),
        sign_head(NODE, LOG.enclave, 5, other.ts, good.r),
        sign_head(NODE, LOG.enclave, 5, good.ts, other.r),
        sign_head(NODE, LOG.enclave, 5, earlier["closed_bundles"], bytes.fromhex(earlier["ct_root"])),
        sign_head(NODE, LOG.enclave, 5, 0, sha256(b"")),
        LOG.head(closed, OTHER),
        LOG.head(closed, ALICE),
        replace(LOG.head(closed, OTHER), bound_sig=None),
        replace(good, bound_sig=LOG.head(closed, OTHER).bound_sig),
        LOG.head(closed, NODE, MOVED.enclave),
        replace(good, bound_sig=LOG.head(closed, NODE, MOVED.enclave).bound_sig),
    ]
    for sth in wrong:
        with pytest.raises((InvalidArchive, InvalidProof)):
            LOG.verify(sth=sth)


def test_a_former_sequencers_head_is_refused() -> None:
    MOVED.verify(sth=MOVED.head(False, NODE))
    with pytest.raises((InvalidArchive, InvalidProof)):
        MOVED.verify(sth=MOVED.head(False, OTHER))


def test_the_headers_enclave_is_compared_whoever_made_the_replay() -> None:
    with pytest.raises((InvalidArchive, ReplayFailed)):
        verify_archive(replace(LOG.header, enclave=flip(LOG.enclave)), LOG.events, Replay())


# The events


def test_an_archive_without_events_is_refused() -> None:
    with pytest.raises(InvalidArchive):
        verify_archive(LOG.header, [])


@pytest.mark.parametrize("seq", range(15))
def test_a_missing_repeated_or_foreign_event_is_named(seq: int) -> None:
    events = LOG.events
    for changed, at in [
        (events[:seq] + events[seq + 1 :], seq + 1),
        (events[: seq + 1] + events[seq:], seq),
        ([*events[:seq], MOVED.events[1], *events[seq + 1 :]], 1),
    ]:
        with pytest.raises((ReplayFailed, InvalidArchive)) as caught:
            verify_archive(LOG.header, changed)
        if isinstance(caught.value, ReplayFailed):
            assert caught.value.seq == at


@pytest.mark.parametrize("seq", range(15))
def test_an_altered_event_fails_the_whole(seq: int) -> None:
    event = LOG.events[seq]
    for changed, code in [
        (replace(event, seq_sig=flip(event.seq_sig)), "INVALID_SIGNATURE"),
        (replace(event, id=flip(event.id)), "INVALID_HASH"),
        (replace(event, sig=flip(event.sig)), "INVALID_SIGNATURE"),
        (replace(event, content_hash=flip(event.content_hash)), "INVALID_HASH"),
        (replace(event, exp=event.exp + 1), "INVALID_HASH"),
        (replace(event, enclave=MOVED.enclave), "INVALID_ARCHIVE"),
    ]:
        with pytest.raises(ReplayFailed) as caught:
            verify_archive(LOG.header, [*LOG.events[:seq], changed, *LOG.events[seq + 1 :]])
        assert (caught.value.seq, caught.value.code) == (seq, code)


@pytest.mark.parametrize("seq", [seq for seq, event in enumerate(LOG.events) if event.content is not None])
def test_a_content_that_is_gone_without_cause_is_refused(seq: int) -> None:
    events = [*LOG.events[:seq], erase(LOG.events[seq]), *LOG.events[seq + 1 :]]
    with pytest.raises(ReplayFailed) as caught:
        verify_archive(LOG.header, events)
    assert caught.value.seq == seq


def test_contents_that_an_auto_delete_took_are_no_fault() -> None:
    event = MOVED.events[2]
    assert any(tag[0] == "auto-delete" for tag in event.tags)
    assert event.content is not None
    verify_archive(MOVED.header, [*MOVED.events[:2], erase(event), *MOVED.events[3:]])


def test_after_a_handover_the_head_of_the_last_closed_bundle_is_still_the_old_node_s() -> None:
    world = World(MOVABLE)
    world.send("alice", "Migrate", world.migrate("node2"))
    head = sign_head(person("node"), world.state.enclave, START + 10, world.state.log.size, world.state.log.root())
    world.send("alice", "note", "by the new node")
    replay = Replay()
    for event in world.events:
        replay.add(event)
    verify_archive(header_of(replay, head), world.events)
    foreign = sign_head(person("node3"), world.state.enclave, START + 10, head.ts, head.r)
    with pytest.raises(InvalidArchive):
        verify_archive(header_of(replay, foreign), world.events)
