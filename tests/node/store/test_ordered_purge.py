"""A purge by order: of any enclave, in slices, across a restart, and next to others."""

import sqlite3
from contextlib import closing
from pathlib import Path

from enc.core.errors import EncError
from enc.node.fsck import check_store
from enc.node.ops.retention import RetentionSweeper
from enc.node.store.restrictions import Restriction
from enc.node.store.sqlite.store import SqliteStore
from tests.node.served import NODE
from tests.node.store.test_damage import World
from tests.node.store_host import MANIFEST, Host

SECRET = "a content that a court has forbidden"


def order(enclave: bytes) -> Restriction:
    return Restriction(kind="purge", target=enclave.hex(), made_at=5)


def run(store: SqliteStore, statement: str) -> None:
    """Damage the store."""

    def work(db: sqlite3.Connection) -> None:
        db.execute(statement)

    store.database.transact(work)


def differences(store: SqliteStore) -> list[str]:
    return [each.what for each in check_store(store, NODE.public, None, lambda n: None).differences]


def sweep(store: SqliteStore) -> None:
    """Do what the node does between batches, until there is nothing more to do."""
    sweeper = RetentionSweeper(store, 86_400_000, 60_000)
    for now in range(0, 600_000_000, 60_000):
        sweeper.run_if_due(now)
        if not store.terminated(now, 10):
            return
    raise AssertionError("it did not end")


def test_a_purge_that_was_interrupted_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "enc.db"
    with closing(SqliteStore(path)) as store:
        host = Host(store)
        gone, kept = host.create(meta={"description": SECRET}), host.create(meta={"description": "kept"})
        for n in range(30):
            for enclave in (gone, kept):
                host.send(enclave, "alice", "message", f"{SECRET} {n}" if enclave == gone else f"{n}")
        before = store.load(kept)
        used = store.usage(host.store.events(kept, 0, 1)[0].from_).enclaves
        store.purge_by_order(gone, order(gone))
        assert (store.load(gone), store.manifest(gone)) == (None, None)
        assert (store.has(gone), store.is_purged(gone)) == (True, True)
        assert store.events(gone, 0, 9) == []
        assert store.purge(gone, 10) is False
        assert differences(store) == []
        assert store.usage(store.events(kept, 0, 1)[0].from_).enclaves == used - 1
    with closing(SqliteStore(path)) as store:
        assert store.terminated(0, 10) == [gone]
        sweep(store)
        assert differences(store) == []
        assert store.load(kept) == before
        assert store.restrictions.find("purge", gone.hex()) == order(gone)
        assert store.count() == 1
    assert SECRET.encode() not in path.read_bytes(), "deleted pages are overwritten"


def test_a_damaged_enclave_is_purged_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    world = World(tmp_path / "enc.db")
    world.damage(40)
    victim = world.enclaves["victim"]
    with closing(SqliteStore(world.path)) as store:
        with store.database.readers.lend() as db:
            (e,) = db.execute("SELECT e FROM enclaves WHERE enclave = ?", (victim,)).fetchone()
        run(store, f"UPDATE states SET state = x'ff' WHERE e = {e}")  # noqa: S608
        store.purge_by_order(victim, order(victim))
        assert store.load(victim) is None
        assert store.is_purged(victim)
        try:
            while not store.purge(victim, 20):
                pass
        except EncError:
            assert store.events(victim, 0, 1) == []
        others = {name: world.enclaves[name] for name in ("first", "third")}
        assert all(store.load(enclave) is not None for enclave in others.values())


def test_the_creator_of_a_log_that_cannot_be_read_is_not_credited(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "enc.db")) as store:
        host = Host(store)
        enclave = host.create(**MANIFEST)
        run(store, "DELETE FROM events")
        store.purge_by_order(enclave, order(enclave))
        assert store.load(enclave) is None
        sweep(store)
        assert store.count() == 0


def test_fsck_reports_a_tombstone_without_its_purge(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "enc.db")) as store:
        enclave = Host(store).create()
        store.restrictions.put(order(enclave))
        assert "restrictions: an enclave that was purged by order is not purged" in differences(store)
