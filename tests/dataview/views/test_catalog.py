"""Views on real tables: the built-in ones, and the user's own."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from enc.core.errors import MisuseError
from enc.dataview.lake.driver_rows import DriverLimits
from enc.dataview.publish.changes import ChangePublisher
from enc.dataview.publish.serving_writer import ServingWriter
from enc.dataview.views import refresh as view_refresh
from enc.dataview.views.build_views import Views
from enc.dataview.views.catalog import load_views, view
from enc.dataview.views.view_file import View, parse_view
from tests.dataview.silver import Silver, at, content, entry, event, interval, jobs, post, slot
from tests.documents import blocks

HOUR_MS = 3_600_000
ENTRY = "event string, author string, seq bigint, timestamp timestamp"
GOLD = {
    "tags": "enclave string, seq bigint, id string, type string, position int, name string, value string, "
    "tag array<string>",
    "activity_hourly": "enclave string, hour timestamp, type string, events bigint, first_seq bigint, last_seq bigint",
    "members": "enclave string, identity string, state string, traits array<string>, owner boolean, since_seq bigint, "
    "since timestamp",
    "figures": "kind string, name string, events bigint, enclaves bigint, delay_ms bigint, latest timestamp, "
    "received_at timestamp",
    "refusals": "origin string, code string, refused bigint, latest timestamp, reason string, example string",
    "roles": "state string, members bigint, owners bigint, enclaves bigint",
    "profiles": "identity string, enclave string, kind string, value string, seq bigint, timestamp timestamp",
    "timeline": "enclave string, id string, seq bigint, author string, content string, posted_at timestamp, "
    "edited_at timestamp, withheld struct<reason:string,ts:bigint,node:string,sig:string>",
    "registry_nodes": "enclave string, seq_pub string, endpoints array<string>, protocols array<string>, enc_v int, "
    + ENTRY,
    "registry_enclaves": "enclave string, enclave_id string, app string, description string, meta string, "
    "creator string, sequencer string, " + ENTRY,
    "registry_identities": "enclave string, id_pub string, enclaves map<string,string>, sub_pub string, " + ENTRY,
}
NODE = '{"seq_pub":"%s","endpoints":[{"uri":"http://b","priority":2},{"uri":"http://a","priority":1}],"enc_v":2}'
ENCLAVE = '{"app":"chat","desc":"d","meta":{"a":1},"manifest_event":{"enclave":"%s","from":"ann","sequencer":"s1"}}'
IDENTITY = '{"id_pub":"%s","enclaves":{"personal":"e1"},"sub_pub":"sub"}'


@pytest.fixture(scope="module")
def empty(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("silver") / "lake"
    Silver(spark, root).create()
    return root


@pytest.fixture
def silver(spark: SparkSession, empty: Path, tmp_path: Path) -> Silver:
    shutil.copytree(empty, tmp_path / "lake")
    return Silver(spark, tmp_path / "lake")


def of(*views: tuple[str, str, str]) -> list[View]:
    """Return views by name, header and SQL."""
    return [parse_view(f"{header}\n{sql}", name) for name, header, sql in views]


def naive(hours: float) -> Any:
    """Return a time as Spark returns it."""
    return at(hours).replace(tzinfo=None)


def hour(hours: float) -> str:
    """Return the name that `figures` uses."""
    return f"{at(hours):%Y-%m-%dT%H:%M:%SZ}"


def check(views: Views, spark: SparkSession, **expected: list[tuple[Any, ...]]) -> None:
    for name, rows in expected.items():
        assert content(spark, views.table(name)) == rows, name


def changed(views: Views, spark: SparkSession, names: tuple[str, ...] = (), **more: Any) -> list[str]:
    built = views.build(spark, names, **more)
    assert not any(each.failures for each in built), built
    return [each.name for each in built if each.changed]


def fill(silver: Silver) -> None:
    silver.add("enclaves", {"enclave": "reg", "registry": True}, {"enclave": "e1", "registry": False})
    silver.add("access", interval("ann", 0), interval("bob", 1), interval("cy", 2, to_seq=3))
    shared = slot("", '"s"', enclave="e2", kind="Shared", author="cy", timestamp=at(2))
    silver.add("slots", slot("ann", '"a"'), slot("bob", '"b"'), shared, slot("dan", "1", key="other"))
    node, there = NODE % "k1", ENCLAVE % "e1"
    silver.add(
        "content_status",
        *(post(seq) for seq in (1, 2, 3)),
        post(4, type="private"),
        post(5, status="deleted", content=None),
        entry(1, "Reg_Node", node),
        entry(2, "Reg_Node", NODE % "k2"),
        entry(3, "Reg_Enclave", there),
        entry(4, "Reg_Identity", IDENTITY % "ann"),
        entry(5, "Reg_Identity", IDENTITY % "bob"),
        entry(6, "Reg_Node", "no json"),
        post(7, type="Reg_Node", content=node),
    )
    silver.add("events", *(event(seq, tags=[["r", "x", "y"], ["t"]] if seq == 2 else []) for seq in (1, 2, 3)))
    bad = {"code": "INVALID_HASH", "received_at": at(5)}
    silver.add(
        "quarantine",
        {**bad, "origin": "archive:/a/b.enc", "reason": "cut"},
        {**bad, "origin": "archive:/a/c.enc", "received_at": at(6), "reason": "broken"},
        {"origin": None, "code": None},
    )


def fill_more(silver: Silver) -> None:
    silver.put(
        "content_status",
        post(1, status="updated", content="edited", revised_at=at(9)),
        post(2, status="deleted", content=None),
        post(8),
        post(9, type="private"),
        entry(11, "Reg_Node", '{"seq_pub":"k1","protocols":["v2"],"enc_v":"x"}'),
        entry(2, "Reg_Node", NODE % "k2", status="deleted"),
        entry(5, "Reg_Identity", IDENTITY % "bob", status="deleted"),
    )
    silver.put("access", interval("bob", 1, to_seq=9), interval("ann", 0, to_seq=8), interval("ann", 8, owner=True))
    silver.put("slots", slot("ann", '"new"', enclave="e2", seq=4, timestamp=at(4)))
    silver.remove("slots", "owner = 'bob'")
    late = {"origin": "node:http://n", "received_at": at(3)}
    silver.add("events", event(4, tags=[["z"]]), event(0, type="Manifest", **late), event(3, enclave="e2"))
    silver.add("events", event(5, type="Delete"))
    silver.add(
        "quarantine", {"origin": "archive:/a/d.enc", "code": "INVALID_HASH", "received_at": at(7), "reason": "x"}
    )


REGISTERED = ({"personal": "e1"}, "sub")
GOLD_ROWS: dict[str, list[tuple[Any, ...]]] = {
    "tags": [
        ("e1", 2, "p2", "public", 0, "r", "x", ["r", "x", "y"]),
        ("e1", 2, "p2", "public", 1, "t", None, ["t"]),
    ],
    "activity_hourly": [("e1", naive(0), "public", 1, 1, 1), ("e1", naive(1), "public", 2, 2, 3)],
    "members": [
        ("e1", "ann", "MEMBER", ["a"], False, 0, naive(0)),
        ("e1", "bob", "MEMBER", ["a"], False, 1, naive(1)),
    ],
    "figures": [
        ("all", "", 3, 0, 0, naive(1.5), None),
        ("hour", hour(0), 1, 0, 0, naive(0.5), None),
        ("hour", hour(1), 2, 0, 0, naive(1.5), None),
        ("origin", "", 3, 0, 0, naive(1.5), None),
        ("type", "public", 3, 0, 0, naive(1.5), None),
    ],
    "refusals": [
        ("", "", 1, None, None, None),
        ("archive:/a/", "INVALID_HASH", 2, naive(6), "broken", "archive:/a/c.enc"),
    ],
    "roles": [("MEMBER", 2, 0, 1)],
    "profiles": [
        ("ann", "e1", "Own", '"a"', 1, naive(1)),
        ("bob", "e1", "Own", '"b"', 1, naive(1)),
        ("cy", "e2", "Shared", '"s"', 1, naive(2)),
    ],
    "timeline": [("e1", f"p{seq}", seq, "ann", f"post {seq}", naive(seq), None, None) for seq in (1, 2, 3)],
    "registry_nodes": [
        ("reg", f"k{seq}", ["http://a", "http://b"], None, 2, f"p{seq}", "ann", seq, naive(seq)) for seq in (1, 2)
    ],
    "registry_enclaves": [("reg", "e1", "chat", "d", '{"a":1}', "ann", "s1", "p3", "ann", 3, naive(3))],
    "registry_identities": [
        ("reg", "ann", *REGISTERED, "p4", "ann", 4, naive(4)),
        ("reg", "bob", *REGISTERED, "p5", "ann", 5, naive(5)),
    ],
}
"""The rows of each view after `fill`."""

ROWS_AFTER_MORE = GOLD_ROWS | {
    "tags": [*GOLD_ROWS["tags"], ("e1", 4, "p4", "public", 0, "z", None, ["z"])],
    "activity_hourly": [
        ("e1", naive(0), "Manifest", 1, 0, 0),
        ("e1", naive(0), "public", 1, 1, 1),
        ("e1", naive(1), "public", 2, 2, 3),
        ("e1", naive(2), "Delete", 1, 5, 5),
        ("e1", naive(2), "public", 1, 4, 4),
        ("e2", naive(1), "public", 1, 3, 3),
    ],
    "members": [("e1", "ann", "MEMBER", ["a"], True, 8, naive(8))],
    "figures": [
        ("all", "", 7, 1, 3 * HOUR_MS, naive(2.5), naive(3)),
        ("hour", hour(0), 2, 1, 3 * HOUR_MS, naive(0.5), naive(3)),
        ("hour", hour(1), 3, 0, 0, naive(1.5), None),
        ("hour", hour(2), 2, 0, 0, naive(2.5), None),
        ("origin", "", 6, 0, 0, naive(2.5), None),
        ("origin", "node:http://n", 1, 1, 3 * HOUR_MS, naive(0), naive(3)),
        ("type", "Delete", 1, 0, 0, naive(2.5), None),
        ("type", "Manifest", 1, 1, 3 * HOUR_MS, naive(0), naive(3)),
        ("type", "public", 5, 0, 0, naive(2), None),
    ],
    "refusals": [GOLD_ROWS["refusals"][0], ("archive:/a/", "INVALID_HASH", 3, naive(7), "x", "archive:/a/d.enc")],
    "roles": [("MEMBER", 1, 1, 1)],
    "profiles": [("ann", "e2", "Own", '"new"', 4, naive(4)), GOLD_ROWS["profiles"][2]],
    "timeline": [
        ("e1", "p1", 1, "ann", "edited", naive(1), naive(9), None),
        GOLD_ROWS["timeline"][2],
        ("e1", "p8", 8, "ann", "post 8", naive(8), None, None),
    ],
    "registry_nodes": [("reg", "k1", None, ["v2"], None, "p11", "ann", 11, naive(11))],
    "registry_identities": GOLD_ROWS["registry_identities"][:1],
}
"""The rows of each view after `fill` and `fill_more`."""


def test_gold_follows_silver(spark: SparkSession, silver: Silver, tmp_path: Path) -> None:
    fill(silver)
    writer = ServingWriter(str(tmp_path / "serving.db"))
    views = Views(silver.lake, (), ChangePublisher(writer))
    assert sorted(changed(views, spark, progress={"e1": 6})) == sorted(GOLD)
    for name, columns in GOLD.items():
        found = views.table(name).read(spark).schema
        assert ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in found) == columns
        assert views.table(name).path == f"{silver.lake.root}/{'silver' if name == 'tags' else 'gold'}/{name}"
    check(views, spark, **GOLD_ROWS)
    before = jobs(spark)
    assert changed(views, spark, progress={"e1": 6}) == []
    assert jobs(spark) == before, "nothing has changed, and nothing is computed"

    fill_more(silver)
    assert set(changed(views, spark, progress={"e1": 10})) == set(GOLD) - {"registry_enclaves"}
    check(views, spark, **ROWS_AFTER_MORE)
    for name, rows in ROWS_AFTER_MORE.items():
        check_served(writer, name, len(rows), 10)
    writer.close()


def test_a_view_that_was_built_and_not_published_is_published_next_time(
    spark: SparkSession, silver: Silver, tmp_path: Path
) -> None:
    writer = ServingWriter(str(tmp_path / "serving.db"))
    silver.add("content_status", post(1), post(3), post(8))
    views = Views(silver.lake, (), ChangePublisher(writer))
    assert changed(views, spark, ("timeline",), progress={"e1": 10}) == ["timeline"]
    # These views die before they publish; the next ones find the table built.
    silver.put("content_status", post(3, status="deleted", content=None), post(12))
    assert changed(Views(silver.lake), spark, ("timeline",)) == ["timeline"]
    views = Views(silver.lake, (), ChangePublisher(writer))
    assert changed(views, spark, ("timeline",), progress={"e1": 13}) == []
    assert check_served(writer, "timeline", 3, 13) == {"p1", "p8", "p12"}
    writer.close()


def check_served(writer: ServingWriter, name: str, count: int, end: int) -> set[str]:
    """Check a published view; return the ids of its rows, if they have ids."""
    with writer._database.reading() as snapshot:
        stored = snapshot.view(name)
        assert stored is not None
        assert stored.schema.description, name
        rows = snapshot.rows(snapshot.table(stored.schema).select())
        assert len(rows) == count, name
        assert dict(snapshot.progress(name, 10)) == {"e1": end}, name
        return {row.id for row in rows if hasattr(row, "id")}


BY_AUTHOR = "-- key: author\n-- refresh: by author from timeline"
POSTS = "SELECT author, count(*) AS posts FROM timeline GROUP BY author"
ADDED = "-- key: type\n-- refresh: incremental\n-- add: n"
COUNTED = "SELECT type, count(*) AS n FROM events GROUP BY type"
NAMES = ("timeline", "posts", "most", "loud", "counted")


def test_views_of_the_users_own(spark: SparkSession, silver: Silver, monkeypatch: pytest.MonkeyPatch) -> None:
    @view(key="author")
    def loud(posts: DataFrame) -> DataFrame:
        return posts.selectExpr("upper(author) AS author", "posts")

    made = loud.__enc_view__  # type: ignore[attr-defined]
    most = ("most", "-- key: most", "SELECT max(posts) AS most FROM posts")
    own = of(most, ("posts", BY_AUTHOR, POSTS), ("counted", ADDED, COUNTED))
    views = Views(silver.lake, [*own, made])
    silver.add("content_status", post(1), post(2, author="bob"), post(3, author="bob"))
    silver.add("events", event(1), event(2, type="x"))
    assert changed(views, spark, NAMES) == ["timeline", "posts", "most", "counted", "loud"]
    check(views, spark, posts=[("ann", 1), ("bob", 2)], most=[(2,)], loud=[("ANN", 1), ("BOB", 2)])
    # A removed group disappears; an irrelevant change leaves a view alone.
    silver.put("content_status", post(1, status="deleted"), post(4, type="private"))
    assert changed(views, spark, NAMES[:3]) == ["timeline", "posts", "most"]
    check(views, spark, posts=[("bob", 2)], most=[(2,)])
    monkeypatch.setattr(view_refresh, "STRIDE", 1)
    silver.put("content_status", post(4, type="private", status="deleted"))
    version = views.table("timeline").version(spark)
    assert changed(views, spark, ("timeline",)) == []
    assert views.table("timeline").version(spark) == version + 1, "it records up to which version it has read"
    assert changed(Views(silver.lake), spark, ("timeline",)) == [], "and the next reader gets it"

    wider = COUNTED.replace("count(*) AS n", "count(*) AS n, max(seq) AS latest")
    views = Views(silver.lake, of(("counted", ADDED, wider)))
    silver.add("events", event(3), event(4))
    assert changed(views, spark, ("counted",)) == ["counted"], "with other SQL it is built from the beginning"
    check(views, spark, counted=[("public", 3, 4), ("x", 1, 2)])
    assert views.rebuild(spark, "counted").changed
    silver.add("events", event(5))
    assert changed(views, spark, ("counted",)) == ["counted"]
    check(views, spark, counted=[("public", 4, 5), ("x", 1, 2)])


def test_an_edited_view_keeps_rows_that_its_source_may_not_have(
    spark: SparkSession, silver: Silver, caplog: pytest.LogCaptureFixture
) -> None:
    header = "-- key: code\n-- refresh: incremental from quarantine\n-- add: n"
    sql = "SELECT code, count(*) AS n FROM quarantine GROUP BY code"
    silver.add("quarantine", {"code": "FORK"}, {"code": "FORK"})
    assert changed(Views(silver.lake, of(("mine", header, sql))), spark, ("mine",)) == ["mine"]
    silver.remove("quarantine", "code = 'FORK'")
    silver.add("quarantine", {"code": "DISTRUST"})
    edited = of(("mine", header, sql.replace("code,", "lower(code) AS code,").replace("BY code", "BY 1")))
    views = Views(silver.lake, edited)
    assert changed(views, spark, ("mine",)) == ["mine"]
    check(views, spark, mine=[("FORK", 2), ("distrust", 1)])
    assert [each for each in caplog.messages if "`enc dataview rebuild mine`" in each]
    caplog.clear()
    silver.add("quarantine", {"code": "FORK"})
    assert changed(Views(silver.lake, edited), spark, ("mine",)) == ["mine"]
    assert not caplog.messages, "the edit is reported once"
    # An edit is reported although the source has not changed.
    again = Views(silver.lake, of(("mine", header, f"{sql} ORDER BY n")))
    assert changed(again, spark, ("mine",)) == []
    assert [each for each in caplog.messages if "`enc dataview rebuild mine`" in each]


PYTHON = """
from enc.dataview.views.catalog import view
import _words

@view(key="author", refresh="by author from content_status")
def loud(content_status):
    return content_status.groupBy("author").count().selectExpr("author", "count AS n", f"'{_words.SIGN}' AS sign")
"""


def test_an_edited_python_view_is_built_again(spark: SparkSession, silver: Silver, tmp_path: Path) -> None:
    folder = tmp_path / "views"
    folder.mkdir()
    (folder / "loud.py").write_text(PYTHON)
    (folder / "_words.py").write_text("SIGN = '!'")
    silver.add("content_status", post(1), post(2, author="bob"))

    def build() -> list[tuple[Any, ...]]:
        views = Views(silver.lake, load_views(folder))
        assert not views.build(spark, ("loud",))[0].failures
        return content(spark, views.table("loud"))

    assert build() == [("ann", 1, "!"), ("bob", 1, "!")]
    version = Views(silver.lake, load_views(folder)).table("loud").version(spark)
    assert build() == [("ann", 1, "!"), ("bob", 1, "!")]
    assert Views(silver.lake, load_views(folder)).table("loud").version(spark) == version, "no edit, no build"
    (folder / "_words.py").write_text("SIGN = '?'")
    assert build() == [("ann", 1, "?"), ("bob", 1, "?")]
    (folder / "loud.py").write_text(PYTHON.replace("count AS n", "-count AS n"))
    assert build() == [("ann", -1, "?"), ("bob", -1, "?")]


def test_functions_of_modules_beside_a_view_run_on_executors(
    spark: SparkSession, silver: Silver, tmp_path: Path
) -> None:
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "_beside.py").write_text("SIGN = '!'\n\ndef mark(text):\n    return text + SIGN\n")
    (tmp_path / "views" / "marked.py").write_text(
        "import _beside\nfrom pyspark.sql.functions import udf\nfrom enc.dataview.views.catalog import view\n\n"
        "@view(key='id')\ndef marked(content_status):\n"
        "    return content_status.select('id', udf(lambda text: _beside.mark(text))('author').alias('who'))\n"
    )
    silver.add("content_status", post(1))
    views = Views(silver.lake, load_views(tmp_path / "views"))
    assert changed(views, spark, ("marked",)) == ["marked"]
    check(views, spark, marked=[("p1", "ann!")])


def test_what_by_groups_cannot_follow_is_made_whole(spark: SparkSession, silver: Silver) -> None:
    header = "-- key: author\n-- refresh: by author from content_status\n-- test: accepted(n, 1, 2)"
    sql = "SELECT author, count(*) AS n FROM content_status GROUP BY author"
    silver.add("content_status", post(1), post(2, author="bob"))
    assert changed(Views(silver.lake, of(("mine", header, sql))), spark, ("mine",)) == ["mine"]
    # Other SQL.
    views = Views(silver.lake, of(("mine", header, sql.replace("AS n", "AS n, max(seq) AS last"))))
    assert changed(views, spark, ("mine",)) == ["mine"]
    check(views, spark, mine=[("ann", 1, 1), ("bob", 1, 2)])
    # A failing test: the view stays unchanged, and is tested again after the next change.
    silver.add("content_status", post(3), post(4))
    [built] = views.build(spark, ["mine"])
    assert built.failures == ("accepted(n, 1, 2): fails for 3",)
    before = jobs(spark)
    [again] = views.build(spark, ["mine"])
    assert (again.changed, again.failures) == (False, built.failures)
    assert jobs(spark) == before
    check(views, spark, mine=[("ann", 1, 1), ("bob", 1, 2)])
    silver.remove("content_status", "seq = 3")
    assert changed(views, spark, ("mine",)) == ["mine"]
    check(views, spark, mine=[("ann", 2, 4), ("bob", 1, 2)])
    # The changes are no longer known.
    source = silver.lake["content_status"]
    silver.put("content_status", post(2, author="bob", content="new"))
    silver.put("content_status", post(9, author="bob"))
    source.vacuum(spark, 0)
    assert changed(views, spark, ("mine",)) == ["mine"]
    check(views, spark, mine=[("ann", 2, 4), ("bob", 2, 9)])
    # A source that was rebuilt, with as many versions.
    shutil.rmtree(source.path)
    source.create(spark)
    for seq in (5, 6, 7, 8):
        silver.add("content_status", post(seq, author=f"a{seq}"))
    views = Views(silver.lake, [views.views["mine"]])
    assert changed(views, spark, ("mine",)) == ["mine"]
    check(views, spark, mine=[(f"a{seq}", 1, seq) for seq in (5, 6, 7, 8)])


def test_what_fails_is_said(spark: SparkSession, silver: Silver) -> None:
    silver.add("events", event(1), event(2))
    header = "-- key: enclave\n-- test: accepted(type, Manifest)\n-- test: not_null(odd)\n-- test: not_null(gone)"
    views = Views(silver.lake, of(("bad", header, "SELECT enclave, type, nullif(seq, 2) AS odd FROM events")))
    [built] = views.build(spark, ["bad"])
    assert [text.split(":")[0] for text in built.failures] == [
        "unique(enclave)",
        "accepted(type, Manifest)",
        "not_null(odd)",
        "not_null(gone)",
    ]
    assert views.test(spark, ["bad"])[0].failures == built.failures
    for header, sql, says in (
        ("", "SELECT 1 AS x", "lack column id"),
        ("", "SELEC 1", "SELEC"),
        ("", "SELECT id FROM nowhere", "nowhere"),
        ("-- refresh: by who as id from events", "SELECT id FROM events", "by who: events has enclave, seq"),
        ("-- refresh: by id from events\n-- where: x >", "SELECT id FROM events", "PARSE_SYNTAX_ERROR"),
        ("", "SELECT id FROM tags", "reads tags, which has not been built yet"),
    ):
        wrong = Views(silver.lake, of(("wrong", f"-- key: id\n{header}", sql)))
        [built] = wrong.build(spark, ["wrong"])
        assert (built.changed, len(built.failures)) == (False, 1)
        assert says in built.failures[0]
    with pytest.raises(MisuseError, match="no such view"):
        views.build(spark, ["other"])
    assert not Path(silver.lake.root, "views", "wrong").exists()


def test_a_view_that_cannot_be_made_keeps_no_other_from_it(spark: SparkSession, silver: Silver, tmp_path: Path) -> None:
    """Nor does a hostile event: the view is built and published once the event is gone."""

    @view(key="id")
    def divided(timeline: DataFrame) -> DataFrame:
        return timeline.limit(1 // 0)

    @view(key="id")
    def nothing(timeline: DataFrame) -> None:
        "No rows."

    made: list[Any] = [divided, nothing]
    functions: list[View] = [each.__enc_view__ for each in made]
    numbers = of(("numbers", "-- key: id", "SELECT id, CAST(content AS int) AS n FROM Timeline"))
    good = of(("z_good", "-- key: id", "SELECT id FROM TIMELINE"))
    writer = ServingWriter(str(tmp_path / "serving.db"))
    views = Views(silver.lake, [*functions, *numbers, *good], ChangePublisher(writer))
    silver.add("content_status", post(1, content="7"))
    names = ("timeline", "divided", "nothing", "numbers", "z_good")
    built = {each.name: each for each in views.build(spark, names)}
    assert built["divided"].failures == (
        "view divided: its function raised ZeroDivisionError: integer division or modulo by zero",
    )
    assert built["nothing"].failures == ("view nothing: its function returned a NoneType, not a DataFrame",)
    assert {name for name, each in built.items() if each.changed} == {"timeline", "numbers", "z_good"}
    silver.add("content_status", post(2, content="seven"))
    for _ in range(2):
        built = {each.name: each for each in views.build(spark, names)}
        assert "CAST_INVALID_INPUT" in built["numbers"].failures[0]
    check(views, spark, numbers=[("p1", 7)], z_good=[("p1",), ("p2",)])
    silver.remove("content_status", "seq = 2")
    silver.add("content_status", post(3, content="8"))
    assert not {each.name for each in views.build(spark, names) if each.failures} - {"divided", "nothing"}
    published = writer.last_batch_id("numbers")
    writer.close()
    check(views, spark, numbers=[("p1", 7), ("p3", 8)], z_good=[("p1",), ("p3",)])
    assert published is not None


def test_more_changes_than_the_driver_takes_are_followed_alike(spark: SparkSession, silver: Silver) -> None:
    """Groups that are joined instead of listed, including null; rows that stay on the executors."""
    own = of(
        ("posts", BY_AUTHOR, POSTS),
        ("counted", ADDED, COUNTED),
        ("seqs", "-- key: enclave, seq\n-- refresh: append from events", "SELECT enclave, seq FROM events"),
    )
    names = ("timeline", "posts", "counted", "seqs")
    views = Views(silver.lake, own, limits=DriverLimits(max_rows=1, max_listed_values=1))
    silver.add("content_status", *(post(n, author=f"a{n}") for n in range(4)))
    silver.add("events", event(1), event(2, type="x"))
    assert changed(views, spark, names) == [*names]
    silver.put("content_status", *(post(n, author=f"a{n}", status="deleted") for n in (0, 1)))
    silver.add("content_status", post(4, author="a2"), post(5, author="a5"), post(6, type="private"))
    silver.add("events", event(3), event(4, type="x"), event(5, type="x"))
    assert changed(views, spark, names) == [*names]
    check(
        views,
        spark,
        posts=[("a2", 2), ("a3", 1), ("a5", 1)],
        counted=[("public", 2), ("x", 3)],
        seqs=[("e1", n) for n in (1, 2, 3, 4, 5)],
    )
    assert {row[1] for row in content(spark, views.table("timeline"))} == {"p2", "p3", "p4", "p5"}


def test_the_guides_views_are_built_whatever_is_in_quarantine(spark: SparkSession, silver: Silver) -> None:
    """A file that cannot be read is a row without an enclave and a seq."""
    blocks_ = [block.text for block in blocks("docs/guide-data-engineer.md", "sql")]
    texts = dict(zip(("talkers", "refused"), blocks_, strict=True))
    views = Views(silver.lake, [parse_view(text, name) for name, text in texts.items()])
    silver.add("content_status", post(1))
    silver.add(
        "quarantine",
        {"code": "INVALID_ARCHIVE", "origin": "archive:/a.enc", "reason": "cut"},
        {"code": "INVALID_ARCHIVE", "origin": "archive:/b.enc", "reason": "cut"},
        {"code": "INVALID_HASH", "origin": "archive:/b.enc", "enclave": "e1", "seq": 4, "reason": "altered"},
        {"code": "INVALID_HASH", "origin": None, "enclave": "e1", "seq": 4, "reason": "altered"},
    )
    assert set(changed(views, spark, tuple(texts))) == set(texts)
    assert [row[-1] for row in content(spark, views.table("refused"))] == [1, 1, 1, 1]
