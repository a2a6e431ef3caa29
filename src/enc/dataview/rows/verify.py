"""Verification: turns raw rows into verified events, or into rows with the reason of their
rejection. In Arrow batches.

An event proves the following by itself, as `enc.core` checks it: its hash, its author's and its
sequencer's signature, its id; that it belongs to the requested enclave; that event 0 and no other
is the Manifest; that its times are consistent; that its content is present or of a type that may be
erased or withheld. A statement about a withheld content is kept if its signature is valid. Only the
log shows whether its author was permitted to write the event, whether its sequencer is the
enclave's, and whether the key that withholds it is.

A failure does not stop the stream: the row gets `code` and `reason`, and goes to quarantine.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal, cast, get_args

import pyarrow as pa
from msgspec import DecodeError
from msgspec.json import Decoder
from pyspark.sql import DataFrame

from enc.core.errors import EncError, InvalidCommit, MisuseError
from enc.core.log.commit import version_of
from enc.core.log.event import (
    WireEvent,
    check_content_present,
    check_event,
    check_manifest_place,
    check_time,
    erase,
    event_from_wire,
    signed_statement,
)
from enc.core.log.withheld import wire_withheld
from enc.core.primitives.encoding import decode_json
from enc.core.primitives.types import VERSIONS, Event
from enc.core.rules.dialects import dialect_of
from enc.dataview.rows.raw_rows import UNREAD_TYPE, UnreadReason
from enc.dataview.rows.schema import RAW, VERIFIED, arrow_schema

LAST_MS = 253_402_300_799_999
"""The end of the year 9999: not every reader of a table accepts later times."""

_arrow = arrow_schema(VERIFIED)
_decoder, _mark = Decoder(WireEvent), Decoder(UnreadReason).decode
_predefined = {enc_v: dialect_of(enc_v).predefined for enc_v in VERSIONS}


def verified(raw: DataFrame, *, check: bool = True) -> DataFrame:
    """Return rows of VERIFIED, one for each raw row. Without `check`, every row that parses is
    accepted.

    Rows that a source verified while reading (option `verify`) are returned unchanged.
    """
    if raw.columns == VERIFIED.fieldNames():
        return raw

    def verify(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (verify_batch(batch, check=check) for batch in batches)

    return raw.select(*RAW.fieldNames()).mapInArrow(verify, VERIFIED)


VerifyMode = Literal["no", "form", "full"]
"""How a source verifies: `no` yields raw rows; `full` does what `verified` does, in the same pass
through Python, which saves a round trip; `form` parses without checking.
"""


def parse_verify(text: str) -> VerifyMode:
    for known in get_args(VerifyMode):
        if text == known:
            return cast(VerifyMode, known)
    raise MisuseError(f"verify: expected one of {', '.join(get_args(VerifyMode))}, not {text!r}")


def verify_batch(batch: pa.RecordBatch, *, check: bool = True) -> pa.RecordBatch:
    """Verify one Arrow batch of RAW."""
    columns_ = batch.select(["event", "enclave", "seq", "id", "type", "enc_v"]).to_pydict()
    judge = _verify_event if check else _read
    rows = [_row(judge, *given) for given in zip(*columns_.values(), strict=True)]
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
        "withheld code reason"
    ).split()
}
"""Columns computed here; the others are copied from the raw rows."""

_REJECTED = [None] * (len(_OWN) - 5)
"""The columns of a rejected row between `id` and `code`."""
_Check = Callable[[str, str | None, int | None], tuple[WireEvent, Event, int]]


def _row(
    judge: _Check,
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
        said = UnreadReason(e.code, e.message)
        if type_ == UNREAD_TYPE and id_ is None:
            with suppress(DecodeError):
                said = _mark(text)
        return (enclave, seq, id_, *_REJECTED, said.code, said.message)
    except (ValueError, RecursionError, OverflowError) as e:  # malicious input must not stop the stream
        return (enclave, seq, id_, *_REJECTED, InvalidCommit.code, f"cannot be read: {type(e).__name__}")
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
        None if event.withheld is None else wire_withheld(event.withheld),
        None,
        None,
    )


def _read(text: str, enclave: str | None, enc_v: int | None) -> tuple[WireEvent, Event, int]:
    """What can be said of an event without any signature."""
    wire = decode_json(text, _decoder, InvalidCommit)
    event = event_from_wire(wire)
    if enclave is not None and wire.enclave != enclave:
        raise InvalidCommit("enclave: belongs to another enclave than the requested one")
    if wire.timestamp > LAST_MS:
        raise InvalidCommit("timestamp: after the year 9999")
    return wire, event, enc_v if enc_v in VERSIONS else version_of(event)


def _verify_event(text: str, enclave: str | None, enc_v: int | None) -> tuple[WireEvent, Event, int]:
    wire, event, version = _read(text, enclave, enc_v)
    check_time(event, InvalidCommit)
    check_manifest_place(event, InvalidCommit)
    check_content_present(event, _predefined[version], InvalidCommit)
    check_event(event, version)
    if event.withheld is not None and signed_statement(event) is None:
        event = erase(event)
    return wire, event, version
