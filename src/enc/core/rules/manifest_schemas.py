"""The schemas of an enclave's contents: the optional `meta.schemas` of its manifest.

Nodes do not enforce them (docs/protocol.md, section 12.7).
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from enc.core.errors import InvalidCommit, MisuseError
from enc.core.primitives.encoding import NOT_JSON, Content, content_text, strict_json
from enc.core.rules.content_schema import Schema, key_text
from enc.core.rules.dialects import dialect_of
from enc.core.rules.manifest_common import quoted, refuse
from enc.core.rules.parse_schema import parse_schema

_HINT = """; what a schema judges must be JSON; write a string in double quotes, such as '"hello"'"""


class InvalidContent(MisuseError):
    """A content violates the schema of its type; it was not sent."""

    code = "INVALID_CONTENT"


class ContentSchemas(Struct, frozen=True):
    """The schemas of an enclave's contents, by event type.

    `problems`: why a type's schema is ignored, by type; "" for all of `meta.schemas`.
    """

    by_type: Mapping[str, Schema] = {}
    problems: Mapping[str, str] = {}

    def violations(self, type_: str, content: Content | None) -> tuple[str, ...] | None:
        """Return why a content violates the schema of its type; empty if it satisfies it.

        A content is a JSON text, or a value as for `commit`. None: it is not judged, because its
        type has no schema or the content was erased.
        """
        schema = self.by_type.get(type_)
        if schema is None or content is None:
            return None
        text = content_text(content)
        try:
            return schema.violations(strict_json(text))
        except InvalidCommit as e:
            return (e.message,)

    def check(self, type_: str, content: Content) -> None:
        """Raise InvalidContent if a content violates its type's schema; MisuseError if the type has
        none."""
        self.check_type(type_)
        found = self.violations(type_, content_text(content))
        if found:
            hint = _HINT if found[0].startswith(NOT_JSON) else ""
            raise InvalidContent(f"{type_}: {'; '.join(found)}{hint}")

    def check_type(self, type_: str) -> None:
        """Raise MisuseError if a type has no schema."""
        if type_ not in self.by_type:
            why = self.problems.get(type_) or self.problems.get("")
            ignored = f": it is ignored, because of {why}" if why else ""
            raise MisuseError(f"the manifest has no schema for the type {quoted(type_)}{ignored}")


def read_schemas(manifest: Mapping[str, Any]) -> ContentSchemas:
    """Return the schemas of a manifest that `parse_manifest` has accepted.

    A malformed schema counts as none, and is among `problems`.
    """
    given, path = manifest.get("meta", {}).get("schemas", {}), "meta.schemas"
    if not isinstance(given, dict):
        return ContentSchemas(problems={"": f"{path}: expected an object: a schema for each event type"})
    by_type, problems = dict[str, Schema](), dict[str, str]()
    predefined = dialect_of(manifest["enc_v"]).predefined
    for type_, schema in given.items():
        try:
            if type_ in predefined:
                refuse(f"{path}.{key_text(type_)}", "the protocol defines the contents of this type")
            by_type[type_] = parse_schema(schema, f"{path}.{key_text(type_)}")
        except InvalidCommit as e:
            problems[type_] = e.message
    return ContentSchemas(by_type, problems)
