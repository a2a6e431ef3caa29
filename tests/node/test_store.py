"""One contract for every store."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enc.core.commit import build_commit, build_manifest
from enc.core.encoding import compact_json
from enc.core.errors import EncError, Unavailable
from enc.core.filter import parse_filter
from enc.core.policy import ReadScope
from enc.core.receipt import check_receipt
from enc.core.replay import Replay
from enc.core.tree_head import check_bound_head
from enc.core.types import Event, Receipt
from enc.node.sequencer import Outcome, Sequencer, Ticket
from enc.node.store.base import Readable, Step, Store
from enc.node.store.memory import MemoryStore
from enc.node.store.sqlite import SqliteStore
from tests.core.world import START, person, pub

NODE = person("node")
MANIFEST = {
    "enc_v": 2,
    "states": ["MEMBER"],
    "traits": ["owner(0)", "admin(1)"],
    "readers": [{"type": "MEMBER", "reads": "*"}, {"type": "Sender", "reads": "note"}],
    "grants": [{"event": "Grant", "operator": "owner", "scope": "MEMBER", "trait": "admin"}],
    "slots": [{"event": "Shared", "operator": "MEMBER", "ops": ["C", "U", "D"], "key": "topic"}],
    "lifecycle": [{"event": "Terminate", "operator": "owner", "ops": ["C"]}],
    "customs": [
        {"event": "message", "operator": "MEMBER", "ops": ["C"]},
        {"event": "message", "operator": "Sender", "ops": ["U", "D"]},
        {"event": "note", "operator": "Public", "ops": ["C"]},
    ],
    "init": [{"identity": pub("alice"), "state": "MEMBER", "traits": ["owner"]}],
    "bundle": {"size": 4, "timeout": 1000},
}


class Host:
    """A store with a sequencer on it, driven by hand."""

    def __init__(self, store: Store) -> None:
        self.store, self.now, self.outcomes, self.steps = store, START, list[Outcome](), list[Step]()
        self.sequencer = Sequencer(
            store, NODE, lambda: self.now, deliver=self.outcomes.extend, publish=self.steps.extend
        )

    def found(self, name: str = "alice", **changes: Any) -> bytes:
        commit = build_manifest(person(name), compact_json({**MANIFEST, **changes}), self.now + 60_000)
        self.run(commit)
        return commit.enclave

    def commit(self, enclave: bytes, name: str, type_: str, content: Any = "", *tags: tuple[str, ...]) -> Any:
        self.now += 1
        text = content if isinstance(content, str) else compact_json(content)
        return build_commit(person(name), enclave, type_, text, self.now + 60_000, tags)

    def run(self, *commits: Any) -> list[Receipt | EncError]:
        self.outcomes.clear()
        self.sequencer.run_once([Ticket(commit) for commit in commits])
        return [outcome for _, outcome in self.outcomes]

    def send(self, *what: Any) -> Event:
        commit = self.commit(*what)
        (receipt,) = self.run(commit)
        assert isinstance(receipt, Receipt), receipt
        check_receipt(receipt, commit, NODE.public)
        found = self.store.committed(commit.enclave, commit.hash)
        assert found is not None
        return found


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "enc.db")
    yield store
    store.close()


@pytest.fixture
def host(store: Store) -> Host:
    return Host(store)


EVERYTHING = Readable(b"", ReadScope({}, "all"), lambda event, subject: True)


def seqs(store: Store, enclave: bytes, readable: Readable = EVERYTHING, **filter_: Any) -> list[int]:
    return [found.event.seq for found in store.find(enclave, parse_filter(filter_), readable)]


def live(host: Host) -> tuple[bytes, list[Event]]:
    """A small life: bundles closed by size and by time, an Update, a Delete, a slot, tags."""
    enclave = host.found()
    first = host.send(enclave, "alice", "message", "one", ("r", "ab"), ("k",))
    second = host.send(enclave, "alice", "message", "two", ("r", "cd", "reply"))
    host.send(enclave, "bob", "note", "by an outsider")
    host.send(enclave, "alice", "Update", "one, again", ("r", first.id.hex()))
    host.now += 5000
    host.send(enclave, "alice", "Delete", {"reason": "author"}, ("r", second.id.hex()))
    host.send(enclave, "alice", "Shared", {"key": "topic", "value": "plans"})
    return enclave, host.store.events(enclave, 0, 100)


def test_nothing_is_there_at_first(store: Store) -> None:
    assert list(store.enclaves()) == []
    assert store.load(bytes(32)) is None
    assert store.event(bytes(32), bytes(32)) is None
    assert store.committed(bytes(32), bytes(32)) is None
    assert store.events(bytes(32), 0, 10) == []
    assert seqs(store, bytes(32)) == []
    assert store.clock() == 0


def test_a_log_that_was_kept_replays_to_the_state_that_was_kept(host: Host) -> None:
    enclave, events = live(host)
    replay = Replay(enclave)
    for event in events:
        replay.take(event)
    state = host.store.load(enclave)
    assert state is not None
    assert state.log == replay.finish().log
    assert state.root == replay.state.root
    assert dict(state.pending) == dict(replay.state.pending)
    assert (state.seq, state.sequencer, state.lifecycle) == (6, NODE.public, "active")
    assert [host.store.bundle(enclave, i) for i in range(3)] == [*replay.store.bundles, None]


def test_statuses_and_erased_contents(host: Host) -> None:
    enclave, events = live(host)
    found = [host.store.event(enclave, event.id) for event in events]
    assert [item and (item.status, item.updated_by) for item in found] == [
        ("active", None),
        ("updated", events[4].id),
        ("deleted", None),
        *[("active", None)] * 4,
    ]
    assert [event.content is None for event in events] == [False, True, True, False, False, False, False]


def test_every_bundle_has_a_head_that_the_node_signed_and_no_other(host: Host) -> None:
    enclave, _ = live(host)
    latest = host.store.head(enclave)
    assert latest is not None
    assert latest.ts == 2
    for size in (1, 2):
        head = host.store.head(enclave, size)
        assert head is not None
        assert head.ts == size
        check_bound_head(head, NODE.public, enclave)
    assert latest == host.store.head(enclave, 2)
    assert host.store.head(enclave, 3) is None
    assert host.store.head(enclave, 0) is None


def test_the_bundle_of_an_event(host: Host) -> None:
    enclave, _ = live(host)
    found = [host.store.bundle_of(enclave, seq) for seq in range(7)]
    assert [bundle and bundle.index for bundle in found] == [0, 0, 0, 0, 1, None, None]


def test_find_by_every_field(host: Host) -> None:
    enclave, events = live(host)
    ids = [event.id.hex() for event in events]
    filters: list[dict[str, Any]] = [
        {},
        {"reverse": True},
        {"id": ids[3]},
        {"id": [ids[1], ids[2], ids[4]]},
        {"seq": 1},
        {"seq": [0, 2, 3, 77]},
        {"seq": {"start_after": 1, "end_before": 5}},
        {"seq": {"start_at": 9, "end_at": 3}},
        {"type": "message"},
        {"type": ["message", "note", "Update"], "reverse": True},
        {"from": pub("bob")},
        {"from": [pub("bob"), pub("alice")], "type": "note"},
        {"tags": {"r": "ab"}},
        {"tags": {"r": ["ab", "cd"]}},
        {"tags": {"k": True}},
        {"tags": {"r": True, "k": True}},
        {"timestamp": {"start_at": START + 2, "end_at": START + 4}},
        {"timestamp": {"start_after": START + 4}},
        {"timestamp": {"end_before": START}},
    ]
    for wire in filters:
        filter_ = parse_filter(wire)
        expected = [event.seq for event in events if filter_.matches(event) and event.seq != 2]
        assert seqs(host.store, enclave, **wire) == expected[:: -1 if filter_.reverse else 1], wire


def test_find_gives_only_what_may_be_read(host: Host) -> None:
    enclave, _ = live(host)
    own = Readable(person("bob").public, ReadScope({"note": "own"}, "none"), lambda event, subject: False)
    assert seqs(host.store, enclave, own) == [3]
    messages = Readable(b"", ReadScope({"message": "all"}, "none"), lambda event, subject: False)
    assert seqs(host.store, enclave, messages) == [1, 4, 5]
    some = Readable(b"", ReadScope({}, "some"), lambda event, subject: event.seq == 6)
    assert seqs(host.store, enclave, some) == [6]


def test_auto_delete(host: Host) -> None:
    enclave = host.found()
    when = host.now + 100_000
    event = host.send(enclave, "alice", "message", "soon gone", ("auto-delete", str(when)))
    update = host.send(enclave, "alice", "Update", "gone too", ("r", event.id.hex()))
    slot = host.send(enclave, "alice", "Shared", {"key": "topic", "value": 1}, ("auto-delete", str(when)))
    later = host.send(enclave, "alice", "message", "later", ("auto-delete", str(when + 1)))
    assert host.store.expired(when - 1, 10) == []
    assert host.store.expired(when + 1, 10) == [(enclave, later.id)]  # the Update took the first one's content
    host.store.erase(enclave, event.id)
    host.store.erase(enclave, later.id)
    assert host.store.expired(when + 1, 10) == []
    contents = {e.seq: e.content for e in host.store.events(enclave, 0, 10)}
    assert (contents[event.seq], contents[update.seq], contents[later.seq]) == (None, None, None)
    assert contents[slot.seq] is not None


def test_purge_leaves_a_tombstone(host: Host) -> None:
    enclave, other = host.found(), host.found(meta={"n": 2})
    host.send(enclave, "alice", "Terminate")
    host.store.purge(enclave)
    state = host.store.load(enclave)
    assert state is not None
    assert state.lifecycle == "terminated"
    assert host.store.events(enclave, 0, 10) == []
    assert len(host.store.events(other, 0, 10)) == 1
    assert sorted([enclave, other]) == list(host.store.enclaves())


def test_overdue(host: Host) -> None:
    enclave = host.found()
    assert host.store.overdue(START + 999) == []
    assert host.store.overdue(START + 1000) == [enclave]


def test_the_clock_is_the_highest_that_was_seen(store: Store) -> None:
    store.write([], 5)
    store.write([], 3)
    assert store.clock() == 5


# SQLite alone


def test_reopened_it_is_as_it_was(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    enclave, events = live(host)
    before = store.load(enclave)
    store.close()
    store = SqliteStore(tmp_path / "enc.db")
    after = store.load(enclave)
    assert before is not None
    assert after is not None
    for name in ("seq", "floor", "sequencer", "lifecycle", "migrated", "log", "bundle", "root", "pending"):
        assert getattr(after, name) == getattr(before, name), name
    assert store.events(enclave, 0, 100) == events
    assert store.clock() == host.now
    second = Host(store)
    second.now = host.now
    second.send(enclave, "alice", "message", "goes on")
    store.close()


def test_a_write_that_fails_leaves_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    enclave = host.found()
    store._writer.execute("CREATE TRIGGER broken BEFORE INSERT ON tags BEGIN SELECT RAISE(ABORT, 'disk'); END")
    first = host.commit(enclave, "alice", "message", "no tags")
    second = host.commit(enclave, "alice", "message", "tags", ("k", "v"))
    assert [type(outcome) for outcome in host.run(first, second)] == [Unavailable, Unavailable]
    assert len(store.events(enclave, 0, 10)) == 1
    store._writer.execute("DROP TRIGGER broken")
    assert [outcome.seq for outcome in host.run(first, second) if isinstance(outcome, Receipt)] == [1, 2]
    store.close()


def test_a_database_of_a_newer_program_is_refused(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "enc.db").close()
    db = sqlite3.connect(tmp_path / "enc.db")
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(Unavailable, match="newer"):
        SqliteStore(tmp_path / "enc.db")


def test_it_waits_for_the_disk(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._writer.execute("PRAGMA synchronous").fetchone() == (2,)
    store.close()
