"""Typed views: the contents of one event type, with a column for each property of a schema.

    -- description: Entries of ledgers.
    -- type: entry
    -- schema: ledger

A `.sql` file with such a header and without SQL. `schema` names the manifest whose schema of this
type makes the columns: a template; a JSON file beside the view, which holds a manifest or the
schema itself; or the id of an enclave that the pipeline reads.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from enc.client.enclave.templates import names, unfilled
from enc.core.errors import EncError, MisuseError
from enc.core.primitives.encoding import compact_json, strict_json
from enc.core.rules.manifest_schemas import read_schemas
from enc.core.rules.parse_schema import parse_schema
from enc.dataview.views.typed_columns import columns_of, typed_rows
from enc.dataview.views.view_file import MAX_FILE, Refresh, View, check_view, parse_check, view_header

_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_ENCLAVE = re.compile(r"[0-9a-f]{64}")
_FIELDS = ("name", "description", "type", "schema", "where", "test")


def parse_typed_view(text: str, stem: str, folder: Path) -> View | None:
    """Parse the view in the file `stem`.sql of a folder; None if its header names no type."""
    header = view_header(text, stem)
    if "type" not in header and "schema" not in header:
        return None
    one = {name: values[-1] for name, values in header.items()}
    _check_header(one, text, stem)
    type_, source, named = one["type"], one["schema"], one.get("where")
    about = f"type = '{type_}' AND status <> 'deleted'"
    rows, reads, basis = _rows(type_, source, stem, folder)
    view = View(
        name=one.get("name", stem),
        key=("enclave", "id"),
        description=one.get("description", ""),
        refresh=Refresh("by", "content_status", (("enclave", "enclave"), ("id", "id"))),
        where=f"{about} AND ({named})" if named else about,
        reads=reads,
        tests=tuple(parse_check(test, stem) for test in header.get("test", ())),
        function=rows,
        basis=basis,
    )
    check_view(view)
    return view


def _check_header(one: Mapping[str, str], text: str, stem: str) -> None:
    for name in ("type", "schema"):
        if not one.get(name):
            raise MisuseError(f"{stem}.sql: {name}: missing; a typed view has `type` and `schema`")
    if not _TYPE.fullmatch(one["type"]):
        raise MisuseError(f"{stem}.sql: type: {one['type'][:60]}: expected a name of A-Z, a-z, 0-9, _, . and -")
    other = [name for name in one if name not in _FIELDS]
    if other:
        raise MisuseError(f"{stem}.sql: {other[0]}: a typed view has only {', '.join(_FIELDS)}")
    if any(line.strip() and not line.lstrip().startswith("--") for line in text.splitlines()):
        raise MisuseError(f"{stem}.sql: a typed view has no SQL; read it in another view")


def _rows(type_: str, source: str, stem: str, folder: Path) -> tuple[Callable[..., DataFrame], tuple[str, ...], str]:
    """Return the function that makes the rows, the tables that it reads, and what else it depends
    on.
    """
    if not _ENCLAVE.fullmatch(source):
        given = _named_schema(type_, source, stem, folder)
        schema = parse_schema(given, source)
        return lambda content_status: typed_rows(content_status, schema), ("content_status",), compact_json(given)

    def of_enclave(content_status: DataFrame, enclaves: DataFrame) -> DataFrame:
        found = enclaves.where(enclaves["enclave"] == source).select("manifest").first()
        if found is None or found[0] is None:
            raise MisuseError(f"schema: the pipeline has not read the Manifest of the enclave {source}")
        return typed_rows(content_status, parse_schema(_of_type(strict_json(found[0]), type_, source), source))

    return of_enclave, ("content_status", "enclaves"), source


def _named_schema(type_: str, source: str, stem: str, folder: Path) -> Any:
    """Return the schema of a template or of a file; raise MisuseError if it makes no columns."""
    try:
        if source.endswith(".json"):
            given = _of_file(type_, folder / source)
        elif source in names():
            given = _of_type(unfilled(source), type_, source)
        else:
            expected = f"a template ({', '.join(names())}), a .json file beside the view, or the id of an enclave"
            raise MisuseError(f"{source[:80]}: expected {expected}")
        columns_of(parse_schema(given, source))
    except EncError as e:
        raise MisuseError(f"{stem}.sql: schema: {e.message}") from None
    return given


def _of_file(type_: str, path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_FILE:
            raise MisuseError(f"{path}: larger than {MAX_FILE} bytes")
        value = strict_json(path.read_text("utf-8"))
    except (OSError, UnicodeError) as e:
        raise MisuseError(f"{path}: cannot be read: {e}") from None
    if not isinstance(value, dict) or "enc_v" not in value:
        return value
    if value["enc_v"] not in (1, 2) or not isinstance(value.get("meta", {}), dict):
        raise MisuseError(f"{path.name}: expected a manifest, with `enc_v` 1 or 2 and an object `meta`")
    return _of_type(value, type_, path.name)


def _of_type(manifest: Mapping[str, Any], type_: str, source: str) -> Any:
    """Return the schema of a type in a manifest."""
    try:
        read_schemas(manifest).check_type(type_)
    except MisuseError as e:
        raise MisuseError(f"{source}: {e.message}") from None
    return manifest["meta"]["schemas"][type_]
