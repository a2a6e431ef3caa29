"""Runs both folds over events: on the driver for a few events, on executors for many.

Input rows are sorted by enclave and seq; the known state of an enclave precedes its events and has
no seq. Output rows are JSON, each with the name of its table. Executors read events one by one, so
an enclave's history needs no more memory than its result.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import (
    broadcast,
    coalesce,
    col,
    from_json,
    get_json_object,
    lit,
    struct,
    timestamp_millis,
    to_json,
    unix_millis,
    when,
)
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from enc.core.primitives.types import Event
from enc.dataview.fold.content_fold import ContentFold, Row
from enc.dataview.fold.control_fold import CONTROL, FoldState, fold
from enc.dataview.fold.transforms.kinds import is_revision, revised_id
from enc.dataview.lake.lake import CONTENT_STATUS
from enc.dataview.rows.schema import QUARANTINE, TEXT, arrow_schema

REGISTRY = "registry"
FOLD_ROW = StructType([StructField(name, TEXT) for name in ("table", "enclave", "data")])
_ARROW = pa.schema([(name, pa.string()) for name in FOLD_ROW.fieldNames()])
_COLUMNS = (
    "enclave seq id type author timestamp exp content content_hash tags hash alg sig sequencer seq_sig enc_v withheld"
).split()
KNOWN = StructType([StructField(name, TEXT) for name in ("enclave", "kind", "data")])
"""Known state of an enclave: `state`, a KnownState in JSON; or `content`, a row of `content_status`
in JSON.
"""
REFUSED = StructType([field for field in QUARANTINE if field.name in ("enclave", "seq", "id", "code", "reason")])
_BATCH, _BATCH_BYTES = 1000, 16 << 20

FoldRow = tuple[str, str, str]


class KnownState(msgspec.Struct):
    """The saved state of the fold. `complete`: no event of the enclave is missing."""

    complete: bool = False
    state: str | None = None


def fold_on_driver(events: pa.Table, known: Iterable[Row]) -> list[FoldRow]:
    """Fold rows of `events` that the driver holds, with rows of KNOWN."""
    rows = [row | {"seq": -1} for row in known] + events.select(_COLUMNS).to_pylist()
    made: list[FoldRow] = []
    for enclave, group in groupby(sorted(rows, key=itemgetter("enclave", "seq")), itemgetter("enclave")):
        here = list(group)
        control = list(_control(row for row in here if _is_control(row)))
        is_registry = (REGISTRY, {}) in control
        contents = _contents((row for row in here if not _is_control(row)), registry=is_registry)
        made += (_fold_row(table, enclave, row) for table, row in chain(control, contents) if table != REGISTRY)
    return made


def fold_control(events: DataFrame, known: DataFrame) -> DataFrame:
    """Fold control events on executors.

    Returns rows of FOLD_ROW, and a row of REGISTRY for each enclave that is a registry. An
    enclave's events are read one by one: only its state and the changed rows are held in memory.
    """
    first = known.where(col("kind") == "state").select("*", lit(-1).cast("bigint").alias("seq"))
    rows = events.where(_control_type()).select(*_COLUMNS).unionByName(first, allowMissingColumns=True)
    return rows.repartition("enclave").sortWithinPartitions("enclave", "seq").mapInArrow(_fold_control, FOLD_ROW)


def fold_contents(events: DataFrame, known: DataFrame, control: DataFrame) -> DataFrame:
    """Fold the contents of the same events, using the output of `fold_control`. Each content is
    folded by itself.
    """
    first = known.where(col("kind") == "content").select("*", lit(-1).cast("bigint").alias("seq"))
    first = first.withColumn("_of", get_json_object("data", "$.id"))
    target = when(is_revision(), coalesce(revised_id(), lit(""))).otherwise(col("id"))
    rows = events.where(~_control_type()).select(*_COLUMNS, target.alias("_of"))
    rows = rows.unionByName(first, allowMissingColumns=True)
    registries = control.where(col("table") == REGISTRY).select("enclave", lit(True).alias("_registry"))
    rows = rows.join(broadcast(registries), "enclave", "left").repartition("enclave", "_of")
    return rows.sortWithinPartitions("enclave", "_of", "seq").mapInArrow(_fold_contents, FOLD_ROW)


def _control_type() -> Column:
    """Return the condition for control events."""
    old, new = (col("type").isin(*sorted(CONTROL[version])) for version in (1, 2))
    return when(col("enc_v") == 1, old).otherwise(new)


def _is_control(row: Row) -> bool:
    """Return True for the row of a control event or of a state."""
    kind = row.get("kind")
    return kind == "state" if kind else row["type"] in CONTROL[1 if row["enc_v"] == 1 else 2]


def _fold_control(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    groups = groupby(_rows(batches), itemgetter("enclave"))
    return _record_batches(
        _fold_row(table, enclave, row) for enclave, group in groups for table, row in _control(group)
    )


def _fold_contents(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    groups = groupby(_rows(batches), itemgetter("enclave", "_of", "_registry"))
    return _record_batches(
        _fold_row(table, enclave, row)
        for (enclave, _, registry), group in groups
        for table, row in _contents(group, registry=bool(registry))
    )


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    return (row for batch in batches for row in batch.to_pylist())


def _record_batches(made: Iterator[FoldRow]) -> Iterator[pa.RecordBatch]:
    """Pack rows into batches bounded by rows and bytes: a content may be a mebibyte."""
    rows, size = list[FoldRow](), 0
    for row in made:
        rows.append(row)
        size += len(row[2])
        if len(rows) == _BATCH or size >= _BATCH_BYTES:
            yield _batch(rows)
            rows, size = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[FoldRow]) -> pa.RecordBatch:
    arrays = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _fold_row(table: str, enclave: str, row: Any) -> FoldRow:
    return table, enclave, msgspec.json.encode(row).decode()


def _control(rows: Iterable[Row]) -> Iterator[tuple[str, Any]]:
    """Fold one enclave: its known state, if any, then its control events."""
    rest, known = iter(rows), KnownState()
    first = next(rest, None)
    if first is not None and first.get("kind"):
        known, first = msgspec.json.decode(first["data"], type=KnownState), next(rest, None)
    state = FoldState() if known.state is None else msgspec.json.decode(known.state, type=FoldState)
    if first is not None:
        folded = fold(state, map(_event, chain([first], rest)), first["enc_v"], complete=known.complete)
        yield "fold", state
        yield "enclaves", folded.enclave
        yield from (("access", row) for row in folded.access.values())
        yield from (("slots", row) for row in folded.slots.values())
        yield from (("quarantine", row) for row in folded.refused)
    if state.registry:
        yield REGISTRY, {}


def _contents(rows: Iterable[Row], *, registry: bool) -> Iterator[tuple[str, Any]]:
    """Fold the contents of one enclave, or one content: the known rows, then events."""
    known: dict[str, Row] = {}
    said = ContentFold(known, registry=registry)
    for row in rows:
        if row.get("kind"):
            found = _EMPTY_CONTENT | msgspec.json.decode(row["data"])
            known[found["id"]] = found
        else:
            row["timestamp"] = _millis(row["timestamp"])
            said.apply(row)
    yield from (("content_status", row) for row in said.changed.values())
    yield from (("erasures", row) for row in said.erased.values())


_EMPTY_CONTENT: Row = dict.fromkeys(CONTENT_STATUS.fieldNames())


def _millis(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _event(row: Row) -> Event:
    """Return the event of a row of `events`."""
    return Event(
        hash=bytes.fromhex(row["hash"]),
        enclave=bytes.fromhex(row["enclave"]),
        from_=bytes.fromhex(row["author"]),
        type=row["type"],
        content=row["content"],
        content_hash=bytes.fromhex(row["content_hash"]),
        exp=row["exp"],
        tags=tuple(tuple(tag) for tag in row["tags"] or ()),
        alg=row["alg"],
        sig=bytes.fromhex(row["sig"]),
        id=bytes.fromhex(row["id"]),
        timestamp=_millis(row["timestamp"]),
        sequencer=bytes.fromhex(row["sequencer"]),
        seq=row["seq"],
        seq_sig=bytes.fromhex(row["seq_sig"]),
    )


# To rows of tables, and back


def as_table_rows(made: DataFrame, schema: StructType) -> DataFrame:
    """Convert rows of FOLD_ROW, all of one table, to the table's columns. The folds count time in
    milliseconds.
    """
    fields = [field for field in schema if field.name != "enclave"]
    wire = StructType([StructField(f.name, LongType() if _is_time(f) else f.dataType) for f in fields])
    read = made.select("enclave", from_json("data", wire).alias("row"))
    columns = {f.name: timestamp_millis(f"row.{f.name}") if _is_time(f) else col(f"row.{f.name}") for f in fields}
    return read.select(*(columns.get(name, col("enclave")).alias(name) for name in schema.fieldNames()))


def as_arrow_rows(made: Iterable[FoldRow], schema: StructType) -> pa.Table:
    """Convert rows that the driver holds."""
    fields, millis = arrow_schema(schema), pa.timestamp("ms", "UTC")
    wire = pa.schema([pa.field(f.name, millis if pa.types.is_timestamp(f.type) else f.type) for f in fields])
    rows = [{**msgspec.json.decode(data), "enclave": enclave} for _, enclave, data in made]
    return pa.Table.from_pylist(rows, wire).cast(fields)


def as_known_rows(contents: DataFrame) -> DataFrame:
    """Convert rows of `content_status` to rows of KNOWN."""
    fields = [f for f in CONTENT_STATUS if f.name != "enclave"]
    columns = [unix_millis(f.name).alias(f.name) if _is_time(f) else col(f.name) for f in fields]
    return contents.select("enclave", lit("content").alias("kind"), to_json(struct(*columns)).alias("data"))


def _is_time(field: StructField) -> bool:
    return isinstance(field.dataType, TimestampType)
