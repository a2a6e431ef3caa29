"""A log that is being imported, in every store: invisible until it is adopted, or discarded."""

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from enc.core.errors import Duplicate, EnclaveExists, ReplayFailed
from enc.core.log.filter import Filter, Range
from enc.core.machine.enclave import apply, judge
from enc.core.machine.state import Transition
from enc.core.primitives.types import Event
from enc.node.fsck import check_store
from enc.node.fsck.searches import EVERYTHING
from enc.node.imports.replay import StagedReplay
from enc.node.signatures.import_check import ImportSignaturePool
from enc.node.store.sqlite import staging as module
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.steps import AppendRun, Step
from enc.node.store.store_interface import Charge, Staging, Store, Usage
from enc.testing.memory_store import MemoryStore
from tests.core.world import GROUP, START, World, give, move, person
from tests.node.moving import take_in
from tests.node.push_host import PUSHED, URL, spread
from tests.node.served import NODE
from tests.node.store_host import Host

DAVE = person("dave").public


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "enc.db")
    yield store
    store.close()


def world(node: str = "node2", **changes: object) -> World:
    """Return a log with everything for which a store keeps rows; its owner then moves it to `node`."""
    made = World({**GROUP, "bundle": {"size": 3, "timeout": 5000}, **changes}, node=node)
    made.send("alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
    first = made.send("bob", "message", "one", tags=(("k", "v"), ("auto-delete", str(START + 90_000_000))))
    made.send("bob", "Update", "two", tags=(("r", first.id.hex()),))
    second = made.send("bob", "message", "three")
    made.send("bob", "Delete", {"reason": "author"}, tags=(("r", second.id.hex()),))
    made.send("bob", "message", "four")
    return made


def moved(made: World, to: str = "node") -> World:
    made.send("alice", "Migrate", made.migrate(to))
    return made


def staged(store: Store, events: Sequence[Event], held: int = -1) -> tuple[Staging, StagedReplay]:
    staging = store.stage(events[0].enclave, held)
    checkers = ImportSignaturePool((), 0)
    state = store.load(events[0].enclave) if held >= 0 else None
    intake = StagedReplay(store, staging, NODE, events[0].enclave, state, checkers, write=staging.write)
    intake.replay_events(events)
    checkers.close()
    intake.close()
    return staging, intake


def clean(store: Store) -> bool:
    return check_store(store, NODE.public, None, lambda events: None).differences == []


def seen(store: Store, made: World) -> list[object]:
    """Return every read of a log, with its result."""
    enclave, events = made.state.enclave, made.events
    looks: list[object] = [
        store.load(enclave),
        list(store.enclaves()),
        store.count() or None,
        store.overdue(1 << 50, 10),
        store.expired(1 << 50, 10),
        store.terminated(1 << 50, 10),
        store.events(enclave, 0, 100),
        store.ids(enclave, 0, 100),
        list(store.find(enclave, Filter(), EVERYTHING)),
        store.bundle(enclave, 0),
        store.bundle_of(enclave, 0),
        store.head(enclave),
        store.charges(enclave),
        store.committed_among(events),
        *(store.event(enclave, event.id) for event in events),
        *(store.target(enclave, event.id) for event in events),
        *(store.committed(enclave, event.hash, event.exp) for event in events),
    ]
    return [look for look in looks if look]


def test_a_staged_log_is_seen_by_nobody_and_an_adopted_one_by_everybody(store: Store) -> None:
    made = moved(world())
    staging, intake = staged(store, made.events)
    assert seen(store, made) == []
    assert [store.usage(person(name).public) for name in ("alice", "bob", "dave")] == [Usage()] * 3
    with pytest.raises(KeyError):
        store.read_node(made.state.enclave, made.state.root)
    with pytest.raises(KeyError):
        store.read_hash(made.state.enclave, 0, 0)
    staging.adopt(intake.replay.state, DAVE, START)
    assert store.load(made.state.enclave) == intake.replay.state
    assert [event.id for event in store.events(made.state.enclave, 0, 100)] == [event.id for event in made.events]
    assert store.count() == 1
    assert all(store.target(made.state.enclave, event.id) for event in made.events)
    assert all(store.committed(made.state.enclave, event.hash, event.exp) for event in made.events)
    assert store.committed_among(made.events).keys() == {event.hash for event in made.events}
    assert clean(store)


def test_what_came_counts_as_the_payer_s(store: Store) -> None:
    made = moved(world())
    size = sum(len((event.content or "").encode()) for event in made.events)
    take_in(store, made.events, "dave")
    assert store.usage(DAVE) == Usage(1, len(made.events), size)
    assert store.usage(person("bob").public) == Usage()
    assert store.charges(made.state.enclave) == (Charge(0, made.state.seq, DAVE),)


def test_a_purge_gives_the_enclave_back_to_who_was_charged(store: Store) -> None:
    made = moved(world())
    take_in(store, made.events, "dave")
    host = Host(store)
    host.now = START + 60_000
    host.send(made.state.enclave, "alice", "Terminate")
    while not store.purge(made.state.enclave):
        pass
    assert store.usage(DAVE).enclaves == 0
    assert store.usage(person("alice").public).enclaves == 0
    assert store.charges(made.state.enclave) == ()
    assert clean(store)


def test_contents_that_should_be_gone_are_erased(store: Store) -> None:
    made = moved(world())
    assert made.events[2].content == "one"  # as a source has it that has erased nothing
    take_in(store, made.events, "dave")
    contents = [event.content for event in store.events(made.state.enclave, 0, 100)]
    assert contents[2] is None  # updated
    assert contents[3] == "two"
    assert contents[4] is None  # deleted
    assert contents[6] == "four"


def test_a_commit_that_stands_in_the_log_twice_is_found_with_its_seq(store: Store) -> None:
    made = world()
    made.send("bob", "message", "in between")
    again = replace(made.events[6], seq=8)
    staging = store.stage(made.state.enclave)
    for event in made.events:
        staging.write([unjudged(made, event)])
    with pytest.raises(ReplayFailed) as caught:
        staging.write([unjudged(made, again)])
    assert (caught.value.seq, type(caught.value.cause)) == (8, Duplicate)


@pytest.mark.parametrize("first", [6, 7])
@pytest.mark.parametrize("at_once", [1, 2, 9])
def test_a_repeat_within_a_run_is_found(store: Store, at_once: int, first: int) -> None:
    made = world()
    made.send("bob", "message", "in between")
    events = [*made.events, replace(made.events[first], seq=8)]
    runs = [AppendRun(events[at : at + at_once], made.state) for at in range(0, 9, at_once)]
    staging = store.stage(made.state.enclave)
    for run in runs[:-1]:
        staging.write([run])
    with pytest.raises(ReplayFailed) as caught:
        staging.write(runs[-1:])
    assert (caught.value.seq, type(caught.value.cause)) == (8, Duplicate)


def test_a_log_that_parts_from_the_one_here_is_refused_where_it_does(store: Store) -> None:
    def made(text: str) -> World:
        log = World({**GROUP, "bundle": {"size": 50, "timeout": 5000}}, node="node")
        log.send("alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
        for i in range(5):
            log.send("bob", "message", text if i == 3 else "same")
        return log

    take_in(store, made("here").events, "carol")
    with pytest.raises(ReplayFailed) as caught:
        staged(store, made("there").events, 6)
    assert (caught.value.seq, type(caught.value.cause)) == (5, EnclaveExists)


def unjudged(made: World, event: Event) -> Step:
    transition = Transition(state=replace(made.state, seq=event.seq))
    return Step(transition=transition, event=event, subject=event.type)


def test_one_that_came_to_be_meanwhile_is_not_replaced(store: Store) -> None:
    made = moved(world())
    staging, intake = staged(store, made.events)
    take_in(store, made.events, "dave")
    before = store.usage(DAVE)
    with pytest.raises(EnclaveExists):
        staging.adopt(intake.replay.state, DAVE, START)
    staging.drop()
    while not store.delete_orphans(START):
        pass
    assert store.usage(DAVE) == before
    assert clean(store)


def test_one_that_was_dropped_is_taken_away(store: Store) -> None:
    made = moved(world())
    staging, _ = staged(store, made.events)
    while not store.delete_orphans(1 << 50, 5):  # an import in progress is left alone
        pass
    if isinstance(store, SqliteStore):
        assert store.database.rows("SELECT count(*) FROM events") == [(len(made.events),)]
    staging.drop()
    while not store.delete_orphans(0, 5):
        pass
    if isinstance(store, SqliteStore):
        assert rows(store) == {}
    assert seen(store, made) == []
    take_in(store, made.events, "dave")
    assert clean(store)


def rows(store: SqliteStore) -> dict[str, int]:
    """Return the number of an enclave's rows in each table."""
    tables = [name for (name,) in store.database.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
    own = [name for name in tables if name not in ("node", "provenance")]
    counts = {name: store.database.rows(f"SELECT count(*) FROM {name}")[0][0] for name in own}  # noqa: S608
    return {name: count for name, count in counts.items() if count}


# A log of which a part is here


def returned(store: Store) -> World:
    """Return a log that began here, moved away, continued elsewhere, and comes back."""
    made = world("node")
    take_in(store, made.events, "carol")  # as if it had been sequenced here
    moved(made, "node2")
    made.send("bob", "message", "elsewhere")
    made.send("bob", "Update", "changed elsewhere", tags=(("r", made.events[6].id.hex()),))
    return moved(made, "node")


def test_a_longer_log_takes_the_place_of_its_prefix(store: Store) -> None:
    made = returned(store)
    enclave, held = made.state.enclave, store.load(made.state.enclave)
    assert held is not None
    heads = [store.head(enclave, size) for size in range(1, held.log.size + 1)]
    take_in(store, made.events, "dave", held)
    assert [store.head(enclave, size) for size in range(1, held.log.size + 1)] == heads, "signed once for each size"
    assert store.count() == 1
    assert list(store.enclaves()) == [enclave]
    assert [event.id for event in store.events(enclave, 0, 100)] == [event.id for event in made.events]
    assert store.events(enclave, 6, 1)[0].content is None
    assert store.charges(enclave) == (
        Charge(0, held.seq, person("carol").public),
        Charge(held.seq + 1, made.state.seq, DAVE),
    )
    assert (store.usage(DAVE).enclaves, store.usage(DAVE).events) == (0, made.state.seq - held.seq)
    assert clean(store)
    ends = store.find(enclave, Filter(seqs=Range(0, 1 << 40)), EVERYTHING)
    assert [item.seq for item in ends] == [event.seq for event in made.events if event.seq != 4]


def test_contents_are_erased_when_their_time_has_come(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ERASED", 1)
    made = moved(world())
    staging, intake = staged(store, made.events)
    due = START + 90_000_000
    while staging.rest(due - 1):
        raise AssertionError("nothing is due")
    while staging.rest(due):
        pass
    staging.adopt(intake.replay.state, DAVE, START)
    contents = [event.content for event in store.events(made.state.enclave, 2, 5)]
    assert contents[:2] == [None, None]
    assert contents[4] == "four"
    assert store.expired(1 << 50, 10) == []
    assert clean(store)


def test_what_was_replaced_rests_and_is_taken_away(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    made = returned(store)
    held = store.load(made.state.enclave)
    assert held is not None
    staging, intake = staged(store, made.events, held.seq)
    staging.adopt(intake.replay.state, DAVE, START)
    assert store.delete_orphans(START - 1)  # its readers may continue
    count = len(made.events) + held.seq + 1
    assert store.database.rows("SELECT count(*) FROM events") == [(count,)]
    while not store.delete_orphans(START, 7):
        assert clean(store)
    assert store.database.rows("SELECT count(*) FROM events") == [(len(made.events),)]
    assert store.database.rows("SELECT count(*) FROM enclaves WHERE purged = -1") == [(0,)]
    store.close()
    again = SqliteStore(tmp_path / "enc.db")
    assert clean(again)
    again.close()


def test_what_a_dead_node_left_is_taken_away_by_the_next(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    made = moved(world())
    staged(store, made.events)
    shutil.copy(tmp_path / "enc.db", tmp_path / "left.db")
    shutil.copy(tmp_path / "enc.db-wal", tmp_path / "left.db-wal")
    store.close()
    left = SqliteStore(tmp_path / "left.db")
    assert seen(left, made) == []
    assert clean(left)
    while not left.delete_orphans(0, 5):
        assert seen(left, made) == []
        assert clean(left)
    assert rows(left) == {}
    take_in(left, made.events, "dave")
    assert clean(left)
    left.close()


def test_ids_go_into_the_index_by_generations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GENERATION", 4)
    monkeypatch.setattr("enc.node.imports.replay.SLICE_EVENTS", 3)
    store = SqliteStore(tmp_path / "enc.db")
    made = moved(world())
    staging, intake = staged(store, made.events)
    with closing(sqlite3.connect(tmp_path / "enc.db")) as db:
        assert db.execute("SELECT count(*) FROM ids").fetchone() == (6,)
    staging.adopt(intake.replay.state, DAVE, START)
    assert store.database.rows("SELECT count(*) FROM ids") == [(len(made.events),)]
    assert clean(store)
    store.close()


# Pushing


def caught_up(made: World, store: Store) -> World:
    """Return what the store's node has added to an imported log."""
    for event in store.events(made.state.enclave, made.state.seq + 1, 100):
        effects = judge(made.state, event, made.memory, sequencer=event.sequencer)
        made._keep(event, apply(made.state, event, effects, made.memory))
    return made


def batched_events(store: Store, name: str) -> list[list[tuple[bytes, int]]]:
    """Return the enclave and seq of each event, by batch."""
    batches = store.list_batches(person(name).public, URL, 0, 1 << 40, 100)
    return [
        [(run.enclave, seq) for run in batch.runs for seq in range(run.first_seq, run.first_seq + run.count)]
        for batch in batches
    ]


def test_endpoints_and_counters_come_with_the_log_and_what_waits_outlives_a_return(store: Store) -> None:
    made = World(PUSHED, node="node2")
    made.send("alice", "Grant", give("vera", "view", endpoint=URL))
    made.send("alice", "Grant", give("nick", "watch", endpoint=URL))
    made.send("bob", "message", "elsewhere")
    enclave = moved(made).state.enclave
    take_in(store, made.events, "dave")
    assert store.endpoints(enclave) == {
        (person("vera").public, "view"): URL,
        (person("nick").public, "watch"): URL,
    }
    host = Host(store)
    host.now = START + 60_000
    first = host.send(enclave, "bob", "message", "batched")
    spread(host)
    second = host.send(enclave, "bob", "message", "in the outbox")
    caught_up(made, store)
    leaving = host.send(enclave, "alice", "Migrate", made.migrate("node2"))
    caught_up(made, store)
    made.send("bob", "message", "elsewhere again")
    take_in(store, moved(made).events, "dave", store.load(enclave))
    host.sequencer.forget(enclave)
    third = host.send(enclave, "bob", "message", "back again")
    spread(host)
    seqs = [[first.seq], [second.seq, leaving.seq, third.seq]]
    assert batched_events(store, "vera") == [[(enclave, seq) for seq in batch] for batch in seqs]
    batches = store.list_batches(person("nick").public, URL, 0, 1 << 40, 100)
    notices = [(notice.enclave, notice.seq, notice.type_seq) for batch in batches for notice in batch.notices]
    assert notices == [(enclave, first.seq, {"message": 2}), (enclave, third.seq, {"message": 5})]
    assert [item.seq for item in store.items(enclave, first.seq, 1)] == [first.seq]
    while not store.delete_orphans(1 << 50, 100):
        pass
    assert batched_events(store, "vera") == [[(enclave, seq) for seq in batch] for batch in seqs]
    assert clean(store)
