"""A salvage keeps every enclave whose events can be read, and invents and contradicts nothing."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from msgspec.msgpack import encode

from enc.core.errors import MisuseError, Unavailable
from enc.core.primitives.types import Receipt
from enc.core.trees.tree_head import sign_head
from enc.node.salvage import salvage as whole
from enc.node.salvage.found_rows import FORMS, Form
from enc.node.store.sqlite.connection import PAGE_BYTES
from enc.node.store.sqlite.store import SqliteStore
from tests.node.salvage.salvaging import STEPS, Damaged, Original, read_log, rows, salvage
from tests.node.store_host import NODE, Host
from tests.tiers import rounds

READ = [form.table for form in FORMS]
"""Tables whose rows a salvage reads; it derives the others again."""
COPIED = {
    "queues": "SELECT * FROM queues ORDER BY q",
    "batches": "SELECT * FROM batches ORDER BY b",
    "outbox": "SELECT * FROM outbox ORDER BY o",
    "endpoints": "SELECT * FROM endpoints ORDER BY e, identity, trait",
    "charges": "SELECT * FROM charges ORDER BY e",
    "spent requests": "SELECT * FROM spent_requests",
    "clock": "SELECT clock, shown, enclaves FROM node",
    "numbers": "SELECT e, enclave, manifest, terminated_at FROM enclaves WHERE purged >= 0",
    "states": "SELECT * FROM states ORDER BY e",
    "restrictions": "SELECT * FROM restrictions ORDER BY kind, target",
    "records": "SELECT * FROM records ORDER BY e, kind, key",
    "statuses": "SELECT k, c < 0, updated_by, auto_delete, content, withheld FROM events ORDER BY k",
    "withheld contents": "SELECT * FROM withheld_contents ORDER BY k",
}


def test_a_sound_store_is_copied_whole(damaged: Damaged, original: Original) -> None:
    report, found = damaged.salvage()
    assert report.is_whole
    assert report.enclaves.signed_again == report.enclaves.unconfirmed == 0
    assert found == original.logs
    with closing(SqliteStore(damaged.folder / "new" / "enc.db")) as store:
        assert {enclave for enclave in original.names.values() if store.is_purged(enclave)} == original.purged
    for name, query in COPIED.items():
        assert rows(damaged.folder / "new" / "enc.db", query) == rows(original.path, query), name


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.table)
def test_the_forms_are_those_of_the_tables(original: Original, form: Form) -> None:
    columns = [name for _, name, *_ in rows(original.path, f"PRAGMA table_info({form.table})")]
    assert form.columns.split() == columns
    assert len(form.types) == len(columns)


@pytest.mark.parametrize("table", ["sqlite_schema", *READ])
def test_all_pages_of_a_table_are_lost(damaged: Damaged, original: Original, table: str) -> None:
    for number in original.pages_of(table) if table != "sqlite_schema" else [1]:
        damaged.overwrite(number, b"\xff" * PAGE_BYTES)
    report, found = damaged.check()
    if table != "events":
        assert found.keys() == original.logs.keys()
        assert all(len(log.heads) == len(original.logs[enclave].heads) for enclave, log in found.items())
        assert report.enclaves.unconfirmed == (len(found) if table == "states" else 0)
    assert (report.enclaves.signed_again > 0) == (table == "bundles")
    assert report.has_clock == (table != "node")


def test_all_other_pages_are_lost(damaged: Damaged, original: Original) -> None:
    kept = set(original.pages_of(*READ))
    for number in set(range(1, original.pages + 1)) - kept:
        damaged.overwrite(number, b"\xff" * PAGE_BYTES)
    report, found = damaged.check()
    assert report.is_whole
    assert found == original.logs


def test_one_page_of_events_is_lost(damaged: Damaged, original: Original) -> None:
    for number in original.pages_of("events")[::3]:
        hit = original.hit([number])
        if hit:
            one = Damaged(original, damaged.folder)
            one.overwrite(number, b"\xff" * 8)
            report, found = one.check()
            assert found.keys() == original.logs.keys() - hit
            assert {each.enclave for each in report.enclaves.left_out} == hit
            assert all(each.missing for each in report.enclaves.left_out)
            assert not report.is_whole


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(8))
def test_random_pages_are_damaged(damaged: Damaged, original: Original, part: int) -> None:
    for i in range(rounds(4)):
        random, one = Random(f"{part} {i}"), Damaged(original, damaged.folder)
        for _ in range(random.choice([1, 1, 2, 5])):
            one.overwrite_anyhow(random, random.randint(1, original.pages))
        if random.random() < 0.2:
            one.truncate(random.randrange(len(original.raw)))
        one.check(prefixes=False)


def test_the_file_is_truncated(damaged: Damaged, original: Original) -> None:
    damaged.truncate(len(original.raw) // 2 + 100)
    damaged.check()


def test_the_list_of_free_pages_is_lost(damaged: Damaged, original: Original) -> None:
    damaged.overwrite(1, bytes(8), at=32)
    damaged.pages.clear()
    report, found = damaged.check()
    assert report.is_whole
    assert found == original.logs


@pytest.mark.parametrize("data", [b"", b"\xff" * 50_000])
def test_nothing_is_left(damaged: Damaged, data: bytes) -> None:
    damaged.raw[:] = data
    damaged.pages += range(1, damaged.original.pages + 1)
    report, found = damaged.salvage()
    assert (report.enclaves.enclaves, found) == (0, {})


# What is in a row


def damaged_by(damaged: Damaged, sql: str) -> Damaged:
    """Change rows by SQL in which `{life}` etc. are numbers of enclaves."""
    damaged.path.write_bytes(damaged.raw)
    numbers = {bytes(enclave): e for e, enclave in rows(damaged.path, "SELECT e, enclave FROM enclaves")}
    names = {name.replace(" ", "_"): numbers[enclave] for name, enclave in damaged.original.names.items()}
    with closing(sqlite3.connect(damaged.path, isolation_level=None)) as db:
        db.execute("PRAGMA secure_delete = ON")
        db.executescript(sql.format(**names))
        assert db.total_changes > 0
    damaged.raw[:] = damaged.path.read_bytes()
    return damaged


def test_an_erased_content_stays_erased(damaged: Damaged, original: Original) -> None:
    """The page is there twice: as it was before an erasure by time, and after it."""
    assert original.logs[original.names["life"]].events[6].content is None
    row = "UPDATE events SET content = 'soon gone' WHERE k = {life} << 40 | 6"
    before = damaged_by(Damaged(original, damaged.folder), row).raw
    places = [
        i for i in range(0, len(before), PAGE_BYTES) if before[i : i + PAGE_BYTES] != original.raw[i : i + PAGE_BYTES]
    ]
    (place,) = [i for i in places if b"soon gone" in before[i : i + PAGE_BYTES]]
    after = bytes(original.raw)
    for first, second in (before, after), (after, before):
        damaged.raw[:] = first + second[place : place + PAGE_BYTES]
        report, found = damaged.salvage()
        assert report.is_whole
        assert found == original.logs


def test_an_invalid_event_ends_its_log(damaged: Damaged, original: Original) -> None:
    damaged_by(damaged, "UPDATE events SET content = 'another text' WHERE k = {soon_gone} << 40 | 2")
    report, found = damaged.salvage()
    (left,) = report.enclaves.left_out
    assert (left.enclave, left.missing) == (original.names["soon gone"], [(2, 2)])
    assert found.keys() == original.logs.keys() - {left.enclave}


def test_a_head_over_another_log_is_a_contradiction(damaged: Damaged, original: Original) -> None:
    other, life = original.names["pushed"], original.names["life"]
    forged = encode(sign_head(NODE, life, 1, 1, bytes(32))).hex()
    damaged_by(damaged, "UPDATE bundles SET head = x'%s' WHERE e = {life} AND i = 0" % forged)  # noqa: S608, UP031
    report, found = damaged.salvage()
    (left,) = report.enclaves.left_out
    assert (left.enclave, left.missing) == (life, [])
    assert "a different tree head of size 1" in left.reason
    assert other in found


def test_a_head_that_is_not_signed_is_replaced(damaged: Damaged, original: Original) -> None:
    damaged_by(damaged, "UPDATE bundles SET head = x'c0' WHERE e = {life} AND i = 1")
    report, _ = damaged.check()
    assert (report.enclaves.signed_again, report.is_whole) == (1, True)


def test_a_log_that_was_never_this_nodes_is_left_out(damaged: Damaged, original: Original) -> None:
    """An import that was not complete is not an enclave, whatever is lost."""
    damaged_by(
        damaged,
        "DELETE FROM events WHERE k >> 40 = {moved_in} AND k & 0xff >= 7; DELETE FROM states WHERE e = {moved_in};"
        "DELETE FROM bundles WHERE e = {moved_in}; DELETE FROM kinds WHERE e = {moved_in}",
    )
    report, _ = damaged.salvage()
    (left,) = report.enclaves.left_out
    assert "this node's key does not occur in the log" in left.reason


def test_contents_of_many_pages(tmp_path: Path) -> None:
    """A long content is in a chain of pages, which have no rows."""
    path = tmp_path / "enc.db"
    with closing(SqliteStore(path)) as store:
        host = Host(store)
        enclaves = [host.create(meta={"n": n}) for n in range(3)]
        for n, enclave in enumerate(enclaves):
            for size in (4_000, 8_100, 8_200, 20_000 + 1_000 * n, 60_000):
                host.send(enclave, "alice", "message", f"{n} {size} " * (size // 7))
        logs = {enclave: read_log(store, enclave) for enclave in enclaves}
    salvage(path, tmp_path / "new")
    with closing(SqliteStore(tmp_path / "new" / "enc.db")) as store:
        assert {enclave: read_log(store, enclave) for enclave in enclaves} == logs
    raw = bytearray(path.read_bytes())
    chain = [i for i in range(0, len(raw), PAGE_BYTES) if b"1 60000 " in raw[i : i + PAGE_BYTES] and raw[i] == 0]
    raw[chain[2] + 100] ^= 1
    path.write_bytes(raw)
    report = salvage(path, tmp_path / "new")
    assert [(each.enclave, each.missing) for each in report.enclaves.left_out] == [(enclaves[1], [(5, 5)])]
    raw[chain[1] : chain[1] + 4] = b"\xff" * 4
    path.write_bytes(raw)
    assert salvage(path, tmp_path / "new").enclaves.left_out == report.enclaves.left_out


# Queues


def test_a_lost_queue_begins_again(damaged: Damaged, original: Original) -> None:
    identity, url, push_seq = rows(original.path, "SELECT identity, url, push_seq FROM queues WHERE q = 3")[0]
    damaged_by(damaged, "DELETE FROM queues WHERE q = 3")
    report, _ = damaged.check()
    assert report.queues.restarted == [(identity, url)]
    query = f"SELECT push_seq FROM queues WHERE identity = x'{identity.hex()}' AND url = '{url}'"  # noqa: S608
    assert push_seq > 0
    assert rows(damaged.folder / "new" / "enc.db", query) == [(0,)]
    assert not report.queues.dropped


def test_a_row_with_an_impossible_value_is_not_taken(damaged: Damaged, original: Original) -> None:
    (queue,) = rows(original.path, "SELECT identity, url FROM queues WHERE q = 2")
    damaged_by(damaged, "UPDATE queues SET push_seq = 'many' WHERE q = 2")
    report, _ = damaged.check()
    assert report.queues.restarted == [queue]


def test_the_numbers_of_lost_batches_are_not_used_again(damaged: Damaged, original: Original) -> None:
    before = dict(rows(original.path, "SELECT q, push_seq FROM queues"))
    damaged_by(damaged, "DELETE FROM batches")
    report, _ = damaged.check()
    assert dict(rows(damaged.folder / "new" / "enc.db", "SELECT q, push_seq FROM queues")) == before
    assert report.queues.lost > 0


def test_queues_that_contradict_each_other_lose_their_batches(damaged: Damaged) -> None:
    damaged_by(damaged, "UPDATE batches SET events = events + 1 WHERE state = 0")
    report, _ = damaged.check()
    assert report.queues.dropped
    assert rows(damaged.folder / "new" / "enc.db", "SELECT count(*) FROM batches") == [(0,)]


def test_batches_of_a_lost_enclave_are_sent_without_it(damaged: Damaged, original: Original) -> None:
    damaged_by(damaged, "DELETE FROM events WHERE k = {pushed} << 40 | 1")
    report, found = damaged.salvage()
    assert original.names["pushed"] not in found
    assert report.queues.batches > 0
    assert not report.queues.dropped


# Beginnings


def test_the_beginning_of_a_log_only_if_asked(damaged: Damaged, original: Original) -> None:
    life = original.names["life"]
    damaged_by(damaged, "DELETE FROM events WHERE k = {life} << 40 | 12")
    report, found = damaged.salvage()
    assert life not in found
    assert report.enclaves.left_out[0].missing == [(12, 12)]
    report, found = damaged.salvage(prefixes=True)
    assert found[life].events == original.logs[life].events[:12]
    assert report.enclaves.left_out[0].kept == 12
    assert not report.is_whole
    with closing(SqliteStore(damaged.folder / "new" / "enc.db")) as store:
        assert store.restored().endswith("with logs that end early")


def test_newest_events_that_are_lost_are_noticed_in_every_way(damaged: Damaged, original: Original) -> None:
    life = original.names["life"]
    states, kinds, bundles = (f"DELETE FROM {table} WHERE e = {{life}};" for table in ("states", "kinds", "bundles"))  # noqa: S608
    for sql in (kinds + bundles, states + bundles, states + kinds):
        one = damaged_by(Damaged(original, damaged.folder), "DELETE FROM events WHERE k >> 40 = {life} AND k & 255 > 7")
        report, found = damaged_by(one, sql).salvage()
        assert life not in found
        assert report.enclaves.left_out[0].missing[0][0] == 8


def test_only_chosen_enclaves(damaged: Damaged, original: Original) -> None:
    life = original.names["life"]
    report, found = damaged.salvage(chosen=[life])
    assert found.keys() == {life}
    assert report.is_whole
    with pytest.raises(MisuseError, match="--enclave: nothing was found of an enclave 0000"):
        damaged.salvage(chosen=[bytes(32)])


# The node goes on


def test_the_node_goes_on_after_the_adoption(damaged: Damaged, original: Original) -> None:
    for number in original.pages_of("states", "ids", "bundles"):
        damaged.overwrite(number, b"\xff" * 8)
    damaged.check()
    with closing(SqliteStore(damaged.folder / "new" / "enc.db")) as store:
        host = Host(store)
        host.now = store.clock()
        for name in ("life", "moved in", "soon gone", "pushed"):
            enclave = original.names[name]
            (receipt,) = host.run(host.commit(enclave, "alice", "message", "after it"))
            assert isinstance(receipt, Receipt), (name, receipt)
            assert receipt.seq == len(original.logs[enclave].events)
            log = read_log(store, enclave)
            assert log is not None
            assert log.events[-1].id == receipt.id


# The write-ahead log


class Crashed:
    """A store whose node was killed, with commits that are only in the write-ahead log."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.path, self.wal = folder / "enc.db", folder / "enc.db-wal"
        running = folder / "running"
        running.mkdir()
        with closing(SqliteStore(running / "enc.db")) as store:
            store.database.writer.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            host = Host(store)
            self.first, self.last = host.create(meta={"n": 1}), host.create(meta={"n": 2})
            for enclave in (self.first, self.last):
                for n in range(6):
                    host.send(enclave, "alice", "message", f"number {n}")
            for each in (self.path, self.wal):
                each.write_bytes((running / each.name).read_bytes())
            self.logs = {enclave: read_log(store, enclave) for enclave in (self.first, self.last)}

    def frames(self) -> int:
        return (self.wal.stat().st_size - 32) // (24 + PAGE_BYTES)

    def flip(self, at: int) -> None:
        raw = bytearray(self.wal.read_bytes())
        raw[at] ^= 1
        self.wal.write_bytes(raw)

    def salvage(self) -> tuple[whole.SalvageReport, dict[bytes, int]]:
        """Salvage the store; return the report, and the number of events of each enclave in the new one."""
        before = self.path.read_bytes(), self.wal.read_bytes()
        report = salvage(self.path, self.path.parent.parent / "new")
        assert before == (self.path.read_bytes(), self.wal.read_bytes())
        with closing(SqliteStore(self.path.parent.parent / "new" / "enc.db")) as store:
            found = {enclave: read_log(store, enclave) for enclave in self.logs}
        for enclave, log in found.items():
            old = self.logs[enclave]
            assert old is not None
            assert log is None or log.events == old.events[: len(log.events)]
        return report, {enclave: len(log.events) for enclave, log in found.items() if log is not None}


@pytest.fixture
def crashed(tmp_path: Path) -> Crashed:
    return Crashed(tmp_path / "data")


def test_committed_transactions_in_the_write_ahead_log_count(crashed: Crashed) -> None:
    report, found = crashed.salvage()
    assert found == {crashed.first: 7, crashed.last: 7}
    assert (report.is_whole, report.damaged_frames) == (True, 0)


def test_a_transaction_that_is_not_complete_does_not_count(crashed: Crashed) -> None:
    raw = crashed.wal.read_bytes()
    crashed.wal.write_bytes(raw[: -100 - PAGE_BYTES])
    _, found = crashed.salvage()
    assert found == {crashed.first: 7, crashed.last: 6}


def test_without_its_write_ahead_log_a_store_is_older(crashed: Crashed) -> None:
    crashed.wal.unlink()
    assert salvage(crashed.path, crashed.path.parent.parent / "new").enclaves.enclaves == 0


def test_the_header_of_the_write_ahead_log_is_damaged(crashed: Crashed) -> None:
    crashed.flip(20)
    report, found = crashed.salvage()
    assert found == {crashed.first: 7, crashed.last: 7}
    assert report.damaged_frames > 0


def test_any_part_of_the_write_ahead_log_is_damaged(crashed: Crashed) -> None:
    raw, random = crashed.wal.read_bytes(), Random(1)
    for frame in range(0, crashed.frames(), max(1, crashed.frames() // 12)):
        crashed.wal.write_bytes(raw)
        crashed.flip(32 + frame * (24 + PAGE_BYTES) + random.randrange(24 + PAGE_BYTES))
        report, _ = crashed.salvage()
        assert report.damaged_frames > 0 or report.is_whole


# The new directory


def test_it_must_not_exist(damaged: Damaged, tmp_path: Path) -> None:
    damaged.path.write_bytes(damaged.raw)
    with pytest.raises(MisuseError, match=r"--to: .*: already exists"):
        whole.salvage(damaged.path, tmp_path, NODE, STEPS)
    with pytest.raises(MisuseError, match="cannot be created: No such file"):
        whole.salvage(damaged.path, tmp_path / "a" / "b", NODE, STEPS)
    with pytest.raises(MisuseError, match="no such file"):
        whole.salvage(tmp_path / "other.db", tmp_path / "new", NODE, STEPS)
    with closing(sqlite3.connect(tmp_path / "other.db")) as db:
        db.execute("CREATE TABLE x (y)")
    with pytest.raises(MisuseError, match="not a node's store"):
        whole.salvage(tmp_path / "other.db", tmp_path / "new", NODE, STEPS)


def test_not_while_the_node_runs(damaged: Damaged, tmp_path: Path) -> None:
    damaged.path.write_bytes(damaged.raw)
    with closing(SqliteStore(damaged.path)), pytest.raises(Unavailable, match="in use by another process"):
        whole.salvage(damaged.path, tmp_path / "new", NODE, STEPS)


def test_a_failure_leaves_nothing(damaged: Damaged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise OSError(28, os.strerror(28))

    damaged.path.write_bytes(damaged.raw)
    monkeypatch.setattr(whole, "_finish", fail)
    with pytest.raises(Unavailable, match="cannot be written: No space left on device"):
        whole.salvage(damaged.path, tmp_path / "new", NODE, STEPS)
    assert [each.name for each in tmp_path.iterdir()] == ["enc.db"]
