"""Schemas of contents: what a client writes into a manifest, and which events and rows satisfy it."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from enc.client import Forgery, Identity
from enc.client.clients.wiring import manifest_content
from enc.core.errors import EventNotFound, MisuseError
from enc.core.log.commit import build_manifest
from enc.core.primitives.types import Receipt
from tests.client.at_once import MANY, Counting, at_once
from tests.client.scene import without
from tests.client.stage import Stage
from tests.core.world import LIFETIME, person
from tests.node.served import SMALL

SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 0}}}
CUSTOMS = [
    *SMALL["customs"],
    {"event": "note", "operator": "MEMBER", "ops": ["C"]},
]


class Kept:
    """An enclave whose messages have a schema, and its events by their contents.

    1 {"n": 1} | 2 {"n": -1} | 3 a note | 4 {"n": 4}, updated to "x" by 6 | 5 "five", updated to {"n": 5} by 7 and 8
    """

    def __init__(self, stage: Stage) -> None:
        self.stage, self.enclave = stage, stage.create(customs=CUSTOMS, meta={"schemas": {"message": SCHEMA}})
        e = self.enclave
        self.one, self.wrong = e.commit("message", {"n": 1}), e.commit("message", {"n": -1})
        self.note = e.commit("note", "free text")
        self.four, self.five = e.commit("message", {"n": 4}), e.commit("message", "five")
        e.update(self.four.id, "x")
        e.update(self.five.id, {"n": "?"})
        self.last = e.update(self.five.id, {"n": 5})

    def seqs(self, **search: Any) -> list[int]:
        return [item.seq for item in self.enclave.query(**search)]


@pytest.fixture
def kept(stage: Stage) -> Kept:
    return Kept(stage)


# Manifests


def test_schemas_are_written_into_the_manifest(stage: Stage) -> None:
    manifest = {**SMALL, "customs": CUSTOMS, "meta": {"title": "t", "schemas": {"message": {}}}}
    enclave = stage.client().create(manifest, schemas={"message": SCHEMA, "note": {}})
    assert enclave.overview().manifest["meta"] == {"title": "t", "schemas": {"message": SCHEMA, "note": {}}}
    wider = stage.client().create({**manifest, "meta": {"n": 1, **manifest["meta"]}}, schemas={"note": {}})
    assert set(wider.schemas().by_type) == {"message", "note"}
    by_template = stage.client().create("log", schemas={"entry": SCHEMA})
    assert set(by_template.schemas().by_type) == {"entry"}


def test_schemas_are_written_into_a_manifest_from_a_file(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(SMALL, indent=2))
    assert set(stage.client().create(path, schemas={"message": SCHEMA}).schemas().by_type) == {"message"}


@pytest.mark.parametrize(
    ("schemas", "why"),
    [
        ({"message": {"pattern": "a*"}}, r"^manifest: meta\.schemas\.message\.pattern: unknown keyword"),
        ({"message": {"items": {"$ref": "http://x"}}}, r"^manifest: meta\.schemas\.message\.items\.'\$ref': unknown"),
        ({"Move": {}}, r"^manifest: meta\.schemas\.Move: the protocol defines"),
        ({"message": {"const": "x" * 4096}}, r"^manifest: meta: over 4096 bytes"),
        ({"message": object()}, "not JSON"),
        (
            {"message": {}, "mesage": {}},
            r"^manifest: meta\.schemas\.mesage: no rule lets anybody write this type; it declares message$",
        ),
    ],
    ids=["unknown", "reference", "predefined", "large", "not JSON", "undeclared"],
)
def test_no_malformed_schema_is_sent(stage: Stage, schemas: Any, why: str) -> None:
    client = stage.client()
    with pytest.raises(MisuseError, match=why):
        client.create(SMALL, schemas=schemas)
    with pytest.raises(MisuseError, match=why):
        client.create({**SMALL, "meta": {"schemas": schemas}})
    assert "/" not in stage.node.calls


@pytest.mark.parametrize("schemas", [[], "message", 3])
def test_schemas_are_given_by_type(stage: Stage, schemas: Any) -> None:
    with pytest.raises(MisuseError, match=r"^schemas: expected schemas by event type, such as .*, not "):
        stage.client().create(SMALL, schemas=schemas)
    malformed = {**SMALL, "meta": {"schemas": schemas}}
    with pytest.raises(MisuseError, match=r"^manifest: meta\.schemas: expected an object"):
        stage.client().create(malformed, schemas={"message": SCHEMA})


def test_rules_for_any_type_declare_each_type() -> None:
    rows = [{"event": "*", "role": "Any", "ops": ["C", "R"]}, {"event": "Pause", "role": "Owner", "ops": ["C"]}]
    owner = Identity.new()
    rules = {"use_temp": "none", "schema": rows, "initial_state": {"Owner": [owner.public.hex()]}}
    manifest = {"enc_v": 1, "RBAC": rules}
    assert '"mesage"' in manifest_content(manifest, owner, {"mesage": {}})
    rows[0]["event"] = "message"
    with pytest.raises(MisuseError, match=r"mesage: no rule lets anybody write this type; it declares message$"):
        manifest_content(manifest, owner, {"mesage": {}})


def foreign(stage: Stage, schemas: Any) -> Any:
    """Return an enclave whose manifest another client wrote."""
    content = json.dumps({**SMALL, "meta": {"schemas": schemas}})
    commit = build_manifest(person("alice"), content, stage.clock.now + LIFETIME)
    assert isinstance(stage.node.take(commit), Receipt)
    return stage.client().enclave(commit.enclave)


def test_a_malformed_schema_of_others_counts_as_none(stage: Stage) -> None:
    enclave = foreign(stage, {"message": {"pattern": "(a+)+$"}, "Own": {}, "note": SCHEMA})
    enclave.commit("message", "aaaa")
    found = enclave.schemas()
    assert set(found.by_type) == {"note"}
    assert found.problems["message"].startswith("meta.schemas.message.pattern: unknown keyword")
    with pytest.raises(MisuseError, match=r"no schema for the type 'message': it is ignored, because of meta\.schemas"):
        list(enclave.query(type="message", valid=True))
    assert list(enclave.query(valid=True)) == []
    with pytest.raises(MisuseError, match=r"^valid: the manifest has no schemas; meta\.schemas: expected an object"):
        list(foreign(stage, 3).query(valid=False))


# Queries


def test_valid_events_satisfy_the_schema_with_their_current_content(kept: Kept) -> None:
    assert kept.seqs(type="message", valid=True) == [1, 5]
    assert kept.seqs(type="message", valid=False) == [2, 4]
    assert kept.seqs(type="message") == [1, 2, 4, 5]


def test_violations(kept: Kept) -> None:
    found = {item.seq: item.violations for item in kept.enclave.query(type="message", valid=False)}
    assert found[2] == ("n: expected at least 0, not -1",)
    assert found[4] == ("content: not JSON: Expecting value: line 1 column 1 (char 0)",)
    assert [item.violations for item in kept.enclave.query(type="message", valid=True)] == [(), ()]
    assert {item.violations for item in kept.enclave.query()} == {None}


def test_a_judged_item_has_the_content_that_was_judged(kept: Kept) -> None:
    found = {item.seq: item for item in kept.enclave.query(type="message", valid=True)}
    assert {seq: item.json["n"] for seq, item in found.items()} == {1: 1, 5: 5}
    assert (found[5].content, found[5].event.content, found[5].status) == ('{"n":5}', None, "updated")
    assert "'{\"n\":5}', updated" in repr(found[5])
    (four,) = kept.enclave.query(seq=4, valid=False)
    assert four.content == "x"
    assert kept.enclave.contents([four, found[5]]) == {four.id: "x", kept.five.id: '{"n":5}'}
    assert {item.content for item in kept.enclave.query(seq=[4, 5])} == {None}


def test_an_update_is_judged_by_its_target_s_schema(kept: Kept) -> None:
    assert kept.seqs(type="Update", valid=True) == [8]
    assert kept.seqs(type="Update", valid=False) == [6]


def test_without_types_only_judged_events_are_returned(kept: Kept) -> None:
    assert kept.seqs(valid=True) == [1, 5, 8]
    assert kept.seqs(valid=False) == [2, 4, 6]
    kept.seqs(valid=True, seq=3)
    assert kept.stage.node.asked["filter"]["type"] == ["message", "Update"]


def test_schemas_of_many_types(stage: Stage) -> None:
    types = [f"t{i}" for i in range(20)]
    customs = [*CUSTOMS, *({"event": type_, "operator": "MEMBER", "ops": ["C"]} for type_ in types)]
    enclave = stage.create(customs=customs, meta={"schemas": {"message": SCHEMA, **{type_: {} for type_ in types}}})
    enclave.commit("message", {"n": 1})
    assert [item.seq for item in enclave.query(valid=True)] == [1]


def test_a_limit_counts_the_returned_events(kept: Kept) -> None:
    assert kept.seqs(valid=True, limit=2) == [1, 5]
    assert kept.seqs(valid=True, limit=1, reverse=True) == [8]
    assert kept.seqs(valid=True, limit=0) == []


def test_many_pages(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.client.enclave.search.MAX_LIMIT", 1)
    assert kept.seqs(valid=True) == [1, 5, 8]
    assert kept.seqs(type="message", valid=False, limit=1) == [2]


def test_proofs_and_other_fields_still_apply(kept: Kept) -> None:
    kept.stage.close_bundle()
    (item,) = kept.enclave.query(type="message", seq=1, valid=True, proof=True)
    assert item.fact.event.id == kept.one.id
    assert kept.seqs(seq={"start_at": 2}, valid=True) == [5, 8]


def test_what_cannot_be_judged_is_left_out(kept: Kept) -> None:
    kept.enclave.delete(kept.four.id)  # its Update, 6, is erased with it
    assert kept.seqs(valid=False) == [2]
    kept.stage.node.lie("Query", lambda answer: without(answer, kept.last.seq))
    assert kept.seqs(type="message") == [1, 2, 5]
    assert kept.seqs(type="message", valid=True) == [1]
    assert kept.seqs(type="message", valid=False) == [2]


def test_an_update_of_another_event_is_a_forgery(kept: Kept) -> None:
    def lie(answer: Any) -> None:
        for item in answer["events"]:
            if item["event"]["seq"] == 5:
                item["updated_by"] = kept.one.id.hex()

    kept.stage.node.lie("Query", lie)
    with pytest.raises(Forgery, match="does not name an Update of this event"):
        kept.seqs(type="message", valid=True)


def test_the_manifest_is_read_once(kept: Kept) -> None:
    kept.enclave.schemas()
    kept.enclave.commit("message", {"n": 1}, check=True)
    kept.seqs(type="message", valid=False)
    before = len(kept.stage.node.calls)
    kept.enclave.schemas()
    kept.enclave.commit("message", {"n": 1}, check=True)
    assert len(kept.stage.node.calls) == before + 1


def test_concurrent_writers_read_the_manifest_once(kept: Kept) -> None:
    if kept.stage.face == "sync":
        return
    client = kept.stage.client("bob")
    enclave = client._inner.enclave(kept.enclave.id)
    kept.stage._runner.run(enclave.head())
    counting = Counting(client)
    at_once(kept.stage, lambda: enclave.commit("message", {"n": 1}, check=True))
    assert len(counting.paths) == MANY + 1


def test_an_enclave_without_schemas(stage: Stage) -> None:
    enclave = stage.create()
    with pytest.raises(MisuseError, match=r"^valid: the manifest has no schemas$"):
        list(enclave.query(valid=True))
    assert enclave.schemas().by_type == {}


def test_a_search_is_checked_at_once(kept: Kept) -> None:
    with pytest.raises(MisuseError, match="limit"):
        kept.enclave.query(valid=True, limit=-1)


# Writing


def test_a_checked_commit(kept: Kept) -> None:
    e = kept.enclave
    e.commit("message", {"n": 9}, check=True)
    with pytest.raises(MisuseError, match=r"^message: n: expected at least 0, not -1$"):
        e.commit("message", {"n": -1}, check=True)
    with pytest.raises(MisuseError, match="no schema for the type 'note'"):
        e.commit("note", "text", check=True)
    assert kept.seqs(seq={"start_at": 9}) == [9]


def test_a_checked_update(kept: Kept) -> None:
    e = kept.enclave
    e.update(kept.one.id, {"n": 2}, check=True)
    with pytest.raises(MisuseError, match=r"^message: n: missing$"):
        e.update(kept.one.id, {}, check=True)
    e.delete(kept.wrong.id)
    with pytest.raises(EventNotFound, match="its type is unknown"):
        e.update(kept.wrong.id, {"n": 2}, check=True)
    with pytest.raises(MisuseError, match=r"^event: expected 32 bytes"):
        e.commit("Update", {"n": 2}, check=True)


# Tables


def test_a_table_of_valid_rows(kept: Kept) -> None:
    table = kept.enclave.table("message", valid=True)
    rows = table.refresh()
    assert [row.json for row in rows.values()] == [{"n": 1}, {"n": 5}]
    assert [row.violations[0][:20] for row in table.invalid.values()] == [
        "n: expected at least",
        "content: not JSON: E",
    ]
    assert (len(rows), kept.wrong.id in rows, kept.one.id in rows) == (2, False, True)
    with pytest.raises(KeyError):
        rows[kept.wrong.id]
    with pytest.raises(KeyError):
        rows[b""]


def test_changes_show_when_a_row_becomes_valid_and_invalid(kept: Kept) -> None:
    e, table = kept.enclave, kept.enclave.table("message", valid=True)
    changes = table.changes()
    assert [(found.kind, found.row.json) for found in (next(changes), next(changes))] == [
        ("added", {"n": 1}),
        ("added", {"n": 5}),
    ]
    found = list[tuple[str, Any]]()
    for write in (
        lambda: e.update(kept.wrong.id, {"n": 0}),
        lambda: e.update(kept.one.id, {"n": 2}),
        lambda: e.update(kept.wrong.id, "wrong again"),
        lambda: (e.update(kept.wrong.id, "and again"), e.delete(kept.wrong.id), e.delete(kept.one.id)),
    ):
        write()
        change = next(changes)
        found.append((change.kind, change.row.json))
    assert found == [("added", {"n": 0}), ("updated", {"n": 2}), ("deleted", {"n": 0}), ("deleted", {"n": 2})]
    assert [row.json for row in table.rows.values()] == [{"n": 5}]
    assert list(table.invalid) == [kept.four.id]
    table.close()


def test_a_table_of_valid_rows_keeps_all_of_them(kept: Kept, tmp_path: Path) -> None:
    e, path = kept.enclave, tmp_path / "rows.db"
    first = e.table("message", valid=True, db=path)
    first.refresh()
    every = e.table("message", db=path)
    assert len(every.refresh()) == 4
    every.close()
    first.close()
    again = e.table("message", valid=True, db=path)
    assert (dict(again.rows), dict(again.invalid)) == (dict(first.rows), dict(first.invalid))
    assert list(again.rows) == [kept.one.id, kept.five.id]
    e.update(kept.wrong.id, {"n": 3})
    assert list(again.refresh()) == [kept.one.id, kept.wrong.id, kept.five.id]
    again.close()
    db = sqlite3.connect(path)
    ((invalid,),) = db.execute("SELECT count(*) FROM enc_rows WHERE violations IS NOT NULL")
    db.close()
    assert invalid == 1


def test_a_table_of_valid_rows_resumes_from_saved_rows(kept: Kept) -> None:
    table = kept.enclave.table("message", valid=True)
    table.refresh()
    saved = [*table.rows.values(), *table.invalid.values()]
    again = kept.enclave.table("message", valid=True, rows=saved, after=table.seq)
    assert list(again.rows) == list(table.rows)
    kept.enclave.update(kept.wrong.id, {"n": 3})
    assert kept.wrong.id in again.refresh()


def test_a_table_of_valid_rows_needs_schemas(kept: Kept) -> None:
    with pytest.raises(MisuseError, match="no schema for the type 'note'"):
        kept.enclave.table(["message", "note"], valid=True).refresh()
