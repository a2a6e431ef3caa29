"""Searches find the same events by every index as by reading each event, and read no others."""

import random
import sqlite3
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Semaphore
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from enc.core.log.event import erase
from enc.core.log.filter import Filter, parse_filter
from enc.core.rules.policy_types import ReadScope
from enc.node.store.sqlite import connection, search, search_plan
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import ReadRights, Store
from enc.testing.memory_store import MemoryStore
from tests.core.world import START
from tests.node.store_host import EVERYTHING, Host, Log, effort, seqs

PEOPLE = [bytes([n]) * 32 for n in range(1, 5)]
REACHES = ["none", "own", "some", "all"]


def random_log(rng: random.Random, *stores: Store) -> Log:
    log = Log(*stores)
    for _ in range(160):
        target = rng.choice(log.events)
        if rng.random() < 0.2 and target.type in ("message", "note") and target.content is not None:
            done = log.revise(rng.choice(["Update", "Delete"]), target, from_=rng.choice(PEOPLE))
            log.events[target.seq] = erase(target)
            if done.type == "Delete":
                log.events[target.seq] = replace(log.events[target.seq], type="deleted")
        else:
            names = rng.choices(["k", "r", "q"], k=rng.randrange(4))
            tags = tuple((name, *([rng.choice("abc")] if rng.random() < 0.7 else [])) for name in names)
            log.add(rng.choice(["message", "note", "rare"]), from_=rng.choice(PEOPLE), tags=tags)
        if rng.random() < 0.1:
            log.write()
    log.write()
    return log


def random_filter(rng: random.Random, log: Log) -> Filter:
    some: dict[str, Callable[[], Any]] = {
        "id": lambda: [rng.choice(log.events).id.hex() for _ in range(rng.randrange(1, 9))],
        "seq": lambda: [rng.randrange(200) for _ in range(9)] if rng.random() < 0.3 else span(rng, 0, 170),
        "type": lambda: rng.sample(["message", "note", "rare", "Update", "Delete", "none"], rng.randrange(1, 4)),
        "from": lambda: [each.hex() for each in rng.sample(PEOPLE, rng.randrange(1, 3))],
        "tags": lambda: {name: rng.choice([True, "a", ["b", "c"]]) for name in rng.sample("krq", rng.randrange(1, 3))},
        "timestamp": lambda: span(rng, START, START + 1700),
    }
    chosen = rng.sample(sorted(some), rng.choice([0, 1, 1, 2, 3]))
    return parse_filter({"reverse": rng.random() < 0.5, **{name: some[name]() for name in chosen}})


def span(rng: random.Random, low: int, high: int) -> dict[str, int]:
    ends = {rng.choice(["start_at", "start_after"]): rng.randrange(low, high)}
    ends |= {rng.choice(["end_at", "end_before"]): rng.randrange(low, high)}
    return dict(rng.sample(sorted(ends.items()), rng.randrange(1, 3)))


def random_reader(rng: random.Random) -> ReadRights:
    types = {type_: rng.choice(REACHES) for type_ in rng.sample(["message", "note", "rare"], rng.randrange(4))}
    scope: Any = ReadScope(types, rng.choice(REACHES))  # type: ignore[arg-type]
    return ReadRights(rng.choice([*PEOPLE, b""]), scope, lambda event, subject: event.seq % 3 == 0)


def watched(items: Callable[..., Any], given: set[int]) -> Callable[..., Any]:
    """Return a replacement of Search.items that records the keys of the rows it gets."""

    def observe_write(self: search.EventSearch, rows: list[Any]) -> Any:
        given.update(row[0] for row in rows)
        return items(self, rows)

    return observe_write


def reaches(reader: ReadRights) -> set[str]:
    return {*reader.scope.types.values(), reader.scope.others}


WAYS = [
    {},
    {"MAX_WASTE": -1},
    {"MAX_WASTE": -1, "MAX_RANGES": 0},
    {"MAX_WASTE": -1, "MAX_PROBE": 1},
    {"MAX_WASTE": 20, "PAGE_ROWS": 7},
    {"MAX_WASTE": -1, "PAGE_ROWS": 2, "PAGE_BYTES": 20},
    {"MAX_WORK": 100, "WORK_STEP": 10},
    {"MAX_WORK": 10, "WORK_STEP": 10, "MAX_WASTE": -1},
    {"MAX_WORK": 50, "WORK_STEP": 10, "MAX_WASTE": -1, "MAX_RANGES": 0, "PAGE_ROWS": 2, "BATCH": 1},
]


@pytest.mark.parametrize("limits", WAYS, ids=str)
def test_every_way_finds_what_a_look_at_each_event_finds(
    limits: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in limits.items():
        for module in (search, search_plan):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    rng, memory, store = random.Random(str(limits)), MemoryStore(), SqliteStore(tmp_path / "enc.db")
    log, found = random_log(rng, memory, store), 0
    Log(memory, store, meta={"n": "an enclave beside it"}).write()
    given = set[int]()
    monkeypatch.setattr(search.EventSearch, "items", watched(search.EventSearch.items, given))
    for _ in range(300):
        filter_, reader = random_filter(rng, log), random_reader(rng)
        expected = list(memory.find(log.enclave, filter_, reader))
        given.clear()
        items = list(store.find(log.enclave, filter_, reader))
        assert [item.seq for item in items] == [item.seq for item in expected], (filter_, reader)
        if not filter_.ids and not isinstance(filter_.seqs, frozenset) and "some" not in reaches(reader):
            assert len(given) == len(items), (filter_, reader)  # only matching rows were read
        assert [msgspec.json.decode(item.json) for item in items] == [
            msgspec.json.decode(item.json) for item in expected
        ]
        found += len(items)
    assert found > 1000
    store.close()


# SQLite alone


FEW = b"F" * 32
"""The author of ten events at the end of a long log."""
NOBODY = ReadRights(b"", ReadScope({}, "none"), lambda event, subject: False)
SELECTIVE: list[tuple[dict[str, Any], ReadRights]] = [
    ({"from": FEW.hex()}, EVERYTHING),
    ({"from": FEW.hex(), "reverse": True}, EVERYTHING),
    ({"type": "rare"}, EVERYTHING),
    ({"type": "rare", "tags": {"often": True}}, EVERYTHING),
    ({"tags": {"k": "late"}}, EVERYTHING),
    ({"tags": {"k": ["late", "never"]}}, EVERYTHING),
    ({"tags": {"seldom": True}}, EVERYTHING),
    ({"tags": {"often": "yes", "k": "late"}}, EVERYTHING),
    ({"tags": {"k": "late"}, "from": FEW.hex(), "type": "rare"}, EVERYTHING),
    ({"tags": {"often": True}, "from": FEW.hex()}, EVERYTHING),
    ({"seq": "the last ten"}, EVERYTHING),
    ({"timestamp": "the last ten"}, EVERYTHING),
    ({}, replace(NOBODY, identity=FEW, scope=ReadScope({}, "own"))),
    ({}, replace(NOBODY, identity=FEW, scope=ReadScope({"message": "own", "rare": "own"}, "none"))),
    ({}, replace(NOBODY, identity=FEW, scope=ReadScope({"message": "none"}, "own"))),
    ({"reverse": True}, replace(NOBODY, identity=FEW, scope=ReadScope({"message": "none"}, "own"))),
    ({}, replace(NOBODY, scope=ReadScope({"message": "none", "Manifest": "none"}, "all"))),
    ({}, replace(EVERYTHING, scope=ReadScope({"rare": "some"}, "none"))),
]


@pytest.mark.parametrize(("wire", "readable"), SELECTIVE)
def test_what_one_may_not_read_or_did_not_ask_for_costs_nothing(
    wire: dict[str, Any], readable: ReadRights, sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_plan, "MAX_WASTE", 50)
    monkeypatch.setattr(search_plan, "MAX_PROBE", 50)
    efforts = []
    for length in (200, 2000):
        log = Log(sqlite, meta={"length": length})
        for i in range(length):
            log.add(tags=(("often", "yes"),) if i % 2 else ())
        last = [log.add("rare", from_=FEW, tags=(("k", "late"), ("often", "yes"), ("seldom",))) for _ in range(10)]
        log.write()
        starts = {"seq": last[0].seq, "timestamp": last[0].timestamp}
        asked = {k: {"start_at": starts[k]} if k in starts else v for k, v in wire.items()} | {"limit": 1000}
        found, steps = effort(sqlite, partial(seqs, sqlite, log.enclave, readable, **asked))
        assert sorted(found) == [event.seq for event in last]
        efforts.append(steps)
    assert efforts[1] < efforts[0] * 1.5
    assert efforts[1] < 6000


def test_deleted_events_cost_nothing(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_plan, "MAX_WASTE", 50)
    log = Log(sqlite)
    doomed = [log.add(tags=(("k", "v"),)) for _ in range(1000)]
    for event in doomed:
        log.revise("Delete", event, from_=FEW)
    log.add("rare", tags=(("k", "v"),))
    log.write()
    for wire in ({"type": ["message", "rare"]}, {"tags": {"k": "v"}}, {"seq": {"end_at": 1000}, "limit": 1}):
        found, steps = effort(sqlite, partial(seqs, sqlite, log.enclave, EVERYTHING, **wire))
        assert found == ([0] if "seq" in wire else [2001])
        assert steps < 2000


def plan(db: sqlite3.Connection, sql: str) -> list[str]:
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * sql.count("?"))]


def test_the_plans_of_searches(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = search_plan.SearchPlan(
        e=1, low=0, high=99, reverse=False, kinds=[1], own=[], me=5, authors=None, tags=[], rest=0, everything=True
    )
    log = "SEARCH events USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
    kind = "SEARCH events USING INDEX events_kind (c=? AND rowid>? AND rowid<?)"
    author = "SEARCH events USING INDEX events_author (c=? AND from8=? AND rowid>? AND rowid<?)"
    tag = "SEARCH t USING PRIMARY KEY (e=? AND t8=? AND seq>? AND seq<?)"
    row = "SEARCH events USING INTEGER PRIMARY KEY (rowid=?)"
    db = sqlite.database.writer.db
    for reverse in (False, True):
        wanted = replace(wanted, reverse=reverse)
        monkeypatch.setattr(search_plan, "MAX_WASTE", 99)
        assert [plan(db, way.sql) for way in wanted.queries(db)] == [[log]]
        walk = plan(db, replace(wanted, everything=False, own=[2]).queries(db)[0].sql)
        assert walk[0] == log
        monkeypatch.setattr(search_plan, "MAX_WASTE", -1)
        assert [plan(db, way.sql) for way in replace(wanted, kinds=[1, 2]).queries(db)] == [[kind], [kind]]
        assert [plan(db, way.sql) for way in replace(wanted, kinds=[], own=[1]).queries(db)] == [[author]]
        assert [plan(db, way.sql) for way in replace(wanted, authors=[7, 8]).queries(db)] == [[author], [author]]
        many = replace(wanted, kinds=list(range(search_plan.MAX_RANGES)), own=[99], authors=[7, 8]).queries(db)
        assert len(many) == 2
        assert plan(db, many[0].sql)[0] == row  # the keys are sorted, not the rows
        for way in replace(wanted, tags=[[1, 2], [3]], everything=False).queries(db):
            steps = plan(db, way.sql)
            assert steps[:2] == [tag, row]
            assert not any("SCAN" in step and "json_each" not in step for step in steps)
            assert not any("TEMP B-TREE" in step for step in steps)
    lookups = {
        "SELECT 1 FROM events WHERE exp = ? AND hash8 = ? AND k BETWEEN ? AND ?": "events_hash",
        "SELECT 1 FROM events WHERE auto_delete <= ? ORDER BY auto_delete": "events_auto_delete",
        "SELECT 1 FROM events WHERE target = ?": "events_target",
        "SELECT 1 FROM states WHERE deadline <= ? ORDER BY deadline": "states_deadline",
        "SELECT 1 FROM enclaves WHERE terminated_at <= ? AND purged < 2 ORDER BY terminated_at": "enclaves_terminated",
    }
    for sql, index in lookups.items():
        (step,) = plan(db, sql)
        assert step.startswith("SEARCH"), sql
        assert index in step, sql


def test_pages_go_on_from_where_the_last_one_ended(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PAGE_ROWS", 3)
    log = Log(sqlite)
    for _ in range(10):
        log.add()
    log.write()
    found = sqlite.find(log.enclave, Filter(limit=100), EVERYTHING)
    first = [item.seq for item in islice(found, 2)]
    log.add("a new kind")
    log.add()
    log.write()
    assert first + [item.seq for item in found] == list(range(11))
    assert seqs(sqlite, log.enclave)[-2:] == [11, 12]


class Interrupted:
    """A connection that calls a function just before a statement."""

    def __init__(self, db: sqlite3.Connection, statement: str, happens: Callable[[], Any]) -> None:
        self._db, self._statement, self._happens = db, statement, happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if self._statement in sql:
            self._happens()
        return self._db.execute(sql, *args)


def test_a_state_and_what_is_pending_are_of_one_moment(sqlite: SqliteStore) -> None:
    host = Host(sqlite)
    enclave = host.create()
    event = host.send(enclave, "alice", "message", "first")
    before = sqlite.load(enclave)
    assert before is not None
    update = host.commit(enclave, "alice", "Update", "second", ("r", event.id.hex()))
    db = sqlite.database.readers._idle.pop()
    sqlite.database.readers._idle.append(Interrupted(db, "FROM pending", lambda: host.run(update)))  # type: ignore[arg-type]
    found = sqlite.load(enclave)
    after = sqlite.load(enclave)
    assert found is not None
    assert after is not None
    assert (found.seq, dict(found.pending)) == (before.seq, dict(before.pending))
    assert after.seq == before.seq + 1
    assert dict(after.pending) != dict(before.pending)


def test_a_reader_may_read_while_its_rights_are_asked(sqlite: SqliteStore) -> None:
    sqlite.database.readers._slots = Semaphore(1)
    log = Log(sqlite)
    event = log.add()
    log.write()
    some = ReadRights(b"", ReadScope({}, "some"), lambda each, subject: sqlite.event(log.enclave, each.id) is not None)
    found = sqlite.find(log.enclave, Filter(), some)
    assert next(found).seq == 0
    assert sqlite.event(log.enclave, event.id) is not None  # between two items no connection is held
    assert next(found).seq == 1
    sqlite.database.readers._slots.release(connection.MAX_READERS - 1)
