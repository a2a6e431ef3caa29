"""A node over a store that is a copy: it serves what is there, and signs nothing."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.json import encode
from structlog.testing import capture_logs

from enc.core.errors import EncError, EnclaveMigrated, ReadOnly
from enc.core.log.commit import wire_commit
from enc.core.log.receipt import parse_receipt
from enc.core.primitives.types import Receipt
from enc.node.assembly import Node
from enc.node.store.sqlite.store import SqliteStore
from tests.core.world import give, pub
from tests.node.imports.import_orders import forced, world
from tests.node.metrics_page import figures
from tests.node.moving import archive_of, log_of, order
from tests.node.push_host import PUSHED, URL, all_batches
from tests.node.served import DEV, NODE, SMALL, Clock, Enclave, Served, bad, good, sqlite

REASON = "a backup of some day"


class Copy:
    """A store with a closed bundle and an open one, whose node has stopped."""

    def __init__(self, folder: Path) -> None:
        self.store, self.clock = sqlite(folder), Clock()
        with Served(store=self.store, clock=self.clock) as node:
            self.enclave = node.create({**SMALL, "bundle": {"size": 2, "timeout": 1000}})
            self.enclave.send("bob", "message", "one")
            self.commit = self.enclave.commit("bob", "message", "two")
            self.receipt = node.submit(self.commit)
            self.moved = node.create(SMALL)
            end = self.moved.ask("alice", "Checkpoint")
            target = {"new_sequencer": pub("node2"), "prev_seq": end["seq"], "ct_root": end["ct_root"]}
            self.moved.send("alice", "Migrate", target)
        self.store.provenance.mark(REASON)

    def served(self) -> Served:
        return Served(store=self.store, clock=self.clock)


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Copy]:
    copy = Copy(tmp_path)
    with closing(copy.store):
        yield copy


@pytest.fixture
def node(copy: Copy) -> Iterator[Served]:
    with copy.served() as node:
        yield node


@pytest.fixture
def enclave(copy: Copy, node: Served) -> Enclave:
    return copy.enclave.at(node)


def is_refused(error: EncError) -> None:
    assert isinstance(error, ReadOnly)
    assert (error.status, error.context) == (503, {"retry_after_ms": 60_000})


def test_it_accepts_no_commit(copy: Copy, node: Served, enclave: Enclave) -> None:
    is_refused(enclave.refused("bob", "message", "three"))
    is_refused(bad(node.post(wire_commit(node.manifest(SMALL)))))
    state = copy.store.load(enclave.id)
    assert state is not None
    assert state.seq == 2


def test_it_accepts_none_of_several_commits(copy: Copy, node: Served, enclave: Enclave) -> None:
    commits = copy.commit, enclave.commit("bob", "message", "three"), enclave.commit("bob", "message", "four")
    results = good(node.post(b"\n".join(encode(wire_commit(commit)) for commit in commits), "/commits"))["results"]
    assert [result["code"] for result in results] == ["DUPLICATE", "READ_ONLY", "READ_ONLY"]


def test_what_it_would_refuse_anyway_it_refuses_for_that(copy: Copy, node: Served, enclave: Enclave) -> None:
    assert enclave.refused("mallory", "message", "x").code == "UNAUTHORIZED"
    assert isinstance(copy.moved.at(node).refused("bob", "message", "x"), EnclaveMigrated)


def test_it_returns_the_receipt_of_a_commit_that_it_has(copy: Copy, node: Served) -> None:
    error = bad(node.post(wire_commit(copy.commit)))
    assert error.code == "DUPLICATE"
    assert parse_receipt(encode(error.context["receipt"])) == copy.receipt


def test_it_closes_no_bundle(copy: Copy, node: Served, enclave: Enclave) -> None:
    node.clock.tick(60_000)
    node.settle()
    assert good(node.get(f"/{enclave.id.hex()}/sth"))["ts"] == 1
    state = copy.store.load(enclave.id)
    assert state is not None
    assert state.bundle is not None


def test_it_serves_events_proofs_and_exports(enclave: Enclave, node: Served) -> None:
    assert enclave.seqs("bob", type="message") == [1, 2]
    assert enclave.ask("bob", "Inclusion_Proof", leaf_index=0)["sth"]["ts"] == 1
    assert [event.seq for event in log_of(enclave)] == [0, 1, 2]
    assert enclave.ask("alice", "Checkpoint")["seq"] == 2


def test_it_holds_no_enclave_for_a_move(enclave: Enclave) -> None:
    is_refused(enclave.denied("alice", "Checkpoint", hold=5))


def test_it_imports_nothing(node: Served) -> None:
    made = world()
    is_refused(bad(order(node, forced(made), archive=archive_of(made.events))))
    assert node.store.load(made.state.enclave) is None


def test_it_says_so(copy: Copy) -> None:
    with capture_logs() as logs, copy.served() as node:
        assert good(node.get("/info"))["restored"] == REASON
        health = node.get("/health")
        reasons = [{"code": "restored", "message": REASON}]
        assert health.status_code == 503
        assert health.json() == {"status": "restored", "reason": REASON, "reasons": reasons}
        assert figures(node)["enc_restored", ""] == 1
    assert {"event": "restored", "log_level": "error", "reason": REASON, "todo": "enc node adopt"} in logs


def test_a_node_whose_store_is_adopted_signs(copy: Copy) -> None:
    copy.store.provenance.adopt("here")
    assert copy.store.provenance.place == "here"
    with copy.served() as node:
        assert good(node.get("/info"))["restored"] is None
        assert node.get("/health").json() == {"status": "ok"}
        assert figures(node)["enc_restored", ""] == 0
        assert isinstance(copy.enclave.at(node).send("bob", "message", "three"), Receipt)


def test_it_makes_and_sends_no_batch(tmp_path: Path) -> None:
    """The first node may have made other batches with the same numbers."""
    with closing(sqlite(tmp_path)) as store:
        clock = Clock()
        with Served(store=store, clock=clock) as node:
            enclave = node.create(PUSHED)
            enclave.send("alice", "Grant", give("vera", "view", endpoint=URL))
            node.node.push_batcher = _Idle()  # type: ignore[assignment]  # no batch is made before the node stops
            enclave.send("bob", "message", "one")
        store.provenance.mark(REASON)
        with Served(store=store, clock=clock) as node:
            clock.tick(60_000)
            node.settle()
            assert all_batches(store, "vera") == []
            assert not has_sender(store)
        store.provenance.adopt("here")
        with Served(store=store, clock=clock) as node:
            clock.tick(60_000)
            node.settle()
            assert [batch.push_seq for batch in all_batches(store, "vera")] == [1]
            assert has_sender(store)


class _Idle:
    def run_if_due(self, now: int) -> None: ...


def has_sender(store: SqliteStore) -> bool:
    async def check() -> bool:
        node = Node(DEV, store, NODE, sender_cores=set())
        node.executor.shutdown()
        return node.push_supervisor is not None

    return asyncio.run(check())
