"""Changes of recipients within one transaction, before the store has any of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enc.core.errors import Unavailable
from enc.core.primitives.types import Receipt
from enc.core.rules import policy_types
from enc.node.sequence import recipients as module
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store
from enc.testing.memory_store import MemoryStore
from tests.core.world import give
from tests.node.push_host import OTHER, URL, create, listen, pushed, say
from tests.node.store_host import Host


@pytest.fixture(params=["memory", "sqlite"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "enc.db")
    yield Host(store)
    store.close()


def test_eviction_inside_a_batch_loses_an_event(host: Host, monkeypatch: Any) -> None:
    """A registers an endpoint, B's endpoints evict A from the cache, then A has an event: all in one transaction."""
    monkeypatch.setattr(module, "MAX_ENDPOINTS", 2)
    a, b = create(host, "a"), create(host, "b")
    for name in ("bob", "carol"):
        listen(host, b, name)
    host.sequencer._recipients.forget(b)
    outcomes = host.run(
        host.commit(a, "alice", "Grant", give("vera", "view", endpoint=URL)),
        host.commit(b, "bob", "message", "1"),
        host.commit(a, "bob", "message", "2"),
    )
    assert all(isinstance(outcome, Receipt) for outcome in outcomes)
    assert pushed(host, "vera", enclave=a) == [2]


def test_eviction_inside_a_batch_sends_to_an_endpoint_that_is_gone(host: Host, monkeypatch: Any) -> None:
    """vera's URL is replaced, A is evicted, and A's next event must not go to the old URL."""
    monkeypatch.setattr(module, "MAX_ENDPOINTS", 2)
    a, b = create(host, "a"), create(host, "b")
    listen(host, a, "vera", url=URL)
    for name in ("bob", "carol"):
        listen(host, b, name)
    host.sequencer._recipients.forget(b)
    host.run(
        host.commit(a, "alice", "Grant", give("vera", "view", endpoint=OTHER)),
        host.commit(b, "bob", "message", "1"),
        host.commit(a, "bob", "message", "2"),
    )
    assert pushed(host, "vera", OTHER, enclave=a) == [3]
    assert 3 not in pushed(host, "vera", URL, enclave=a)


def test_a_step_that_failed_leaves_no_rights_behind(host: Host, monkeypatch: Any) -> None:
    """The Grant that would give vera P fails because its recipients cannot be computed; it leaves no rights behind."""
    enclave = create(host)
    listen(host, enclave, "vera", "ear")  # has no P on messages
    honest = policy_types.recipients

    def broken(*args: Any) -> Any:
        if args[1].type == "Grant":
            raise Unavailable("the disk")
        return honest(*args)

    monkeypatch.setattr(module, "recipients", broken)
    (outcome,) = host.run(host.commit(enclave, "alice", "Grant", give("vera", "view")))
    assert isinstance(outcome, Unavailable)
    say(host, enclave, 1)
    assert pushed(host, "vera") == []
