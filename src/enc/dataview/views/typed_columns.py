"""Columns from a schema of contents: one for each property, and how contents become rows."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, DataType, DoubleType, StructField, StructType

from enc.core.errors import InvalidCommit, MisuseError
from enc.core.primitives.encoding import compact_json, strict_json
from enc.core.rules.content_schema import Schema, is_integer
from enc.dataview.rows.schema import NUMBER, TEXT, TIME, arrow_schema

Kind = Literal["integer", "double", "boolean", "string", "json"]

EVENT_COLUMNS: dict[str, DataType] = {
    "enclave": TEXT,
    "id": TEXT,
    "seq": NUMBER,
    "author": TEXT,
    "timestamp": TIME,
    "revised_at": TIME,
}
"""Columns of `content_status` that a typed view has, too."""
_JUDGED: dict[str, DataType] = {"valid": BooleanType(), "violations": TEXT}
_TYPES: dict[Kind, DataType] = {
    "integer": NUMBER,
    "double": DoubleType(),
    "boolean": BooleanType(),
    "string": TEXT,
    "json": TEXT,
}
_KINDS: tuple[tuple[Kind, set[str]], ...] = (
    ("integer", {"integer"}),
    ("double", {"integer", "number"}),
    ("boolean", {"boolean"}),
    ("string", {"string"}),
)
"""The types that a column of each kind holds; a column of any other types holds JSON."""


class TypedColumn(Struct, frozen=True):
    """A column, and the key of the content that it shows."""

    name: str
    key: str
    kind: Kind


def columns_of(schema: Schema) -> tuple[TypedColumn, ...]:
    """Return a column for each property; raise MisuseError if there are none, or two of one name."""
    found = dict[str, TypedColumn]()
    for key, value in schema.properties.items():
        column = TypedColumn(_name(key), key, _kind(value))
        other = found.setdefault(column.name.lower(), column)
        if other is not column:
            raise MisuseError(f"the keys {other.key!r} and {key!r} would both be the column {column.name}")
    if not found:
        raise MisuseError("the schema has no `properties`, so there are no columns to make")
    return tuple(found.values())


def _name(key: str) -> str:
    """Return a key as the name of a column; with a prefix if the event has a column of this name."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", key)
    is_taken = name.lower() in EVENT_COLUMNS or name.lower() in _JUDGED
    return f"content_{name}" if is_taken or not re.match("[A-Za-z]", name) else name


def _kind(schema: Schema) -> Kind:
    types = set(schema.type)
    if schema.allowed is not None:
        listed = {"integer" if type_ == "number" and is_integer(each) else type_ for type_, each in schema.allowed}
        types = listed & (types | {"integer"} if "number" in types else types)
    types -= {"null"}
    return next((kind for kind, held in _KINDS if types and types <= held), "json")


def typed_rows(contents: DataFrame, schema: Schema) -> DataFrame:
    """Return rows of `content_status` with typed columns: null unless the content satisfies the
    schema. `valid` is null for an erased content; `violations` says why a content is not valid.
    """
    columns = columns_of(schema)
    types = {**EVENT_COLUMNS, **_JUDGED, **{column.name: _TYPES[column.kind] for column in columns}}
    made = StructType([StructField(name, type_, True) for name, type_ in types.items()])
    arrow = arrow_schema(made)

    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (_typed_batch(batch, schema, columns, arrow) for batch in batches)

    return contents.select(*EVENT_COLUMNS, "content").mapInArrow(convert, made)


def _typed_batch(
    batch: pa.RecordBatch, schema: Schema, columns: Sequence[TypedColumn], arrow: pa.Schema
) -> pa.RecordBatch:
    judged = [_judge(schema, content) for content in batch.column("content").to_pylist()]
    found: dict[str, Any] = {name: batch.column(name) for name in EVENT_COLUMNS}
    found["valid"] = [valid for valid, _, _ in judged]
    found["violations"] = [why for _, why, _ in judged]
    for column in columns:
        found[column.name] = [_value(column.kind, value.get(column.key)) for _, _, value in judged]
    arrays = [
        each.cast(field.type) if isinstance(each, pa.Array) else pa.array(each, field.type)
        for field, each in zip(arrow, found.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def _judge(schema: Schema, content: str | None) -> tuple[bool | None, str | None, dict[str, Any]]:
    """Return whether a content is valid, why not, and its value if it is a valid object."""
    if content is None:
        return None, None, {}
    try:
        value = strict_json(content)
    except InvalidCommit as e:
        return False, e.message, {}
    found = schema.violations(value)
    return not found, "; ".join(found) or None, value if isinstance(value, dict) and not found else {}


def _value(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if kind == "integer":
        return int(value)
    if kind == "double":
        return float(value)
    return compact_json(value) if kind == "json" else value
