"""The status of a job, from Spark's reports on its streams."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from enc.core.errors import MisuseError
from enc.dataview.publish.serving_writer import ServingWriter
from enc.dataview.publish.status import PIPELINE, PartStatus, behind, stream_state
from enc.dataview.views.catalog import all_views, load_views
from enc.dataview.views.view_file import parse_view
from tests.dataview.serving.rows import A, B, ask


def source(end: Any, latest: Any) -> dict[str, Any]:
    return {"endOffset": end, "latestOffset": latest}


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([source({A: 5, B: 3}, {A: 9, B: 3})], 4),
        ([source(f'{{"{A}":5}}', f'{{"{A}":6,"{B}":2}}')], 3),
        ([source({A: 9}, {A: 5})], 0),
        ([source({A: 5}, {A: 9}), source({"logOffset": 3}, {"logOffset": 4})], 4),
        ([source({"logOffset": 3}, {"logOffset": 4})], None),
        ([source({A: 5}, None)], None),
        ([source({A: 5}, "no JSON")], None),
        ([source([A], {A: 1})], None),
        ([], None),
    ],
)
def test_how_far_behind_a_stream_is(sources: list[dict[str, Any]], expected: int | None) -> None:
    assert behind(sources) == expected


def test_a_stream_before_its_first_batch_and_after_one() -> None:
    assert stream_state("ingest", None, 7) == PartStatus(part="ingest", told_at=7)
    progress = {
        "batchId": 3,
        "numInputRows": 12,
        "processedRowsPerSecond": 8.5,
        "durationMs": {"triggerExecution": 1400},
        "sources": [source({A: 5}, {A: 6})],
    }
    expected = PartStatus(part="derive", told_at=7, batch=3, rows=12, rows_per_second=8.5, took_ms=1400, behind=1)
    assert stream_state("derive", progress, 7) == expected
    assert stream_state("derive", {"batchId": 0}, 7) == PartStatus(part="derive", told_at=7, batch=0, rows=0)


def test_it_is_served_as_a_view_with_a_row_for_each_part(tmp_path: Path) -> None:
    writer = ServingWriter(str(tmp_path / "serving.db"))
    for at in (1, 2):
        writer.write_rows(PIPELINE, [asdict(PartStatus(part=part, told_at=at)) for part in ("ingest", "views")])
    rows = ask(writer._database, "pipeline")
    assert [(row["part"], row["told_at"]) for row in rows] == [("ingest", 2), ("views", 2)]
    writer.close()


def test_its_name_is_taken(tmp_path: Path) -> None:
    text = "-- key: id\nSELECT id FROM events"
    with pytest.raises(MisuseError, match="pipeline: a table or view of this name exists already"):
        all_views([parse_view(text, "pipeline")])
    (tmp_path / "pipeline.sql").write_text(text)
    with pytest.raises(MisuseError, match="pipeline: a table or view of this name exists already"):
        load_views(tmp_path)
