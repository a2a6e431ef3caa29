"""Writes Spark rows to the serving database, through the driver.

    writer = ServingWriter("serving.db")
    writer.publish("events", ["enclave", "seq"], changed, None, {enclave: next_seq}, batch_id, index=["id"])

Publishing a batch again changes nothing, so a driver that died in between repeats it.
"""

import decimal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema

from enc.core.errors import MisuseError
from enc.dataview.lake.driver_rows import DriverLimits, Rows, collect_if_few
from enc.dataview.serving.columns import Column, ColumnKind, ViewSchema
from enc.dataview.serving.database import ServingDatabase
from enc.dataview.serving.statements import Row

ROWS = 5_000
"""Rows converted to Python objects at a time."""

_KINDS: dict[type[spark.DataType], ColumnKind] = {
    spark.StringType: "string",
    spark.ByteType: "integer",
    spark.ShortType: "integer",
    spark.IntegerType: "integer",
    spark.LongType: "integer",
    spark.FloatType: "double",
    spark.DoubleType: "double",
    spark.DecimalType: "double",
    spark.BooleanType: "boolean",
    spark.TimestampType: "timestamp",
    spark.TimestampNTZType: "timestamp",
    spark.DateType: "date",
    spark.BinaryType: "binary",
    spark.ArrayType: "json",
    spark.StructType: "json",
    spark.MapType: "json",
}


class ServingWriter:
    """Writes views to one serving database. `place`: a file's path for SQLite, or a PostgreSQL URL."""

    def __init__(self, place: str, limits: DriverLimits | None = None) -> None:
        """`limits`: how much the driver holds at once."""
        self._database, self._limits = ServingDatabase(place), limits or DriverLimits()

    def close(self) -> None:
        self._database.close()

    def last_batch_id(self, view: str) -> int | None:
        """Return the batch id that the view was last published with; None if it never was."""
        with self._database.reading() as snapshot:
            stored = snapshot.view(view)
        return None if stored is None else stored.batch_id

    def publish(
        self,
        view: str,
        key: Sequence[str],
        changed: Rows,
        deleted: Rows | None,
        progress: Mapping[str, int],
        batch_id: int,
        *,
        index: Sequence[str] = (),
        description: str = "",
    ) -> None:
        """Apply the changes of a batch in one transaction.

        `changed`: whole rows, one for each key. `deleted`: the keys of deleted rows.
        """
        schema = schema_of(view, key, changed, description)
        rows = self._rows(changed, schema.columns)
        gone: Iterable[Row] = ()
        if deleted is not None:
            keys = deleted.select(list(key))
            gone = self._rows(keys, schema_of(view, key, keys).columns)
        self._database.upsert(schema, rows, progress, deleted=gone, index=index, batch_id=batch_id)

    def advance_progress(self, view: str, progress: Mapping[str, int]) -> None:
        """Record progress of a view that has not changed."""
        self._database.advance_progress(view, progress)

    def republish(
        self,
        view: str,
        key: Sequence[str],
        whole: DataFrame,
        progress: Mapping[str, int],
        batch_id: int | None = None,
        *,
        index: Sequence[str] = (),
        description: str = "",
        keep_progress: bool = False,
    ) -> None:
        """Replace the view, possibly with other columns and another key, as after a rebuild.

        `keep_progress`: the recorded progress still holds. Rows are read part by part, so the
        driver holds one part at a time, however large the view is.
        """
        schema = schema_of(view, key, whole, description)
        rows = self._rows(whole, schema.columns)
        self._database.replace(schema, rows, progress, index=index, batch_id=batch_id, keep_progress=keep_progress)

    def _rows(self, rows: Rows, columns: Sequence[Column]) -> Iterator[Row]:
        """Return database rows; fetched at once if they are few."""
        found = collect_if_few(rows, self._limits) if isinstance(rows, DataFrame) else rows
        tables = _arrow_parts(rows) if found is None else [found]
        return (row for table in tables for row in _rows(table, columns))

    def write_rows(self, schema: ViewSchema, rows: Iterable[Row]) -> None:
        """Write rows that do not come from a table and carry no progress."""
        self._database.upsert(schema, rows, {})

    def vacuum(self) -> None:
        self._database.vacuum()

    def drop(self, view: str) -> None:
        self._database.drop(view)


def schema_of(view: str, key: Sequence[str], rows: Rows, description: str = "") -> ViewSchema:
    columns = rows.schema if isinstance(rows, DataFrame) else from_arrow_schema(rows.schema)
    return served_schema(view, key, columns, description)


def served_schema(view: str, key: Sequence[str], columns: spark.StructType, description: str = "") -> ViewSchema:
    """Return the schema under which rows of these columns are served."""
    found = tuple(Column(field.name, _kind(view, field)) for field in columns.fields)
    return ViewSchema(view, found, tuple(key), description)


def _kind(view: str, field: spark.StructField) -> ColumnKind:
    type_ = field.dataType
    if isinstance(type_, spark.DecimalType) and type_.scale == 0 and type_.precision <= 18:
        return "integer"
    for spark_type, kind in _KINDS.items():
        if isinstance(type_, spark_type):
            return kind
    raise MisuseError(f"view {view}: {field.name}: a {type_.simpleString()} cannot be served; cast it to another type")


def _arrow_parts(frame: DataFrame) -> Iterator[pa.Table]:
    """Fetch Arrow batches packed on the executors, one per row, through Spark's local iterator.

    The iterator fetches a whole partition at a time, whatever its size, so each batch gets its own.
    """

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.RecordBatch.from_pydict({"packed": [sink.getvalue().to_pybytes()]})

    packed = frame.mapInArrow(pack, "packed binary").persist()
    try:
        for row in packed.repartition(max(1, packed.count())).toLocalIterator():
            yield pa.ipc.open_stream(bytes(row.packed)).read_all()
    finally:
        packed.unpersist()


def _rows(table: pa.Table, columns: Sequence[Column]) -> Iterator[Row]:
    """Return rows in the database's form: see `columns` for the form of each kind."""
    names = [column.name for column in columns]
    for batch in table.to_batches(max_chunksize=ROWS):
        values = [_FORMS[column.kind](array) for column, array in zip(columns, batch.columns, strict=True)]
        for row in zip(*values, strict=True):
            yield dict(zip(names, row, strict=True))


def _plain(array: pa.Array) -> list[Any]:
    return array.to_pylist()  # type: ignore[no-any-return]


def _integers(array: pa.Array) -> list[Any]:
    return _plain(array.cast(pa.int64()))


def _doubles(array: pa.Array) -> list[Any]:
    return _plain(array.cast(pa.float64()))


def _timestamps(array: pa.Array) -> list[Any]:
    return _plain(array.cast(pa.timestamp("us", tz=array.type.tz)).cast(pa.int64()))


def _dates(array: pa.Array) -> list[Any]:
    return _plain(pc.strftime(array, "%Y-%m-%d"))


def _json(array: pa.Array) -> list[Any]:
    return [None if value is None else _encoder.encode(value).decode() for value in _plain(array)]


def _encodable(value: object) -> object:
    if isinstance(value, decimal.Decimal):
        return float(value)
    raise MisuseError(f"a {type(value).__name__} cannot be served inside another value")


_encoder = msgspec.json.Encoder(enc_hook=_encodable, decimal_format="number")
_FORMS: dict[ColumnKind, Callable[[pa.Array], list[Any]]] = {
    "string": _plain,
    "integer": _integers,
    "double": _doubles,
    "boolean": _plain,
    "timestamp": _timestamps,
    "date": _dates,
    "binary": _plain,
    "json": _json,
}
