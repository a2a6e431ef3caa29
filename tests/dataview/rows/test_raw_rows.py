"""Raw rows: readable events fill columns, unreadable ones are kept for inspection."""

import msgspec
import pytest
from pyspark.sql import SparkSession

from enc.dataview.rows.raw_rows import RAW_ARROW, RowOrigin, now, raw_batch, raw_batches
from enc.dataview.rows.schema import RAW
from tests.dataview.logs import Log

PLACE = RowOrigin("node:http://node.test", enc_v=2)


def test_each_event_is_a_row_as_it_came(log: Log) -> None:
    received = now()
    rows = raw_batch(log.wire, PLACE, received).to_pylist()
    assert [row["event"].encode() for row in rows] == log.wire
    for row, event in zip(rows, log.events, strict=True):
        assert (row["enclave"], row["seq"], row["id"]) == (log.enclave, event.seq, event.id.hex())
        assert (row["type"], row["author"], row["timestamp"]) == (event.type, event.from_.hex(), event.timestamp)
        assert (row["origin"], row["received_at"], row["enc_v"]) == (PLACE.origin, received, 2)


def test_spark_takes_the_arrow_batches_as_rows_of_the_schema(spark: SparkSession, log: Log) -> None:
    frame = spark.createDataFrame(raw_batch(log.wire, PLACE, now()).to_pandas(), RAW)
    assert frame.schema == RAW
    assert frame.count() == len(log.events)


def _with(log: Log, **fields: object) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(log.wire[3]), **fields})


@pytest.mark.parametrize(
    "event",
    [b"", b"null", b"[1]", b"{}", b"\xff\xfe", b'{"seq": 1', b"[" * 100_000, b'{"type": "\\ud800"}'],
    ids=["empty", "null", "list", "object", "no UTF-8", "cut", "deep", "surrogate"],
)
def test_what_is_no_event_is_kept_with_the_enclave_that_the_source_knows(event: bytes) -> None:
    place = RowOrigin("push:x", enclave="ab" * 32)
    (row,) = raw_batch([event], place, now()).to_pylist()
    assert (row["enclave"], row["origin"]) == ("ab" * 32, "push:x")
    assert row["event"] == event.decode("utf-8", "replace")
    assert [row[name] for name in ("seq", "id", "type", "author", "timestamp")] == [None] * 5


@pytest.mark.parametrize("fields", [{"seq": -1}, {"seq": 1 << 60}, {"timestamp": 1 << 70}, {"seq": "1"}, {"id": None}])
def test_numbers_that_no_column_holds_make_it_no_event(log: Log, fields: dict[str, object]) -> None:
    (row,) = raw_batch([_with(log, **fields)], PLACE, now()).to_pylist()
    assert (row["seq"], row["id"], row["timestamp"]) == (None, None, None)


def test_batches_are_bounded_in_rows_and_in_bytes(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.dataview.rows.raw_rows.BATCH", 7)
    sizes = [batch.num_rows for batch in raw_batches(iter(log.wire), PLACE, now())]
    assert sum(sizes) == len(log.events)
    assert max(sizes) == 7
    monkeypatch.setattr("enc.dataview.rows.raw_rows.BATCH_BYTES", 1)
    assert {batch.num_rows for batch in raw_batches(iter(log.wire), PLACE, now())} == {1}
    assert list(raw_batches(iter(()), PLACE, now())) == []


def test_no_event_at_all_is_an_empty_batch() -> None:
    assert raw_batch([], PLACE, now()).schema == RAW_ARROW
