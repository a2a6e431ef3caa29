"""A node that is killed while it imports an enclave, at any point: it has all of it or nothing, and then continues."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.json import decode, encode

from enc.core.log.commit import build_commit, wire_commit
from enc.core.log.event import finalize, parse_event, wire_event
from enc.core.machine.replay import Replay
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Commit, Event
from enc.core.session.envelope import open_answer, seal_request
from enc.core.session.session import client_keys, open_session
from enc.node.fsck import check_store
from enc.node.ops.key_file import load_or_create
from enc.node.store.sqlite.store import SqliteStore
from tests.core.world import GROUP, LIFETIME, START, World, move, person
from tests.node.crash_node import (
    EXPORTING,
    FETCHED,
    FORCING,
    IMPORTING,
    PULLING,
    SPOOLING,
    SWEEPING,
    Launched,
    Launcher,
)
from tests.node.moving import WITH_ARCHIVE, ExportNode, archive_of
from tests.plain_http import NO_TLS

PATIENCE_S = 30
LONG = 100_000


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher() as found:
        yield found


def world(seq_pub: bytes, **meta: Any) -> tuple[World, Commit]:
    """Return a log with a Migrate to a node that has not finalised it."""
    made = World({**GROUP, "bundle": {"size": 3, "timeout": 5000}, "meta": meta}, node="node2")
    made.send("alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
    for i in range(12):
        first = made.send("bob", "message", f"<{i}>", tags=(("k", str(i)),))
    made.send("bob", "Update", "<again>", tags=(("r", first.id.hex()),))
    at = time.time_ns() // 1_000_000 - START
    content = {**made.migrate("node"), "new_sequencer": seq_pub.hex()}
    return made, made.commit("alice", "Migrate", content, at=at)


def finalised(made: World, migrate: Commit) -> list[Event]:
    return [*made.events, finalize(migrate, person("node2"), migrate.exp - LIFETIME, made.state.seq + 1)]


def post(node: Launched, migrate: Commit, source: str = "", archive: bytes = b"") -> httpx.Response | None:
    """Return the answer, or None if the node died meanwhile."""
    try:
        if archive:
            body = encode({"migrate": wire_commit(migrate)}) + b"\n" + archive
            return httpx.post(
                node.url + "/import", content=body, headers=WITH_ARCHIVE, timeout=PATIENCE_S, verify=NO_TLS
            )
        assert isinstance(migrate, Event)
        body = encode({"migrate": wire_event(migrate), "source": source})
        return httpx.post(node.url + "/import", content=body, timeout=PATIENCE_S, verify=NO_TLS)
    except httpx.TransportError:
        return None


def outcome(node: Launched, migrate: Commit, **how: Any) -> Any:
    """Return the final status of an import, or None if the node dies before."""
    response = post(node, migrate, **how)
    for _ in range(LONG):
        if response is None:
            return None
        status = decode(response.content)
        if status.get("status") != "running":
            return status
        try:
            response = httpx.get(f"{node.url}/import/{migrate.hash.hex()}", timeout=PATIENCE_S, verify=NO_TLS)
        except httpx.TransportError:
            return None
    raise AssertionError("it never ended")


def held(data: Path, seq_pub: bytes, migrate: Commit, events: int) -> bool:
    """Return whether a dead node has the enclave; it must be there whole or not at all."""
    store = SqliteStore(data / "enc.db")
    try:
        assert check_store(store, seq_pub, None, lambda more: None).differences == []
        state = store.load(migrate.enclave)
        assert state is None or state.seq == events - 1
        assert len(store.events(migrate.enclave, 0, 100)) == (events if state else 0)
        assert store.count() == (state is not None)
        assert store.usage(migrate.from_).events == (events if state else 0)
        return state is not None
    finally:
        store.close()


def check_swept(data: Path) -> None:
    store = SqliteStore(data / "enc.db")
    while not store.delete_orphans(1 << 60):
        pass
    assert store.database.rows("SELECT count(*) FROM enclaves WHERE purged < 0") == [(0,)]
    store.close()


def fresh(data: Path) -> bytes:
    """Return a data directory with a key."""
    data.mkdir(mode=0o700)
    return load_or_create(data / "node.key").public


LATE = ("all is adopted", "before anybody hears")
"""Points after which the node has the enclave."""


SLICES = ("before a slice is written", "within a slice", "within a slice, later", "a slice is written", *PULLING)
"""Points that are passed several times."""


@pytest.mark.parametrize(
    ("point", "nth"), [*((point, 1) for point in (*IMPORTING, *PULLING, *FETCHED)), *((point, 3) for point in SLICES)]
)
def test_killed_while_it_pulls_a_log(launcher: Launcher, tmp_path: Path, point: str, nth: int) -> None:
    seq_pub = fresh(tmp_path / "node")
    made, commit = world(seq_pub)
    events = finalised(made, commit)
    with ExportNode(person("node2"), events, page=6, now=time.time) as source:
        node = launcher.start(tmp_path / "node", point=point, nth=nth)
        ended = outcome(node, events[-1], source=source.url)
        node.kill()
        assert ended is None
        assert held(tmp_path / "node", seq_pub, commit, len(events)) == (point in LATE)
        node = launcher.start(tmp_path / "node")
        again = outcome(node, events[-1], source=source.url)
        assert again["status"] == "done", again
        node.stop()
    assert held(tmp_path / "node", seq_pub, commit, len(events))
    check_swept(tmp_path / "node")


@pytest.mark.parametrize("point", ["a slice is written", *FORCING, "within the adoption", *LATE])
def test_killed_while_it_takes_a_log_over(launcher: Launcher, tmp_path: Path, point: str) -> None:
    seq_pub = fresh(tmp_path / "node")
    made, commit = world(seq_pub)
    archive = archive_of(made.events)
    node = launcher.start(tmp_path / "node", point=point)
    assert outcome(node, commit, archive=archive) is None
    node.kill()
    assert held(tmp_path / "node", seq_pub, commit, len(made.events) + 1) == (point in LATE)
    node = launcher.start(tmp_path / "node")
    first = outcome(node, commit, archive=archive)
    assert first["status"] == "done"
    assert outcome(node, commit, archive=archive) == first, "one Migrate, signed once"
    node.stop()
    assert held(tmp_path / "node", seq_pub, commit, len(made.events) + 1)


@pytest.mark.parametrize(("point", "nth"), [*((point, 1) for point in SPOOLING), ("some of an archive has come", 3)])
def test_killed_while_an_archive_comes(launcher: Launcher, tmp_path: Path, point: str, nth: int) -> None:
    """Nothing of the archive is left: its file has no name."""
    seq_pub = fresh(tmp_path / "node")
    made, commit = world(seq_pub)
    archive = archive_of(made.events)
    node = launcher.start(tmp_path / "node", point=point, nth=nth)
    before = set(os.listdir(tmp_path / "node"))
    much = archive + os.urandom(4 << 20) if nth > 1 else archive
    assert outcome(node, commit, archive=much) is None
    node.kill()
    assert set(os.listdir(tmp_path / "node")) <= before
    assert not held(tmp_path / "node", seq_pub, commit, len(made.events) + 1)
    check_import_again(launcher, tmp_path / "node", seq_pub, made, commit)


def test_killed_while_a_log_arrives(launcher: Launcher, tmp_path: Path) -> None:
    """Nothing of the part that has been fetched is left: its file has no name."""
    seq_pub, asked, go_on = fresh(tmp_path / "node"), threading.Event(), threading.Event()
    made, commit = world(seq_pub)
    events = finalised(made, commit)

    def hold(page: Any) -> None:
        if page["events"][0]["seq"]:
            asked.set()
            go_on.wait(PATIENCE_S)

    node = launcher.start(tmp_path / "node")
    before = set(os.listdir(tmp_path / "node"))
    with ExportNode(person("node2"), events, page=6, now=time.time, twist=hold) as source:
        assert post(node, events[-1], source=source.url) is not None
        assert asked.wait(PATIENCE_S)
        node.kill()
        go_on.set()
    assert set(os.listdir(tmp_path / "node")) <= before
    assert not held(tmp_path / "node", seq_pub, commit, len(events))
    check_import_again(launcher, tmp_path / "node", seq_pub, made, commit)


def check_import_again(launcher: Launcher, data: Path, seq_pub: bytes, made: World, commit: Commit) -> None:
    """Check that a restarted node imports the archive as if for the first time, and has deleted its leftovers."""
    node = launcher.start(data)
    assert outcome(node, commit, archive=archive_of(made.events))["status"] == "done"
    node.stop()
    assert held(data, seq_pub, commit, len(made.events) + 1)
    check_swept(data)


@pytest.mark.parametrize("point", SWEEPING)
def test_killed_while_it_sweeps_what_was_left(launcher: Launcher, tmp_path: Path, point: str) -> None:
    seq_pub = fresh(tmp_path / "node")
    made, commit = world(seq_pub)
    archive = archive_of(made.events)
    node = launcher.start(tmp_path / "node", point="all is replayed")
    assert outcome(node, commit, archive=archive) is None
    node.kill()
    for _ in range(3):
        node = launcher.start(tmp_path / "node", point=point)
        node.wait() if not node.url else node.kill()
        assert not held(tmp_path / "node", seq_pub, commit, len(made.events) + 1)
    node = launcher.start(tmp_path / "node")
    assert outcome(node, commit, archive=archive)["status"] == "done"
    node.stop()
    assert held(tmp_path / "node", seq_pub, commit, len(made.events) + 1)
    check_swept(tmp_path / "node")


# The other side


def export(node: Launched, made: World, seq_pub: bytes) -> list[Event] | None:
    """Return the whole log in pages of four, as an importing node requests it; None if the node dies meanwhile."""
    reader, events = person("node3"), list[Event]()
    while True:
        session = open_session(reader, time.time_ns() // 1_000_000_000 + 600)
        body = {"from_seq": len(events), "limit": 4}
        request = seal_request(session, seq_pub, made.state.enclave, "Export", body, os.urandom(24))
        try:
            answer = httpx.post(node.url + "/export", content=encode(request), timeout=PATIENCE_S, verify=NO_TLS)
        except httpx.TransportError:
            return None
        page = open_answer(client_keys(session, seq_pub, made.state.enclave), answer.content)
        events += [parse_event(encode(event)) for event in page["events"]]
        if len(events) > page["seq"]:
            return events


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("point", EXPORTING)
def test_killed_while_it_gives_a_log_away(launcher: Launcher, tmp_path: Path, point: str, nth: int) -> None:
    """The node still has all of it, and the importing node asks again."""
    seq_pub = fresh(tmp_path / "node")
    made, commit = world(seq_pub)
    node = launcher.start(tmp_path / "node")
    assert outcome(node, commit, archive=archive_of(made.events))["status"] == "done"
    replay = Replay()
    for event in stored(tmp_path / "node", node, commit):
        replay.add(event)
    content = {
        "new_sequencer": person("node3").public.hex(),
        "prev_seq": replay.state.seq,
        "ct_root": replay.checkpoint_root().hex(),
    }
    exp = time.time_ns() // 1_000_000 + LIFETIME
    leaving = build_commit(person("alice"), commit.enclave, "Migrate", compact_json(content), exp)
    node = launcher.start(tmp_path / "node")
    assert (
        httpx.post(node.url, content=encode(wire_commit(leaving)), timeout=PATIENCE_S, verify=NO_TLS).status_code == 200
    )
    node.kill()
    whole = len(made.events) + 2
    node = launcher.start(tmp_path / "node", point=point, nth=nth)
    assert export(node, made, seq_pub) is None
    node.kill()
    assert held(tmp_path / "node", seq_pub, commit, whole)
    node = launcher.start(tmp_path / "node")
    given = export(node, made, seq_pub)
    assert given is not None
    assert [event.hash for event in given] == [event.hash for event in (*made.events, commit, leaving)]
    node.stop()
    assert held(tmp_path / "node", seq_pub, commit, whole)


def stored(data: Path, node: Launched, commit: Commit) -> list[Event]:
    """Return the log of a node, which is stopped first."""
    node.stop()
    store = SqliteStore(data / "enc.db")
    try:
        return store.events(commit.enclave, 0, 1000)
    finally:
        store.close()
