"""Archives: the form of the header, the header against the events, and the events themselves."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.errors import InvalidArchive, InvalidProof, ReplayFailed
from enc.core.log.event import erase
from enc.core.machine.archive import parse_header, wire_header
from enc.core.machine.archive_check import header_of, verify_archive
from enc.core.machine.replay import Replay
from enc.core.primitives.hashing import sha256
from enc.core.trees.tree_head import sign_head, wire_head
from tests.core.machine.archive_logs import ALICE, EVENT_LINES, HEAD_LINE, LOG, MOVED, NODE, OTHER, Log, lines, refused
from tests.core.strategies import MAX_INT, anything, flip
from tests.core.vectors import load
from tests.core.world import START, World, person, pub

MOVABLE = {
    "enc_v": 2,
    "states": ["OWNER"],
    "customs": [{"event": "note", "operator": "OWNER", "ops": ["C"]}],
    "init": [{"identity": pub("alice"), "state": "OWNER", "traits": []}],
}


HANDED = Log("log_moved", 6)
"""The second log up to its first Migrate: the old node finalised it, the new one is expected next."""


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
        *(("sequencers", value) for value in anything(None, {}, "x", [None], [H1], [{}], [[H1, 0]])),
        *(("sequencers", [{**SEQUENCER, "seq_pub": value}]) for value in ["", H1.upper(), H1[:-1], None, 5]),
        *(("sequencers", [{**SEQUENCER, "from_seq": value}]) for value in [-1, MAX_INT + 1, "0", 0.0, None, True]),
        *(("sequencers", [{name: SEQUENCER[name]}]) for name in SEQUENCER),
        *(("checkpoint", value) for value in anything(None, {}, [], H1, {"seq": 14}, {"ct_root": H1})),
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
        replace(good, bound_sig=flip(good.bound_sig or b"")),
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
