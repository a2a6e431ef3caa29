"""Signals: the first stops a node gracefully, the second ends it at once without losing acknowledged commits."""

import asyncio
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from enc.client import Client, Identity
from tests.node.api.websocket_peer import Room, eventually, peer
from tests.node.running import PATIENCE_S, RunningNode, children
from tests.plain_http import NO_TLS

pytestmark = pytest.mark.anyio

TERM, INT = signal.SIGTERM, signal.SIGINT


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@contextmanager
def holding(node: RunningNode, *statements: str) -> Iterator[None]:
    """Hold a transaction open on another connection to the node's database."""
    with closing(sqlite3.connect(node.data / "enc.db", isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement).fetchall()
        yield


async def ending(node: RunningNode) -> int:
    """Return its exit code; after a signal it is negative."""
    code = await asyncio.get_running_loop().run_in_executor(None, node._process.wait, PATIENCE_S)
    node.kill()
    return code


@pytest.mark.parametrize("number", [TERM, INT])
async def test_the_first_signal_stops_it_in_order(tmp_path: Path, number: int) -> None:
    with RunningNode(tmp_path / "node") as node:
        os.kill(node.pid, number)
        assert await ending(node) == 0


async def test_a_hangup_reloads_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("")

    def reload(text: str, event: str) -> None:
        file.write_text(text)
        os.kill(node.pid, signal.SIGHUP)
        while event not in node.log():
            pass

    with RunningNode(tmp_path / "node", "--config", str(file)) as node:
        for pid in children(node.pid, "enc.node.signatures.worker"):
            os.kill(pid, signal.SIGHUP)  # as for all of a process group; they ignore it
        reload("access_log = true\n[admission]\ncreate = 'closed'\n", "settings_reloaded")
        assert httpx.get(node.url + "/info", trust_env=False, verify=NO_TLS).json()["create"] == "closed"
        reload("prot = 1", "settings_not_reloaded")
        assert httpx.get(node.url + "/info", trust_env=False, verify=NO_TLS).json()["create"] == "closed"
        assert '"event": "request"' in node.log()
        assert "verifier_failed" not in node.log()
        os.kill(node.pid, TERM)
        assert await ending(node) == 0


@pytest.mark.parametrize(("first", "second"), [(TERM, TERM), (INT, INT), (TERM, INT)])
async def test_the_second_ends_it_while_it_waits_for_the_disk(tmp_path: Path, first: int, second: int) -> None:
    with RunningNode(tmp_path / "node") as node:
        room = Room(node)
        acknowledged = room.send("alice", "message")
        async with peer(node) as ws:
            with holding(node, "BEGIN IMMEDIATE"):
                await ws.say(room.commit("alice", "message"))
                await eventually(node, "enc_waiting_commits", 1.0)
                os.kill(node.pid, first)
                assert (await ws.next())["type"] == "Notice"
                os.kill(node.pid, second)
                assert await ending(node) == -second
    with RunningNode(tmp_path / "node") as room.node:
        kept = room.reader("alice").log(room.node.url)
    assert [event.id for event in kept[1:]] == [acknowledged.id]


@pytest.mark.parametrize("second", [TERM, INT])
async def test_the_second_ends_it_while_it_closes_the_store(tmp_path: Path, second: int) -> None:
    with RunningNode(tmp_path / "node") as node:
        room = Room(node)
        with holding(node, "BEGIN", "SELECT * FROM node"):
            acknowledged = room.send("alice", "message")  # the WAL cannot be checkpointed while that reader is open
            os.kill(node.pid, TERM)
            await without_children(node)
            os.kill(node.pid, second)
            assert await ending(node) == -second
    with RunningNode(tmp_path / "node") as room.node:
        kept = room.reader("alice").log(room.node.url)
    assert [event.id for event in kept[1:]] == [acknowledged.id]


async def without_children(node: RunningNode) -> None:
    """Wait until the processes that check signatures have ended; only the store is still open then."""
    children = Path(f"/proc/{node.pid}/task/{node.pid}/children")
    async with asyncio.timeout(PATIENCE_S):
        while children.read_text():
            await asyncio.sleep(0)


async def test_two_that_come_at_once_end_it(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node") as node:
        for number in (signal.SIGSTOP, TERM, INT, signal.SIGCONT):
            os.kill(node.pid, number)
        assert await ending(node) in (-TERM, -INT)


def test_a_key_under_which_nothing_here_goes_on_is_told_of(tmp_path: Path) -> None:
    data = tmp_path / "node"
    with RunningNode(data) as node, Client(node.url, Identity.new(), pins=None) as client:
        client.create("notes")
    assert "key_of_no_enclave" not in node.stderr.read_text()
    (data / "node.key").write_text("7" * 64)
    with RunningNode(data) as other:
        assert other.seq_pub != node.seq_pub
    assert other.stderr.read_text().count("key_of_no_enclave") == 1
