"""Requests that are accepted once: kept until their session is over, and a bounded number of them."""

from pathlib import Path

import pytest

from enc.core.errors import Duplicate, RateLimited
from enc.node.store import spent_requests
from enc.node.store.spent_requests import SpentRequest
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store
from tests.core.world import START, pub

HOUR = 3_600_000


def request(n: int, by: str = "alice", until: int = START + HOUR) -> SpentRequest:
    return SpentRequest(n.to_bytes(32, "big"), bytes.fromhex(pub(by)), until)


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
