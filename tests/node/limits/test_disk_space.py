"""A disk that runs low: what stops, what goes on, and when the rest resumes."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from enc.core.errors import EncError, Unavailable
from enc.core.log.commit import wire_commit
from enc.core.log.event import wire_event
from enc.node.config import LimitSettings, RetentionSettings
from enc.node.limits import disk_space
from enc.node.limits.disk_space import DiskReading, DiskSpace, bound_of, read_disk
from tests.core.world import pub
from tests.node.admission_setup import codes, try_create
from tests.node.imports.import_orders import moved, refused
from tests.node.metrics_page import check_again
from tests.node.served import DEV, SMALL, Served, about, bad, good, sqlite

KEEP = 1000
CONFIG = replace(DEV, limits=LimitSettings(disk_keep_free_bytes=KEEP), retention=RetentionSettings(purge_after_s=60))


class Disk:
    """A disk whose free bytes a test sets."""

    def __init__(self, free: int = 1 << 30, total: int = 1 << 40) -> None:
        self.free, self.total, self.reusable, self.readings = free, total, 0, 0

    def read(self, folder: Path = Path()) -> DiskReading:
        self.readings += 1
        return DiskReading(self.free, self.total)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Return the disk of all nodes of the test."""
    disk = Disk()
    monkeypatch.setattr("enc.node.assembly.read_disk", disk.read)
    return disk


@pytest.fixture
def node(disk: Disk) -> Iterator[Served]:
    with Served(CONFIG) as node:
        yield node


def leave(node: Served, disk: Disk, free: int) -> None:
    """Let this much of the disk be free, and the node notice it."""
    disk.free = free
    node.clock.tick(1000)
    node.settle()


# The bound

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("setting", "total", "bound"),
    [
        (-1, 50_000 * MIB, 500 * MIB),
        (-1, 10 * GIB, 256 * MIB),
        (-1, 4000 * GIB, GIB),
        (-1, 500 * MIB, 50 * MIB),
        (-1, 0, 0),
        (0, 50 * GIB, 0),
        (7, 50 * GIB, 7),
    ],
)
def test_the_bound_follows_the_size_of_the_disk(setting: int, total: int, bound: int) -> None:
    assert bound_of(setting, total) == bound


def test_a_reading_of_a_real_disk(tmp_path: Path) -> None:
    found, real = read_disk(tmp_path), os.statvfs(tmp_path)
    assert 0 < found.free <= found.total == real.f_blocks * real.f_frsize
    assert read_disk(tmp_path / "missing").total > 0


# Changes


def space(disk: Disk, **more: Any) -> DiskSpace:
    return DiskSpace(disk.read, lambda: 0.0, lambda: disk.reusable, KEEP, **more)


def test_it_resumes_with_a_margin_and_logs_each_change_once() -> None:
    disk = Disk()
    found = space(disk)
    with capture_logs() as logs:
        for free, is_low in ((1000, False), (999, True), (1000, True), (1124, True), (1125, False), (1000, False)):
            disk.free = free
            found.update()
            found.update()
            assert found.is_low is is_low, free
    assert [(each["event"], each["log_level"], each["free"]) for each in logs] == [
        ("disk_low", "error", 999),
        ("disk_has_room", "info", 1125),
    ]


def test_free_pages_of_the_database_count_but_not_alone() -> None:
    disk = Disk(free=500)
    found = space(disk)
    found.run_if_due()
    assert found.is_low
    disk.reusable = 10_000
    found = space(disk)
    found.run_if_due()
    assert not found.is_low
    disk.free = 249
    found.update()
    assert found.is_low, "the write-ahead log needs some of the disk itself"


def test_a_disk_that_cannot_be_read_changes_nothing() -> None:
    def fail() -> DiskReading:
        raise OSError(5, "I/O error")

    found = DiskSpace(fail, lambda: 0.0)
    found.update()
    assert not found.is_low
    found.is_low = True
    found.update()
    assert found.is_low


def test_without_a_bound_nothing_is_low() -> None:
    disk = Disk(free=0)
    found = DiskSpace(disk.read, lambda: 0.0, setting=0)
    found.update()
    assert not found.is_low


@pytest.mark.parametrize("error", [Unavailable("no store"), KeyError("a fault")])
def test_a_store_that_cannot_be_read_has_no_free_pages(error: Exception) -> None:
    def fail() -> int:
        raise error

    found = DiskSpace(Disk(free=999).read, lambda: 0.0, fail, KEEP)
    found.run_if_due()
    assert found.is_low


def test_it_is_read_once_in_a_while_and_not_for_each_commit(node: Served, disk: Disk) -> None:
    enclave = node.create(SMALL)
    before = disk.readings
    for n in range(5):
        enclave.send("bob", "message", str(n))
    assert disk.readings == before
    node.clock.tick(int(disk_space.INTERVAL_S * 1000))
    node.settle()
    assert disk.readings > before


# A node


def test_a_node_whose_disk_is_low_takes_nothing_that_grows(node: Served, disk: Disk) -> None:
    enclave = node.create(SMALL)
    receipt = enclave.send("bob", "message", "x")
    repeated = enclave.commit("bob", "message", "before")
    node.submit(repeated)
    leave(node, disk, KEEP - 1)
    for error in (
        enclave.refused("bob", "message", "y"),
        enclave.refused("bob", "Update", "y", about(receipt)),
        try_create(node, "alice"),
        refused(node, wire_event(moved().events[-1])),
    ):
        assert isinstance(error, EncError)
        assert (error.status, error.code) == (503, "UNAVAILABLE")
        assert "limits.disk_keep_free_bytes keeps (1000)" in error.message
        assert error.context["retry_after_ms"] > 0
    assert enclave.seqs("alice") == [0, 1, 2]
    assert bad(node.post(wire_commit(repeated))).code == "DUPLICATE"
    enclave.send("bob", "Delete", {"reason": "author"}, about(receipt))
    enclave.send("alice", "Terminate")
    node.clock.tick(61_000)
    node.settle()
    assert node.store.is_purged(enclave.id)
    leave(node, disk, KEEP + KEEP // 8)
    assert codes([try_create(node, "alice")]) == [""]


def test_a_move_away_goes_on(node: Served, disk: Disk) -> None:
    enclave = node.create(SMALL)
    leave(node, disk, 0)
    point = enclave.ask("alice", "Checkpoint")
    content = {"new_sequencer": pub("node2"), "prev_seq": point["seq"], "ct_root": point["ct_root"]}
    assert enclave.send("alice", "Migrate", content).seq == 1


def test_a_bundle_of_operations_stores_no_tree(node: Served, disk: Disk) -> None:
    enclave = node.create(SMALL)
    leave(node, disk, 0)
    size = node.store.size(enclave.id)
    operations = [{"type": "Shared", "key": "topic", "value": n} for n in range(40)]
    assert enclave.refused("alice", "AC_Bundle", {"operations": operations}).code == "UNAVAILABLE"
    assert node.store.size(enclave.id) == size


def test_the_node_says_that_its_disk_is_low(node: Served, disk: Disk) -> None:
    assert good(node.admin("/health/ready")) == {"status": "ok"}
    leave(node, disk, 0)
    check_again(node)
    answer = node.admin("/health/ready")
    (reason,) = answer.json()["reasons"]
    assert (answer.status_code, reason["code"], str(KEEP) in reason["message"]) == (503, "disk_low", True)
    page = node.admin("/metrics").text
    assert 'enc_not_ready{code="disk_low"} 1.0' in page
    assert "enc_keep_free_bytes 1000.0" in page
    assert "enc_disk_low 1.0" in page
    leave(node, disk, 1 << 30)
    check_again(node)
    assert good(node.admin("/health/ready")) == {"status": "ok"}


def test_a_node_that_starts_with_a_low_disk_knows_it(disk: Disk) -> None:
    disk.free = 0
    with Served(CONFIG) as node:
        assert codes([try_create(node, "alice")]) == ["UNAVAILABLE"]


def test_the_bound_can_be_changed_at_once(node: Served, disk: Disk) -> None:
    disk.free = 5000
    for keep, code in ((6000, "UNAVAILABLE"), (0, "")):
        node.on_loop(partial(node.node.apply, replace(CONFIG, limits=LimitSettings(disk_keep_free_bytes=keep))))
        assert codes([try_create(node, "alice")]) == [code]


def test_a_purged_enclave_leaves_room_in_the_database(tmp_path: Path) -> None:
    store = sqlite(tmp_path)
    with Served(replace(DEV, retention=RetentionSettings(purge_after_s=60)), store) as node:
        enclave = node.create(SMALL)
        enclave.send("bob", "message", "x" * 500_000)
        enclave.send("alice", "Terminate")
        before = store.reusable()
        node.clock.tick(61_000)
        node.settle()
        assert store.reusable() > before + 400_000
        assert f"enc_reusable_bytes {float(store.reusable())}" in node.admin("/metrics").text
    store.close()
