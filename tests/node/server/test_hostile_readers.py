"""Peers that have gone, that do not read the node's answers, or that are many: each costs bounded memory."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import httpx
import pytest
from msgspec.json import decode, encode
from websockets.frames import Frame, Opcode

from enc.core.log.commit import wire_commit
from tests.core.world import Json
from tests.node.api.websocket_peer import PATIENCE, Room, events, eventually, metric, peer
from tests.node.api.websocket_stage import closed
from tests.node.raw_peer import MIB, Raw, answers, pour, rss
from tests.node.running import RunningNode
from tests.plain_http import NO_TLS

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("readers") / "node") as node:
        yield node


# Peers that have gone


async def test_a_peer_that_answers_no_ping_is_dropped(strict: RunningNode) -> None:
    room = Room(strict)
    with Raw(strict) as raw:
        raw.upgrade()
        raw.frame(room.reader("bob").query("s"))
        while raw.next()["type"] != "EOSE":
            pass
        raw.rest()
    await eventually(strict, "enc_websockets", 0.0)
    await eventually(strict, "enc_subscriptions", 0.0)


async def test_a_peer_that_answers_pings_stays(strict: RunningNode) -> None:
    room = Room(strict)
    bob = room.reader("bob")
    async with peer(strict, ping_interval=None) as ws:
        await ws.say(bob.query("s"))
        await ws.until("EOSE")
        with Raw(strict) as raw:  # as long as it takes to drop a peer that does not answer
            raw.upgrade()
            await asyncio.get_running_loop().run_in_executor(None, raw.rest)
        seq = room.send("alice", "message").seq
        assert bob.seq(await ws.next()) == seq


async def test_a_peer_that_neither_reads_nor_answers_is_dropped_however_much_waits_for_it(strict: RunningNode) -> None:
    """The node ends its subscription, and closes its socket although waiting data cannot be sent."""
    room = Room(strict)
    with Raw(strict, receive_buffer=4096) as raw:
        raw.upgrade()
        raw.frame(room.reader("bob").query("s"))
        while raw.next()["type"] != "EOSE":
            pass
        async with peer(strict, ping_interval=None) as writer:
            for _ in range(10):
                await writer.say(*room.say(50, size=30_000))
                await writer.take(50)
        await eventually(strict, "enc_subscriptions", 0.0)
        await eventually(strict, "enc_websockets", 0.0)
        assert await _lets_go(strict, raw)


async def _lets_go(node: RunningNode, raw: Raw) -> bool:
    """Return whether the node closes its end in time. Each poll is a round trip with the node."""
    async with httpx.AsyncClient(timeout=PATIENCE, verify=NO_TLS) as client:
        try:
            async with asyncio.timeout(PATIENCE):
                while raw.is_held:
                    await client.get(f"{node.url}/info")
        except TimeoutError:
            return False
    return True


async def test_an_answer_that_nobody_reads_does_not_hold_its_connection_for_ever(strict: RunningNode) -> None:
    room = Room(strict)
    async with peer(strict, ping_interval=None) as writer:
        await writer.say(*room.say(20, size=500_000))
        await writer.take(20)
    alice = room.reader("alice")
    with Raw(strict, receive_buffer=4096) as raw:
        raw.post(encode(alice.query(limit=1000)))
        raw.until(b"\r\n\r\n")
        assert await _lets_go(strict, raw)


# Slow readers


async def test_a_subscriber_that_stops_reading_is_cut_with_too_slow(node: RunningNode) -> None:
    """It gets all events up to the cut, in order, then Closed, then close code 1000; others are not delayed."""
    room, before = Room(node), rss(node)
    bob = room.reader("bob")
    with Raw(node, receive_buffer=4096) as raw:
        raw.upgrade()
        raw.frame(bob.query("s"))
        while raw.next()["type"] != "EOSE":
            pass
        async with peer(node) as writer:
            for _ in range(16):
                await writer.say(*room.say(50, size=30_000))
                assert answers(await writer.take(50)) == {"Receipt": 50}
        await eventually(node, "enc_subscriptions", 0.0)
        assert rss(node) - before < 64 * MIB
        found = [raw.next()]
        while found[-1]["type"] != "Closed":
            found.append(raw.next())
        assert closed(found[-1]) == ("s", "too_slow")
        assert events(bob, found) == list(range(1, len(found)))
        assert raw.read_frame() == (Opcode.CLOSE, (1000).to_bytes(2, "big"))


def test_pings_that_are_not_read_the_answers_of_fill_no_memory(node: RunningNode) -> None:
    """The node stops reading, closes, or drops its answers."""
    before = rss(node)
    with Raw(node, receive_buffer=4096) as raw:
        raw.upgrade()
        pour(raw, Frame(Opcode.PING, b"x" * 125).serialize(mask=True) * 500, 32 * MIB)
        assert rss(node) - before < 16 * MIB
        assert httpx.get(f"{node.url}/info", timeout=PATIENCE, verify=NO_TLS).status_code == 200


def test_queries_whose_answers_are_not_read_do_not_hold_a_page_each(node: RunningNode) -> None:
    """A peer that reads nothing sends 60 Queries for 8 MB each."""
    room = Room(node)
    for commit in room.say(8, size=1_000_000):
        room.post(commit)
    bob, before = room.reader("bob"), rss(node)
    with Raw(node, receive_buffer=4096) as raw:
        raw.upgrade()
        for i in range(60):
            raw.frame(bob.query(f"{i}"))
        for _ in range(3):  # others are answered after what came before them
            assert len(room.reader("alice").log(node.url)) == 9
        assert rss(node) - before < 160 * MIB


def test_many_peers_that_read_nothing_do_not_fill_the_memory(tmp_path: Path) -> None:
    """60 peers request 8 MB each, by HTTP and by WebSocket; peers that read are answered."""
    env = {"ENC_NODE_LIMITS_UNSENT_BYTES": str(64 * MIB)}
    with RunningNode(tmp_path / "node", env=env) as node, ExitStack() as stack:
        room = Room(node)
        for commit in room.say(8, size=1_000_000):
            room.post(commit)
        bob, alice = room.reader("bob"), room.reader("alice")
        assert len(alice.log(node.url)) == 9
        before = rss(node)
        for i in range(60):
            raw = stack.enter_context(Raw(node, receive_buffer=4096))
            if i % 2:
                raw.upgrade()
                raw.frame(bob.query())
            else:
                raw.post(encode(bob.query()))
        for _ in range(3):  # others are answered after what came before them
            assert len(alice.log(node.url)) == 9
        assert rss(node) - before < 256 * MIB


def test_a_long_message_comes_in_fragments_that_make_it_up(node: RunningNode) -> None:
    room = Room(node)
    seq = room.send("alice", "message", "x" * 500_000).seq
    bob = room.reader("bob")
    with Raw(node) as raw:
        raw.upgrade()
        raw.frame(bob.query("s", type="message"))
        opcode, text = raw.read_frame()
        assert (opcode, len(text)) == (Opcode.TEXT, 64 << 10)
        while not text.endswith(b'"}'):
            opcode, more = raw.read_frame()
            assert opcode in (Opcode.CONT, Opcode.PING)
            assert len(more) <= 64 << 10
            text += more if opcode == Opcode.CONT else b""
        assert bob.seq(decode(text)) == seq
        assert raw.next()["type"] == "EOSE"


def test_a_peer_that_sends_commits_and_reads_no_answers_is_not_read_from(node: RunningNode) -> None:
    room = Room(node)
    commit = room.commit("alice", "message")
    room.post(commit)
    with Raw(node, receive_buffer=4096) as raw:
        raw.upgrade()
        again = Frame(Opcode.TEXT, encode(wire_commit(commit))).serialize(mask=True) * 100
        assert pour(raw, again, 24 * MIB) < 24 * MIB
        assert httpx.get(f"{node.url}/info", timeout=PATIENCE, verify=NO_TLS).status_code == 200


# Many idle subscriptions


async def test_two_thousand_idle_subscriptions_stay_while_others_write_and_one_event_reaches_all(
    tmp_path: Path,
) -> None:
    with RunningNode(tmp_path / "node") as node:
        quiet, busy = Room(node), Room(node)
        bob = quiet.reader("bob")
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(peer(node)) for _ in range(40)]
            for ws in peers:
                await ws.say(*(bob.query(f"{i}", **NOTHING_YET) for i in range(50)))
                assert answers(await ws.take(50)) == {"EOSE": 50}
            assert metric(node, "enc_subscriptions") == 2000
            async with peer(node) as writer:
                for _ in range(10):
                    await writer.say(*busy.say(100))
                    assert answers(await writer.take(100)) == {"Receipt": 100}
            assert metric(node, "enc_subscriptions") == 2000
            assert rss(node) < 300 * MIB
            assert metric(node, "process_resident_memory_bytes") < 300 * MIB
            seq = quiet.send("alice", "message").seq
            for ws in peers:
                heard = await ws.take(50)
                assert sorted(int(message["sub_id"]) for message in heard) == list(range(50))
                assert bob.seq(heard[0]) == seq
            assert rss(node) < 300 * MIB


NOTHING_YET: Json = {"seq": {"start_at": 1}}
