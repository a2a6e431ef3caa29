"""The push tables of a SQLite store: rows, failures, query plans, readers in other processes."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from msgspec.msgpack import decode as unpack
from msgspec.structs import replace

from enc.core.rules.policy_types import Effects, EndpointChange
from enc.node.store.push_interface import (
    BatchNotice,
    DeliveryResult,
    EventRange,
    Recipient,
)
from enc.node.store.sqlite.push import delivery_results, fan_out, queries
from enc.node.store.sqlite.push.reader import PushReader, read_reports, redeliver_at
from enc.node.store.sqlite.store import SqliteStore
from enc.testing.memory_store import MemoryStore
from tests.core.world import person
from tests.node.push_host import OTHER, URL, create, due, listen, queued
from tests.node.store_host import START, Host, Log, effort


def step_with(log: Log, audience: tuple[Recipient, ...]) -> None:
    log.add()
    log.steps[-1] = replace(log.steps[-1], recipients=audience)


def test_runs_of_one_audience_are_one_row_and_a_gap_begins_another(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    log, other = Log(store), Log(store, meta={"n": 2})
    one = (Recipient(b"V" * 32, URL, "P"),)
    two = (Recipient(b"N" * 32, URL, "N"), *one)
    for audience in (one, one, (), one, two, two):
        step_with(log, audience)
        step_with(other, one)
    both = [step for pair in zip(log.steps, other.steps, strict=True) for step in pair]
    store.write(both, START)
    rows = store.database.rows("SELECT e, first_seq, a, types IS NOT NULL FROM outbox ORDER BY o")
    assert rows == [(1, 1, 1, 0), (2, 1, 1, 0), (1, 4, 1, 0), (1, 5, 2, 1)]
    store.fan_out(START)
    assert [batch.runs for batch in store.list_batches(b"V" * 32, URL, 1, 9, 9)] == [
        (EventRange(log.enclave, 1, 2), EventRange(log.enclave, 4, 3), EventRange(other.enclave, 1, 6))
    ]
    assert [batch.notices for batch in store.list_batches(b"N" * 32, URL, 1, 9, 9)] == [
        (BatchNotice(log.enclave, 6, {"message": 6}),)
    ]
    store.close()


def test_waiting_events_count_with_the_size_of_their_json(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    enclave = create(host)
    listen(host, enclave, "vera")
    sent = [host.send(enclave, "bob", "message", "ünï", *tags) for tags in ((), (("k", "v"),))]
    sizes = [
        size for (packed,) in store.database.rows("SELECT sizes FROM outbox ORDER BY o") for size in unpack(packed)
    ]
    expected = [len(item.event) for event in sent for item in store.items(enclave, event.seq, 1)]
    assert sizes[-2:] == expected
    store.close()


def test_audiences_that_nothing_names_are_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "MAX_AUDIENCES", 3)
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    kept = (Recipient(b"V" * 32, URL, "P"),)
    for i in range(8):
        step_with(log, (Recipient(b"V" * 32, f"https://{i}.example/", "P"),))
        step_with(log, kept)
        log.write()
        store.fan_out(START)
        assert store.database.rows("SELECT count(*) FROM audiences")[0][0] <= 4
    batches = store.list_batches(b"V" * 32, URL, 1, 99, 99)
    assert [run.first_seq for batch in batches for run in batch.runs] == [2, 4, 6, 8, 10, 12, 14, 16]
    store.close()


def test_one_spread_takes_a_bounded_number_of_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "MAX_EVENTS", 5)
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    audience = (Recipient(b"V" * 32, URL, "P"),)
    for _ in range(3):
        for _ in range(3):
            step_with(log, audience)
        log.write()
    assert [store.fan_out(START), store.fan_out(START), store.fan_out(START)] == [True, False, False]
    assert [batch.runs[0].count for batch in store.list_batches(b"V" * 32, URL, 1, 9, 9)] == [6, 3]
    store.close()


def test_one_change_ends_the_endpoints_of_many_traits_and_leaves_the_others(tmp_path: Path) -> None:
    store, memory = SqliteStore(tmp_path / "enc.db"), MemoryStore()
    who, other = b"V" * 32, b"W" * 32
    changes = [
        (EndpointChange(who, ("a", "b", "c"), URL), EndpointChange(other, ("a",), URL)),
        (EndpointChange(who, ("a", "c", *(f"t{i}" for i in range(246))), None),),
    ]
    log = Log(store, memory)
    for endpoints in changes:
        log.add(effects=Effects(endpoints=endpoints))
        log.write()
    for each in (store, memory):
        assert each.endpoints(log.enclave) == {(who, "b"): URL, (other, "a"): URL}
    statements = list[str]()
    store.database.writer.db.set_trace_callback(statements.append)
    log.stores = (store,)
    log.add(effects=Effects(endpoints=(EndpointChange(who, tuple(f"t{i}" for i in range(248)), None),) * 10))
    log.write()
    assert sum(each.startswith(("SELECT trait", "DELETE FROM endpoints")) for each in statements) == 10
    store.close()


def test_a_write_or_a_spread_that_fails_leaves_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    log.write()
    audience = (Recipient(b"V" * 32, URL, "P"),)
    change = Effects(endpoints=(EndpointChange(b"V" * 32, ("view",), URL),))
    log.add(effects=change)
    log.steps[-1] = replace(log.steps[-1], recipients=audience)
    steps = list(log.steps)
    db, tables = store.database.writer.db, ("outbox", "audiences", "endpoints", "queues", "batches")

    def counts() -> list[int]:
        return [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]  # noqa: S608

    db.execute("CREATE TEMP TRIGGER no BEFORE INSERT ON outbox BEGIN SELECT raise(ABORT, 'no'); END")
    with pytest.raises(Exception, match="SQLITE_CONSTRAINT"):
        store.write(steps, START)
    assert counts() == [0, 0, 0, 0, 0]
    db.execute("DROP TRIGGER no")
    store.write(steps, START)
    assert counts() == [1, 1, 1, 1, 0]
    db.execute("CREATE TEMP TRIGGER no BEFORE DELETE ON outbox BEGIN SELECT raise(ABORT, 'no'); END")
    with pytest.raises(Exception, match="SQLITE_CONSTRAINT"):
        store.fan_out(START)
    assert counts() == [1, 1, 1, 1, 0]
    db.execute("DROP TRIGGER no")
    assert store.fan_out(START) is False
    assert counts() == [0, 1, 1, 1, 1]
    assert store.endpoints(log.enclave) == {(b"V" * 32, "view"): URL}
    store.close()


# Cost


def plan(db: sqlite3.Connection, sql: str) -> list[str]:
    args: Any = {"now": 1, "limit": 1, "after": 0} if ":now" in sql else (1,) * sql.count("?")
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", args)]


def test_the_plans(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    db = store.database.writer.db
    for sql, index in {
        "SELECT o, e, first_seq, a, sizes, types FROM outbox ORDER BY o LIMIT ?": "SCAN outbox",
        "DELETE FROM outbox WHERE o <= ?": "INTEGER PRIMARY KEY",
        queries.BATCHES: "sqlite_autoindex_batches_1 (q=? AND push_seq>? AND push_seq<?)",
        "SELECT min(made_at) FROM batches WHERE state = 0": "SEARCH batches USING INDEX batches_oldest",
        delivery_results.FIND: "sqlite_autoindex_batches_1 (q=? AND push_seq=?)",
        delivery_results.OLD: "batches_settled (state=? AND settled_at<?)",
        delivery_results.REVIVE: "batches_dead (q=?)",
        "SELECT identity, trait, url FROM endpoints WHERE e = ?": "PRIMARY KEY (e=?)",
    }.items():
        (*_, step) = plan(db, sql)
        assert index in step, sql
    steps = plan(db, queries.DUE)
    assert sum("SEARCH batches USING INDEX batches_waiting (q>?)" in step for step in steps) == 2
    assert sum("INDEX batches_waiting (q=? AND next_try<?)" in step for step in steps) == 1
    assert not any("SCAN batches" in step or "SCAN queues" in step or "TEMP B-TREE" in step for step in steps)
    for where, search in (
        ("", "SCAN queues"),
        (" WHERE identity = ?", "SEARCH queues USING INDEX sqlite_autoindex_queues_1 (identity=?)"),
    ):
        steps = plan(db, f"{queries.REPORTS}{where}")
        assert (steps[0], steps[-1]) == (search, "SEARCH batches USING INDEX batches_waiting (q=?)")
    store.close()


def test_settled_batches_and_those_behind_the_first_cost_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    q, now = queued(host, 2), host.now
    _, few = effort(store, lambda: store.due(now + 10, 10))
    fields = "q, push_seq + 10 * i, made_at, runs, events, bytes, {}, tries, {}, {}"
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
    into = "INSERT INTO batches (q, push_seq, made_at, runs, events, bytes, state, tries, next_try, settled_at)"
    for state, next_try, at in ((1, "next_try", "5"), (0, "next_try + i", "NULL")):
        some = f"SELECT {fields.format(state, next_try, at)} FROM batches, n WHERE push_seq = {state + 1}"  # noqa: S608
        store.database.writer.db.execute(f"{numbers} {into} {some}")
    found, many = effort(store, lambda: store.due(now + 10, 10))
    assert [(each.queue, each.push_seq) for each in found] == [(q, 1)]
    assert many < few + 50
    store.close()


# Other processes


def test_a_reader_in_another_process_sees_what_is_committed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    q = queued(host)
    reader = PushReader(tmp_path / "enc.db")
    assert reader.due(host.now, 10) == store.due(host.now, 10)
    batch = reader.batch(q, 1)
    assert batch == store.batch(q, 1)
    assert batch is not None
    (run,) = batch.runs
    assert reader.items(run.enclave, run.first_seq, run.count) == store.items(run.enclave, run.first_seq, run.count)
    store.record_results([DeliveryResult(q, 1, host.now), DeliveryResult(q, 2, host.now, "x")])
    assert [each.push_seq for each in reader.due(host.now, 10)] == [3]
    assert reader.batch(q, 9) is None
    reader.close()
    assert read_reports(tmp_path / "enc.db") == store.queue_reports()
    assert redeliver_at(tmp_path / "enc.db", host.now, url=OTHER) == (0, 0)
    assert redeliver_at(tmp_path / "enc.db", host.now, person("vera").public) == (1, 0)
    assert due(host) == [(2, 0)]
    assert host.store.queue_reports()[0].dead == 0
    store.close()


def test_a_purged_enclave_is_gone_for_a_reader_too(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    q = queued(host)
    reader = PushReader(tmp_path / "enc.db")
    batch = reader.batch(q, 1)
    assert batch is not None
    (run,) = batch.runs
    assert reader.items(run.enclave, run.first_seq, run.count)
    host.send(run.enclave, "alice", "Terminate")
    store.purge(run.enclave, 1)
    assert reader.items(run.enclave, run.first_seq, run.count) == []
    assert reader.batch(q, 1) == batch
    reader.close()
    store.close()


def test_what_became_of_a_batch_need_not_wait_for_the_disk_and_commits_do(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    q = queued(host)

    def waits() -> bool:
        return store.database.writer.db.execute("PRAGMA synchronous").fetchone() == (2,)

    assert waits()
    store.record_results([DeliveryResult(q, 1, host.now)])
    assert not waits()
    store.write([], host.now)
    assert waits()
    store.close()
