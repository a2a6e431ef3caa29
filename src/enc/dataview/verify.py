"""Verification: raw rows become events that prove themselves, or rows that say why they do not. In Arrow batches.

What an event proves by itself, as `enc.core` checks it: its hash, its author's signature, its sequencer's, its id;
that it is of the enclave that was asked; that event 0 and no other is the Manifest; that its times allow each other;
that its content is there, or of a kind that may be erased. Whether its author was allowed to say it, and whether its
sequencer is the enclave's, only the log can tell.

Nothing stops the stream: what fails has `code` and `reason`, and goes to quarantine.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal, cast, get_args

import pyarrow as pa
from msgspec import DecodeError
from msgspec.json import Decoder
from pyspark.sql import DataFrame

from enc.core.commit import version_of
from enc.core.dialects import dialect_of
from enc.core.encoding import decode_json
from enc.core.errors import EncError, InvalidCommit, MisuseError
from enc.core.event import (
    WireEvent,
    check_content_present,
    check_event,
    check_manifest_place,
    check_time,
    event_from_wire,
)
from enc.core.types import VERSIONS, Event
from enc.dataview.rows import MARK, Mark
from enc.dataview.schema import RAW, VERIFIED, arrow

LAST_MS = 253_402_300_799_999
"""The end of the year 9999: no later time can be read back from a table everywhere."""

_arrow = arrow(VERIFIED)
_decoder, _mark = Decoder(WireEvent), Decoder(Mark).decode
_predefined = {enc_v: dialect_of(enc_v).predefined for enc_v in VERSIONS}


def verified(raw: DataFrame, *, check: bool = True) -> DataFrame:
    """Rows of VERIFIED, one for each raw row. Without `check`, what can be read counts as proved.

    Rows that a source has verified as it read them, by its option `verify`, stay as they are.
    """
    if raw.columns == VERIFIED.fieldNames():
        return raw

    def verify(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (verify_batch(batch, check=check) for batch in batches)

    return raw.select(*RAW.fieldNames()).mapInArrow(verify, VERIFIED)


Verify = Literal["no", "form", "full"]
"""What a source does with what it reads: nothing, so that it yields raw rows; or what `verified` does, in the same pass
through Python, and so without another way there and back. `form`: without checks.
"""


def parse_verify(text: str) -> Verify:
    for known in get_args(Verify):
        if text == known:
            return cast(Verify, known)
    raise MisuseError(f"verify: expected {', '.join(get_args(Verify))}, and not {text!r}")


def verify_batch(batch: pa.RecordBatch, *, check: bool = True) -> pa.RecordBatch:
    """The same for one Arrow batch of RAW."""
    told = batch.select(["event", "enclave", "seq", "id", "type", "enc_v"]).to_pydict()
    judge = _judge if check else _read
    rows = [_row(judge, *given) for given in zip(*told.values(), strict=True)]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_OWN)
    found = {name: pa.array(column, type_) for (name, type_), column in zip(_OWN.items(), columns, strict=True)}
    found["timestamp"] = found["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(_arrow.field("timestamp").type)
    for name in ("origin", "received_at", "event"):
        found[name] = batch.column(name)
    return pa.RecordBatch.from_arrays([found[name].cast(_type(name)) for name in _arrow.names], schema=_arrow)


def _type(name: str) -> pa.DataType:
    return _arrow.field(name).type


_OWN: dict[str, pa.DataType] = {
    name: pa.int64() if name == "timestamp" else _type(name)
    for name in (
        "enclave seq id type author timestamp exp content content_hash tags hash alg sig sequencer seq_sig enc_v "
        "code reason"
    ).split()
}
"""Columns that are made here; the others are the raw rows' own."""

_Judge = Callable[[str, str | None, int | None], tuple[WireEvent, Event, int]]


def _row(
    judge: _Judge,
    text: str,
    enclave: str | None,
    seq: int | None,
    id_: str | None,
    type_: str | None,
    enc_v: int | None,
) -> tuple[Any, ...]:
    try:
        wire, event, version = judge(text, enclave, enc_v)
    except EncError as e:
        said = Mark(e.code, e.message)
        if type_ == MARK and id_ is None:
            with suppress(DecodeError):
                said = _mark(text)
        return (enclave, seq, id_, *[None] * 13, said.code, said.message)
    except (ValueError, RecursionError, OverflowError) as e:  # whatever somebody thought of: the stream goes on
        return (enclave, seq, id_, *[None] * 13, InvalidCommit.code, f"not to be read: {type(e).__name__}")
    return (
        wire.enclave,
        wire.seq,
        wire.id,
        wire.type,
        wire.from_,
        wire.timestamp,
        wire.exp,
        wire.content,
        event.content_hash.hex(),
        wire.tags,
        wire.hash,
        wire.alg,
        wire.sig,
        wire.sequencer,
        wire.seq_sig,
        version,
        None,
        None,
    )


def _read(text: str, enclave: str | None, enc_v: int | None) -> tuple[WireEvent, Event, int]:
    """What can be said of an event without any signature."""
    wire = decode_json(text, _decoder, InvalidCommit)
    event = event_from_wire(wire)
    if enclave is not None and wire.enclave != enclave:
        raise InvalidCommit("enclave: an event of another enclave than was asked for")
    if wire.timestamp > LAST_MS:
        raise InvalidCommit("timestamp: after the year 9999")
    return wire, event, enc_v if enc_v in VERSIONS else version_of(event)


def _judge(text: str, enclave: str | None, enc_v: int | None) -> tuple[WireEvent, Event, int]:
    wire, event, version = _read(text, enclave, enc_v)
    check_time(event, InvalidCommit)
    check_manifest_place(event, InvalidCommit)
    check_content_present(event, _predefined[version], InvalidCommit)
    check_event(event, version)
    return wire, event, version
