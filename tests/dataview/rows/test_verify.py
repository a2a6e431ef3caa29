"""Verification: a valid event becomes a typed row, an invalid one a row with the reason, and the batch continues."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from enc.client.errors import Unreachable
from enc.core.errors import from_wire
from enc.core.log.commit import build_commit
from enc.core.log.event import erase, finalize, wire_event
from enc.core.log.withheld import wire_withheld
from enc.core.primitives.types import Event
from enc.dataview.rows.raw_rows import UNKNOWN_CODE, UNREAD_TYPE, RowOrigin, now, raw_batch, unread_row
from enc.dataview.rows.schema import RAW, VERIFIED
from enc.dataview.rows.verify import verified, verify_batch
from tests.core.world import START, World, person, withheld
from tests.core.world_v1 import EXAMPLE, initial, manifest
from tests.dataview.logs import Log, log_of

Json = dict[str, Any]
PLACE = RowOrigin("node:test")


def judged(*events: bytes, place: RowOrigin = PLACE, check: bool = True) -> list[Json]:
    batch = verify_batch(raw_batch(events, place, now()), check=check)
    rows: list[Json] = batch.to_pylist()
    return rows


def spelt(event: Event, **changes: object) -> bytes:
    return msgspec.json.encode({**wire_event(event), **changes})


def test_an_event_that_proves_itself_is_typed_and_can_be_spelt_again(log: Log) -> None:
    for row, event in zip(judged(*log.wire), log.events, strict=True):
        assert (row["code"], row["reason"], row["enc_v"]) == (None, None, 2)
        assert row["timestamp"].timestamp() * 1000 == pytest.approx(event.timestamp, abs=0.01)
        assert row["content_hash"] == event.content_hash.hex()
        wire = wire_event(event)
        again = {name: row[name] for name in ("hash", "enclave", "type", "content", "exp", "sig", "id", "sequencer")}
        assert again == {name: wire[name] for name in again}
        assert (row["author"], row["seq"], row["seq_sig"]) == (wire["from"], wire["seq"], wire["seq_sig"])
        assert tuple(map(tuple, row["tags"])) == event.tags


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"content": "another"}, "INVALID_HASH"),
        ({"sig": "00" * 64}, "INVALID_SIGNATURE"),
        ({"seq_sig": "00" * 64}, "INVALID_SIGNATURE"),
        ({"id": "00" * 32}, "INVALID_HASH"),
        ({"seq": 9999}, "INVALID_SIGNATURE"),
        ({"type": "Manifest"}, "INVALID_COMMIT"),
        ({"sequencer": "00" * 32}, "INVALID_SIGNATURE"),
        ({"tags": [[]]}, "INVALID_COMMIT"),
        ({"hash": "XY"}, "INVALID_COMMIT"),
        ({"timestamp": 1 << 52}, "INVALID_COMMIT"),
        ({"content": None}, "INVALID_COMMIT"),
    ],
)
def test_what_was_changed_is_refused_with_its_reason(log: Log, changes: Json, code: str) -> None:
    event = log.events[10]
    fine, bad = judged(log.wire[9], spelt(event, **changes))
    assert fine["code"] is None
    assert bad["code"] == code
    assert bad["reason"]
    assert bad["event"] == spelt(event, **changes).decode()
    assert (bad["seq"], bad["id"]) == (changes.get("seq", event.seq), changes.get("id", event.id.hex()))


@pytest.mark.parametrize("check", [True, False])
def test_a_mark_is_refused_for_the_reason_that_it_says(check: bool) -> None:
    place = RowOrigin("node:test", enclave="ab" * 32)
    (row,) = verify_batch(
        unread_row(Unreachable("nobody is there"), place, now(), unread=[3, 9]), check=check
    ).to_pylist()
    assert (row["enclave"], row["seq"], row["type"], row["origin"]) == ("ab" * 32, None, None, "node:test")
    assert (row["code"], row["reason"]) == ("UNREACHABLE", "nobody is there")


@pytest.mark.parametrize("code", ["FORK", "MADE_UP" * 1000, ""])
def test_what_a_node_says_is_no_code_of_ours(code: str) -> None:
    error = from_wire({"code": code, "message": "so there"})
    (row,) = verify_batch(unread_row(error, PLACE, now())).to_pylist()
    assert (row["code"], row["reason"]) == (UNKNOWN_CODE, f"{code[:100]}: so there")


def test_a_mark_that_cannot_be_read_is_refused_as_anything_is() -> None:
    made = unread_row(Unreachable("nobody is there"), PLACE, now())
    spoilt = made.set_column(made.schema.get_field_index("event"), "event", pa.array(["{}"], pa.string()))
    (row,) = verify_batch(spoilt).to_pylist()
    assert row["code"] == "INVALID_COMMIT"


@pytest.mark.parametrize(
    "more", [{}, {"type": UNREAD_TYPE}, {"type": UNREAD_TYPE, "seq": 3, "from": "", "timestamp": 1}]
)
def test_nobody_else_makes_a_mark(more: Json) -> None:
    said = msgspec.json.encode({"enclave": "", "id": "", "code": "FORK", "message": "so there", **more})
    (row,) = judged(said)
    assert row["code"] == "INVALID_COMMIT"
    assert "required field" in row["reason"]


@pytest.mark.parametrize("event", [b"", b"\xff", b"{}", b"[" * 100_000, b'{"seq": 1}', b'{"hash": "\\ud800"}'])
def test_what_is_no_event_is_refused(event: bytes) -> None:
    (row,) = judged(event, place=RowOrigin("node:test", enclave="ab" * 32))
    assert (row["enclave"], row["seq"], row["code"]) == ("ab" * 32, None, "INVALID_COMMIT")


def _made(log: Log, *, exp: int, timestamp: int, seq: int = 50, type_: str = "message") -> Event:
    commit = build_commit(person("bob"), bytes.fromhex(log.enclave), type_, "x", exp)
    return finalize(commit, person("node"), timestamp, seq)


@pytest.mark.parametrize(
    ("how", "part"),
    [
        ({"exp": START, "timestamp": START + 60_001}, "after exp"),
        ({"exp": START + 3_660_001, "timestamp": START}, "exp: more than an hour"),
        ({"exp": START, "timestamp": START, "seq": 0}, "event 0 and no other"),
        ({"exp": 253_402_300_800_000, "timestamp": 253_402_300_800_000}, "year 9999"),
    ],
)
def test_what_is_signed_and_cannot_stand_in_a_log_is_refused(log: Log, how: Json, part: str) -> None:
    (row,) = judged(spelt(_made(log, **how)))
    assert row["code"] == "INVALID_COMMIT"
    assert part in row["reason"]


def test_an_erased_content_is_null_and_only_what_may_be_erased_may_be(log: Log) -> None:
    message = next(event for event in log.events if event.type == "message")
    topic = next(event for event in log.events if event.type == "Shared")
    fine, bad = judged(spelt(erase(message)), spelt(erase(topic)))
    assert (fine["code"], fine["content"], fine["content_hash"]) == (None, None, message.content_hash.hex())
    assert "never erased" in bad["reason"]


def test_a_withheld_content_comes_with_its_statement_if_some_key_signed_it(log: Log) -> None:
    message = next(event for event in log.events if event.type == "message")
    held = withheld(message, "node2")
    assert held.withheld is not None
    said = wire_withheld(held.withheld)
    later = spelt(held, withheld={**said, "ts": START + 1})
    fine, bad = judged(spelt(held), later)
    assert (fine["code"], fine["content"], fine["withheld"]) == (None, None, said)
    assert (bad["code"], bad["content"], bad["withheld"]) == (None, None, None)
    assert (bad["event"], bad["content_hash"]) == (later.decode(), message.content_hash.hex())


def test_only_contents_that_may_be_erased_may_be_withheld(log: Log) -> None:
    topic = next(event for event in log.events if event.type == "Shared")
    beside, never = judged(spelt(withheld(log.events[10]), content="x", content_hash=None), spelt(withheld(topic)))
    assert "stands beside a content" in beside["reason"]
    assert "never erased" in never["reason"]


def test_an_event_of_another_enclave_than_was_asked_for_is_refused(log: Log) -> None:
    (row,) = judged(log.wire[5], place=RowOrigin("node:test", enclave="ab" * 32))
    assert row["enclave"] == "ab" * 32
    assert "another enclave" in row["reason"]


def test_both_versions_are_told_apart_by_their_hashes() -> None:
    world = World(manifest(EXAMPLE, initial(alice="Owner Member")))
    world.send("alice", "Chat_Message", "hello", tags=(("a", "b"),))
    log = log_of(world)
    assert log.enc_v == 1
    assert [(row["code"], row["enc_v"]) for row in judged(*log.wire)] == [(None, 1)] * 2
    assert [row["code"] for row in judged(*log.wire, place=RowOrigin("x", enc_v=1))] == [None, None]
    assert "INVALID_HASH" in {row["code"] for row in judged(*log.wire, place=RowOrigin("x", enc_v=2))}


def test_without_checks_what_can_be_read_counts(log: Log) -> None:
    fine, bad = judged(spelt(log.events[10], sig="00" * 64), b"{}", check=False)
    assert fine["code"] is None
    assert bad["code"] == "INVALID_COMMIT"


def test_on_spark_every_row_is_good_or_refused(spark: SparkSession, log: Log) -> None:
    wire = [*log.wire, spelt(log.events[3], sig="11" * 64), b"garbage"]
    raw = spark.createDataFrame(raw_batch(wire, PLACE, now()).to_pandas(), RAW)
    rows = verified(raw).cache()
    assert rows.schema == VERIFIED
    events, bad = rows.where("code IS NULL"), rows.where("code IS NOT NULL")
    assert sorted(row.seq for row in events.collect()) == [event.seq for event in log.events]
    assert {row.code for row in bad.collect()} == {"INVALID_SIGNATURE", "INVALID_COMMIT"}
    rows.unpersist()
