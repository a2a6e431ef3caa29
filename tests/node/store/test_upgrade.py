"""A store of an earlier version: the upgrade keeps everything, and computes what that version did not store."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from enc.core.log.commit import build_commit, build_manifest
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Receipt
from enc.node.fsck import check_store
from enc.node.store.sqlite.push import backfill
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.sqlite.upgrade import APPLICATION, UPGRADES, upgrade
from tests.core import world_v1
from tests.core.world import give, init, move, person, pub
from tests.node.push_host import OTHER, URL, all_batches, create, listen, say, spread
from tests.node.store_host import NODE, Host

SCHEMA_1 = Path(__file__).with_name("schema_1.sql")


def lives(host: Host) -> list[bytes]:
    """Return endpoints registered and lost in every way, in logs of both versions."""
    enclave = create(host, init=init(alice="MEMBER owner", bob="MEMBER", carol="MEMBER admin", vera="MEMBER"))
    listen(host, enclave, "vera")
    listen(host, enclave, "vera", "view", OTHER)
    for name in ("nick", "dora", "erin"):
        listen(host, enclave, name, "watch")
    host.send(enclave, "alice", "Revoke", give("nick", "watch"))
    host.send(enclave, "alice", "AC_Bundle", {"operations": [{"type": "Revoke", **give("dora", "watch")}]})
    host.send(enclave, "alice", "Gate", {"alias": "feed", "state": "closed"})
    first, _ = host.send(enclave, "bob", "message", "one"), host.send(enclave, "bob", "message", "two")
    host.send(enclave, "bob", "Update", "one, again", ("r", first.id.hex()))
    host.send(enclave, "bob", "Delete", {"reason": "author"}, ("r", first.id.hex()))
    kept = create(
        host, "kept by a Move", init=init(alice="MEMBER owner", vera="MEMBER", nick="MEMBER", carol="MEMBER admin")
    )
    for name in ("vera", "nick"):
        listen(host, kept, name)
    host.send(kept, "alice", "Move", move("vera", "MEMBER", "OUTSIDER"))
    host.send(kept, "carol", "Move", move("nick", "MEMBER", "OUTSIDER"))
    ended = create(host, "ended")
    listen(host, ended, "vera")
    host.send(ended, "alice", "Terminate")
    return [enclave, kept, ended, version_1(host)]


def version_1(host: Host) -> bytes:
    state: dict[str, list[Any]] = world_v1.initial(alice="Owner")
    state["DataView"] = [{"identity": pub("nick"), "endpoint": OTHER}]
    content = world_v1.manifest(world_v1.PERSONAL_V1, state)
    manifest = build_manifest(person("alice"), compact_json(content), host.now + 60_000, enc_v=1)
    host.run(manifest)
    grant = compact_json(world_v1.has("vera", "DataView", endpoint=URL))
    commit = build_commit(person("alice"), manifest.enclave, "Grant_Push", grant, host.now + 60_000, enc_v=1)
    (receipt,) = host.run(commit)
    assert isinstance(receipt, Receipt)
    return manifest.enclave


def columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]


def downgraded(path: Path, to: Path) -> Path:
    """Return the same store as its first version would have stored it."""
    with closing(sqlite3.connect(to, isolation_level=None)) as old:
        old.executescript(f"{SCHEMA_1.read_text()} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 1;")
        tables = [name for (name,) in old.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        old.execute("DELETE FROM node")
        old.execute("ATTACH ? AS new", (str(path),))
        for table in tables:
            names = ", ".join(columns(old, table))
            old.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM new.{table}")  # noqa: S608
    return to


@pytest.fixture
def stores(tmp_path: Path) -> tuple[SqliteStore, Path, list[bytes], int]:
    """Return a store of the current version, the same of version 1, its enclaves, and its clock."""
    store = SqliteStore(tmp_path / "new.db")
    host = Host(store)
    enclaves = lives(host)
    store.close()
    return SqliteStore(tmp_path / "new.db"), downgraded(tmp_path / "new.db", tmp_path / "old.db"), enclaves, host.now


def test_endpoints_and_counts_are_made_from_the_logs(stores: tuple[SqliteStore, Path, list[bytes], int]) -> None:
    new, path, enclaves, now = stores
    with closing(SqliteStore(path)) as old, closing(new):
        for enclave in enclaves:
            assert old.endpoints(enclave) == new.endpoints(enclave)
        assert [len(old.endpoints(enclave)) for enclave in enclaves] == [2, 1, 0, 2]
        kinds = "SELECT e, type, subject, live, total FROM kinds ORDER BY c"
        assert old.database.rows(kinds) == new.database.rows(kinds)
        assert old.database.rows("SELECT * FROM sizes") == new.database.rows("SELECT * FROM sizes")
        assert check_store(old, NODE.public, None, lambda count: None).differences == []
        host = Host(old)
        host.now = now + 10
        say(host, enclaves[0], 1)
        spread(host)
        assert [batch.push_seq for batch in all_batches(old, "vera", OTHER)] == [1]
        assert all_batches(old, "vera") == []
        (notice,) = all_batches(old, "erin")[0].notices
        assert notice.type_seq == {"message": 3}


def test_an_upgraded_schema_is_the_latest(stores: tuple[SqliteStore, Path, list[bytes], int]) -> None:
    new, path, _, _ = stores
    with closing(SqliteStore(path)) as old, closing(new):
        for db in (old.database.writer.db, new.database.writer.db):
            assert db.execute("PRAGMA user_version").fetchone() == (len(UPGRADES) + 1,)
        names = "SELECT type, name, tbl_name FROM sqlite_master ORDER BY 1, 2"
        assert old.database.rows(names) == new.database.rows(names)
        for kind, name, _ in old.database.rows(names):
            pragma = f"PRAGMA {'table' if kind == 'table' else 'index'}_xinfo({name})"
            assert old.database.rows(pragma) == new.database.rows(pragma), name
        indexes = "SELECT name, sql FROM sqlite_master WHERE type = 'index' ORDER BY 1"
        assert old.database.rows(indexes) == new.database.rows(indexes)


def test_an_upgrade_that_was_cut_off_is_finished_at_the_next_start(
    stores: tuple[SqliteStore, Path, list[bytes], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    new, path, enclaves, _ = stores
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        upgrade(db)

    def fail(*args: Any) -> Any:
        raise RuntimeError("cut off")

    with monkeypatch.context() as patch:
        calls: list[int] = []
        honest = backfill._endpoints

        def fail_later(*args: Any) -> Any:
            if calls:
                fail()
            calls.append(1)
            return honest(*args)

        patch.setattr(backfill, "_endpoints", fail_later)
        with pytest.raises(RuntimeError):
            SqliteStore(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM endpoints").fetchone() == (0,)
    with closing(SqliteStore(path)) as old, closing(new):
        assert [old.endpoints(enclave) for enclave in enclaves] == [new.endpoints(enclave) for enclave in enclaves]


def test_the_upgrade_counts_events_by_their_index(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "enc.db")) as store:
        query = "SELECT count(*) FROM events WHERE events.c IN (?, -?)"
        (step,) = [row[3] for row in store.database.writer.db.execute(f"EXPLAIN QUERY PLAN {query}", (1, 1))]
    assert "SEARCH events USING COVERING INDEX events_" in step
    assert "count(*) FROM events WHERE events.c IN (kinds.c, -kinds.c)" in UPGRADES[0]
