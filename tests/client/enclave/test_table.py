"""Tables: Updates and Deletes folded into rows, live, resumed from a saved seq or from a SQLite file."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from enc.client import Row
from enc.client.enclave.table import TableState
from enc.client.enclave.table_file import TableFile
from enc.core.errors import MisuseError, Unavailable
from tests.client.migration.moving import AT_B, Moving
from tests.client.scene import Scene
from tests.core.world import person


def contents(table: Any) -> list[str | None]:
    return [row.content for row in table.rows.values()]


def test_updates_and_deletes_are_folded_into_rows(scene: Scene) -> None:
    e = scene.enclave
    e.delete(scene.id("three"))
    table = e.table(type="message")
    assert (dict(table.rows), table.seq) == ({}, -1)
    rows = table.refresh()
    assert list(rows) == [scene.id(text) for text in ("one", "two", "four")]
    assert (contents(table), table.seq) == (["one", "more", "four"], 8)
    two, update = rows[scene.id("two")], scene.event("more")
    assert (two.seq, two.type, two.author, two.timestamp) == (2, "message", person("alice").public, update.timestamp)
    assert (two.changed_seq, two.changed_by, two.changed) == (5, update.from_, update.timestamp)
    one = rows[scene.id("one")]
    assert (one.changed_seq, one.changed_by, one.changed) == (1, one.author, one.timestamp)


def test_a_table_folds_only_what_is_new(scene: Scene) -> None:
    e, table = scene.enclave, scene.enclave.table("message")
    table.refresh()
    e.update(scene.id("one"), {"n": 1})
    e.delete(scene.id("four"))
    five = e.commit("message", "five", tags=[["k", "v"]])
    table.refresh()
    assert scene.node.asked["filter"]["seq"] == {"start_at": 8}
    assert contents(table) == ['{"n":1}', "more", "three", "five"]
    assert (table.rows[scene.id("one")].json, table.rows[five.id].json) == ({"n": 1}, None)
    assert table.rows[five.id].tags == (("k", "v"),)
    assert repr(table.rows[five.id]).startswith("Row(10 message by ")


def test_changes_are_those_of_stored_events_then_live_ones(scene: Scene) -> None:
    e, table = scene.enclave, scene.enclave.table(type="message", after=3)
    changes = table.changes()
    assert [next(changes).row.content for _ in range(2)] == ["three", "four"]
    five = e.commit("message", "five")
    found = [next(changes)]
    e.update(five.id, "5")
    e.update(scene.id("one"), "not in this table")
    found.append(next(changes))
    e.delete(five.id)
    found.append(next(changes))
    assert [(each.kind, each.row.id, each.row.content) for each in found] == [
        ("added", five.id, "five"),
        ("updated", five.id, "5"),
        ("deleted", five.id, "5"),
    ]
    assert table.seq == 11
    assert contents(table) == ["three", "four"]


def test_a_live_table_is_read_by_one_iteration(scene: Scene) -> None:
    table = scene.enclave.table("message")
    changes = table.changes()
    for _ in range(5):
        next(changes)
    scene.enclave.commit("message", "live")
    assert next(changes).row.content == "live"
    with pytest.raises(MisuseError, match="live already"):
        table.refresh()
    with pytest.raises(MisuseError, match="live already"):
        next(table.changes())
    table.close()


def test_a_table_resumes_from_saved_rows_and_seq(scene: Scene) -> None:
    e, table = scene.enclave, scene.enclave.table("message")
    saved = list(table.refresh().values())
    e.delete(scene.id("one"))
    again = e.table("message", rows=saved, after=table.seq)
    assert contents(again) == ["one", "more", "three", "four"]
    again.refresh()
    assert contents(again) == ["more", "three", "four"]


def test_a_table_survives_in_a_file(scene: Scene, tmp_path: Path) -> None:
    e, path = scene.enclave, tmp_path / "rows.db"
    first = e.table("message", db=path)
    first.refresh()
    rows, seq = dict(first.rows), first.seq
    first.close()
    again = e.table("message", db=path)
    assert (dict(again.rows), again.seq) == (rows, seq)
    e.delete(scene.id("one"))
    again.refresh()
    assert again.seq == 8
    again.close()
    db = sqlite3.connect(path)
    found = [content for (content,) in db.execute("SELECT content FROM enc_rows WHERE type = 'message' ORDER BY seq")]
    db.close()
    assert found == ["more", "three", "four"]


def test_live_changes_are_saved_before_they_are_seen(scene: Scene, tmp_path: Path) -> None:
    e, path = scene.enclave, tmp_path / "rows.db"
    table = e.table("message", after=-1, db=path)
    changes = table.changes()
    for _ in range(5):
        next(changes)
    e.commit("message", "live", tags=[["a", "b"], ["c"]])
    row = next(changes).row
    other = e.table("message", db=path)
    assert other.rows[row.id] == row
    assert other.seq == row.seq
    other.close()
    table.close()


def test_tables_of_other_types_and_enclaves_share_a_file(scene: Scene, tmp_path: Path) -> None:
    path, other = tmp_path / "rows.db", scene.stage.create(meta={"n": 2})
    other.commit("message", "elsewhere")
    tables = [scene.enclave.table("message", db=path), scene.enclave.table("Shared", db=path)]
    tables.append(other.table(["message"], db=path))
    for table in tables:
        table.refresh()
    assert [len(table.rows) for table in tables] == [4, 2, 1]
    for table in tables:
        table.close()
    again = [scene.enclave.table(type_, db=path) for type_ in ("message", "Shared")]
    assert [dict(table.rows) for table in again] == [dict(table.rows) for table in tables[:2]]
    for table in again:
        table.close()


def test_an_event_is_folded_once(scene: Scene) -> None:
    items, state = list(scene.enclave.query()), TableState("message", (), -1)
    assert len(state.take(items)) == 5
    assert state.take(items) == []
    assert state.take(items[:3]) == []
    assert state.seq == 7


def test_one_program_at_a_time_folds_into_a_file(scene: Scene, tmp_path: Path) -> None:
    one, two = (scene.enclave.table("message", db=tmp_path / "rows.db") for _ in range(2))
    one.refresh()
    with pytest.raises(MisuseError, match="another program folds into this table"):
        two.refresh()
    assert (len(two.rows), two.seq) == (0, -1)
    one.close()
    two.close()


def test_a_table_that_cannot_be_saved_stays_as_it_was(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    table = scene.enclave.table("message", db=path)
    other = sqlite3.connect(path)
    other.execute("DROP TABLE enc_rows")
    other.close()
    with pytest.raises(Unavailable, match="cannot be saved"):
        table.refresh()
    assert (len(table.rows), table.seq) == (0, -1)
    table.close()


@pytest.mark.parametrize("name", ["rows.db", None])
def test_a_closed_table_keeps_its_rows_and_folds_nothing(scene: Scene, tmp_path: Path, name: str | None) -> None:
    table = scene.enclave.table("message", db=name and tmp_path / name)
    table.refresh()
    table.close()
    scene.enclave.commit("message", "five")
    with pytest.raises(MisuseError, match="the table is closed"):
        table.refresh()
    with pytest.raises(MisuseError, match="the table is closed"):
        next(table.changes())
    assert len(table.rows) == 4
    table.close()


def test_a_table_that_is_closed_during_a_refresh_saves_nothing(scene: Scene, tmp_path: Path) -> None:
    state = TableState("message", (), -1, TableFile(tmp_path / "rows.db", scene.enclave.id, ["message"]))
    items = list(scene.enclave.query())
    state.close()
    with pytest.raises(MisuseError, match="the table is closed"):
        state.take(items)
    assert (len(state.rows), state.seq) == (0, -1)


def test_a_table_of_many_pages(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "table" if scene.stage.face == "sync" else "async_table"
    monkeypatch.setattr(f"enc.client.clients.{module}.PAGE", 2)
    table = scene.enclave.table("message")
    table.refresh()
    assert contents(table) == ["one", "more", "three", "four"]
    changes = scene.enclave.table("message").changes()
    assert [next(changes).kind for _ in range(5)] == ["added", "added", "added", "updated", "added"]


def test_a_table_goes_on_after_a_move(stage: Any) -> None:
    moving = Moving(stage)
    table = moving.follower("bob").table("message")
    table.refresh()
    new = moving.stage.others["b.test"] = moving.depart()
    moving.stranger(AT_B).head()
    moving.write(new, "five")
    changes = table.changes()
    assert next(changes).row.content == "five"
    table.close()


@pytest.mark.parametrize("type_", ["Update", ["message", "Delete"], []], ids=str)
def test_a_table_is_of_content_events(scene: Scene, type_: Any) -> None:
    with pytest.raises(MisuseError, match=r"^type: expected types of content events"):
        scene.enclave.table(type_)


def test_what_is_no_place_for_a_table(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be read as one" * 99)
    with pytest.raises(MisuseError, match="is not a SQLite file"):
        scene.enclave.table("message", db=tmp_path / "text")
    with pytest.raises(MisuseError, match="cannot be opened"):
        scene.enclave.table("message", db=tmp_path / "none" / "rows.db")
    with pytest.raises(MisuseError, match="either `db`, or `rows` and `after`"):
        scene.enclave.table("message", after=3, db=tmp_path / "rows.db")


def test_the_json_of_a_content_that_is_not_json_is_none() -> None:
    row = Row(
        id=b"i", seq=1, type="t", author=b"a", timestamp=1, content="{", changed_seq=1, changed_by=b"a", changed=1
    )
    assert row.json is None
