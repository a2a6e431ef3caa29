"""A registry's records in every store: written with the event that changes them, found by key, entry and order."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.errors import EncError
from enc.core.log.commit import build_manifest
from enc.core.machine.replay import Replay
from enc.core.machine.state import Transition
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Event, KeyRecord, Receipt
from enc.core.registry.migrate_chain import Link
from enc.node.fsck import check_store
from enc.node.sequence.batch_overlay import BatchOverlay, NodeCache
from enc.node.store.sqlite import registry_records
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store
from enc.testing.memory_store import MemoryStore
from tests.core.registry_world import REGISTRY, TEAM, House, identity_entry, node_entry
from tests.core.world import Json, init, person
from tests.node.store_host import NODE, Host

GONE = {"reason": "author"}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "enc.db")
    yield store
    store.close()


class Office(Host):
    """A registry, driven by hand."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        creation = build_manifest(person("olga"), compact_json(REGISTRY), self.now + 60_000)
        self.run(creation)
        self.id = creation.enclave

    def enter(self, name: str, type_: str, content: Json, *tags: tuple[str, ...]) -> Any:
        return self.commit(self.id, name, type_, content, *tags)

    def house(self, n: int, by: str = "alice", **more: Any) -> tuple[House, Event]:
        house = House({**TEAM, "meta": {"n": n}, "init": init(**{by: "OUTSIDER owner"})}, by=by)
        return house, self.send(self.id, by, "Reg_Enclave", house.entry(**more))

    def replayed(self) -> dict[Any, KeyRecord]:
        replay = Replay()
        for event in self.store.events(self.id, 0, 1000):
            replay.add(event)
        return replay.store.records  # type: ignore[attr-defined]


@pytest.fixture
def office(store: Store) -> Office:
    return Office(store)


def test_a_record_is_kept_with_its_entry(office: Office, store: Store) -> None:
    key = person("node").public
    assert store.record(office.id, "node", key) is None
    first = office.send(office.id, "node", "Reg_Node", node_entry("node"))
    record = KeyRecord(kind="node", key=key, entry=first.id, holder=key)
    assert store.record(office.id, "node", key) == store.record_of(office.id, first.id) == record
    assert store.record(office.id, "identity", key) is None
    second = office.send(office.id, "node", "Reg_Node", node_entry("node"))
    assert store.record(office.id, "node", key) == store.record_of(office.id, second.id)
    assert store.record_of(office.id, first.id) is None
    office.send(office.id, "node", "Delete", GONE, ("r", second.id.hex()))
    assert store.record(office.id, "node", key) == replace(record, entry=None)
    assert store.record_of(office.id, second.id) is None


def test_an_enclave_s_record_has_everything(office: Office, store: Store) -> None:
    house, _ = office.house(1)
    house.talk()
    house.transfer("alice", "bob")
    moved = house.move_to("node2", by="bob")
    proof = house.proof("bob")
    links = [moved]
    error = office.run(office.enter("bob", "Reg_Enclave", house.entry(owner_proof=proof, links=links)))[0]
    assert isinstance(error, EncError)
    before = house.proof("bob", node="node")
    content = house.entry(links=[], owner_proof=before, app="chat", desc="Ein Haus", meta={"name": "№ 1"})
    event = office.send(office.id, "bob", "Reg_Enclave", content)
    assert store.record(office.id, "enclave", house.state.enclave) == KeyRecord(
        kind="enclave",
        key=house.state.enclave,
        entry=event.id,
        holder=person("bob").public,
        proved_size=before.sth.ts,
        proved_at=before.sth.t,
        proved_root=before.sth.r,
        sequencer=person("node").public,
        manifest=house.manifest.id,
        creator=person("alice").public,
        app="chat",
        text="ein haus\n№ 1",
    )
    assert office.replayed() == {
        ("enclave", house.state.enclave): store.record(office.id, "enclave", house.state.enclave)
    }


def test_what_forced_migrates_left_is_kept(office: Office, store: Store) -> None:
    house, _ = office.house(1)
    house.talk()
    for node in ("node2", "node3"):
        link = Link(house.move_to(node, forced=True))
        house.talk()
        office.send(office.id, "alice", "Reg_Enclave", house.entry(links=[link], owner_proof=house.proof("alice")))
    record = store.record(office.id, "enclave", house.state.enclave)
    assert record is not None
    assert [left.sequencer for left in record.forced_from] == [person("node").public, person("node2").public]
    assert (record.proved_root, record.moved_time) == (house.root(record.proved_size), link.event.timestamp)
    assert office.replayed() == {("enclave", house.state.enclave): record}


def test_an_upgrade_computes_the_records_again(tmp_path: Path) -> None:
    """The earlier version did not store when and under which root the ownership was proved."""
    path = tmp_path / "enc.db"
    with closing(SqliteStore(path)) as store:
        office = Office(store)
        house, _ = office.house(1)
        house.talk()
        link = Link(house.move_to("node2", forced=True), house.proof("alice", node="node", size=1))
        house.talk()
        office.send(office.id, "alice", "Reg_Enclave", house.entry(links=[link], owner_proof=house.proof("alice")))
        before = store.record(office.id, "enclave", house.state.enclave)
    assert before is not None
    assert before.forced_from
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE records SET proved_at = 0, proved_root = x'', moved_time = 0, forced_from = x'90'")
    with closing(SqliteStore(path)) as store:
        assert store.record(office.id, "enclave", house.state.enclave) != before
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE node SET records_due = 1")
    for _ in range(2):
        with closing(SqliteStore(path)) as store:
            assert store.record(office.id, "enclave", house.state.enclave) == before
            assert check_store(store, NODE.public, None, lambda count: None).differences == []
            assert store.database.rows("SELECT records_due FROM node") == [(0,)]


def test_a_log_that_other_rules_allowed_keeps_its_records(tmp_path: Path) -> None:
    path = tmp_path / "enc.db"
    with closing(SqliteStore(path)) as store:
        office = Office(store)
        house, _ = office.house(1)
        before = store.record(office.id, "enclave", house.state.enclave)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE events SET head = zeroblob(length(head)) WHERE k & 0xffffffffff = 1")
        db.execute("UPDATE node SET records_due = 1")
    with closing(SqliteStore(path)) as store:
        assert store.record(office.id, "enclave", house.state.enclave) == before


def test_one_batch_sees_what_it_made_itself(office: Office, store: Store) -> None:
    """Register, replace, delete and register again, all before anything is on disk."""
    key = person("node").public
    first, second, other = (office.enter(name, "Reg_Node", node_entry(name)) for name in ("node", "node", "node2"))
    outcomes = office.run(first, second, other)
    assert all(isinstance(outcome, Receipt) for outcome in outcomes)
    entries = [store.committed(office.id, commit.hash, commit.exp) for commit in (first, second)]
    old, new = (event.id for event in entries if event is not None)
    found = store.event(office.id, old)
    assert found is not None
    assert found.updated_by == new
    delete = office.enter("node", "Delete", GONE, ("r", new.hex()))
    wrong = office.enter("node", "Delete", {**GONE, "note": "old"}, ("r", old.hex()))
    again = office.enter("node", "Reg_Node", node_entry("node", extra=1))
    twice = office.enter("node", "Delete", {**GONE, "note": "twice"}, ("r", new.hex()))
    codes = [
        outcome.code if isinstance(outcome, EncError) else "" for outcome in office.run(wrong, delete, again, twice)
    ]
    assert codes == ["INVALID_TARGET", "", "", "EVENT_DELETED"]
    event = store.committed(office.id, again.hash, again.exp)
    assert event is not None
    assert store.record(office.id, "node", key) == store.record_of(office.id, event.id)
    assert office.replayed() == {
        ("node", person(name).public): store.record(office.id, "node", person(name).public)
        for name in ("node", "node2")
    }


def test_registering_and_deleting_within_one_batch(office: Office, store: Store) -> None:
    """A batch may delete an entry that it has just created, of which nothing is in the store yet."""
    first = office.enter("node", "Reg_Node", node_entry("node"))
    office.run(first)
    event = store.committed(office.id, first.hash, first.exp)
    assert event is not None
    replaced = office.enter("node", "Reg_Node", node_entry("node", extra=2))
    stale = office.enter("node", "Delete", GONE, ("r", event.id.hex()))
    outcomes = office.run(replaced, stale)
    assert [type(outcome) is Receipt for outcome in outcomes] == [True, False]
    record = store.record(office.id, "node", person("node").public)
    assert record is not None
    assert record.entry == store.committed(office.id, replaced.hash, replaced.exp).id  # type: ignore[union-attr]


def test_what_a_batch_made_hides_what_is_stored(office: Office, store: Store) -> None:
    stored = office.send(office.id, "node", "Reg_Node", node_entry("node"))
    space = BatchOverlay(store, office.id, store.load(office.id), NodeCache())
    key = person("node").public
    first = store.record(office.id, "node", key)
    assert first is not None
    assert (space.record("node", key), space.record_of(stored.id)) == (first, first)
    for entry in (b"a" * 32, b"b" * 32, None):
        before = space.record("node", key)
        made = replace(first, entry=entry)
        space.add(Transition(state=space.state, records=(made,)), None)  # type: ignore[arg-type]
        assert space.record("node", key) == made
        assert before is not None
        assert space.record_of(before.entry or b"") is None
        assert space.record_of(entry or b"") == (made if entry else None)


def test_registries_are_kept_apart(office: Office, store: Store) -> None:
    office.send(office.id, "node", "Reg_Node", node_entry("node"))
    other = build_manifest(person("alice"), compact_json(REGISTRY), office.now + 60_000)
    office.run(other)
    assert store.record(other.enclave, "node", person("node").public) is None
    assert store.listed(other.enclave, b"", 10) == []
    assert store.record(b"x" * 32, "node", person("node").public) is None
    assert store.record_of(b"x" * 32, b"") is None
    assert store.listed(b"x" * 32, b"", 10) == []


def test_listing(office: Office, store: Store) -> None:
    apps = [("alice", "chat"), ("bob", "chat"), ("alice", "blog"), ("bob", "blog")]
    houses = [office.house(n, by, app=app) for n, (by, app) in enumerate(apps)]
    office.send(office.id, "node", "Reg_Node", node_entry("node"))
    office.send(office.id, "alice", "Reg_Identity", identity_entry("alice"))

    def listed(after: bytes = b"", limit: int = 10, **more: Any) -> list[bytes]:
        return [record.key for record in store.listed(office.id, after, limit, **more)]

    def ids(*numbers: int) -> list[bytes]:
        return sorted(houses[n][0].state.enclave for n in numbers)

    everything = ids(0, 1, 2, 3)
    assert listed() == everything
    assert [record.entry is not None for record in store.listed(office.id, b"", 10)] == [True] * 4
    assert (listed(limit=3), listed(everything[1]), listed(everything[3])) == (everything[:3], everything[2:], [])
    assert (listed(app="chat"), listed(app="blog"), listed(app="other")) == (ids(0, 1), ids(2, 3), [])
    assert listed(app="chat", limit=1) == ids(0, 1)[:1]
    assert listed(ids(0, 1)[0], app="chat") == ids(0, 1)[1:]
    assert (listed(creator=person("alice").public), listed(creator=person("carol").public)) == (ids(0, 2), [])
    assert listed(creator=person("bob").public, app="nothing") == ids(1, 3)
    house, event = houses[0]
    office.send(office.id, "alice", "Delete", GONE, ("r", event.id.hex()))
    assert (listed(), listed(app="chat"), listed(creator=person("alice").public)) == (ids(1, 2, 3), ids(1), ids(2))
    office.send(office.id, "alice", "Reg_Enclave", house.entry(app="blog"))
    assert listed(app="blog") == ids(0, 2, 3)


def test_the_store_is_clean_and_a_purge_leaves_no_record(office: Office, store: Store) -> None:
    house, event = office.house(1)
    office.send(office.id, "node", "Reg_Node", node_entry("node"))
    assert check_store(store, NODE.public, None, lambda events: None).differences == []
    office.send(office.id, "olga", "Terminate")
    while not store.purge(office.id, 1):
        pass
    assert store.record(office.id, "enclave", house.state.enclave) is None
    assert store.record_of(office.id, event.id) is None
    assert store.listed(office.id, b"", 10) == []
    assert check_store(store, NODE.public, None, lambda events: None).differences == []
    if isinstance(store, SqliteStore):
        assert store.database.rows("SELECT count(*) FROM records") == [(0,)]


def test_a_write_that_fails_leaves_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    office = Office(store)

    def fails(*args: Any) -> None:
        put(*args)
        raise sqlite3.OperationalError("disk is full")

    put = registry_records.put_records
    monkeypatch.setattr("enc.node.store.sqlite.batch.put_records", fails)
    (error,) = office.run(office.enter("node", "Reg_Node", node_entry("node")))
    assert getattr(error, "code", "") == "UNAVAILABLE"
    monkeypatch.undo()
    assert store.record(office.id, "node", person("node").public) is None
    office.send(office.id, "node", "Reg_Node", node_entry("node"))
    store.close()
    store = SqliteStore(tmp_path / "enc.db")
    assert store.record(office.id, "node", person("node").public) is not None
    store.close()


@pytest.mark.parametrize(
    ("more", "index"),
    [
        ({}, "records_listed"),
        ({"app": "chat"}, "records_app"),
        ({"creator": b"c" * 32}, "records_creator"),
        ({"app": "chat", "creator": b"c" * 32}, "records_creator"),
    ],
)
def test_every_listing_has_its_index_and_sorts_nothing(tmp_path: Path, more: Any, index: str) -> None:
    SqliteStore(tmp_path / "enc.db").close()
    query, args = registry_records.listing(b"", 10, more.get("app"), more.get("creator"))
    with closing(sqlite3.connect(tmp_path / "enc.db")) as db:
        (step,) = [row[-1] for row in db.execute(f"EXPLAIN QUERY PLAN {query}", (1, *args))]
        assert f"USING INDEX {index} (" in step
        assert "key>?" in step
        for lookup, values in ((registry_records.BY_KEY, (1, "node", b"")), (registry_records.BY_ENTRY, (1, b""))):
            (step,) = [row[-1] for row in db.execute(f"EXPLAIN QUERY PLAN {lookup}", values)]
            assert step.startswith("SEARCH records USING")
