"""Status of a running job: a row for each of its parts in the view `pipeline` of the serving
database.

The job updates it every few seconds: a `told_at` that does not advance means that no job is
running.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import decode

from enc.dataview.serving.columns import Column, ViewSchema


class PartStatus(Struct, frozen=True, kw_only=True):
    """Status of one part of a job. Times are in microseconds since 1970."""

    part: str
    """ingest, derive or views; with several sources, one ingest for each."""
    told_at: int
    batch: int | None = None
    """Number of a stream's last batch."""
    rows: int | None = None
    """Rows of the last batch; for views, how many were rebuilt."""
    rows_per_second: float | None = None
    took_ms: int | None = None
    behind: int | None = None
    """Events that nodes have and that have not been read yet; None if unknown."""
    error: str | None = None
    """Error message: views that fail a test are not published."""


PIPELINE = ViewSchema(
    "pipeline",
    (
        Column("part", "string"),
        Column("told_at", "timestamp"),
        Column("batch", "integer"),
        Column("rows", "integer"),
        Column("rows_per_second", "double"),
        Column("took_ms", "integer"),
        Column("behind", "integer"),
        Column("error", "string"),
    ),
    ("part",),
    "Status of the pipeline, as reported by the job.",
)


def stream_state(part: str, progress: Mapping[str, Any] | None, now: int) -> PartStatus:
    """Return the status of a stream from Spark's progress report; None: it has had no batch yet."""
    if not progress:
        return PartStatus(part=part, told_at=now)
    took: Mapping[str, Any] = progress.get("durationMs") or {}
    rate = progress.get("processedRowsPerSecond")
    return PartStatus(
        part=part,
        told_at=now,
        batch=int(progress["batchId"]),
        rows=int(progress.get("numInputRows") or 0),
        rows_per_second=None if rate is None else float(rate),
        took_ms=None if "triggerExecution" not in took else int(took["triggerExecution"]),
        behind=behind(progress.get("sources") or ()),
    )


def behind(sources: Any) -> int | None:
    """Sum the backlog of the sources whose offsets are {enclave: next seq}; None without any."""
    known = [
        each
        for source in sources
        if (each := _remaining(source.get("endOffset"), source.get("latestOffset"))) is not None
    ]
    return sum(known) if known else None


def _remaining(end: Any, latest: Any) -> int | None:
    read, there = _offset(end), _offset(latest)
    if read is None or there is None:
        return None
    return sum(max(0, seq - read.get(enclave, 0)) for enclave, seq in there.items())


def _offset(said: Any) -> dict[str, int] | None:
    """Parse an offset, which Spark gives as text or as an object; None if it is another kind of
    source's.
    """
    try:
        found = decode(said) if isinstance(said, str) else said
    except DecodeError:
        return None
    if not isinstance(found, Mapping) or not all(len(name) == 64 and type(seq) is int for name, seq in found.items()):
        return None
    return dict(found)
