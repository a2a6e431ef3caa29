"""A page of rows as JSON, CSV or Arrow."""

import csv
import io
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, Literal, get_args

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from enc.core.errors import InvalidQuery
from enc.dataview.serving import values
from enc.dataview.serving.columns import Column, ColumnKind

AnswerFormat = Literal["json", "csv", "arrow"]
FORMATS: tuple[str, ...] = get_args(AnswerFormat)
MEDIA: dict[AnswerFormat, str] = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
}
_ACCEPTED: dict[str, AnswerFormat] = {
    "application/json": "json",
    "text/csv": "csv",
    "application/vnd.apache.arrow.stream": "arrow",
}


class RowPage(Struct, frozen=True, kw_only=True):
    """A page of rows. Values of a row beyond `columns` are not shown."""

    view: str
    columns: tuple[Column, ...]
    rows: Sequence[sa.Row[Any]]
    complete: dict[str, int]
    """For each enclave the first seq that is not in the view yet."""
    all_enclaves: bool
    next: str | None
    proofs: Sequence[Any] | None = None


def choose(asked: str | None, accept: str) -> AnswerFormat:
    """Return the format that the parameter names, else the first in the Accept header, else JSON."""
    if asked is not None:
        if asked not in FORMATS:
            raise InvalidQuery(f"format: expected one of {', '.join(FORMATS)}")
        return asked  # type: ignore[return-value]
    for part in accept.split(",")[:32]:
        found = _ACCEPTED.get(part.partition(";")[0].strip().lower())
        if found is not None:
            return found
    return "json"


def encode(page: RowPage, format_: AnswerFormat) -> bytes:
    return _ENCODERS[format_](page)


def _json(page: RowPage) -> bytes:
    names = [column.name for column in page.columns]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*_formed(page), strict=True)]
    wire: dict[str, Any] = {
        "view": page.view,
        "rows": rows,
        "next": page.next,
        "complete": page.complete,
        "all_enclaves": page.all_enclaves,
    }
    if page.proofs is not None:
        wire["proofs"] = page.proofs
    return msgspec.json.encode(wire)


def _formed(page: RowPage) -> list[Sequence[Any]]:
    """Return the page's columns in JSON form, converted by column: most need no conversion."""
    found: list[Sequence[Any]] = list(zip(*page.rows, strict=True)) or [()] * len(page.columns)
    for i, column in enumerate(page.columns):
        form = values.JSON.get(column.kind)
        if form is not None:
            found[i] = [None if cell is None else form(cell) for cell in found[i]]
    return found[: len(page.columns)]


def _csv(page: RowPage) -> bytes:
    """Encode as CSV (RFC 4180); a null is an empty cell."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([column.name for column in page.columns])
    for row in page.rows:
        cells = zip(page.columns, row, strict=False)
        writer.writerow([values.to_csv(column.kind, cell) for column, cell in cells])
    return text.getvalue().encode()


def _arrow(page: RowPage) -> bytes:
    """Encode as an Arrow IPC stream of one batch. The schema's metadata holds the fields beside
    `rows`.
    """
    import pyarrow as pa

    says = {
        "enc.view": page.view,
        "enc.next": page.next or "",
        "enc.complete": msgspec.json.encode(page.complete).decode(),
        "enc.all_enclaves": "true" if page.all_enclaves else "false",
    }
    types = _arrow_types(pa)
    fields = [pa.field(column.name, types[column.kind]) for column in page.columns]
    arrays = [_array(pa, page.rows, i, field.type) for i, field in enumerate(fields)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=says))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _array(pa: Any, rows: Sequence[sa.Row[Any]], i: int, type_: Any) -> Any:
    cells = [row[i] for row in rows]
    if type_ == pa.date32():  # not a cast, which would load all of Arrow's functions first
        cells = [None if cell is None else date.fromisoformat(cell) for cell in cells]
    return pa.array(cells, type_)


def _arrow_types(pa: Any) -> dict[ColumnKind, Any]:
    return {
        "string": pa.string(),
        "integer": pa.int64(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "date": pa.date32(),
        "binary": pa.binary(),
        "json": pa.string(),
    }


_ENCODERS: dict[AnswerFormat, Callable[[RowPage], bytes]] = {"json": _json, "csv": _csv, "arrow": _arrow}
