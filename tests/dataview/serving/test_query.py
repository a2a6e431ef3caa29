"""Queries: results, their order, pages without losing a row, and rejections before any SQL."""

import base64
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from enc.core.errors import InvalidFilter, InvalidQuery, PeerError
from enc.dataview.serving import query
from enc.dataview.serving.database import ServingDatabase
from enc.dataview.serving.errors import QueryTooSlow
from tests.dataview.serving.rows import ANNA, PAIRS, PEOPLE, A, B, ask, page, pairs, person

NAMES = ["", "Anna", "anna", "anne", "bob", "b%b", "b_b", "bab", "ünal", "\U0010ffff", "\U0010ffffx"]


def filled(database: ServingDatabase) -> None:
    people = [
        person(name, age=n, seen=n * 1_000_000, score=n / 2, is_well=n % 2 == 0, born=f"2000-01-{n + 1:02}", limit=n)
        for n, name in enumerate(NAMES)
    ]
    database.upsert(PEOPLE, [*people, person("zoe", enclave=B, photo=b"\x01\xab", extra='{"k":"v"}')], {})


WITHOUT_ZOE = NAMES


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"name": "bob"}, ["bob"]),
        ({"name__ne": "bob"}, [*(name for name in NAMES if name != "bob"), "zoe"]),
        ({"name__in": "bob,anna,nobody"}, ["anna", "bob"]),
        ({"name__prefix": "ann"}, ["anna", "anne"]),
        ({"name__prefix": ""}, [*NAMES, "zoe"]),
        ({"name__prefix": "\U0010ffff"}, ["\U0010ffff", "\U0010ffffx"]),
        ({"name__prefix": "b%"}, ["b%b"]),
        ({"name__contains": "nn"}, ["Anna", "anna", "anne"]),
        ({"name__contains": "%"}, ["b%b"]),
        ({"name__contains": "_"}, ["b_b"]),
        ({"name__lt": "anna"}, ["", "Anna"]),
        ({"age__ge": "3", "age__lt": "5"}, ["anne", "bob"]),
        ({"age__in": "1,2"}, ["Anna", "anna"]),
        ({"age__null": "true"}, ["zoe"]),
        ({"age__null": "0"}, NAMES),
        ({"score": "1.5"}, ["anne"]),
        ({"score__gt": "4.9e0"}, ["\U0010ffffx"]),
        ({"is_well": "false", "age__lt": "3"}, ["Anna"]),
        ({"born": "2000-01-02"}, ["Anna"]),
        ({"born__le": "2000-01-02"}, ["", "Anna"]),
        ({"seen": "1970-01-01T00:00:03Z"}, ["anne"]),
        ({"seen": "1970-01-01T02:00:03+02:00"}, ["anne"]),
        ({"seen": "3000"}, ["anne"]),
        ({"seen__lt": "1970-01-01T00:00:01.000001"}, ["", "Anna"]),
        ({"seen__ge": "1970-01-02"}, []),
        ({"photo": "01ab"}, ["zoe"]),
        ({"extra__contains": '"k"'}, ["zoe"]),
        ({"limit__eq": "3"}, ["anne"]),
        ({"limit": "2"}, ["", "Anna"]),
    ],
)
def test_filters(database: ServingDatabase, asked: dict[str, str], found: list[str]) -> None:
    filled(database)
    assert sorted(row["name"] for row in ask(database, "people", **asked)) == sorted(found)


Key = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize("order", ["", "a", "-a", "b", "-b,a", "c", "-c", "c,-a", "-c,b,-a", "a,b,c", "-a,-b", "a,-b"])
@pytest.mark.parametrize("size", [1, 7])
def test_pages_hold_every_row_once_and_in_order(database: ServingDatabase, order: str, size: int) -> None:
    rows = pairs(40)
    random.Random(1).shuffle(rows)
    database.upsert(PAIRS, rows, {}, index=["c"])
    given = {"order": order} if order else {}
    found, more = list[dict[str, Any]](), dict[str, str]()
    for _ in range(60):
        part, cursor = page(database, "pairs", limit=str(size), **given, **more)
        found += part
        if cursor is None:
            break
        more = {"cursor": cursor}
    ways = [*order.split(","), "a", "b"] if order else ["a", "b"]
    last = order.split(",")[-1].startswith("-")
    wanted = rows
    for way in reversed(ways):  # a stable sort, from the least important on
        is_key = way in ("a", "b") and way not in order.split(",") and f"-{way}" not in order.split(",")
        descending = way.startswith("-") or (is_key and last)
        name = way.removeprefix("-")
        if not (way in ("a", "b") and f"-{name}" in order.split(",")):
            wanted = sorted(wanted, key=_nulls_first(name), reverse=descending)
    assert found == wanted


def _nulls_first(name: str) -> Key:
    return lambda row: (row[name] is not None, row[name] or 0 if name != "b" else row[name])


def test_rows_that_come_between_two_pages_do_no_harm(database: ServingDatabase) -> None:
    database.upsert(PAIRS, pairs(9), {})
    first, cursor = page(database, "pairs", limit="4")
    database.upsert(PAIRS, [{"a": -1, "b": "x", "c": 0}], {}, deleted=[first[3]])
    rest, _ = page(database, "pairs", limit="9", cursor=str(cursor))
    assert [*first, *rest] == pairs(9)


def test_a_page_by_the_key_is_read_off_its_index(tmp_path: Any) -> None:
    from sqlalchemy.dialects import sqlite

    database = ServingDatabase(str(tmp_path / "x.db"))
    database.upsert(PAIRS, pairs(9), {})
    _, cursor = page(database, "pairs", limit="4")
    with database.reading() as snapshot:
        asked = query.parse(PAIRS, [("cursor", str(cursor))])
        made = query.statement(asked, snapshot.table(PAIRS), "sqlite").compile(
            dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}
        )
        from sqlalchemy import text

        explain: Any = text(f"EXPLAIN QUERY PLAN {made}")
        plan: Sequence[Any] = snapshot.rows(explain)
    assert [row[3] for row in plan] == ["SEARCH view_pairs USING INDEX sqlite_autoindex_view_pairs_1 ((a,b)>(?,?))"]
    database.close()


def test_select(database: ServingDatabase) -> None:
    database.upsert(PEOPLE, [ANNA], {})
    assert ask(database, "people", select="age,name") == [{"age": 30, "name": "anna"}]


def test_enclaves_that_filters_name() -> None:
    def named(*given: tuple[str, str]) -> list[str] | None:
        return query.parse(PEOPLE, given).enclaves()

    assert named(("enclave", A)) == [A]
    assert named(("enclave.in", f"{A},{B}")) == [A, B]
    assert named(("enclave.ne", A)) is None
    assert named() is None


BAD: list[tuple[str, str, type[PeerError], str]] = [
    ("nobody", "1", InvalidFilter, "no column nobody"),
    ("name; DROP TABLE view_people", "1", InvalidFilter, "no column name; DROP"),
    ('name" OR "1"="1', "1", InvalidFilter, "no column name"),
    ("age.like", "1", InvalidFilter, "expected one of eq"),
    ("age.", "1", InvalidFilter, "expected one of eq"),
    ("age.eq.eq", "1", InvalidFilter, "expected one of eq"),
    ("age.contains", "1", InvalidFilter, ", not contains"),
    ("is_well.lt", "true", InvalidFilter, ", not lt"),
    ("photo.ge", "00", InvalidFilter, ", not ge"),
    ("extra", "{}", InvalidFilter, ", not eq"),
    ("age", "1 OR 1=1", InvalidFilter, "age: expected an integer"),
    ("age", "9223372036854775808", InvalidFilter, "age: expected an integer"),
    ("age", "-9223372036854775809", InvalidFilter, "age: expected an integer"),
    ("age", "1.0", InvalidFilter, "age: expected an integer"),
    ("age", "\u0661", InvalidFilter, "age: expected an integer"),
    ("age", "", InvalidFilter, "age: expected an integer"),
    ("age.in", "1,,2", InvalidFilter, "age: expected an integer"),
    ("age.in", ",".join("1" * 257), InvalidFilter, "at most 256 values"),
    ("score", "nan", InvalidFilter, "score: expected a number"),
    ("score", "1e999", InvalidFilter, "score: expected a number"),
    ("score", "0x1", InvalidFilter, "score: expected a number"),
    ("is_well", "yes", InvalidFilter, "true or false"),
    ("is_well.null", "yes", InvalidFilter, "true or false"),
    ("born", "2001-02-29", InvalidFilter, "expected a date"),
    ("seen", "yesterday", InvalidFilter, "expected a time"),
    ("seen", "-1", InvalidFilter, "expected a time"),
    ("seen", "9999999999999999", InvalidFilter, "expected a time"),
    ("seen", "0001-01-01T00:00:00+14:00", InvalidFilter, "expected a time"),
    ("photo", "ABCD", InvalidFilter, "lower-case hex"),
    ("photo", "abc", InvalidFilter, "lower-case hex"),
    ("name", "x" * 4097, InvalidFilter, "at most 4096"),
    ("select", "name,password", InvalidQuery, "no column password"),
    ("select", "name,name", InvalidQuery, "named twice"),
    ("select", "", InvalidQuery, "no column"),
    ("select", "*", InvalidQuery, "no column"),
    ("order", "nobody", InvalidQuery, "no column nobody"),
    ("order", "name desc", InvalidQuery, "no column name desc"),
    ("order", "age,-age", InvalidQuery, "named twice"),
    ("order", "extra", InvalidQuery, "has no order"),
    ("order", ",".join(f"c{n}" for n in range(9)), InvalidQuery, "at most 8"),
    ("limit", "0", InvalidQuery, "1 to 10000"),
    ("limit", "10001", InvalidQuery, "1 to 10000"),
    ("limit", "99999999999999999999999", InvalidQuery, "1 to 10000"),
    ("limit", "ten", InvalidQuery, "1 to 10000"),
    ("cursor", "", InvalidQuery, "malformed"),
    ("cursor", "!!!", InvalidQuery, "malformed"),
    ("cursor", "A" * 20_000, InvalidQuery, "malformed"),
    ("cursor", "eyJ4IjoxfQ", InvalidQuery, "malformed"),
    ("cursor", base64.urlsafe_b64encode(b"[" * 9000).decode(), InvalidQuery, "malformed"),
]


@pytest.mark.parametrize(("name", "text", "error", "says"), BAD)
def test_what_is_refused(name: str, text: str, error: type[PeerError], says: str) -> None:
    with pytest.raises(error) as caught:
        query.parse(PEOPLE, [(name, text)])
    assert says in caught.value.message
    assert len(caught.value.message) < 300


def test_twice_and_too_many() -> None:
    with pytest.raises(InvalidQuery, match="age: given twice"):
        query.parse(PEOPLE, [("age", "1"), ("age", "2")])
    with pytest.raises(InvalidQuery, match="limit: given twice"):
        query.parse(PEOPLE, [("limit", "1"), ("limit", "1")])
    with pytest.raises(InvalidQuery, match="at most 32 filters"):
        query.parse(PEOPLE, [(f"c{n}", "1") for n in range(33)])


def test_a_name_in_a_message_cannot_act_on_a_terminal() -> None:
    with pytest.raises(InvalidFilter) as caught:
        query.parse(PEOPLE, [("\x1b[31m" + "x" * 500, "1")])
    assert caught.value.message.isprintable()
    assert "x" * 65 not in caught.value.message


def _cursor(*values: Any, **asked: str) -> str:
    mark = query.parse(PEOPLE, list(asked.items())).fingerprint
    return base64.urlsafe_b64encode(msgspec.json.encode([mark, values])).decode().rstrip("=")


@pytest.mark.parametrize(
    ("order", "values"),
    [
        ("name", ()),
        ("name", (1,)),
        ("name", ("a", "b")),
        ("age", ("1", "a")),
        ("age", (True, "a")),
        ("age", (1 << 63, "a")),
        ("is_well", (1, "a")),
        ("seen", (1 << 62, "a")),
        ("seen", ("x", "a")),
        ("photo", ("zz", "a")),
        ("score", ("x", "a")),
        ("name", ({"$gt": ""},)),
    ],
)
def test_a_forged_cursor_is_refused(order: str, values: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidQuery, match="cursor: malformed"):
        query.parse(PEOPLE, [("order", order), ("cursor", _cursor(*values, order=order))])


@pytest.mark.parametrize("other", [{}, {"order": "-age"}, {"order": "age", "name.ne": "x"}])
def test_a_cursor_of_another_query_is_refused(other: dict[str, str]) -> None:
    with pytest.raises(InvalidQuery, match="cursor: belongs to another query"):
        query.parse(PEOPLE, [*other.items(), ("cursor", _cursor(1, "a", order="age"))])


def test_a_query_that_takes_too_long_is_given_up(place: str) -> None:
    database = ServingDatabase(place, patience_s=0.0011)
    database.upsert(PAIRS, ({"a": n, "b": "x" * 50, "c": n} for n in range(100_000)), {})
    with pytest.raises(QueryTooSlow):
        ask(database, "pairs", order="-c", b__contains="xy")
    database.close()


def test_the_connection_that_gave_up_serves_on(tmp_path: Any) -> None:
    database = ServingDatabase(str(tmp_path / "x.db"), patience_s=0.0)
    database.upsert(PAIRS, ({"a": n, "b": "x", "c": n} for n in range(20_000)), {})
    with pytest.raises(QueryTooSlow):
        ask(database, "pairs", b__contains="y")
    database._patience_s = 60
    assert ask(database, "pairs", b__contains="y") == []
    database.close()
