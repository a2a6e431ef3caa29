"""Files of the lake's own landing zone are removed once they are ingested. Without Spark."""

import json
from pathlib import Path

from enc.dataview.source.landing import remove_ingested


def _log(checkpoint: Path, name: str, **batches: int) -> None:
    """Write a file of the log of Spark's file source: names of files, with their batch."""
    entries = [{"path": f"file:///zone/{file}.parquet", "timestamp": 1, "batchId": n} for file, n in batches.items()]
    path = checkpoint / "sources" / "0" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", *map(json.dumps, entries)]))


def test_what_a_finished_batch_has_read_is_removed_and_nothing_else(tmp_path: Path) -> None:
    zone, checkpoint = tmp_path / "zone", tmp_path / "checkpoint"
    zone.mkdir()
    for name in ("a", "b", "c%20d", "e", "f"):
        (zone / f"{name.replace('%20', ' ')}.parquet").touch()
    _log(checkpoint, "1.compact", a=0, b=1)
    _log(checkpoint, "2", **{"c%20d": 2})
    _log(checkpoint, "3", e=3)
    (checkpoint / "commits").mkdir()
    for n in (0, 1, 2):
        (checkpoint / "commits" / str(n)).touch()
    (checkpoint / "commits" / ".3.crc").touch()
    for _ in "twice":
        remove_ingested(zone, checkpoint)
        assert sorted(path.name for path in zone.iterdir()) == ["e.parquet", "f.parquet"]


def test_a_zone_that_no_stream_has_read(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").touch()
    remove_ingested(tmp_path, tmp_path / "checkpoint")
    assert (tmp_path / "a.parquet").exists()
