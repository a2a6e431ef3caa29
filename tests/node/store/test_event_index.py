"""The index of event ids, and the cache of enclave numbers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from enc.core.errors import Unavailable
from enc.core.primitives.hashing import sha256
from enc.core.rules.policy_types import Effects
from enc.node.store.sqlite import enclave_numbers
from enc.node.store.sqlite import event_index as ids
from enc.node.store.sqlite.batch import Batch
from enc.node.store.sqlite.store import SqliteStore
from tests.core.world import START
from tests.node.store_host import Log, failing_commit, seqs


@pytest.mark.parametrize("stride", [1, 6])
def test_an_event_is_found_by_its_id_wherever_the_id_is_kept(
    stride: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "GENERATION", 16)
    monkeypatch.setattr(ids, "STRIDE", stride)
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    waiting = set[int]()
    for n in range(80):
        log.add()
        log.write()
        if n % 7 == 3:
            store.close()
            store = SqliteStore(tmp_path / "enc.db")
            log.stores = (store,)
        for event in log.events:
            found = store.event(log.enclave, event.id)
            assert found is not None
            assert found.event == event
        waiting.add(len(store.database.cache.ids._latest) + len(store.database.cache.ids._moving))
        rows = store.database.writer.db.execute("SELECT (SELECT count(*) FROM ids), (SELECT count(*) FROM recent_ids)")
        moved, recent = rows.fetchone()
        assert recent <= 2 * 16
        assert moved + recent >= len(log.events)
    assert moved > 40
    assert max(waiting) <= 2 * 16
    store.close()


def test_ids_of_a_purged_enclave_go_wherever_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "GENERATION", 16)
    monkeypatch.setattr(ids, "STRIDE", 1)
    store = SqliteStore(tmp_path / "enc.db")
    doomed, other = Log(store, meta={"n": 1}), Log(store, meta={"n": 2})
    for _ in range(30):
        doomed.add()
        doomed.write()
    doomed.add("Terminate", effects=Effects(lifecycle="terminated"))
    doomed.write()
    other.write()
    while not store.purge(doomed.enclave, 10):
        pass
    for _ in range(60):
        other.add()
        other.write()
    left = store.database.writer.db.execute("SELECT count(*) FROM ids WHERE k >> 40 = 1").fetchone()
    assert left == (0,)
    assert all(store.event(other.enclave, event.id) for event in other.events)
    store.close()


def test_who_reads_what_was_just_committed_finds_its_events_by_their_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup in a registry does this: it reads a record, and then the entry that the record names."""
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    seen, write = list[bool](), Batch.write

    def looked_at(batch: Batch) -> Callable[[], None]:
        after_commit = write(batch)

        def look() -> None:
            seen.extend(store.event(log.enclave, event.id) is not None for event in log.events)
            after_commit()

        return look

    monkeypatch.setattr(Batch, "write", looked_at)
    log.add()
    log.write()
    assert seen == [True, True]
    store.close()


def test_an_event_that_was_not_written_is_not_found_by_its_id(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    log.write()
    lost = log.add()
    with failing_commit(store), pytest.raises(Unavailable):
        store.write(log.steps, START)
    assert store.event(log.enclave, lost.id) is None
    twin = Log(store)
    twin.steps.clear()
    taken = twin.add(id=sha256(b"in its place"))
    twin.write()
    assert (taken.seq, store.event(log.enclave, lost.id)) == (lost.seq, None)
    assert store.event(log.enclave, taken.id) is not None
    store.close()


def test_a_write_that_fails_moves_no_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "GENERATION", 8)
    monkeypatch.setattr(ids, "STRIDE", 1)
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    for n in range(40):
        log.add()
        if n % 3 == 0:
            with failing_commit(store), pytest.raises(Unavailable):
                store.write(log.steps, START)
        log.write()
        assert all(store.event(log.enclave, event.id) for event in log.events)
    store.close()
    store = SqliteStore(tmp_path / "enc.db")
    assert all(store.event(log.enclave, event.id) for event in log.events)
    store.close()


# Numbers


def test_a_number_of_a_creation_that_failed_is_forgotten(sqlite: SqliteStore) -> None:
    first, second = Log(sqlite, meta={"n": 1}), Log(sqlite, meta={"n": 2})
    first.add("only here")
    with failing_commit(sqlite), pytest.raises(Unavailable):
        sqlite.write(first.steps, START)
    second.add(content="of the second")
    second.write()
    assert sqlite.events(first.enclave, 0, 10) == []
    first.write()
    assert sqlite.events(first.enclave, 0, 10) == first.events
    assert sqlite.events(second.enclave, 0, 10) == second.events
    for log in (first, second):
        assert seqs(sqlite, log.enclave) == [0, 1]
        assert seqs(sqlite, log.enclave, type="Manifest") == [0]
    assert seqs(sqlite, second.enclave, type="only here") == []
    assert seqs(sqlite, first.enclave, type="only here") == [1]


def test_a_number_that_was_looked_up_before_a_purge_is_not_remembered_after_it() -> None:
    known = enclave_numbers.EnclaveNumbers()
    epoch = known.epoch
    known.forget(b"a")
    known.put(b"a", 1, epoch)
    assert known.get(b"a") is None
    known.put(b"a", 1, known.epoch)
    assert known.get(b"a") == 1


def test_few_numbers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enclave_numbers, "MAX_NUMBERS", 2)
    known = enclave_numbers.EnclaveNumbers()
    known.put(b"a", 1, 0)
    known.put(b"b", 2, 0)
    assert known.get(b"a") == 1
    known.put(b"c", 3, 0)
    assert [known.get(name) for name in (b"a", b"b", b"c")] == [1, None, 3]
