"""How far a running job is: a row for each of its parts in the view `pipeline` of the serving database.

It is the job's word, said every few seconds: a time that stands still says that nobody is at work.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import decode

from enc.dataview.serving.columns import Column, ViewSchema


class State(Struct, frozen=True, kw_only=True):
    """One part of a job. Times are in microseconds since 1970."""

    part: str
    """ingest, derive or views; where several sources are taken in, an ingest of each."""
    told_at: int
    batch: int | None = None
    """The last batch of a stream."""
    rows: int | None = None
    """What the last batch brought; of views, how many were made anew."""
    rows_per_second: float | None = None
    took_ms: int | None = None
    behind: int | None = None
    """Events that nodes are known to have, and that have not been read yet; None where nobody knows."""
    error: str | None = None
    """What is wrong, in words: views that fail a test are not published."""


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
    "How far the pipeline is, as it says itself.",
)


def stream_state(part: str, progress: Mapping[str, Any] | None, now: int) -> State:
    """Of a stream, from what Spark says of its last batch; None: it has had none yet."""
    if not progress:
        return State(part=part, told_at=now)
    took: Mapping[str, Any] = progress.get("durationMs") or {}
    rate = progress.get("processedRowsPerSecond")
    return State(
        part=part,
        told_at=now,
        batch=int(progress["batchId"]),
        rows=int(progress.get("numInputRows") or 0),
        rows_per_second=None if rate is None else float(rate),
        took_ms=None if "triggerExecution" not in took else int(took["triggerExecution"]),
        behind=behind(progress.get("sources") or ()),
    )


def behind(sources: Any) -> int | None:
    """Over all sources that say how far the logs go and how far they were read: an offset is {enclave: next seq}."""
    known = [
        each for source in sources if (each := _left(source.get("endOffset"), source.get("latestOffset"))) is not None
    ]
    return sum(known) if known else None


def _left(end: Any, latest: Any) -> int | None:
    read, there = _offset(end), _offset(latest)
    if read is None or there is None:
        return None
    return sum(max(0, seq - read.get(enclave, 0)) for enclave, seq in there.items())


def _offset(said: Any) -> dict[str, int] | None:
    """Spark gives it as text or as an object; None if it is another kind of source's."""
    try:
        found = decode(said) if isinstance(said, str) else said
    except DecodeError:
        return None
    if not isinstance(found, Mapping) or not all(len(name) == 64 and type(seq) is int for name, seq in found.items()):
        return None
    return dict(found)
