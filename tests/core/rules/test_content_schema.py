"""Schemas of contents: which there are, what satisfies them, and that judging one is cheap whoever wrote the schema."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enc.core.errors import InvalidCommit, MisuseError
from enc.core.primitives.encoding import strict_json
from enc.core.rules import content_schema
from enc.core.rules.content_schema import MAX_VIOLATIONS, TYPES, Schema
from enc.core.rules.manifest_common import MAX_META
from enc.core.rules.manifest_schemas import ContentSchemas, InvalidContent, read_schemas
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.parse_schema import parse_schema
from tests.core.vectors import load
from tests.core.world import pub

VECTORS = load("schemas")
ENTRY = VECTORS["schemas"][-3]["schema"]
INIT: dict[int, Any] = {
    1: {"RBAC": {"use_temp": "none", "schema": [], "initial_state": {"Owner": [pub("alice")]}}},
    2: {"init": [{"identity": pub("alice"), "state": "OUTSIDER", "traits": []}]},
}


def schemas(of: Any, enc_v: int = 2) -> ContentSchemas:
    """Return the schemas of a manifest with this `meta.schemas`."""
    manifest = {"enc_v": enc_v, **INIT[enc_v], "meta": {"schemas": of}}
    return read_schemas(parse_manifest(json.dumps(manifest)).manifest)


def parsed(schema: Any) -> Schema:
    return parse_schema(strict_json(json.dumps(schema)), "s")


# Worked examples


@pytest.mark.parametrize("example", VECTORS["schemas"], ids=lambda example: json.dumps(example["schema"])[:60])
def test_what_satisfies_a_schema(example: Any) -> None:
    found = schemas({"t": example["schema"]})
    assert not found.problems
    for content in example["valid"]:
        assert found.violations("t", content) == (), content
    for content in example["invalid"]:
        assert found.violations("t", content), content


@pytest.mark.parametrize("schema", VECTORS["malformed"], ids=json.dumps)
@pytest.mark.parametrize("around", [lambda it: it, lambda it: {"items": it}, lambda it: {"properties": {"a": it}}])
def test_a_malformed_schema_counts_as_none_and_is_reported(schema: Any, around: Any) -> None:
    found = schemas({"bad": around(schema), "good": ENTRY})
    assert set(found.by_type) == {"good"}
    assert found.problems["bad"].startswith("meta.schemas.bad")
    assert found.violations("bad", "{}") is None


@pytest.mark.parametrize("given", [None, [], "entry", 3, True])
def test_schemas_that_are_not_an_object_are_reported(given: Any) -> None:
    found = schemas(given)
    assert found == ContentSchemas(problems={"": "meta.schemas: expected an object: a schema for each event type"})
    with pytest.raises(MisuseError, match=r"no schema for the type 'entry': it is ignored, because of meta\.schemas"):
        found.check_type("entry")


@pytest.mark.parametrize(
    ("enc_v", "type_"), [(2, "Move"), (2, "Update"), (2, "Shared"), (1, "Grant_Push"), (1, "Delete")]
)
def test_a_type_of_the_protocol_has_no_schema(enc_v: int, type_: str) -> None:
    assert schemas({type_: {}}, enc_v).problems == {
        type_: f"meta.schemas.{type_}: the protocol defines the contents of this type"
    }
    assert set(schemas({"Shared": {}}, 1).by_type) == {"Shared"}


def test_a_manifest_without_schemas() -> None:
    for manifest in ({"enc_v": 2}, {"enc_v": 2, "meta": {"title": "x"}}):
        assert read_schemas(manifest) == ContentSchemas()


# What is reported


def test_violations_name_the_place_and_the_value() -> None:
    found = schemas({"entry": ENTRY})
    content = {"amount": "12", "currency": "EURO", "lines": [{"of": 1}, {"of": -1}, {}], "who else": 1}
    assert found.violations("entry", json.dumps(content)) == (
        "amount: expected integer, not '12'",
        "currency: expected at most 3 characters, not 4",
        "lines[1].of: expected more than 0, not -1",
        "lines[2].of: missing",
        "'who else': unknown key",
    )
    assert found.violations("entry", "[1]") == ("expected object, not [1]",)
    assert found.violations("entry", "oh") == ("content: not JSON: Expecting value: line 1 column 1 (char 0)",)
    sized = schemas({"t": {"minItems": 3}}).violations("t", "[1]")
    assert sized == ("expected at least 3 items, not 1",)
    named = schemas({"t": {"required": ["a" * 64, "a" * 65]}}).violations("t", "{}")
    assert named == (f"{'a' * 64}: missing", f"'{'a' * 59}…: missing")
    assert schemas({"t": {"enum": [1]}}).violations("t", "2") == ("2 is not one of the allowed values",)


def test_violations_spell_values_as_json() -> None:
    found = schemas({"t": {"type": "integer"}})
    for content in ("true", "null", "1.5", "[null, true]", '{"a": false}'):
        assert found.violations("t", content) == (f"expected integer, not {content}",)
    assert schemas({"t": {"minimum": True}}).problems["t"].endswith("expected a number, not true")


@pytest.mark.parametrize("content", ["[" * 100_000, "[" * 100 + "]" * 100])
def test_content_that_is_nested_too_deeply(content: str) -> None:
    found = schemas({"t": {}}).violations("t", content)
    assert found == ("content: nested deeper than 64 levels",)


def test_a_content_may_be_a_value_as_for_a_commit() -> None:
    found = schemas({"entry": {**ENTRY, "type": ["array", "object"]}, "text": {"type": "string"}})
    found.check("entry", {"amount": 1, "currency": "EUR"})
    found.check("entry", [1])
    assert found.violations("entry", {"amount": 1}) == ("currency: missing",)
    assert found.violations("entry", None) is None
    with pytest.raises(MisuseError, match=r"^not JSON: "):
        found.violations("entry", {"amount": object()})
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(MisuseError, match=r"^not JSON: nested too deeply$"):
        found.check("entry", deep)


def test_a_text_that_is_not_json() -> None:
    found = schemas({"text": {"type": "string"}})
    found.check("text", '"hello"')
    with pytest.raises(
        InvalidContent, match=r"""not JSON: .*; what a schema judges must be JSON; .* quotes, such as '"hello"'$"""
    ):
        found.check("text", "hello")


def test_the_path_of_a_problem() -> None:
    given = {"properties": {"a": {"items": {"properties": {"b c": {"minimum": "1"}}}}}}
    assert schemas({"entry": given}).problems == {
        "entry": "meta.schemas.entry.properties.a.items.properties.'b c'.minimum: expected a number, not '1'"
    }
    assert "unknown keyword; expected one of type, enum," in schemas({"entry": {"pattern": "."}}).problems["entry"]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (3, "meta.schemas.t: expected an object: a schema"),
        ({"type": [3]}, "meta.schemas.t.type: expected one or several of " + ", ".join(TYPES) + ", not [3]"),
        ({"enum": 3}, "meta.schemas.t.enum: expected a list of values"),
        ({"const": []}, "meta.schemas.t.const: expected strings, numbers, booleans or null"),
        ({"minLength": -1}, "meta.schemas.t.minLength: expected a whole number from 0, not -1"),
        ({"properties": 3}, "meta.schemas.t.properties: expected an object: a schema for each key"),
        ({"required": 3}, "meta.schemas.t.required: expected a list of keys"),
        ({"additionalProperties": 3}, "meta.schemas.t.additionalProperties: expected true or false"),
        ({"title": 3}, "meta.schemas.t.title: expected a text"),
    ],
)
def test_a_problem_says_what_is_expected(schema: Any, why: str) -> None:
    assert schemas({"t": schema}).problems == {"t": why}


def test_what_is_not_judged() -> None:
    found = schemas({"entry": ENTRY})
    assert found.violations("entry", None) is None
    assert found.violations("other", "{") is None


def test_a_check_raises() -> None:
    found = schemas({"entry": ENTRY, "bad": {"type": "x"}})
    found.check("entry", '{"amount":1,"currency":"EUR"}')
    with pytest.raises(InvalidContent, match=r"^entry: amount: missing; currency: missing$"):
        found.check("entry", "{}")
    with pytest.raises(MisuseError, match=r"^the manifest has no schema for the type 'entries'$"):
        found.check("entries", "{}")
    with pytest.raises(
        MisuseError, match=r"it is ignored, because of meta\.schemas\.bad\.type: expected one or several"
    ):
        found.check("bad", "{}")


# Hostile schemas and contents


def test_violations_are_limited_in_number_and_length() -> None:
    found = schemas({"t": {"items": {"type": "string"}, "type": ["array", "string"], "const": "x"}})
    reported = found.violations("t", json.dumps([10**15] * 10_000))
    assert reported is not None
    assert len(reported) == MAX_VIOLATIONS == 8
    long = found.violations("t", json.dumps(["x" * 100_000] * 3 + [{"y" * 100_000: "z" * 100_000}]))
    assert long is not None
    assert max(map(len, long)) < 200
    closed = schemas({"t": {"additionalProperties": False}}).violations("t", json.dumps({"y" * 100_000: 1}))
    assert closed is not None
    assert len(closed[0]) < 200


def counted(patch: pytest.MonkeyPatch, schema: Any, content: str) -> int:
    """Return how many values are visited to judge a content."""
    visited, visit = [0], content_schema._violations

    def count(*given: Any) -> Any:
        visited[0] += 1
        return visit(*given)

    patch.setattr(content_schema, "_violations", count)
    schemas({"t": schema}).violations("t", content)
    return visited[0]


def test_the_work_grows_with_the_content_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"k{i}" for i in range(400)]
    assert len(json.dumps(names)) < MAX_META
    many = json.dumps([{}] * 100_000)
    assert counted(monkeypatch, {"items": {"required": names}}, many) == 2
    deep: Any = {}
    for _ in range(50):
        deep = {"items": deep}
    content = "[" * 40 + ",".join(["0"] * 1000) + "]" * 40
    assert counted(monkeypatch, deep, content) == 40 + 1000
    wide: Any = {"properties": {key: {} for key in names[:200]}}
    assert counted(monkeypatch, {"items": wide}, many) == 1 + 100_000


def test_a_schema_cannot_be_deeper_than_a_manifest() -> None:
    deep: Any = {}
    for _ in range(70):
        deep = {"items": deep}
    with pytest.raises(InvalidCommit, match="nested deeper"):
        schemas({"t": deep})


# Properties

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5, width=16) | st.text("ab", max_size=3)
values = st.recursive(
    scalars, lambda of: st.lists(of, max_size=3) | st.dictionaries(st.sampled_from("abc"), of), max_leaves=6
)
sizes, numbers = st.integers(0, 3), st.integers(-3, 3) | st.floats(-3, 3, width=16)


def keywords(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.lists(st.sampled_from("abc"), max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.lists(st.sampled_from(TYPES), min_size=1, max_size=5),
            "enum": st.lists(scalars, min_size=1, max_size=5),
            "minimum": numbers,
            "exclusiveMaximum": numbers,
            "minLength": sizes,
            "maxItems": sizes,
            "items": of,
            "properties": st.dictionaries(st.sampled_from("abc"), of, max_size=2),
            "required": names,
            "additionalProperties": st.booleans(),
        },
    )


def satisfies(schema: Any, value: Any) -> bool:
    """Judge by the words of section 12.7, keyword by keyword."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    kinds = {type(None): "null", bool: "boolean", str: "string", list: "array", dict: "object"}
    mine = {"number", "integer"} if is_number and float(value).is_integer() else {kinds.get(type(value), "number")}
    rules = {
        "type": lambda it: bool(mine & set(it)),
        "enum": lambda it: any(each == value and isinstance(each, bool) == isinstance(value, bool) for each in it),
        "minimum": lambda it: not is_number or value >= it,
        "exclusiveMaximum": lambda it: not is_number or value < it,
        "minLength": lambda it: not isinstance(value, str) or len(value) >= it,
        "maxItems": lambda it: not isinstance(value, list) or len(value) <= it,
        "items": lambda it: not isinstance(value, list) or all(satisfies(it, each) for each in value),
        "properties": lambda it: (
            not isinstance(value, dict) or all(satisfies(it[name], value[name]) for name in it if name in value)
        ),
        "required": lambda it: not isinstance(value, dict) or set(it) <= set(value),
        "additionalProperties": lambda it: (
            it or not isinstance(value, dict) or set(value) <= set(schema.get("properties", {}))
        ),
    }
    return all(rules[keyword](given) for keyword, given in schema.items())


@given(st.recursive(keywords(st.just({})), keywords, max_leaves=4), values)
def test_judging_agrees_with_the_words_of_the_rules(schema: Any, value: Any) -> None:
    found = parsed(schema).violations(strict_json(json.dumps(value)))
    assert (found == ()) == satisfies(schema, value), found


anything = st.recursive(
    scalars,
    lambda of: st.lists(of) | st.dictionaries(st.sampled_from(["type", "items", "enum", "x"]), of),
    max_leaves=8,
)


@given(anything, values)
def test_no_schema_raises(schema: Any, value: Any) -> None:
    found = schemas({"t": schema})
    assert set(found.by_type) | set(found.problems) == {"t"}
    found.violations("t", json.dumps(value))
