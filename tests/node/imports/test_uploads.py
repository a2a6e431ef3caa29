"""Uploads of archives: slow ones do not block others, and their number and size are limited."""

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest
from msgspec.json import decode, encode
from msgspec.structs import replace

from enc.core.errors import Unavailable
from enc.core.log.commit import wire_commit
from enc.core.primitives.types import Commit
from enc.node.config import ImportSettings
from enc.node.imports.log_import import ImportJob
from enc.node.imports.orders import ImportStatus
from enc.node.imports.uploads import Upload, UploadLimits, Uploads
from enc.node.limits.disk_space import DiskReading, DiskSpace
from tests.core.world import LIFETIME, World
from tests.node.imports.import_orders import OLD, forced, moved, world
from tests.node.moving import WITH_ARCHIVE, ExportNode, archive_of, done, ended, order
from tests.node.served import DEV, PATIENCE_S, Clock, Json, Served, bad

BOUNDS = UploadLimits(max_count=3, per_address=3, total_bytes=1000, min_bytes_per_s=10, grace_s=5)


class ArchiveBytes(io.BytesIO):
    """An archive that has arrived."""

    @property
    def size(self) -> int:
        return len(self.getbuffer())


class Desk:
    """Uploads with their own clock, and the names of those that were stopped."""

    def __init__(self, **changes: Any) -> None:
        self.clock, self.stopped = Clock(), list[str]()
        self.free = 1 << 40
        disk = DiskSpace(lambda: DiskReading(self.free, 1 << 40), setting=1 << 30)
        self.uploads = Uploads(replace(BOUNDS, **changes), disk, lambda: self.clock.monotonic, io.BytesIO)

    def add(self, address: str, name: str = "", size: int = 0) -> Upload:
        upload = self.uploads.add(address, lambda: self.stopped.append(name or address))
        upload.add_bytes(size)
        return upload


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_an_archive_that_comes_too_slowly_is_stopped_after_its_grace(desk: Desk) -> None:
    slow, fast, here = desk.add("a", size=20), desk.add("b", size=30), desk.add("c")
    here.rewind()
    desk.clock.tick(7_000)
    desk.uploads.drop_slow()
    assert desk.stopped == []
    desk.clock.tick(1)
    desk.uploads.drop_slow()
    assert desk.stopped == ["a"]
    assert isinstance(slow.rejection, Unavailable)
    assert (fast.rejection, here.rejection) == (None, None)
    desk.uploads.drop_slow()
    assert desk.stopped == ["a"], "once"


def test_places_are_bounded_and_given_back(desk: Desk) -> None:
    first, *_ = [desk.add(address) for address in "abc"]
    with pytest.raises(Unavailable, match="too many imports are"):
        desk.add("d")
    first.close()
    desk.add("d")
    assert len(desk.uploads) == 3
    assert desk.stopped == []


def test_an_address_that_sends_most_makes_room_for_others_and_not_for_itself(desk: Desk) -> None:
    for name, size in (("a1", 5), ("a2", 2), ("a3", 5)):
        desk.add("a", name, size)
    with pytest.raises(Unavailable):
        desk.add("a", "a4")
    desk.add("b")
    assert desk.stopped == ["a2"], "the slowest of them"
    with pytest.raises(Unavailable):
        desk.add("b", "b2")


def test_the_slowest_makes_room_once_its_grace_is_over(desk: Desk) -> None:
    desk.add("a", size=200), desk.add("b", size=100)
    desk.add("c", size=300).rewind()
    desk.clock.tick(5_000)
    with pytest.raises(Unavailable):
        desk.add("d")
    desk.clock.tick(1)
    desk.add("d")
    assert desk.stopped == ["b"]
    assert len(desk.uploads) == 3


def test_who_keeps_coming_anew_does_not_push_out_one_that_comes_well(desk: Desk) -> None:
    """An attacker with uploads from many addresses, each within its grace period, must be faster than the owner."""
    owner = desk.add("owner", size=100)
    desk.clock.tick(6_000)
    owner.add_bytes(500)
    for n in range(10):
        desk.add(f"stranger {n}", size=1)
        desk.clock.tick(100)
    assert owner.rejection is None
    assert desk.stopped == [f"stranger {n}" for n in range(8)]


def test_one_that_has_come_makes_room_for_nobody(desk: Desk) -> None:
    for address in "aaa":
        desk.add(address).rewind()
    desk.clock.tick(60_000)
    with pytest.raises(Unavailable):
        desk.add("b")
    assert desk.stopped == []


def test_one_address_holds_some_of_the_places_only() -> None:
    """Both unfinished and complete archives count."""
    desk = Desk(max_count=4, per_address=2)
    first = desk.add("a")
    first.rewind()
    desk.add("a")
    with pytest.raises(Unavailable, match="from this address"):
        desk.add("a")
    desk.add("b"), desk.add("c")
    first.close()
    desk.add("b").close()
    desk.add("a")
    assert desk.stopped == []


def test_bytes_of_all_are_bounded_where_most_are_sent() -> None:
    desk = Desk(max_count=9)
    desk.add("a", "a1", 300), desk.add("a", "a2", 200)
    other = desk.add("b", size=450)
    other.add_bytes(49)
    assert desk.stopped == []
    other.add_bytes(10)
    assert desk.stopped == ["b"], "it has sent the most itself"
    desk.add("c", size=490).add_bytes(50)
    assert desk.stopped == ["b", "c"]
    desk.add("d", size=450)
    desk.add("a", "a3", 100)
    assert desk.stopped == ["b", "c", "a1"]


def test_bytes_that_arrive_count_for_the_speed_and_those_that_are_stored_for_the_room() -> None:
    desk = Desk(max_count=9)
    fetched = desk.add("a")
    fetched.add_bytes(60, 0)
    fetched.add_bytes(0, 1000)
    desk.clock.tick(11_000)
    desk.uploads.drop_slow()
    assert desk.stopped == []
    desk.clock.tick(1)
    desk.uploads.drop_slow()
    assert desk.stopped == ["a"]


def test_uploads_stop_when_the_disk_is_short_of_space(desk: Desk) -> None:
    upload = desk.add("a", size=10)
    desk.free = (1 << 30) - 1
    with pytest.raises(Unavailable, match="bytes free"):
        desk.add("b")
    upload.add_bytes(1)
    assert desk.stopped == ["a"]
    assert upload.rejection is not None
    assert "bytes free" in upload.rejection.message
    assert len(desk.uploads) == 0


def test_what_has_come_counts_until_it_is_closed() -> None:
    desk = Desk(max_count=9)
    here = desk.add("a", size=900)
    here.rewind()
    desk.add("b", size=200)
    assert desk.stopped == ["b"]
    here.close()
    assert here.file.closed
    desk.add("c", size=900)
    assert desk.stopped == ["b"]


# On the wire


@contextmanager
def dripping(node: Served, migrate: Commit, some: bytes = b"some of it") -> Iterator[socket.socket]:
    """Start the upload of an archive and do not finish it."""
    before = node.on_loop(lambda: len(node.node.uploads))
    head = f"POST /import HTTP/1.1\r\nhost: localhost\r\ncontent-type: {WITH_ARCHIVE['content-type']}\r\n"
    body = encode({"migrate": wire_commit(migrate)}) + b"\n" + some
    with socket.create_connection(("127.0.0.1", httpx.URL(node.url).port or 0), PATIENCE_S) as sock:
        sock.sendall(head.encode() + b"content-length: 100000000\r\n\r\n" + body)
        node.until(lambda: len(node.node.uploads) == before + 1)
        yield sock


def answer(sock: socket.socket) -> tuple[int, Json]:
    response = HTTPResponse(sock)
    response.begin()
    return response.status, decode(response.read())


def test_slow_strangers_take_no_import_s_place() -> None:
    made, others = world(), [world(meta={"n": n}) for n in range(3)]
    with Served(replace(DEV, imports=ImportSettings(at_once=1))) as node:
        with dripping(node, forced(others[0])), dripping(node, forced(others[1])):
            done(node, forced(made), archive=archive_of(made.events))
            with ExportNode(OLD, moved(others[2]).events) as source:
                done(node, others[2].events[-1], source.url)
        node.until(lambda: not len(node.node.uploads))


def test_who_drips_is_told_so_and_makes_room() -> None:
    made, imports = world(), ImportSettings(uploads=1, upload_bytes_per_s=100, upload_grace_s=5)
    with Served(replace(DEV, imports=imports)) as node, dripping(node, forced(world(meta={"n": 1}))) as sock:
        assert bad(order(node, forced(made), archive=archive_of(made.events))).code == "UNAVAILABLE"
        node.clock.tick(6_000)
        node.on_loop(node.node.uploads.drop_slow)
        node.until(lambda: not len(node.node.uploads))
        status, error = answer(sock)
        assert (status, error["code"], "too slowly" in error["message"]) == (503, "UNAVAILABLE", True)
        done(node, forced(made), archive=archive_of(made.events))
        assert node.on_loop(lambda: len(node.node.uploads)) == 0


def test_the_node_itself_looks_for_those_that_drip() -> None:
    with (
        Served(replace(DEV, imports=ImportSettings(upload_grace_s=1))) as node,
        dripping(node, forced(world())) as sock,
    ):
        node.clock.tick(2_000)
        assert answer(sock)[0] == 503


def test_bytes_over_the_bound_are_refused_on_the_wire() -> None:
    made = world()
    with Served(replace(DEV, imports=ImportSettings(uploads_bytes=100))) as node:
        error = bad(order(node, forced(made), archive=b"x" * 500))
        assert (error.code, "exceed the bytes" in error.message) == ("UNAVAILABLE", True)
        assert node.on_loop(lambda: len(node.node.uploads)) == 0


@pytest.mark.parametrize(
    ("imports", "status"), [(ImportSettings(uploads_bytes=100_000), 503), (ImportSettings(archive_bytes=100_000), 413)]
)
def test_each_piece_that_comes_counts(imports: ImportSettings, status: int) -> None:
    with Served(replace(DEV, imports=imports)) as node, dripping(node, forced(world())) as sock:
        sock.sendall(b"x" * 200_000)
        assert answer(sock)[0] == status
        node.until(lambda: not len(node.node.uploads))


def busy(node: Served, made: World, go_on: threading.Event, address: str = "busy") -> Commit:
    """Start an import whose archive is not read before `go_on`."""

    class Slow(ArchiveBytes):
        def read(self, size: int | None = -1, /) -> bytes:
            go_on.wait(PATIENCE_S)
            return super().read(size)

    commit = forced(made)
    start(node, commit, Slow(archive_of(made.events)), address)
    return commit


def start(node: Served, commit: Commit, archive: ArchiveBytes, address: str = "") -> ImportStatus:
    importer = node.node.importer
    job = importer.accept(encode({"migrate": wire_commit(commit)}), True)
    assert isinstance(job, ImportJob)
    return importer.start(job, archive, address)


def test_two_archives_that_come_at_one_time_for_one_enclave_become_one_import() -> None:
    """When the uploads began, neither was an import yet."""
    made, go_on = world(), threading.Event()
    with Served(replace(DEV, imports=ImportSettings(at_once=1))) as node:
        importer, archives = node.node.importer, [ArchiveBytes(archive_of(made.events)) for _ in range(3)]
        commit, other = (made.commit("alice", "Migrate", made.migrate("node"), at=LIFETIME // 2 + n) for n in range(2))
        first = busy(node, world(meta={"n": 2}), go_on)
        orders = [encode({"migrate": wire_commit(each)}) for each in (commit, commit, other)]
        one, same, another = [
            job for job in (importer.accept(line, True) for line in orders) if isinstance(job, ImportJob)
        ]
        assert importer.start(one, archives[0], "a") is importer.start(same, archives[1], "a")
        importer.start(another, archives[2], "a")
        assert [archive.closed for archive in archives] == [False, True, False]
        go_on.set()
        for each in (first, commit):
            assert ended(node, each.hash.hex())["status"] == "done"
        late = ended(node, other.hash.hex())
        assert (late["status"], late["error"]["code"]) == ("failed", "UNAVAILABLE"), "the first has changed it"
        assert "changed on this node" in late["error"]["message"]


@pytest.mark.parametrize("stops", [False, True])
def test_a_log_that_has_come_waits_for_its_turn(stops: bool) -> None:
    made, last, go_on = world(), moved(world(meta={"n": 3})), threading.Event()
    node = Served(replace(DEV, imports=ImportSettings(at_once=1)))
    uploads, commit = node.node.uploads, forced(made)
    try:
        with ExportNode(OLD, last.events) as source:
            first = busy(node, world(meta={"n": 2}), go_on)
            for _ in range(2):  # the second joins the first
                response = order(node, commit, archive=archive_of(made.events))
                assert (response.status_code, decode(response.content)["status"]) == (202, "running")
                assert node.on_loop(lambda: len(uploads)) == 1
            assert order(node, last.events[-1], source.url).status_code == 202
            node.until(lambda: all(not upload.is_receiving for upload in uploads._all))
            assert node.on_loop(lambda: len(uploads)) == 2
        if stops:
            node.begin_stop()
            assert node.node.importer._stopped.wait(PATIENCE_S)
        go_on.set()
        if not stops:
            for each in (first, commit, last.events[-1]):
                assert ended(node, each.hash.hex())["status"] == "done"
    finally:
        go_on.set()
        node.stop()
    assert len(uploads) == 0
    assert (node.store.load(made.state.enclave) is None) == stops


def test_one_address_s_imports_leave_a_thread_to_others() -> None:
    here, go_on = [world(meta={"n": n}) for n in range(3)], threading.Event()
    with Served(replace(DEV, imports=ImportSettings(at_once=2))) as node:
        waiting = [busy(node, each, go_on) for each in here[:2]]
        done(node, forced(here[2]), archive=archive_of(here[2].events))
        go_on.set()
        for commit in waiting:
            assert ended(node, commit.hash.hex())["status"] == "done"


def test_addresses_get_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has sent many logs comes after another with its first."""
    here, go_on, ends = [world(meta={"n": n}) for n in range(4)], threading.Event(), list[bytes]()
    with Served(replace(DEV, imports=ImportSettings(at_once=1))) as node:
        importer = node.node.importer
        record = importer._record_end

        def note(status: ImportStatus) -> None:
            ends.append(bytes.fromhex(status.import_))
            record(status)

        monkeypatch.setattr(importer, "_record_end", note)
        orders = [busy(node, each, go_on, address) for each, address in zip(here, "aaab", strict=True)]
        go_on.set()
        for commit in orders:
            ended(node, commit.hash.hex())
    assert ends.index(orders[3].hash) <= 1


def test_an_address_is_held_to_its_places_on_the_wire() -> None:
    made = world()
    with Served(replace(DEV, imports=ImportSettings(uploads_per_address=1))) as node:
        with dripping(node, forced(world(meta={"n": 1}))):
            error = bad(order(node, forced(made), archive=archive_of(made.events)))
            assert (error.code, "from this address" in error.message) == ("UNAVAILABLE", True)
        node.until(lambda: not len(node.node.uploads))
        done(node, forced(made), archive=archive_of(made.events))


def test_an_import_for_which_there_is_no_thread_fails_and_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    made, archive = world(), ArchiveBytes(archive_of(world().events))

    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Served(replace(DEV, imports=ImportSettings(at_once=1))) as node:
        importer, commit = node.node.importer, forced(made)
        with monkeypatch.context() as patch:
            patch.setattr("enc.node.imports.jobs.threading.Thread.start", fails)
            status = start(node, commit, archive)
        assert (status.status, archive.closed) == ("failed", True)
        assert status == importer.status(commit.hash)
        assert status.error
        assert status.error["code"] == "UNAVAILABLE"
        done(node, commit, archive=archive_of(made.events))
