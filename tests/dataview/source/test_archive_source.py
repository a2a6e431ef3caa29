"""format("enc_archive"): whole logs from files, in parts; an invalid file becomes a row that names
it.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import zstandard
from msgspec import structs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from enc.core.errors import MisuseError, Unavailable
from enc.dataview.rows.schema import VERIFIED
from enc.dataview.rows.verify import verified, verify_batch
from enc.dataview.source import archive_source
from enc.dataview.source.archive_source import ArchiveSource, Part, find_archives, read_part
from tests.dataview.logs import Log, small_log


@pytest.fixture
def archives(tmp_path: Path, log: Log) -> Path:
    """Return two enclaves' archives, and a file that is not an archive."""
    log.archive(tmp_path / "one.enc")
    small_log(5, "two").archive(tmp_path / "two.enc")
    (tmp_path / "readme.txt").write_text("no archive")
    return tmp_path


def rows_of(part: Part) -> list[dict[str, Any]]:
    return [row for batch in read_part(part) for row in batch.to_pylist()]


def test_all_files_of_a_directory_are_read_and_prove_themselves(spark: SparkSession, archives: Path, log: Log) -> None:
    spark.dataSource.register(ArchiveSource)
    reader = spark.read.format("enc_archive").option("eventsPerSplit", 10)
    raw = reader.load(str(archives))
    assert raw.rdd.getNumPartitions() == 4 + 1
    at_once = reader.option("verify", "full").load(str(archives))
    assert verified(at_once) is at_once
    assert at_once.where("code is null").count() == raw.count()
    rows = verified(raw).collect()
    assert {row.code for row in rows} == {None}
    assert sorted(row.seq for row in rows if row.enclave == log.enclave) == [event.seq for event in log.events]
    assert len({row.enclave for row in rows}) == 2
    assert {Path(row.origin.removeprefix("archive:")).name for row in rows} == {"one.enc", "two.enc"}


@pytest.mark.parametrize("chunk", [1, 100, 1 << 20])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_are_the_whole_and_share_nothing(
    archives: Path, log: Log, count: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_source, "CHUNK", chunk)
    size = len(log.events)
    bounds = [size * i // count for i in range(count)]
    parts = [Part(str(archives / "one.enc"), a, b) for a, b in zip(bounds, [*bounds[1:], None], strict=True)]
    found = [row for part in parts for row in rows_of(part)]
    assert [row["event"].encode() for row in found] == log.wire
    assert {(row["enclave"], row["enc_v"]) for row in found} == {(log.enclave, 2)}


def _broken(archives: Path, how: str) -> Path:
    path = archives / "one.enc"
    raw = path.read_bytes()
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(raw)
    lines = plain.splitlines(keepends=True)
    spoilt = {
        "cut": raw[: len(raw) // 2],
        "no zstd": b"rubbish",
        "empty": b"",
        "no header": zstandard.compress(b"{}\n" + b"".join(lines[1:])),
        "events left out": zstandard.compress(b"".join(lines[:-3])),
        "cut within a line": zstandard.compress(plain[:-5]),
    }
    path.write_bytes(spoilt[how])
    return path


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("cut", "the archive is empty"),
        ("no zstd", "not zstd"),
        ("empty", "empty"),
        ("no header", "format"),
        ("events left out", "the header declares"),
        ("cut within a line", "truncated within a line"),
    ],
)
def test_a_broken_file_is_named_in_a_row_after_what_can_be_read(archives: Path, log: Log, how: str, said: str) -> None:
    path = _broken(archives, how)
    *rest, last = read_part(Part(str(path), 0, None))
    [row] = verify_batch(last).to_pylist()
    there = [row["seq"] for batch in rest for row in batch.to_pylist()]
    lost = {"events left out": 3, "cut within a line": 1}.get(how, len(log.events))
    assert there == list(range(len(log.events) - lost))
    assert (row["seq"], row["code"], row["origin"]) == (None, "INVALID_ARCHIVE", f"archive:{path}")
    assert re.search(said, row["reason"])
    assert json.loads(row["event"])["archive"] == str(path)


@pytest.mark.parametrize("chunk", [100, 1 << 20])
@pytest.mark.parametrize("lines", [11, 16])
def test_what_is_wrong_is_said_once_however_many_read_the_file(
    archives: Path, lines: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the file ends exactly at the start of a part."""
    monkeypatch.setattr(archive_source, "CHUNK", chunk)
    path = archives / "one.enc"
    whole = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(zstandard.compress(b"".join(whole[:lines])))
    parts = [Part(str(path), first, last) for first, last in ((0, 10), (10, 20), (20, 30), (30, None))]
    found = [row["seq"] for part in parts for row in rows_of(part)]
    assert found == [*range(lines - 1), None]


def test_a_file_that_is_not_there_is_owed(archives: Path) -> None:
    """If it counted as read, its rows would be missing forever."""
    with pytest.raises(Unavailable, match=r"none.enc: cannot be read: No such file"):
        rows_of(Part(str(archives / "none.enc"), 0, None))


def test_a_line_without_end_is_refused(archives: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_source, "MAX_LINE", 100)
    monkeypatch.setattr(archive_source, "CHUNK", 50)
    *_, last = rows_of(Part(str(archives / "one.enc"), 0, None))
    assert "longer than 100 bytes" in json.loads(last["event"])["message"]


def test_a_line_that_is_no_event_is_a_row_and_the_others_come(archives: Path, log: Log) -> None:
    path = archives / "one.enc"
    lines = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes()).splitlines()
    lines[3] = b'{"rubbish": true}'
    path.write_bytes(zstandard.compress(b"\n".join(lines) + b"\n"))
    rows = rows_of(Part(str(path), 0, None))
    assert [row["seq"] for row in rows] == [0, 1, None, *range(3, len(log.events))]


@pytest.mark.parametrize(("verify", "code"), [("full", "INVALID_SIGNATURE"), ("form", None)])
def test_a_source_verifies_as_it_reads_if_it_is_told_to(
    archives: Path, log: Log, verify: str, code: str | None
) -> None:
    forged = structs.replace(log.events[5], sig=bytes(64))
    path = Log(log.enclave, 2, [*log.events[:5], forged, *log.events[6:]]).unchecked_archive(archives / "one.enc")
    source = ArchiveSource({"path": str(path), "verify": verify})
    assert source.schema() == VERIFIED
    reader = source.reader(VERIFIED)
    batches: list[Any] = [batch for part in reader.partitions() for batch in reader.read(part)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["code"] for row in rows] == [None] * 5 + [code] + [None] * (len(rows) - 6)


def test_paths_are_files_directories_and_patterns(archives: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = str(archives / "one.enc"), str(archives / "two.enc")
    assert find_archives(str(archives)) == find_archives(f"{archives}/*.enc") == [one, two]
    assert find_archives(f"{two},{one}") == find_archives(f"file://{one}, file:{two}") == [one, two]
    assert find_archives(str(archives / "none")) == []
    assert find_archives(f"{one},, ") == [one]
    monkeypatch.chdir(archives.parent)  # tasks may run in another directory
    assert find_archives(archives.name) == find_archives(f"{archives.name}/*.enc") == [one, two]


@pytest.mark.parametrize("path", ["s3a://bucket/archives", "a.enc, https://example.org/b.enc"])
def test_an_address_is_no_path(path: str) -> None:
    """As a pattern it would silently match nothing."""
    with pytest.raises(MisuseError, match=r"^(s3a|https)://[^ ]*: expected a path on a file system"):
        find_archives(path)


@pytest.mark.parametrize(
    "options", [{}, {"path": "x", "splits": "0"}, {"path": "x", "split": "3"}, {"path": "x", "verify": "yes"}]
)
def test_an_option_that_is_wrong_is_named(options: dict[str, str]) -> None:
    with pytest.raises(MisuseError):
        list(archive_source._BatchReader(options)._parts("x"))


def test_no_archive_at_all_is_said(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(ArchiveSource)
    with pytest.raises(PySparkException, match="no archive found"):
        spark.read.format("enc_archive").load(str(tmp_path)).count()


def test_as_a_stream_each_file_is_read_once(
    spark: SparkSession, archives: Path, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.dataSource.register(ArchiveSource)

    def drain() -> list[int]:
        sizes: list[int] = []
        frame = spark.readStream.format("enc_archive").option("maxFilesPerTrigger", 1).load(str(archives))
        writer = frame.writeStream.foreachBatch(lambda batch, _: sizes.append(batch.count()))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        return sizes

    assert drain() == [len(log.events), 15]
    reader = archive_source._StreamReader({"path": str(archives)})
    monkeypatch.chdir(archives)
    assert reader.partitions({"one.enc": "read"}, {"one.enc": "read", str(archives / "one.enc"): "read"}) == []
    small_log(2, "three").archive(archives / "aaa.enc")
    assert drain() == [12]
