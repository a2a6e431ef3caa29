"""From Spark to the serving database: what a batch has changed in a view, taken over by the driver.

    publisher = Publisher("serving.db")
    publisher.publish("events", ["enclave", "seq"], changed, None, {enclave: next_seq}, batch_id, index=["id"])

A batch that is published again changes nothing, so that a driver which died in between begins it anew.
"""

import decimal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema

from enc.core.errors import MisuseError
from enc.dataview.held import Limits, few
from enc.dataview.serving.columns import Column, Kind, ViewSchema
from enc.dataview.serving.database import Database, Row

Rows: TypeAlias = DataFrame | pa.Table
"""Where Spark has them, or with the driver already."""
ROWS = 5_000
"""Rows that are Python objects at a time."""

_KINDS: dict[type[spark.DataType], Kind] = {
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


class Publisher:
    """`place`: a file's path for SQLite, or the URL of PostgreSQL."""

    def __init__(self, place: str, limits: Limits | None = None) -> None:
        """`limits`: what the driver holds at once."""
        self._database, self._limits = Database(place), limits or Limits()

    def close(self) -> None:
        self._database.close()

    def published(self, view: str) -> int | None:
        """The batch that the view was published with last; None where it never was."""
        with self._database.reading() as moment:
            stored = moment.view(view)
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
        """Take over what a batch has changed, in one transaction.

        `changed`: whole rows, one for each key. `deleted`: the keys of rows that are gone.
        """
        schema = schema_of(view, key, changed, description)
        rows = self._rows(changed, schema.columns)
        gone: Iterable[Row] = ()
        if deleted is not None:
            keys = deleted.select(list(key))
            gone = self._rows(keys, schema_of(view, key, keys).columns)
        self._database.upsert(schema, rows, progress, deleted=gone, index=index, batch_id=batch_id)

    def go_on(self, view: str, progress: Mapping[str, int]) -> None:
        """The view is complete so far; nothing in it has changed."""
        self._database.go_on(view, progress)

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
        goes_on: bool = False,
    ) -> None:
        """The view anew, as after a rebuild: also with other columns and another key. `goes_on`: what was said of how
        far it is complete holds.

        Comes part by part, so that the driver holds one at a time, however large the view is.
        """
        schema = schema_of(view, key, whole, description)
        rows = self._rows(whole, schema.columns)
        self._database.replace(schema, rows, progress, index=index, batch_id=batch_id, goes_on=goes_on)

    def _rows(self, rows: Rows, columns: Sequence[Column]) -> Iterator[Row]:
        """At once where they are few."""
        found = few(rows, self._limits) if isinstance(rows, DataFrame) else rows
        tables = _parts(rows) if found is None else [found]
        return (row for table in tables for row in _rows(table, columns))

    def put(self, schema: ViewSchema, rows: Iterable[Row]) -> None:
        """Rows that come from no table, and stand for no enclave's events."""
        self._database.upsert(schema, rows, {})

    def drop(self, view: str) -> None:
        self._database.drop(view)


def schema_of(view: str, key: Sequence[str], rows: Rows, description: str = "") -> ViewSchema:
    columns = rows.schema if isinstance(rows, DataFrame) else from_arrow_schema(rows.schema)
    return served(view, key, columns, description)


def served(view: str, key: Sequence[str], columns: spark.StructType, description: str = "") -> ViewSchema:
    """The view that rows of these columns are served as."""
    found = tuple(Column(field.name, _kind(view, field)) for field in columns.fields)
    return ViewSchema(view, found, tuple(key), description)


def _kind(view: str, field: spark.StructField) -> Kind:
    type_ = field.dataType
    if isinstance(type_, spark.DecimalType) and type_.scale == 0 and type_.precision <= 18:
        return "integer"
    for spark_type, kind in _KINDS.items():
        if isinstance(type_, spark_type):
            return kind
    raise MisuseError(f"view {view}: {field.name}: a {type_.simpleString()} cannot be served; cast it to another type")


def _parts(frame: DataFrame) -> Iterator[pa.Table]:
    """Arrow batches, packed on the executors: a row each, so that Spark's own iterator can bring them.

    It brings a whole partition at a time, of whatever size that is: so there are as many as there are batches.
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
    """Rows as the database takes them: see `columns` for the form of each kind."""
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
_FORMS: dict[Kind, Callable[[pa.Array], list[Any]]] = {
    "string": _plain,
    "integer": _integers,
    "double": _doubles,
    "boolean": _plain,
    "timestamp": _timestamps,
    "date": _dates,
    "binary": _plain,
    "json": _json,
}
