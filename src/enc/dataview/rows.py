"""Raw rows: from the wire's JSON to Arrow, without judging anything but whether it can be read at all."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec
import pyarrow as pa
from msgspec import Struct, field
from msgspec.json import Decoder

from enc.core.encoding import MAX_INT, compact_json
from enc.core.errors import EncError
from enc.dataview.schema import RAW, arrow

RAW_ARROW = arrow(RAW)
BATCH = 4096
"""Rows of one Arrow batch, at most."""
BATCH_BYTES = 32 << 20
"""Bytes of JSON in one Arrow batch, after which it is full."""
_CUT = 1 << 20
"""Bytes of what is no event that are kept, to look at."""
MARK = "unread"
"""The `type` of a row that stands for what could not be read. No sender can make one: of what they say, either all
columns are known or none is.
"""


class Place(Struct, frozen=True):
    """Where rows come from. `enclave` (hex) is who was asked for, where one was: a row has that, whatever the event
    says, so that it is known who sent it. `enc_v` is the enclave's version, where it is known.
    """

    origin: str
    enclave: str | None = None
    enc_v: int | None = None


class _Glance(Struct):
    """The fields of a wire event that are columns of their own; whether the others are right, `verify` says."""

    enclave: str
    seq: int
    id: str
    type: str
    from_: str = field(name="from")
    timestamp: int


UNKNOWN = "UNKNOWN_CODE"
"""The code of a mark, where a node gave one that the protocol does not have."""


class Mark(Struct):
    """What a mark says; more may stand beside it."""

    code: str
    message: str


_glance = Decoder(_Glance).decode
_NOTHING = _Glance(enclave="", seq=0, id="", type="", from_="", timestamp=0)


def now() -> datetime:
    return datetime.now(UTC)


def raw_batch(events: Sequence[bytes], place: Place, received_at: datetime) -> pa.RecordBatch:
    """One raw row for each event in wire JSON, in order."""
    return _batch([_look(event) for event in events], place, received_at)


def mark(error: EncError, place: Place, received_at: datetime, **more: object) -> pa.RecordBatch:
    """A row in place of what could not be read. It is no event, and so is refused, for the reason that it says.

    Its code is one of ours: a node may answer with any word, and with another one each time.
    """
    code, message = type(error).code, error.message
    if not code:
        code, message = UNKNOWN, f"{error.code[:100]}: {message}"
    said = {**more, "code": code, "message": message[:2000]}
    return _batch([(None, None, None, MARK, None, None, compact_json(said))], place, received_at)


def _batch(found: Sequence["_Row"], place: Place, received_at: datetime) -> pa.RecordBatch:
    columns = list(zip(*found, strict=True)) if found else [()] * 7
    count = len(found)
    told = pa.array(columns[0], pa.string()) if place.enclave is None else _repeated(place.enclave, pa.string(), count)
    arrays = [
        told,
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
    """The seq that an event names; None where it is none."""
    return _look(event)[1]


_Row = tuple[str | None, int | None, str | None, str | None, str | None, int | None, bytes | str]


def _look(event: bytes) -> _Row:
    try:
        seen = _glance(event)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None, None, None, None, None, None, _shown(event)
    if not (0 <= seen.seq <= MAX_INT and 0 <= seen.timestamp <= MAX_INT):
        return None, None, None, None, None, None, _shown(event)
    return seen.enclave, seen.seq, seen.id, seen.type, seen.from_, seen.timestamp, event


def _shown(event: bytes) -> str:
    """What came, as far as it is text: it is to be looked at, and no more."""
    return event[:_CUT].decode("utf-8", "replace")


def raw_batches(events: Iterator[bytes], place: Place, received_at: datetime) -> Iterator[pa.RecordBatch]:
    """As `raw_batch`, for any number of events: each batch bounded in rows and in bytes. Where `events` fails,
    what came before that is yielded first.
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
