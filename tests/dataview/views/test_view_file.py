"""The file format of views."""

from pathlib import Path

import pytest

from enc.core.errors import MisuseError
from enc.dataview.views.catalog import all_views, built_in, load_views, readable, view
from enc.dataview.views.view_file import Check, Refresh, parse_view, sort_by_dependency

TABLES = ("events", "quarantine", "tags", "content_status", "slots", "members", "timeline")

WHOLE = """-- name: posts
-- description: Who posts how much.
-- key: author, day
-- test: not_null(author)
-- test: unique(author, day)
-- test: accepted(kind, a, b)
-- just a remark
SELECT author, 'events' AS x FROM timeline -- and not members
"""


def test_a_header() -> None:
    view = parse_view(WHOLE, "other")
    assert (view.name, view.key, view.description) == ("posts", ("author", "day"), "Who posts how much.")
    assert view.refresh == Refresh()
    assert [str(test) for test in view.tests] == ["not_null(author)", "unique(author, day)", "accepted(kind, a, b)"]
    assert view.tests[0] == Check("not_null", ("author",))
    assert view.inputs(TABLES) == ("timeline",)


def test_ways_to_refresh() -> None:
    header = "-- key: id\n-- refresh: incremental\n-- add: n\n-- least: a, b\n-- greatest: c\n-- where: seq > 1"
    view = parse_view(f"{header}\nFROM events", "mine")
    assert (view.name, view.refresh, view.where) == ("mine", Refresh("incremental", "events"), "seq > 1")
    assert view.combined == ("n", "a", "b", "c")
    assert parse_view("-- key: id\n-- refresh: append from tags\nSELECT 1 FROM tags", "x").refresh.kind == "append"
    by = parse_view(
        "-- key: identity, enclave\n-- refresh: by enclave,  author as identity from slots\nFROM slots", "x"
    )
    assert by.refresh == Refresh("by", "slots", (("enclave", "enclave"), ("author", "identity")))
    read = parse_view("-- key: id\n-- reads: slots, members\nSELECT 1", "mine")
    assert read.inputs(TABLES) == ("slots", "members")


def test_only_what_makes_the_rows_counts_as_its_text() -> None:
    one = parse_view("-- key: id\nSELECT id FROM events", "x")
    assert (
        parse_view("-- key: id\n-- test: not_null(id)\n-- a remark\nSELECT id FROM events", "x").definition
        == one.definition
    )
    assert parse_view("-- key: id\nSELECT id, seq FROM events", "x").definition != one.definition
    by = "-- key: id\n-- refresh: by id from events\n-- where: seq > {}\nSELECT id FROM events"
    assert parse_view(by.format(1), "x").definition != parse_view(by.format(2), "x").definition


def test_the_built_in_ones_come_first(tmp_path: Path) -> None:
    names = [view.name for view in built_in()]
    registry = ["registry_enclaves", "registry_identities", "registry_nodes"]
    gold = ["activity_hourly", "figures", "members", "profiles", "refusals", *registry, "roles"]
    assert names == [*gold, "tags", "timeline"]
    assert {view.name for view in built_in() if view.layer == "silver"} == {"tags"}
    assert set(names) < set(readable())
    (tmp_path / "a.sql").write_text("-- key: id\nSELECT id FROM timeline")
    assert [view.name for view in all_views(load_views(tmp_path))] == [*names, "a"]
    (tmp_path / "members.sql").write_text("-- key: id\nSELECT id FROM access")
    with pytest.raises(MisuseError, match="members: a table or view of this name exists already"):
        load_views(tmp_path)


def test_a_function_says_it_as_a_file_does() -> None:
    @view(key="author", refresh="by author from timeline", where="content IS NOT NULL")
    def loud(timeline: object) -> object:
        return timeline

    made = loud.__enc_view__  # type: ignore[attr-defined]
    assert (made.refresh, made.where) == (Refresh("by", "timeline", (("author", "author"),)), "content IS NOT NULL")


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("", "key: missing"),
        ("-- key: id\n-- name: Big", "name"),
        ("-- key: id\n-- refresh: often", "refresh"),
        ("-- key: id\n-- refresh: incremental from slots", "incremental needs one of"),
        ("-- key: id\n-- refresh: append from slots", "append needs one of"),
        ("-- key: id\n-- refresh: incremental from tags", "from tags, which the view does not read"),
        ("-- key: id\n-- refresh: by seq from slots", "by seq: expected columns of its key"),
        ("-- key: id\n-- refresh: by a b from slots", "by a b: expected a column"),
        ("-- key: id\n-- add: n", "add"),
        ("-- key: id\n-- greatest: n", "greatest"),
        ("-- key: id\n-- refresh: incremental\n-- add: n\n-- least: n", "named twice"),
        ("-- key: id\n-- where: n > 1", "where"),
        ("-- key: id\n-- test: sane(id)", "expected not_null"),
        ("-- key: id\n-- test: accepted(id)", "expected not_null"),
        ("-- key: id\n-- key: id", "given twice"),
        ("-- kye: id", "line 1: kye"),
    ],
)
def test_what_is_wrong_is_named(header: str, says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        parse_view(f"{header}\nSELECT 1 FROM events, slots", "mine")


def named(name: str, reads: str) -> str:
    return f"-- name: {name}\n-- key: id\nSELECT * FROM {reads}"


def test_each_after_those_it_reads() -> None:
    views = [parse_view(named(*each), "x") for each in (("c", "b"), ("a", "events"), ("b", "a JOIN members"))]
    assert [view.name for view in sort_by_dependency(views, TABLES)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("views", "says"),
    [
        ([("a", "b"), ("b", "a")], "cycle: a -> b -> a"),
        ([("events", "tags")], "of this name exists already"),
        ([("a", "tags"), ("a", "tags")], "of this name exists already"),
    ],
)
def test_no_circles_no_taken_names(views: list[tuple[str, str]], says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        sort_by_dependency([parse_view(named(*each), "x") for each in views], TABLES)


def test_a_read_that_is_not_there() -> None:
    for header in ("-- reads: nowhere", "-- refresh: by id from nowhere"):
        with pytest.raises(MisuseError, match="no such table or view: nowhere"):
            sort_by_dependency([parse_view(f"-- key: id\n{header}\nSELECT id FROM nowhere", "x")], TABLES)


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "b.sql").write_text("-- key: author\nSELECT author FROM loud")
    (tmp_path / "a.py").write_text(
        "from enc.dataview.views.catalog import view\n"
        "@view(key='author', tests=['unique(author)'])\n"
        "def loud(timeline):\n"
        "    'Posts that shout.'\n"
        "    return timeline\n"
    )
    (tmp_path / "_hidden.py").write_text("raise SystemExit")
    (tmp_path / "notes.txt").write_text("no view")
    found = load_views(tmp_path)
    assert [(view.name, view.description) for view in found] == [("loud", "Posts that shout."), ("b", "")]
    assert found[0].reads == ("timeline",)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.py", "1 / 0", "ZeroDivisionError"),
        ("a.sql", b"\xff", "cannot be read"),
        ("a.sql", b" " * ((1 << 20) + 1), "larger than 1048576 bytes"),
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str, text: str | bytes, says: str) -> None:
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(MisuseError, match=says):
        load_views(tmp_path)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="not a folder"):
        load_views(tmp_path / "none")
