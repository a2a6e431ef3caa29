"""The serving database: atomic and repeatable batches, new columns, and rejections."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.errors import MisuseError
from enc.dataview.serving.columns import Column, ViewSchema
from enc.dataview.serving.database import ServingDatabase, StoredView
from enc.dataview.serving.statements import CHUNK, CHUNK_BYTES, chunks
from tests.dataview.serving.rows import ANNA, PAIRS, PEOPLE, A, B, ask, pairs, person


def stored(database: ServingDatabase, view: str = "people") -> StoredView | None:
    with database.reading() as snapshot:
        return snapshot.view(view)


def progress(database: ServingDatabase, view: str = "people", **more: Any) -> dict[str, int]:
    with database.reading() as snapshot:
        return dict(snapshot.progress(view, 100, **more))


def test_every_kind_comes_back_as_it_was(database: ServingDatabase) -> None:
    database.upsert(PEOPLE, [ANNA], {A: 5}, batch_id=1)
    assert ask(database, "people") == [ANNA]
    assert progress(database) == {A: 5}


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\ue000", "\ue0000", "\x00\ue000\x00", "'; DROP TABLE x --", "é𝄞"])
def test_every_text_comes_back_and_is_found(database: ServingDatabase, text: str) -> None:
    database.upsert(PEOPLE, [person(text), person("other")], {})
    assert ask(database, "people", name=text) == [person(text)]


def test_a_batch_again_changes_nothing(database: ServingDatabase) -> None:
    for _ in range(2):
        database.upsert(PAIRS, pairs(20), {A: 20}, deleted=[{"a": 0, "b": "b1"}], batch_id=3)
    assert len(ask(database, "pairs")) == 19
    assert progress(database, "pairs") == {A: 20}


def test_a_row_with_a_known_key_takes_the_other_s_place(database: ServingDatabase) -> None:
    database.upsert(PEOPLE, [ANNA], {})
    database.upsert(PEOPLE, [person("anna", age=31)], {})
    assert ask(database, "people") == [person("anna", age=31)]


def test_a_view_of_nothing_but_its_key_is_taken_again(database: ServingDatabase) -> None:
    only = ViewSchema("only", (Column("a", "integer"),), ("a",))
    for _ in range(2):
        database.upsert(only, [{"a": 1}], {})
    assert ask(database, "only") == [{"a": 1}]


def test_what_was_taken_out_is_off_the_disk(tmp_path: Path) -> None:
    place, said = tmp_path / "serving.db", ViewSchema("said", (Column("k", "integer"), Column("t", "string")), ("k",))
    database = ServingDatabase(str(place))
    database.upsert(said, [{"k": k, "t": f"secret {k} " * 1000} for k in (1, 2)], {})
    database.upsert(said, [{"k": 1, "t": None}], {}, deleted=[{"k": 2}])
    database.close()
    assert b"secret" not in place.read_bytes()


def test_a_vacuum_empties_the_write_ahead_log(tmp_path: Path) -> None:
    """While a reader keeps the database open; one that is in the middle of a query delays it."""
    place = tmp_path / "serving.db"
    database, reader = ServingDatabase(str(place)), ServingDatabase(str(place))
    database.upsert(PEOPLE, [ANNA], {})
    log = place.with_name("serving.db-wal")
    with reader.reading() as snapshot:
        assert snapshot.view("people") is not None
    assert log.stat().st_size > 0
    database.vacuum()
    assert log.stat().st_size == 0
    reader.close()
    database.close()


def test_a_vacuum_frees_old_versions_and_keeps_the_rows(database: ServingDatabase) -> None:
    for _ in range(3):
        database.upsert(PEOPLE, [ANNA], {})
    database.vacuum()
    assert ask(database, "people") == [ANNA]
    if database.dialect == "postgresql":
        with database._engine.connect() as connection:
            text = "SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'view_people'"
            assert connection.exec_driver_sql(text).scalar() == 1


def test_progress_does_not_go_back(database: ServingDatabase) -> None:
    database.upsert(PEOPLE, [], {A: 5, B: 2})
    database.upsert(PEOPLE, [], {A: 3, B: 4})
    assert progress(database) == {A: 5, B: 4}
    assert progress(database, after=A) == {B: 4}
    assert progress(database, only=[A]) == {A: 5}


def test_a_batch_that_fails_leaves_nothing(database: ServingDatabase) -> None:
    database.upsert(PEOPLE, [ANNA], {A: 5}, batch_id=1)
    before = stored(database)

    def failing() -> Iterator[dict[str, Any]]:
        yield from (person(f"p{n}") for n in range(6000))
        raise OSError

    with pytest.raises(OSError, match=r"^$"):
        database.upsert(PEOPLE, failing(), {A: 9}, batch_id=2)
    assert ask(database, "people") == [ANNA]
    assert (progress(database), stored(database)) == ({A: 5}, before)


def test_a_reader_sees_one_moment(database: ServingDatabase) -> None:
    database.upsert(PEOPLE, [ANNA], {A: 5})
    with database.reading() as snapshot:
        before = snapshot.view("people")
        database.upsert(PEOPLE, [person("bob")], {A: 6})
        assert snapshot.view("people") == before
        assert snapshot.progress("people", 9) == [(A, 5)]
        rows = snapshot.rows(snapshot.table(PEOPLE).select())
        assert len(rows) == 1
    assert len(ask(database, "people")) == 2


def test_every_change_is_another_version(database: ServingDatabase) -> None:
    versions = []
    for _ in range(2):
        database.upsert(PEOPLE, [ANNA], {})
        versions.append(stored(database))
    database.replace(PEOPLE, [ANNA], {})
    versions.append(stored(database))
    marks = {(each.generation, each.version) for each in versions if each is not None}
    assert len(marks) == 3
    assert versions[0] is not None
    assert versions[2] is not None
    assert versions[0].generation != versions[2].generation


def test_a_new_column_is_added_and_a_lost_one_stays(database: ServingDatabase) -> None:
    database.upsert(PAIRS, pairs(3), {})
    with_d = replace(PAIRS, columns=(*PAIRS.columns[:2], Column("d", "timestamp")))
    database.upsert(with_d, [{"a": 0, "b": "b1", "d": 5}], {})
    assert ask(database, "pairs") == [
        {"a": 0, "b": "b0", "c": None, "d": None},
        {"a": 0, "b": "b1", "c": 1, "d": 5},
        {"a": 0, "b": "b2", "c": 2, "d": None},
    ]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (replace(PAIRS, key=("a",)), "its key is a, b"),
        (replace(PAIRS, columns=(*PAIRS.columns[:2], Column("c", "string"))), "c is a integer, not a string"),
    ],
)
def test_what_cannot_be_changed_needs_a_rebuild(database: ServingDatabase, changed: ViewSchema, says: str) -> None:
    database.upsert(PAIRS, pairs(3), {A: 3})
    with pytest.raises(MisuseError, match=says):
        database.upsert(changed, [], {})
    database.replace(changed, [{"a": 7, "b": "x", "c": 1 if changed.key == ("a",) else "y"}], {B: 1}, index=["c"])
    assert [row["a"] for row in ask(database, "pairs")] == [7]
    assert progress(database, "pairs") == {B: 1}


def test_a_dropped_view_is_gone(database: ServingDatabase) -> None:
    database.upsert(PAIRS, pairs(3), {A: 3}, index=["c"])
    database.drop("pairs")
    database.drop("pairs")
    assert stored(database, "pairs") is None
    database.upsert(PAIRS, pairs(1), {}, index=["c"])
    assert progress(database, "pairs") == {}


def test_an_index_is_made_once_and_used(database: ServingDatabase) -> None:
    for _ in range(2):
        database.upsert(PAIRS, pairs(9), {}, index=["c"])
    with pytest.raises(MisuseError, match="no such column: x"):
        database.upsert(PAIRS, [], {}, index=["x"])
    if database.dialect == "sqlite":
        from sqlalchemy import text

        with database.reading() as snapshot:
            asked: Any = text("EXPLAIN QUERY PLAN SELECT * FROM view_pairs WHERE c = 1 ORDER BY a, b")
            plan: Sequence[Any] = snapshot.rows(asked)
        assert len(plan) == 1
        assert " INDEX ix_" in plan[0][3]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (replace(PAIRS, name='x" y'), "expected a-z"),
        (replace(PAIRS, name="a" * 64), "expected a-z"),
        (replace(PAIRS, columns=()), "1 to 256 columns"),
        (replace(PAIRS, columns=(*PAIRS.columns, Column('d"', "string"))), "expected a name"),
        (replace(PAIRS, columns=(*PAIRS.columns, Column("A", "string"))), "two columns have the same name"),
        (replace(PAIRS, key=()), "key: expected columns"),
        (replace(PAIRS, key=("x",)), "key: expected columns"),
        (replace(PEOPLE, key=("extra",)), "a json cannot be part"),
        (replace(PEOPLE, key=("score",)), "a double cannot be part"),
    ],
)
def test_a_schema_that_cannot_be(database: ServingDatabase, schema: ViewSchema, says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        database.upsert(schema, [], {})


def test_long_names_that_begin_alike_are_two_views(database: ServingDatabase) -> None:
    one, two = (replace(PAIRS, name="a" * 62 + end) for end in "bc")
    database.upsert(one, pairs(1), {}, index=["c"])
    database.upsert(two, pairs(2), {}, index=["c"])
    database.upsert(replace(one, columns=(*PAIRS.columns, Column("d", "string"))), [], {})
    assert [len(ask(database, view.name)) for view in (one, two)] == [1, 2]


def test_a_row_without_its_key_is_refused(database: ServingDatabase) -> None:
    with pytest.raises(MisuseError, match="null in a column of the key"):
        database.upsert(PAIRS, [{"a": None, "b": "x", "c": 1}], {})


@pytest.mark.parametrize("place", ["mysql://x/y", "/no/such/folder/x.db", "postgresql://h:x/", ""])
def test_a_place_where_no_database_can_be(place: str) -> None:
    with pytest.raises(MisuseError, match=r"^database: "):
        ServingDatabase(place)


def test_what_goes_to_the_database_at_once_is_bounded_by_rows_and_by_bytes() -> None:
    half = "x" * (CHUNK_BYTES // 2)
    large = [{"n": n, "text": half} for n in range(5)]
    assert [len(chunk) for chunk in chunks(large)] == [2, 2, 1]
    assert [len(chunk) for chunk in chunks({"n": n} for n in range(2 * CHUNK + 1))] == [CHUNK, CHUNK, 1]
    assert [row for chunk in chunks(large) for row in chunk] == large
    assert list(chunks([])) == []
