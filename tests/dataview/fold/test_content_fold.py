"""The fold over contents, against plain Python on random valid logs. Without Spark."""

from typing import Any

import msgspec
import pytest

from enc.core.log.withheld import wire_withheld
from enc.core.primitives.types import Event
from enc.dataview.fold.content_fold import LAST_MS, ContentFold, auto_delete_at, revised_id
from enc.dataview.fold.control_fold import CONTROL
from tests.dataview.logs import Log
from tests.dataview.plain_fold import EnclaveFold
from tests.dataview.random_logs import random_log

Json = dict[str, Any]


def row_of(event: Event) -> Json:
    return {
        "enclave": event.enclave.hex(),
        "seq": event.seq,
        "id": event.id.hex(),
        "type": event.type,
        "author": event.from_.hex(),
        "timestamp": event.timestamp,
        "content": event.content,
        "content_hash": event.content_hash.hex(),
        "tags": [list(tag) for tag in event.tags],
        "withheld": None if event.withheld is None else wire_withheld(event.withheld),
    }


def content_rows(log: Log) -> list[Json]:
    return [row_of(event) for event in log.events if event.type not in CONTROL[log.enc_v]]


def plain(log: Log) -> dict[str, Json]:
    rows = EnclaveFold(msgspec.json.decode(line) for line in log.wire).content_status()
    return {row["id"]: {name: value for name, value in row.items() if name != "enclave"} for row in rows}


def compared(rows: dict[str, Json], expected: dict[str, Json]) -> None:
    names = next(iter(expected.values()), {})
    assert {id_: {name: row[name] for name in names} for id_, row in rows.items()} == expected


@pytest.mark.parametrize("kind", ["club", "personal", "v1"])
@pytest.mark.parametrize("seed", range(8))
def test_random_logs(seed: int, kind: str) -> None:
    made = random_log(seed, 80, kind)
    log = made.log()
    said = ContentFold({}, registry=False)
    for row in content_rows(log):
        said.apply(row)
    compared(said.changed, plain(log))
    # The contents to erase are those that the node has erased.
    assert set(said.erased) == {event.id.hex() for event in made.log(erased=True).events if event.content is None}


@pytest.mark.parametrize("kind", ["club", "v1"])
def test_rows_that_are_there_already_are_all_that_is_needed(kind: str) -> None:
    """Event by event, with only the revised rows at hand, like the pipeline."""
    made = random_log(99, 80, kind)
    table, erased = dict[str, Json](), set[str]()
    for row in content_rows(made.log()):
        target = revised_id(row["tags"]) or ""
        said = ContentFold({target: table[target]} if target in table else {}, registry=False)
        said.apply(row)
        table |= said.changed
        erased |= said.erased.keys()
    compared(table, plain(made.log()))
    assert erased == {event.id.hex() for event in made.log(erased=True).events if event.content is None}


def event(seq: int, type_: str, *tags: list[str], content: str | None = "x") -> Json:
    plain = {"seq": seq, "id": f"id{seq}", "type": type_, "author": "a", "timestamp": 1000 + seq}
    return {**plain, "content": content, "content_hash": f"h{seq}", "tags": list(tags), "withheld": None}


def test_a_batch_done_again_erases_nothing_that_stands() -> None:
    """The table already has the batch's own Update, whose content must not be erased as an earlier
    one.
    """
    first = ContentFold({}, registry=False)
    for each in (event(1, "note"), event(2, "Update", ["r", "id1"])):
        first.apply(each)
    again = ContentFold(first.changed, registry=False)
    again.apply(event(2, "Update", ["r", "id1"]))
    assert again.changed == {}
    assert again.erased == {}


def test_a_statement_is_that_of_the_current_content() -> None:
    """A deleted content is not called withheld."""
    note, update = ({"reason": "abuse", "ts": at, "node": "n", "sig": "s"} for at in (1, 2))
    said = ContentFold({}, registry=False)
    said.apply({**event(1, "note", content=None), "withheld": note})
    assert (said.changed["id1"]["status"], said.changed["id1"]["withheld"]) == ("active", note)
    said.apply({**event(2, "Update", ["r", "id1"], content=None), "withheld": update})
    assert (said.changed["id1"]["status"], said.changed["id1"]["withheld"]) == ("updated", update)
    said.apply(event(3, "Update", ["r", "id1"], content="y"))
    assert (said.changed["id1"]["content"], said.changed["id1"]["withheld"]) == ("y", None)
    said.apply({**event(4, "Update", ["r", "id1"], content=None), "withheld": update})
    said.apply(event(5, "Delete", ["r", "id1"]))
    assert (said.changed["id1"]["status"], said.changed["id1"]["withheld"]) == ("deleted", None)


def test_what_is_deleted_stays_so_and_what_never_came_is_left() -> None:
    said = ContentFold({}, registry=False)
    for each in (event(1, "note"), event(2, "Delete", ["r", "id1"]), event(3, "Update", ["r", "id1"])):
        said.apply(each)
    said.apply(event(4, "Update", ["r", "id9"]))
    said.apply(event(5, "Update"))
    assert list(said.changed) == ["id1"]
    row = said.changed["id1"]
    assert (row["status"], row["content"], row["revision"], row["content_hash"]) == ("deleted", None, "id2", "h1")


def test_in_a_registry_nothing_is_erased() -> None:
    said = ContentFold({}, registry=True)
    for each in (event(1, "Reg_Node", content="{}"), event(2, "Delete", ["r", "id1"])):
        said.apply(each)
    assert said.erased == {}
    assert (said.changed["id1"]["status"], said.changed["id1"]["content"]) == ("deleted", "{}")


def test_the_earlier_time_to_go_counts() -> None:
    said = ContentFold({}, registry=False)
    said.apply(event(1, "note", ["auto-delete", "9000"]))
    said.apply(event(2, "Update", ["r", "id1"], ["auto-delete", "5000"]))
    assert said.changed["id1"]["expires_at"] == 5000
    said.apply(event(3, "Update", ["r", "id1"]))
    assert said.changed["id1"]["expires_at"] == 5000


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0), (str(LAST_MS), LAST_MS), (str(LAST_MS + 1), None), ("9" * 40, None), ("-1", None)]
)
def test_times_to_go_that_a_table_can_hold(text: str, expected: int | None) -> None:
    assert auto_delete_at([["auto-delete", text]]) == expected


@pytest.mark.parametrize("text", ["", "soon", "1.5", "٣"])
def test_what_is_no_time_is_none(text: str) -> None:
    assert auto_delete_at([["auto-delete", text]]) is None
    assert auto_delete_at([["auto-delete"]]) is None
    assert auto_delete_at(None) is None
