"""Staging: which rows go to which table, and what the driver is sent. Without Spark."""

from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from enc.core.errors import MisuseError
from enc.dataview.lake.parquet import filesystem
from enc.dataview.rows.batch_summary import BatchSummary
from enc.dataview.rows.raw_rows import RowOrigin, raw_batch
from enc.dataview.rows.schema import EVENTS, QUARANTINE, RAW, arrow_schema
from enc.dataview.source.staging import stage_batches
from tests.dataview.flow import AT
from tests.dataview.logs import Log


def test_each_row_where_it_belongs(log: Log, tmp_path: Path) -> None:
    for name in ("bronze/raw_events", "silver/events", "silver/quarantine"):
        (tmp_path / name).mkdir(parents=True)
    altered = log.wire[7].replace(b"message", b"massage")
    place = RowOrigin("node:n", log.enclave, log.enc_v)
    batches = [raw_batch(log.wire[:10], place, AT), raw_batch([altered, b"junk", *log.wire[10:]], place, AT)]
    [said] = [batch.to_pylist() for batch in stage_batches(iter(batches), str(tmp_path), check=True)]
    files = {row["table"]: row for row in said if row["table"]}
    where = {"raw_events": ("bronze", RAW), "events": ("silver", EVENTS), "quarantine": ("silver", QUARANTINE)}
    found = {}
    for name, (layer, schema) in where.items():
        path = tmp_path / layer / name / files[name]["path"]
        assert path.stat().st_size == files[name]["size"]
        found[name] = pq.read_table(path)
        assert found[name].schema.equals(arrow_schema(schema))
    assert found["raw_events"].num_rows == len(log.wire) + 2
    assert found["events"]["seq"].to_pylist() == list(range(len(log.wire)))
    assert found["quarantine"]["code"].to_pylist() == ["INVALID_HASH", "INVALID_COMMIT"]
    stats = msgspec.json.decode(files["events"]["stats"])
    assert stats["numRecords"] == len(log.wire)
    assert (stats["minValues"]["seq"], stats["maxValues"]["seq"]) == (0, len(log.wire) - 1)
    assert stats["maxValues"]["enclave"] == log.enclave
    assert stats["nullCount"]["enclave"] == 0
    [told] = [msgspec.msgpack.decode(row["summary"], type=BatchSummary) for row in said if row["table"] is None]
    assert told.refused == 2
    assert told.enclaves[log.enclave].ranges == [(0, len(log.wire))]


def test_times_of_a_file_are_never_less_than_they_are(log: Log, tmp_path: Path) -> None:
    (tmp_path / "bronze/raw_events").mkdir(parents=True)
    (tmp_path / "silver/events").mkdir(parents=True)
    at = AT.replace(microsecond=1500)
    raw = raw_batch(log.wire[:1], RowOrigin("node:n", log.enclave, log.enc_v), at)
    [said] = [batch.to_pylist() for batch in stage_batches(iter([raw]), str(tmp_path), check=True)]
    stats = msgspec.json.decode(next(row["stats"] for row in said if row["table"] == "raw_events"))
    assert stats["minValues"]["received_at"].endswith("00.001Z")
    assert stats["maxValues"]["received_at"].endswith("00.002Z")


def test_nothing_read_is_no_file(tmp_path: Path) -> None:
    [said] = [batch.to_pylist() for batch in stage_batches(iter(()), str(tmp_path), check=True)]
    assert [row["table"] for row in said] == [None]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "base"), [("/lake/x", "/lake/x"), ("lake/x", "lake/x"), ("file:///lake/x", "/lake/x"), ("a/b:c", "a/b:c")]
)
def test_paths_of_this_machine(path: str, base: str) -> None:
    assert filesystem(path)[1] == base


def test_an_address_that_nobody_knows() -> None:
    with pytest.raises(MisuseError, match="cannot be written to"):
        filesystem("gopher://x/lake")
