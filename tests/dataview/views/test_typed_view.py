"""Typed views: their files, their columns, and their rows on real tables."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from enc.client.enclave.templates import unfilled
from enc.core.errors import MisuseError
from enc.core.primitives.encoding import strict_json
from enc.core.rules.parse_schema import parse_schema
from enc.dataview.publish.changes import ChangePublisher
from enc.dataview.publish.serving_writer import ServingWriter
from enc.dataview.views.build_views import Views
from enc.dataview.views.catalog import load_views
from enc.dataview.views.typed_columns import columns_of, typed_rows
from tests.dataview.silver import Silver, at, content, post

LEDGER = (
    "-- description: Entries of ledgers.\n-- type: entry\n-- schema: ledger\n-- test: accepted(currency, EUR, USD)\n"
)
HERE = "e" * 64


def columns(schema: Any) -> dict[str, tuple[str, str]]:
    found = columns_of(parse_schema(strict_json(json.dumps(schema)), "s"))
    return {column.name: (column.key, column.kind) for column in found}


# Columns


def test_a_column_for_each_property() -> None:
    properties: dict[str, Any] = {
        "amount": {"type": "integer"},
        "rate": {"type": ["number", "null"]},
        "both": {"type": ["integer", "number"]},
        "paid": {"type": "boolean"},
        "note": {"type": ["null", "string"]},
        "size": {"enum": ["S", "M", None]},
        "grade": {"enum": [1, 2.0]},
        "step": {"enum": [1, 2.5]},
        "level": {"type": "number", "const": 3},
        "flag": {"type": "boolean", "enum": [True, "x"]},
        "mixed": {"type": ["string", "integer"]},
        "lines": {"type": "array", "items": {"type": "integer"}},
        "any": {},
        "none": {"type": "null"},
    }
    kinds = {name: kind for name, (_, kind) in columns({"properties": properties}).items()}
    assert kinds == {
        "amount": "integer",
        "rate": "double",
        "both": "double",
        "paid": "boolean",
        "note": "string",
        "size": "string",
        "grade": "integer",
        "step": "double",
        "level": "integer",
        "flag": "boolean",
        **dict.fromkeys(("mixed", "lines", "any", "none"), "json"),
    }


def test_names_of_columns() -> None:
    keys = ("Amount", "sub-total", "id", "Author", "valid", "7up", "_x", "größe", "")
    found = {key: name for name, (key, _) in columns({"properties": {key: {} for key in keys}}).items()}
    assert list(found.values()) == [
        *("Amount", "sub_total", "content_id", "content_Author", "content_valid"),
        *("content_7up", "content__x", "gr__e", "content_"),
    ]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({}, "no `properties`"),
        ({"properties": {}}, "no `properties`"),
        ({"properties": {"a": {}, "A": {}}}, "'a' and 'A' would both be the column A"),
        ({"properties": {"a b": {}, "a_b": {}}}, "'a b' and 'a_b' would both be the column a_b"),
    ],
)
def test_a_schema_that_makes_no_columns(schema: Any, why: str) -> None:
    with pytest.raises(MisuseError, match=why):
        columns(schema)


# Files


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "entries.sql").write_text(LEDGER + "-- where: enclave = 'e1'\n")
    (view,) = load_views(tmp_path)
    assert (view.name, view.key, view.description) == ("entries", ("enclave", "id"), "Entries of ledgers.")
    assert view.where == "type = 'entry' AND status <> 'deleted' AND (enclave = 'e1')"
    assert (view.inputs(()), [str(test) for test in view.tests]) == (
        ("content_status",),
        ["accepted(currency, EUR, USD)"],
    )


def test_where_the_schema_is(tmp_path: Path) -> None:
    ledger = unfilled("ledger")
    schema = ledger["meta"]["schemas"]["entry"]
    (tmp_path / "manifest.json").write_text(json.dumps(ledger))
    (tmp_path / "entry.json").write_text(json.dumps(schema))
    for i, source in enumerate(("ledger", "manifest.json", "entry.json")):
        (tmp_path / f"v{i}.sql").write_text(f"-- type: entry\n-- schema: {source}\n")
    views = load_views(tmp_path)
    assert len({view.definition for view in views}) == 1
    schema["required"] = ["amount"]
    (tmp_path / "entry.json").write_text(json.dumps(schema))
    assert len({view.definition for view in load_views(tmp_path)}) == 2
    (tmp_path / "v3.sql").write_text(f"-- type: entry\n-- schema: {HERE}\n")
    assert load_views(tmp_path)[-1].reads == ("content_status", "enclaves")


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("-- type: entry", r"^v\.sql: schema: missing"),
        ("-- schema: ledger", r"^v\.sql: type: missing"),
        ("-- type: it's\n-- schema: ledger", "type: it's: expected a name"),
        ("-- type: entry\n-- schema: ledger\n-- key: id", "key: a typed view has only name, description, type,"),
        ("-- type: entry\n-- schema: ledger\nSELECT 1", "a typed view has no SQL"),
        ("-- type: entry\n-- schema: none", r"schema: none: expected a template \(dm, feed, ledger, log"),
        ("-- type: entry\n-- schema: none.json", r"none\.json: cannot be read"),
        ("-- type: entry\n-- schema: broken.json", r"schema: content: not JSON"),
        ("-- type: entry\n-- schema: pattern.json", r"schema: pattern\.json\.pattern: unknown keyword"),
        ("-- type: entry\n-- schema: other.json", r"other\.json: expected a manifest, with `enc_v` 1 or 2"),
        ("-- type: entry\n-- schema: empty.json", r"schema: the schema has no `properties`"),
        ("-- type: entry\n-- schema: team", r"schema: team: the manifest has no schema for the type 'entry'"),
        ("-- type: entries\n-- schema: ledger", r"ledger: the manifest has no schema for the type 'entries'"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, header: str, why: str) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "pattern.json").write_text('{"pattern": "x"}')
    (tmp_path / "other.json").write_text('{"enc_v": 3}')
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "v.sql").write_text(f"{header}\n")
    with pytest.raises(MisuseError, match=why):
        load_views(tmp_path)


# Rows


@pytest.fixture
def silver(spark: SparkSession, empty_lake: Path, tmp_path: Path) -> Silver:
    shutil.copytree(empty_lake, tmp_path / "lake")
    return Silver(spark, tmp_path / "lake")


def entry(seq: int, text: str | None, **more: Any) -> Any:
    return post(seq, type="entry", content=text, **more)


def typed(tmp_path: Path, header: str) -> Path:
    folder = tmp_path / "views"
    folder.mkdir(exist_ok=True)
    (folder / "entries.sql").write_text(header)
    (folder / "spent.sql").write_text(
        "-- key: currency\n-- refresh: by currency from entries\n-- where: valid AND currency IS NOT NULL\n"
        "SELECT currency, sum(amount) AS amount FROM entries GROUP BY currency"
    )
    return folder


def build(views: Views, spark: SparkSession) -> None:
    built = views.build(spark, ("entries", "spent"))
    assert not any(each.failures for each in built), built


def test_contents_become_typed_rows(spark: SparkSession, silver: Silver, tmp_path: Path) -> None:
    writer = ServingWriter(str(tmp_path / "serving.db"))
    views = Views(silver.lake, load_views(typed(tmp_path, LEDGER)), ChangePublisher(writer))
    silver.add(
        "content_status",
        entry(1, '{"amount":-1250,"currency":"EUR","note":"cake"}', status="updated", revised_at=at(9)),
        entry(2, '{"amount":3.0,"currency":"USD"}'),
        entry(3, '{"amount":"3","currency":"EUR"}'),
        entry(4, "'; DROP TABLE entries"),
        entry(5, None),
        entry(6, None, status="deleted"),
        post(7),
        entry(1, '{"amount":1,"currency":"EUR"}', enclave="e2"),
    )
    build(views, spark)
    table = views.table("entries").read(spark)
    assert table.drop("enclave", "id", "author", "timestamp", "revised_at").dtypes == [
        ("seq", "bigint"),
        ("valid", "boolean"),
        ("violations", "string"),
        ("amount", "bigint"),
        ("currency", "string"),
        ("note", "string"),
    ]
    shown = "enclave seq valid violations amount currency note".split()
    assert [tuple(row) for row in table.orderBy("enclave", "seq").select(*shown).collect()] == [
        ("e1", 1, True, None, -1250, "EUR", "cake"),
        ("e1", 2, True, None, 3, "USD", None),
        ("e1", 3, False, "amount: expected integer, not '3'", None, None, None),
        ("e1", 4, False, "content: not JSON: Expecting value: line 1 column 1 (char 0)", None, None, None),
        ("e1", 5, None, None, None, None, None),
        ("e2", 1, True, None, 1, "EUR", None),
    ]
    times = table.where("enclave = 'e1' AND seq = 1").select("author", "timestamp", "revised_at").first()
    assert times is not None
    assert tuple(times) == ("ann", at(1).replace(tzinfo=None), at(9).replace(tzinfo=None))
    assert content(spark, views.table("spent")) == [("EUR", -1249), ("USD", 3)]

    silver.put(
        "content_status", entry(1, "{}"), entry(2, None, status="deleted"), entry(8, '{"amount":8,"currency":"USD"}')
    )
    build(views, spark)
    assert [row.seq for row in views.table("entries").read(spark).where("valid").orderBy("seq").collect()] == [1, 8]
    assert content(spark, views.table("spent")) == [("EUR", 1), ("USD", 8)]
    with writer._database.reading() as snapshot:
        stored = snapshot.view("entries")
        assert stored is not None
        kinds = {column.name: column.kind for column in stored.schema.columns}
        assert (kinds["amount"], kinds["valid"], stored.schema.description) == (
            "integer",
            "boolean",
            "Entries of ledgers.",
        )
    writer.close()


def test_the_schema_of_an_enclave(spark: SparkSession, silver: Silver, tmp_path: Path) -> None:
    views = Views(silver.lake, load_views(typed(tmp_path, f"-- type: entry\n-- schema: {HERE}\n")))
    silver.add("content_status", entry(1, '{"amount":1,"currency":"EUR","lines":[1, {"a":0.5}]}'))
    (built,) = views.build(spark, ("entries",))
    assert built.failures == (f"view entries: schema: the pipeline has not read the Manifest of the enclave {HERE}",)
    properties = {"amount": {"type": "number"}, "currency": {"type": "string"}, "lines": {}}
    schemas: dict[str, Any] = {"entry": {"properties": properties}, "bad": {"$ref": "#"}}
    silver.add("enclaves", {"enclave": HERE, "manifest": json.dumps({"enc_v": 2, "meta": {"schemas": schemas}})})
    build(views, spark)
    (row,) = views.table("entries").read(spark).collect()
    assert (row.amount, row.currency, row.lines, row.valid) == (1.0, "EUR", '[1,{"a":0.5}]', True)
    folder = typed(tmp_path, f"-- type: bad\n-- schema: {HERE}\n")
    (built,) = Views(silver.lake, load_views(folder)).build(spark, ("entries",))
    assert (
        "the manifest has no schema for the type 'bad': it is ignored, because of meta.schemas.bad" in built.failures[0]
    )


def test_another_schema_rebuilds_the_view(spark: SparkSession, silver: Silver, tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    source = tmp_path / "views" / "entry.json"
    header = "-- type: entry\n-- schema: entry.json\n"
    silver.add("content_status", entry(1, '{"amount":1,"currency":"EUR"}'))
    for schema, expected in (
        ({"properties": {"amount": {"type": "integer"}, "currency": {}}}, (True, 1, None)),
        ({"properties": {"amount": {"type": "integer"}, "currency": {}}, "required": ["note"]}, (False, None, None)),
        ({"properties": {"amount": {"type": "integer"}, "currency": {}, "note": {}}}, (True, 1, None)),
    ):
        source.write_text(json.dumps(schema))
        views = Views(silver.lake, load_views(typed(tmp_path, header)))
        build(views, spark)
        (row,) = views.table("entries").read(spark).collect()
        assert (row.valid, row.amount, row.asDict().get("note")) == expected


def test_large_hostile_contents_are_rows_too(spark: SparkSession, silver: Silver) -> None:
    schema = parse_schema({"properties": {"n": {"type": "integer"}}, "type": "object"}, "s")
    texts = ["[" * 100_000, '{"n":1e999}', '{"n":"\ud83d"}', '{"n":' + "9" * 5000 + "}", '"\x00"', '{"n":1,"n":2}']
    silver.add("content_status", *(entry(i, text.encode(errors="replace").decode()) for i, text in enumerate(texts)))
    rows = typed_rows(silver.lake["content_status"].read(spark), schema).orderBy("seq").collect()
    assert [row.valid for row in rows] == [False] * len(texts)
