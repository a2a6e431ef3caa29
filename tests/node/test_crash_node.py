"""A node that is killed at any moment: every answer that it gave stays true, and nothing is stored twice."""

import asyncio
import random
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from msgspec.json import decode, encode
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from enc.core.log.commit import auto_delete_at, wire_commit
from enc.core.primitives.encoding import MAX_INT
from enc.core.primitives.types import Commit
from tests.node.crash_node import (
    ERASING,
    ON_THE_WAY,
    PURGING,
    SPREADING,
    STARTING,
    STOPPING,
    Launched,
    Launcher,
    set_clock,
)
from tests.node.crash_story import (
    AUDIT_EVERY,
    KILLS,
    LANES,
    LIFETIME_MS,
    PATIENCE_S,
    Load,
    Story,
    send,
)


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher() as found:
        yield found


@pytest.mark.parametrize("point", SPREADING)
def test_killed_while_it_queues_what_others_are_to_hear(launcher: Launcher, tmp_path: Path, point: str) -> None:
    story = Story(launcher, tmp_path / "data", seed=list(SPREADING).index(point))
    story.create()
    for nth in (1, 4):
        node = story.start(point=point, nth=nth)
        if node.url:
            Load(story.outside, node).run()
        story.die(node)
        story.audit()


@pytest.mark.parametrize("point", ON_THE_WAY)
def test_killed_between_accepting_and_acknowledging(launcher: Launcher, tmp_path: Path, point: str) -> None:
    story = Story(launcher, tmp_path / "data", seed=list(ON_THE_WAY).index(point))
    story.create()
    for nth in (1, 3, 8):
        node = story.start(point=point, nth=nth)
        Load(story.outside, node).run()
        story.die(node)
    story.audit()


@pytest.mark.sweep
def test_killed_at_random_under_load(tmp_path: Path) -> None:
    def lane(seed: int) -> None:
        with Launcher() as launcher:
            kill_at_random(launcher, tmp_path / str(seed), seed)

    with ThreadPoolExecutor(len(LANES)) as threads:
        list(threads.map(lane, LANES))


def kill_at_random(launcher: Launcher, data: Path, seed: int) -> None:
    """Kill nodes at random; each is checked against the answers of those before it."""
    story, rng = Story(launcher, data, seed), random.Random(seed)
    story.create()
    for kills in range(1, KILLS + 1):
        node = story.start()
        story.check(node)
        what, left = rng.choice(["sent", "acknowledged"]), rng.randrange(1, 25)

        def count(happened: str, node: Launched = node, what: str = what) -> None:
            nonlocal left
            if happened == what:
                left -= 1
                if left == 0:
                    node.signal(signal.SIGKILL)

        Load(story.outside, node, count).run()
        assert node.wait() == -signal.SIGKILL, node.log()
        if kills % AUDIT_EVERY == 0:
            story.recover()
            story.audit()


@pytest.mark.parametrize("point", STOPPING)
def test_killed_while_it_stops(launcher: Launcher, tmp_path: Path, point: str) -> None:
    story = Story(launcher, tmp_path / "data")
    story.create()
    for after in (5, 20):
        node = story.start(point=point)
        stop_after(story, node, after)
        story.die(node)
    story.audit()


@pytest.mark.parametrize("slow", [False, True])
def test_stopped_under_load_it_answers_what_it_took(launcher: Launcher, tmp_path: Path, slow: bool) -> None:
    story = Story(launcher, tmp_path / "data")
    story.create()
    for after in (1, 4, 12, 40):
        node = story.start(slow=slow)
        stop_after(story, node, after)
        assert node.wait() == 0, node.log()
        assert not (story.data / "enc.db-wal").exists()
        node = story.start()
        assert story.check(node) == 0
        node.kill()
    story.audit()


@pytest.mark.skipif(not hasattr(socket, "TCP_CORK"), reason="messages cannot be held back here")
def test_what_comes_after_the_end_of_a_connection_is_answered_or_not_taken(launcher: Launcher, tmp_path: Path) -> None:
    """A connection ends with its last subscription, while commits may be in flight."""
    story = Story(launcher, tmp_path / "data")
    story.create()
    node, outside = story.start(), story.outside
    load = Load(outside, node)

    async def run() -> None:
        url = node.url.replace("http", "ws")
        async with asyncio.timeout(PATIENCE_S), connect(url, ping_interval=None) as ws:
            keys = await load.subscribe(ws, sub_id="mine")
            commits = [outside.any_commit() for _ in range(8)]
            messages = [{"type": "Close", "sub_id": "mine"}, *map(wire_commit, commits)]
            with in_one_piece(ws):
                await asyncio.gather(*(ws.send(encode(message).decode()) for message in messages))
            waiting = {commit.hash.hex(): commit for commit in commits}
            with suppress(ConnectionClosed):
                while waiting:
                    load.take_message(decode(await ws.recv()), waiting, keys)

    asyncio.run(run())
    assert story.check(node) == 0
    node.kill()


@contextmanager
def in_one_piece(ws: ClientConnection) -> Iterator[None]:
    """Send the data of this block in one TCP segment."""
    tcp = ws.transport.get_extra_info("socket")
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    yield
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)


def stop_after(story: Story, node: Launched, acknowledged: int) -> None:
    def count(happened: str) -> None:
        nonlocal acknowledged
        if happened == "acknowledged":
            acknowledged -= 1
            if acknowledged == 0:
                node.signal(signal.SIGTERM)

    Load(story.outside, node, count, may_refuse=True).run()


@pytest.mark.parametrize("point", STARTING)
def test_killed_while_it_starts_for_the_first_time(launcher: Launcher, tmp_path: Path, point: str) -> None:
    for nth in range(1, 30, 4) if point == "within the schema" else (1,):
        story = Story(launcher, tmp_path / str(nth))
        node = story.start(point=point, nth=nth)
        assert not node.url
        assert node.wait() == -signal.SIGKILL
        story.create()
        story.die(story.start(point="after the threads start"))
        story.audit()


@pytest.mark.parametrize("point", ERASING)
def test_killed_while_it_erases_what_is_due(launcher: Launcher, tmp_path: Path, point: str) -> None:
    clock = tmp_path / "clock"
    set_clock(clock, 0)
    story = Story(launcher, tmp_path / "data", clock=str(clock))
    outside = story.outside
    story.create()
    outside.lifetime_ms = 1
    for nth in (1, 2, 4):
        node = story.start()
        Load(outside, node, most=6).run()
        story.check(node)
        node.kill()
        outside.ahead_ms += 2 * LIFETIME_MS
        set_clock(clock, outside.ahead_ms)
        node = story.start(point=point, nth=nth)
        if node.url:
            Load(outside, node).run()
        story.die(node)
    node = story.start()
    story.turn(node, len(outside.commits))
    node.stop()
    story.audit()
    due = [commit for commit in outside.commits.values() if (auto_delete_at(commit) or MAX_INT) < outside.now()]
    assert len(due) > 10
    check_gone(story, due)


@pytest.mark.parametrize("point", PURGING)
def test_killed_while_it_purges(launcher: Launcher, tmp_path: Path, point: str) -> None:
    story, at_once = Story(launcher, tmp_path / "data"), {"retention.purge_after_s": 0}
    story.create()
    for nth in (1,) if point == "the enclave is marked" else (1, 2, 4):
        terminated = terminate_one(story)
        node = story.start(point=point, nth=nth, settings=at_once)
        if node.url:
            Load(story.outside, node).run()
        story.die(node)
        story.audit()
        node = story.start()
        refused = asyncio.run(ask_again(node, terminated))
        assert set(refused) <= {"DUPLICATE", "ENCLAVE_TERMINATED", "ENCLAVE_EXISTS"}
        node.kill()
    node = story.start(settings=at_once)
    story.turn(node, 100)
    assert set(asyncio.run(ask_again(node, terminated))) == {"ENCLAVE_EXISTS", "ENCLAVE_TERMINATED"}
    node.stop()
    story.audit()
    check_gone(story, [commit for commit in terminated if commit.type == "message"])


def check_gone(story: Story, commits: list[Commit]) -> None:
    """Check that no byte of these contents is left in the store, and that other contents are."""
    stored = (story.data / "enc.db").read_bytes()
    assert not [commit.content for commit in commits if commit.content and commit.content.encode() in stored]
    kept = [commit for commit in story.outside.commits.values() if commit.type == "note"]
    assert all(commit.content and commit.content.encode() in stored for commit in kept)


def terminate_one(story: Story) -> list[Commit]:
    """Create an enclave, fill it and terminate it. Return all its commits, which are not checked any more."""
    outside, node = story.outside, story.start()
    before = set(outside.commits)
    manifest = outside.manifest()
    story.send(node, manifest)
    story.send(node, *(outside.sign(manifest.enclave, "message", f"<secret {i}>", ("k",)) for i in range(12)))
    story.send(node, outside.sign(manifest.enclave, "Terminate", "{}"))
    node.kill()
    return outside.forget(manifest.enclave, before)


async def ask_again(node: Launched, commits: list[Commit]) -> list[str]:
    """Return the codes of the answers to commits that the node must reject."""
    async with connect(node.url.replace("http", "ws"), ping_interval=None) as ws:
        return [(await send(ws, commit))["code"] for commit in commits]
