"""Contents that a node withholds: a client accepts its signed statement, and no other instead of a content."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from enc.audit.collect import CollectedLogs, _read
from enc.client import Forgery
from enc.client.enclave.table import TableState
from enc.core.log.event import erase, wire_event
from enc.core.log.withheld import sign_withheld
from enc.testing.lying_node import Json
from tests.client.scene import Scene
from tests.core.world import START, person, withheld


def item_of(scene: Scene, text: str, enclave: Any = None) -> Any:
    (item,) = (item for item in (enclave or scene.other()).query() if item.id == scene.id(text))
    return item


def test_a_withheld_content_comes_with_its_statement(scene: Scene) -> None:
    hidden = withheld(scene.event("one"))
    scene.show(hidden.seq, hidden)
    item = item_of(scene, "one")
    assert (item.content, item.status, item.withheld) == (None, "active", hidden.withheld)
    assert item_of(scene, "three").withheld is None
    scene.node.be_honest()
    assert item_of(scene, "one").content == "one"


def test_a_complete_read_and_proofs_accept_it(scene: Scene) -> None:
    hidden = withheld(scene.event("one"))
    scene.show(hidden.seq, hidden)
    assert [item.withheld for item in scene.other().query(proof=True)][1] == hidden.withheld
    assert [item.withheld for item in scene.other().complete()][1] == hidden.withheld


def test_an_audit_that_reads_an_enclave_remarks_it(scene: Scene) -> None:
    hidden = withheld(scene.event("one"))
    scene.show(hidden.seq, hidden)
    found = CollectedLogs()
    _read(scene.other(), found)
    assert [verdict.withheld for verdict in found.verdicts] == [[(hidden.seq, hidden.withheld)]]


def test_a_subscription_accepts_it(scene: Scene) -> None:
    hidden = withheld(scene.event("four"))

    def show(item: Json) -> Json | None:
        return {**item, "event": wire_event(hidden)} if item["event"]["seq"] == hidden.seq else None

    scene.lie("Event", show)
    found = next(item for item in scene.other().subscribe() if item.seq == hidden.seq)
    assert found.withheld == hidden.withheld


@pytest.mark.parametrize("name", ["node2", "bob"])
def test_a_statement_of_a_stranger_is_none(scene: Scene, name: str) -> None:
    scene.show(1, withheld(scene.event("one"), name))
    assert "without an erasure or a node's valid statement" in scene.caught(Forgery, scene.other().query).message


def test_a_statement_with_another_reason_than_signed_is_none(scene: Scene) -> None:
    hidden = withheld(scene.event("one"))
    assert hidden.withheld is not None
    scene.show(1, replace(hidden, withheld=replace(hidden.withheld, reason="abuse")))
    scene.caught(Forgery, scene.other().query)


def test_a_slot_is_never_withheld(scene: Scene) -> None:
    scene.show(3, withheld(scene.event("plans")))
    scene.caught(Forgery, scene.other().query)


def test_a_statement_that_does_not_count_is_not_shown_beside_an_erasure(scene: Scene) -> None:
    updated = scene.event("two")
    assert updated.content is None
    statement = sign_withheld(person("bob"), updated.enclave, updated.id, "abuse", START)
    scene.show(updated.seq, replace(updated, withheld=statement))
    item = item_of(scene, "two")
    assert (item.withheld, item.event) == (None, erase(updated))


def test_a_statement_beside_a_content_is_malformed(scene: Scene) -> None:
    event = scene.event("one")
    scene.alter(1, withheld=wire_event(withheld(event))["withheld"])
    assert "withheld: stands beside a content" in scene.caught(Forgery, scene.other().query).message


def test_a_repr_says_that_a_content_is_withheld_and_not_erased(scene: Scene) -> None:
    event = scene.event("one")
    assert repr(erase(event)).endswith(": erased)")
    assert repr(withheld(event)).endswith(": withheld by the node (court_order))")


def test_a_row_has_the_statement_about_its_current_content(scene: Scene, tmp_path: Path) -> None:
    """Of an updated event, the current content is the Update's."""
    one, more = withheld(scene.event("one")), withheld(scene.event("more"))
    scene.show(one.seq, one)
    table = scene.other().table("message", db=tmp_path / "rows.db")
    found = {row.seq: row for row in table.refresh().values()}
    assert [(seq, row.withheld) for seq, row in found.items()] == [(1, one.withheld), (2, None), (4, None), (7, None)]
    assert repr(found[1]).endswith("withheld by the node (court_order))")
    table.close()
    again = scene.other().table("message", db=tmp_path / "rows.db")
    assert again.rows == table.rows
    again.close()
    scene.show(more.seq, more)
    assert scene.other().table("message").refresh()[scene.id("two")].withheld == more.withheld


def test_a_row_does_not_have_the_statement_about_a_content_that_was_updated(scene: Scene) -> None:
    updated = withheld(scene.event("two"))
    scene.show(updated.seq, updated)
    row = scene.other().table("message").refresh()[updated.id]
    assert (row.content, row.withheld) == ("more", None)
    state = TableState("message", (), -1)
    state.take([item for item in scene.other().query() if item.type != "Update"])
    assert state.rows[updated.id].withheld is None


def test_a_withheld_update_replaces_the_statement_and_a_shown_one_ends_it(scene: Scene) -> None:
    one = withheld(scene.event("one"))
    scene.show(one.seq, one)
    table = scene.other().table("message")
    assert table.refresh()[one.id].withheld == one.withheld
    scene.enclave.update(one.id, "new")
    row = table.refresh()[one.id]
    assert (row.content, row.withheld) == ("new", None)


def test_a_table_file_of_an_earlier_version_gets_the_column(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    scene.enclave.table("message", db=path).close()
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE enc_rows DROP COLUMN withheld")
    table = scene.enclave.table("message", db=path)
    assert [row.content for row in table.refresh().values()] == ["one", "more", "three", "four"]
    table.close()
