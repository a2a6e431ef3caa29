"""Converts the wire's JSON to raw Arrow rows. It checks only whether an event can be parsed."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec
import pyarrow as pa
from msgspec import Struct, field
from msgspec.json import Decoder

from enc.core.errors import EncError
from enc.core.primitives.encoding import MAX_INT, compact_json
from enc.dataview.rows.schema import RAW, arrow_schema

RAW_ARROW = arrow_schema(RAW)
BATCH = 4096
"""Most rows of one Arrow batch."""
BATCH_BYTES = 32 << 20
"""Bytes of JSON after which an Arrow batch is full."""
_MAX_KEPT_BYTES = 1 << 20
"""Bytes kept of text that is not an event, for inspection."""
UNREAD_TYPE = "unread"
"""The `type` of a row that stands for unreadable input. A sender cannot forge one: of a received
event, either all columns are set or none is.
"""


class RowOrigin(Struct, frozen=True):
    """Where rows come from.

    `enclave` (hex) is the enclave that was requested, if one was: rows carry it whatever the event
    says, so that the sender is known. `enc_v` is the enclave's version, if known.
    """

    origin: str
    enclave: str | None = None
    enc_v: int | None = None


class _EventColumns(Struct):
    """The fields of a wire event that have columns; `verify` checks the others."""

    enclave: str
    seq: int
    id: str
    type: str
    from_: str = field(name="from")
    timestamp: int


UNKNOWN_CODE = "UNKNOWN_CODE"
"""The code of an unread row if a node sent one that the protocol does not define."""


class UnreadReason(Struct):
    """The reason of an unread row; other fields may follow."""

    code: str
    message: str


_decode_columns = Decoder(_EventColumns).decode
_NOTHING = _EventColumns(enclave="", seq=0, id="", type="", from_="", timestamp=0)


def now() -> datetime:
    return datetime.now(UTC)


def raw_batch(events: Sequence[bytes], place: RowOrigin, received_at: datetime) -> pa.RecordBatch:
    """Return one raw row for each event in wire JSON, in order."""
    return _batch([_parse_row(event) for event in events], place, received_at)


def unread_row(error: EncError, place: RowOrigin, received_at: datetime, **more: object) -> pa.RecordBatch:
    """Return a row that stands for unreadable input. Verification rejects it with the reason it
    carries.

    Its code is always one of the protocol's: a node may answer with any code, a new one each time.
    """
    code, message = type(error).code, error.message
    if not code:
        code, message = UNKNOWN_CODE, f"{error.code[:100]}: {message}"
    said = {**more, "code": code, "message": message[:2000]}
    return _batch([(None, None, None, UNREAD_TYPE, None, None, compact_json(said))], place, received_at)


def _batch(found: Sequence["_Row"], place: RowOrigin, received_at: datetime) -> pa.RecordBatch:
    columns = list(zip(*found, strict=True)) if found else [()] * 7
    count = len(found)
    enclaves = (
        pa.array(columns[0], pa.string()) if place.enclave is None else _repeated(place.enclave, pa.string(), count)
    )
    arrays = [
        enclaves,
        pa.array(columns[1], pa.int64()),
        pa.array(columns[2], pa.string()),
        pa.array(columns[3], pa.string()),
        pa.array(columns[4], pa.string()),
        pa.array(columns[5], pa.int64()),
        pa.array(columns[6], pa.string()),
        _repeated(place.origin, pa.string(), count),
        _repeated(received_at, RAW_ARROW.field("received_at").type, count),
        _repeated(place.enc_v, pa.int32(), count),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_ARROW)


def _repeated(value: object, type_: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, type_), count)


def seq_of(event: bytes) -> int | None:
    """Return the seq of an event; None if it is not an event."""
    return _parse_row(event)[1]


_Row = tuple[str | None, int | None, str | None, str | None, str | None, int | None, bytes | str]


def _parse_row(event: bytes) -> _Row:
    try:
        seen = _decode_columns(event)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None, None, None, None, None, None, _readable(event)
    if not (0 <= seen.seq <= MAX_INT and 0 <= seen.timestamp <= MAX_INT):
        return None, None, None, None, None, None, _readable(event)
    return seen.enclave, seen.seq, seen.id, seen.type, seen.from_, seen.timestamp, event


def _readable(event: bytes) -> str:
    """Return the input as text, for inspection only."""
    return event[:_MAX_KEPT_BYTES].decode("utf-8", "replace")


def raw_batches(events: Iterator[bytes], place: RowOrigin, received_at: datetime) -> Iterator[pa.RecordBatch]:
    """Convert any number of events, in batches bounded in rows and bytes.

    If `events` fails, the rows before the failure are yielded first.
    """
    waiting: list[bytes] = []
    size, fault = 0, None
    try:
        for event in events:
            waiting.append(event)
            size += len(event)
            if len(waiting) >= BATCH or size >= BATCH_BYTES:
                yield raw_batch(waiting, place, received_at)
                waiting, size = [], 0
    except EncError as e:
        fault = e
    if waiting:
        yield raw_batch(waiting, place, received_at)
    if fault is not None:
        raise fault
