"""The OpenAPI document, with a path for each view that the caller may read."""

from typing import Any

import msgspec

from enc.dataview.serving.columns import Column, ColumnKind
from enc.dataview.serving.database import StoredView
from enc.dataview.serving.formats import FORMATS
from enc.dataview.serving.handlers import ViewHandlers, ViewRequest, ViewResponse
from enc.dataview.serving.proofs import MAX_PROVED, event_reference
from enc.dataview.serving.query import ALLOWED, DEFAULT_LIMIT, MAX_LIMIT, PARAMETERS
from enc.version import __version__

Schema = dict[str, Any]

ABOUT = """Views of the events of many enclaves.

A filter is COLUMN=VALUE or COLUMN.OP=VALUE; all must hold. `complete` has for each enclave the first seq that is not
in the view yet. Errors are objects of the schema Error.
"""

_TYPES: dict[ColumnKind, Schema] = {
    "string": {"type": "string"},
    "integer": {"type": "integer", "format": "int64"},
    "double": {"type": "number"},
    "boolean": {"type": "boolean"},
    "timestamp": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
    "binary": {"type": "string", "pattern": "^([0-9a-f]{2})*$"},
    "json": {},
}
_COMPLETE: Schema = {"type": "object", "additionalProperties": {"type": "integer"}}
_CURSOR: Schema = {"type": ["string", "null"]}
_PROOF: Schema = {
    "type": "object",
    "required": ["shows", "why", "event", "proof"],
    "properties": {
        "shows": {"enum": ["inclusion", "signatures", "nothing"]},
        "why": {"type": "string"},
        "event": {"type": ["object", "null"]},
        "proof": {"type": ["object", "null"], "description": "A proof file: `enc verify` takes it."},
    },
}
_ERROR: Schema = {
    "type": "object",
    "required": ["type", "code", "message"],
    "properties": {"type": {"const": "Error"}, "code": {"type": "string"}, "message": {"type": "string"}},
}
_REFUSALS = {
    "400": "A parameter, a header or a session is invalid.",
    "401": "The token is missing or unknown, or the session has expired.",
    "404": "No such path, or no such view for this caller.",
    "422": "The query took too long.",
    "503": "The server is busy, or the database does not answer.",
}


def answer(handlers: ViewHandlers, request: ViewRequest) -> ViewResponse:
    return ViewResponse(
        msgspec.json.encode(document(handlers.readable_views(request.caller))), headers={"cache-control": "no-cache"}
    )


def document(views: list[StoredView]) -> Schema:
    paths = {
        "/views": _get("views", "The views that you may read.", {"type": "object"}),
        "/info": _get("info", "The server's version, and the key for sessions.", {"type": "object"}),
        "/health": _get("health", "Whether the database answers.", {"type": "object"}),
        "/openapi.json": _get("openapi", "This document.", {"type": "object"}),
    }
    for view in views:
        paths |= _paths(view)
    security = {"bearer": {"type": "http", "scheme": "bearer"}, "session": _SESSION}
    return {
        "openapi": "3.1.0",
        "info": {"title": "ENC DataView", "version": __version__, "description": ABOUT},
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}, {"session": []}],
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR, "Proof": _PROOF}, "securitySchemes": security},
    }


_SESSION: Schema = {
    "type": "apiKey",
    "in": "header",
    "name": "Authorization",
    "description": "ENC-Session FROM.SESSION.CONTENT: see the guide to DataViews.",
}


def _paths(view: StoredView) -> Schema:
    schema, path = view.schema, f"/views/{view.schema.name}"
    row = {"type": "object", "properties": {column.name: _nullable(column, schema.key) for column in schema.columns}}
    page = {
        "type": "object",
        "required": ["view", "rows", "next", "complete", "all_enclaves"],
        "properties": {
            "view": {"const": schema.name},
            "rows": {"type": "array", "items": row},
            "next": _CURSOR,
            "complete": _COMPLETE,
            "all_enclaves": {"type": "boolean", "description": "Whether `complete` names all; else see /progress."},
            "proofs": {"type": "array", "items": {"$ref": "#/components/schemas/Proof"}},
        },
    }
    progress_schema = {
        "type": "object",
        "properties": {"view": {"const": schema.name}, "complete": _COMPLETE, "next": _CURSOR},
    }
    rows = _get(schema.name, schema.description or f"Rows of {schema.name}.", page)
    rows["get"]["parameters"] = [*_plain(view), *(_filter(*each) for each in _filters(schema.columns))]
    content = rows["get"]["responses"]["200"]["content"]
    content["text/csv"] = {"schema": {"type": "string"}}
    content["application/vnd.apache.arrow.stream"] = {"schema": {"type": "string", "format": "binary"}}
    rows["get"]["responses"]["304"] = {"description": "Not modified: the ETag in If-None-Match is current."}
    progress = _get(f"{schema.name}-progress", "How far it is complete, by enclave.", progress_schema)
    after = {"name": "after", "in": "query", "schema": {"type": "string"}, "description": "From the id after this one."}
    only = {
        "name": "enclave.in",
        "in": "query",
        "schema": {"type": "string"},
        "description": "Only these, separated by commas.",
    }
    progress["get"]["parameters"] = [after, _limit(1000, 10_000), only]
    return {path: rows, f"{path}/progress": progress}


def _get(name: str, summary: str, schema: Schema) -> Schema:
    good = {"description": "Done.", "content": {"application/json": {"schema": schema}}}
    bad = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    refusals = {status: {"description": why, "content": bad} for status, why in _REFUSALS.items()}
    return {"get": {"operationId": name, "summary": summary, "responses": {"200": good, **refusals}}}


def _nullable(column: Column, key: tuple[str, ...]) -> Schema:
    type_ = _TYPES[column.kind]
    return type_ if column.name in key or not type_ else {"anyOf": [type_, {"type": "null"}]}


def _limit(default: int, most: int) -> Schema:
    schema = {"type": "integer", "minimum": 1, "maximum": most, "default": default}
    return {"name": "limit", "in": "query", "schema": schema}


def _plain(view: StoredView) -> list[Schema]:
    def text(name: str, meaning: str) -> Schema:
        return {"name": name, "in": "query", "schema": {"type": "string"}, "description": meaning}

    found = [
        text("select", "Columns, separated by commas."),
        text("order", "Columns, separated by commas; -COLUMN for descending order."),
        _limit(DEFAULT_LIMIT, MAX_LIMIT),
        text("cursor", "`next` of the page before, whose filters and order must be the same."),
        {"name": "format", "in": "query", "schema": {"enum": FORMATS}},
    ]
    if event_reference(view.schema) is not None:
        meaning = f"1: include proofs that check each row against its enclave; `limit` at most {MAX_PROVED}."
        found.append({"name": "verify", "in": "query", "schema": {"enum": ["0", "1"]}, "description": meaning})
    return found


def _filters(columns: tuple[Column, ...]) -> list[tuple[str, Column, str]]:
    return [
        (column.name if op == "eq" and column.name not in PARAMETERS else f"{column.name}.{op}", column, op)
        for column in columns
        for op in ALLOWED[column.kind]
    ]


def _filter(name: str, column: Column, op: str) -> Schema:
    schema = _TYPES[column.kind]
    if op == "null":
        schema = _TYPES["boolean"]
    elif op in ("in", "prefix", "contains") or column.kind == "timestamp":
        schema = _TYPES["string"]
    return {"name": name, "in": "query", "schema": schema}
