"""Building blocks of JSON Schemas: formats, objects, and the fields of msgspec structs."""

from typing import Any, get_args

import msgspec
from msgspec import Struct

from enc.core.primitives.encoding import MAX_INT
from enc.core.primitives.signing import Alg
from enc.core.trees.proof import MAX_PATH
from enc.core.trees.state_key import Namespace

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """Return a reference to the schema of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


def shape(meaning: str, fields: Schema, *, is_open: bool = False) -> Schema:
    """Return an object's schema. A field whose name ends in `?` is optional; `is_open` allows others."""
    schema: Schema = {
        "type": "object",
        "description": meaning,
        "properties": {name.removesuffix("?"): field for name, field in fields.items()},
        "required": [name for name in fields if not name.endswith("?")],
    }
    return schema if is_open else {**schema, "additionalProperties": False}


def hex_string(size: int, meaning: str) -> Schema:
    """Return the schema of `size` bytes in lower-case hex."""
    return {"type": "string", "pattern": f"^[0-9a-f]{{{2 * size}}}$", "description": meaning}


def base64_pattern(least: int) -> str:
    """Return a pattern for `least` bytes or more, with padding and no stray bits."""
    last = "[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/][AQgw]=="
    return f"^([A-Za-z0-9+/]{{4}}){{{(least + 2) // 3 - 1},}}({last})$"


def integer(meaning: str, low: int = 0, high: int = MAX_INT) -> Schema:
    """Return the schema of an integer with bounds."""
    return {"type": "integer", "minimum": low, "maximum": high, "description": meaning}


def text(meaning: str, least: int = 0, most: int | None = None) -> Schema:
    """Return the schema of a string with bounds on its length."""
    schema: Schema = {"type": "string", "minLength": least, "description": meaning}
    return schema if most is None else {**schema, "maxLength": most}


def enum(meaning: str, *values: str) -> Schema:
    """Return the schema of one of these strings."""
    return {"type": "string", "enum": list(values), "description": meaning}


def array(of: Schema, most: int | None = None, least: int = 0) -> Schema:
    """Return the schema of an array with bounds on its length."""
    schema: Schema = {"type": "array", "items": of, "minItems": least}
    return schema if most is None else {**schema, "maxItems": most}


def one_or_array(of: Schema, most: int, *others: Schema) -> Schema:
    """Return the schema of one value, an array of them, or one of the others."""
    return {"anyOf": [of, array(of, most), *others]}


HASH, KEY, SIGNATURE, INTEGER, SEALED, TOKEN = map(
    ref, ("Hash", "PublicKey", "Signature", "Integer", "Sealed", "Token")
)
PATH = array(HASH, MAX_PATH)
STH = {"sth": ref("TreeHead")}
NULLABLE_INTEGER: Schema = {"type": ["integer", "null"], "minimum": 0}

FIELDS: Schema = {
    **dict.fromkeys("hash enclave id r event_id content_hash key import".split(), HASH),
    **dict.fromkeys(("from", "sequencer", "identity"), KEY),
    **dict.fromkeys(("sig", "bound_sig", "seq_sig"), SIGNATURE),
    "alg": enum("The algorithm of `sig`; absent: schnorr.", *get_args(Alg)),
    "session": TOKEN,
    "p": PATH,
    "url": text("As it was registered."),
    "trait": text("Its trait."),
    "namespace": enum("What the key names.", *get_args(Namespace)),
    "mode": enum("Without tree_size: after the last closed bundle (default), or now.", "verified", "current"),
}
"""Formats by field name, for all structs: the structs themselves only say `str`."""


def properties_of(struct: type[Struct]) -> tuple[Schema, set[str]]:
    """Return the properties and the required names that msgspec derives from a struct."""
    (own,), components = msgspec.json.schema_components([struct], ref_template="#/components/schemas/{name}")
    schema = components[own["$ref"].rpartition("/")[2]]
    return schema["properties"], set(schema["required"])


def derived(struct: type[Struct], overrides: Schema | None = None, *, always: tuple[str, ...] = ()) -> Schema:
    """Return the fields of a struct for `shape`.

    `overrides` replaces formats and, by a name that the struct lacks, adds fields. `always` names
    fields that decoders may miss but the node always sends.
    """
    properties, required = properties_of(struct)
    changes, fields = dict(overrides or {}), Schema()
    for name, field in properties.items():
        found = INTEGER if field.get("type") == "integer" else field
        found = changes.pop(name, None) or FIELDS.get(name, found)
        fields[name if name in required or name in always else f"{name}?"] = found
    return fields | changes
