"""Requests that are accepted once: kept until their session is over, and a bounded number of them."""

from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from enc.core.errors import Duplicate, RateLimited, Unavailable
from enc.node.store import spent_requests
from enc.node.store.spent_requests import SpentRequest
from enc.node.store.sqlite.spent_rows import MAX_DROPPED
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store
from tests.core.world import START, pub

HOUR = 3_600_000


def request(n: int, by: str = "alice", until: int = START + HOUR, at: str | None = None) -> SpentRequest:
    return SpentRequest(n.to_bytes(32, "big"), bytes.fromhex(pub(by)), until, at)


def test_a_request_is_accepted_once(store: Store) -> None:
    store.spend(request(1), START)
    store.spend(request(2), START)
    for _ in range(2):
        with pytest.raises(Duplicate, match="seal it again"):
            store.spend(request(1), START + HOUR - 1)


def test_also_after_a_restart(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    store.spend(request(1), START)
    store.close()
    again = SqliteStore(tmp_path / "enc.db")
    with pytest.raises(Duplicate):
        again.spend(request(1), START)
    again.close()


def test_what_is_over_is_dropped(sqlite: SqliteStore) -> None:
    sqlite.spend(request(1, until=START + 10), START)
    sqlite.spend(request(2, until=START + 20), START)
    sqlite.spend(request(3), START + 10)
    rows = sqlite.database.rows("SELECT digest FROM spent_requests ORDER BY 1")
    assert rows == [(request(2).digest,), (request(3).digest,)]


def test_a_clock_that_is_set_back_drops_nothing_too_early(sqlite: SqliteStore) -> None:
    sqlite.spend(request(1, until=START + 10), START + 5)
    sqlite.spend(request(2), START - 5)
    assert sqlite.clock() == START + 5
    with pytest.raises(Duplicate):
        sqlite.spend(request(1, until=START + 10), START)


def steps_of(sqlite: SqliteStore, one: SpentRequest, clock: int) -> int:
    """Return how many steps of SQLite a request takes, accepted or not."""
    steps = list[None]()
    with sqlite.database.readers.lend() as reader:
        pass
    for db in (reader, sqlite.database.writer.db):
        db.set_progress_handler(lambda: steps.append(None), 1)
    with suppress(RateLimited):
        sqlite.spend(one, clock)
    for db in (reader, sqlite.database.writer.db):
        db.set_progress_handler(None, 0)
    return len(steps)


def test_a_request_takes_no_longer_if_many_are_kept(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each runs on the thread that sequences all commits, also those that are rejected."""
    monkeypatch.setattr(spent_requests, "MAX_SPENT", 4 + MAX_DROPPED)
    sqlite.spend(request(0), START)
    few = steps_of(sqlite, request(1, "bob"), START)
    assert few > 10
    rows = [(request(n).digest, b"", START + HOUR // 2) for n in range(100, 5_100)]
    sqlite.database.transact(
        lambda db: (db.executemany("INSERT INTO spent_requests VALUES (?, ?, ?)", rows), None)[1], lasting=False
    )
    assert sqlite._spent._places is not None
    sqlite._spent._places.take(None, MAX_DROPPED)  # of these rows
    assert steps_of(sqlite, request(2, "carol"), START) < 2 * few
    sqlite.spend(request(4), START)
    with pytest.raises(RateLimited):
        sqlite.spend(request(3, "dave"), START)
    assert steps_of(sqlite, request(3, "dave"), START) < 2 * few
    over = START + HOUR // 2
    dropping = steps_of(sqlite, request(3, "dave"), over)
    ((kept,),) = sqlite.database.rows("SELECT count(*) FROM spent_requests")
    assert kept == 5_004 + 1 - MAX_DROPPED
    assert dropping < 100 * MAX_DROPPED


def test_the_number_of_those_kept_is_right_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spent_requests, "MAX_SPENT", 2)
    for n in range(3):
        store = SqliteStore(tmp_path / "enc.db")
        with pytest.raises(RateLimited) if n == 2 else nullcontext():
            store.spend(request(n), START)
        store.close()


def test_at_the_bound_new_ones_are_rejected_and_none_is_forgotten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spent_requests, "MAX_SPENT", 4)
    monkeypatch.setattr(spent_requests, "MAX_SPENT_EACH", 2)
    for n, by in enumerate(("alice", "alice", "bob")):
        store.spend(request(n, by, START + 100 + n), START)
    with pytest.raises(RateLimited) as each:
        store.spend(request(10), START + 1)
    assert each.value.context == {"retry_after_ms": 99}
    store.spend(request(3, "bob", START + 103), START)
    with pytest.raises(RateLimited) as all_:
        store.spend(request(11, "carol"), START + 1)
    assert all_.value.context == {"retry_after_ms": 99}
    for n, by in enumerate(("alice", "alice", "bob", "bob")):
        with pytest.raises(Duplicate):
            store.spend(request(n, by), START + 1)
    store.spend(request(10), START + 100)
    with pytest.raises(RateLimited):
        store.spend(request(12), START + 100)


def test_one_address_leaves_room_for_others(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many identities it has: before, 102 of them kept everybody from moving an enclave."""
    monkeypatch.setattr(spent_requests, "MAX_SPENT", 8)
    for n in range(4):
        sqlite.spend(request(n, f"of one address {n}", START + 10 + n, "one"), START)
    with pytest.raises(RateLimited, match="too many requests that change something"):
        sqlite.spend(request(10, "of one address", at="one"), START)
    sqlite.spend(request(11, at="another"), START)
    sqlite.spend(request(12, "of one address", at="one"), START + 12)  # three of its own are over
    sqlite.spend(request(13, "of no address"), START + 12)


def test_requests_from_before_a_restart_count_to_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spent_requests, "MAX_SPENT", 5)
    for n in range(4):
        store = SqliteStore(tmp_path / "enc.db")
        store.spend(request(n, at="one"), START)
        store.close()
    store = SqliteStore(tmp_path / "enc.db")
    store.spend(request(4, at="another"), START)
    with pytest.raises(RateLimited):
        store.spend(request(5, at="a third"), START)
    store.spend(request(5, at="a third"), START + HOUR)
    ((kept,),) = store.database.rows("SELECT count(*) FROM spent_requests")
    assert kept == 1
    store.close()


def test_a_write_that_fails_counts_for_nobody(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spent_requests, "MAX_SPENT", 2)

    def fail(*_: object, **__: object) -> None:
        raise Unavailable("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(sqlite.database, "transact", fail)
        for n in range(3):
            with pytest.raises(Unavailable):
                sqlite.spend(request(n, at="one"), START)
    sqlite.spend(request(0, at="one"), START)
