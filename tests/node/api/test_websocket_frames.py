"""The WebSocket API of a running node: frames, limits and load."""

import asyncio
import http.client
from collections.abc import Iterator
from pathlib import Path
from socket import create_connection
from typing import Any

import httpx
import pytest
from msgspec.json import decode, encode
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

from enc.core.log.commit import wire_commit
from enc.core.log.event import parse_event
from tests.core.world import Json
from tests.node.api.websocket_peer import NOTHING, PATIENCE, Peer, Room, events, eventually, peer
from tests.node.api.websocket_stage import types
from tests.node.running import RunningNode

pytestmark = pytest.mark.anyio


KEY = "AAAAAAAAAAAAAAAAAAAAAA=="


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("ws") / "node") as node:
        yield node


# Frames


@pytest.mark.parametrize("path", ["/ws", "/inclusion", "/x?y=/"])
async def test_another_path_is_refused(node: RunningNode, path: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with peer(node, path):
            pass
    assert error_of(refused.value.response) == (404, "INVALID_QUERY")


def error_of(response: Any) -> tuple[int, str]:
    """Return the status and code of an HTTP response in the project's error format."""
    assert response.headers["content-type"] == "application/json"
    assert response.headers["connection"] == "close"
    wire = decode(response.body)
    assert set(wire) == {"type", "code", "message"}
    return response.status_code, wire["code"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-WebSocket-Version": "13"},
        {"Sec-WebSocket-Key": KEY},
        {"Sec-WebSocket-Key": KEY, "Sec-WebSocket-Version": "12"},
        {"Sec-WebSocket-Key": "short", "Sec-WebSocket-Version": "13"},
        {"Sec-WebSocket-Key": "\xff", "Sec-WebSocket-Version": "13"},
        {"Sec-WebSocket-Key": KEY, "Sec-WebSocket-Version": "13", "X-Long": "x" * 10_000},
        {"Sec-WebSocket-Key": KEY, "Sec-WebSocket-Version": "13", **{f"X-{i}": "x" for i in range(200)}},
    ],
    ids=["no key", "no version", "another version", "no such key", "a key in no alphabet", "a long header", "many"],
)
async def test_what_is_no_handshake_is_refused_and_holds_no_connection(node: RunningNode, headers: Json) -> None:
    url = httpx.URL(node.url)
    with create_connection((url.host, url.port or 0), PATIENCE) as raw:
        given = {"Host": "localhost", "Upgrade": "websocket", "Connection": "Upgrade", **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        raw.sendall(f"GET / HTTP/1.1\r\n{lines}\r\n".encode("latin-1"))
        response = http.client.HTTPResponse(raw)
        response.begin()
        assert response.headers["content-type"] == "application/json"
        error = decode(response.read())
        assert (response.status, error["type"], error["code"]) == (400, "Error", "INVALID_QUERY")
        assert raw.recv(1) == b""


async def test_the_path_may_have_a_query_string(node: RunningNode) -> None:
    async with peer(node, "/?x=1") as ws:
        assert await ws.lives(Room(node))


async def test_binary_frames_are_read_as_text(node: RunningNode) -> None:
    room = Room(node)
    async with peer(node) as ws:
        await ws.say(encode(wire_commit(room.commit("alice", "message"))))
        assert (await ws.next())["type"] == "Receipt"


@pytest.mark.parametrize("frame", ["", b"", "{", "[]", b"\xff", "[" * 200_000, '{"type":"Nothing"}', b"\x00" * 100])
async def test_nonsense_is_an_error_and_no_more(node: RunningNode, frame: str | bytes) -> None:
    room = Room(node)
    async with peer(node) as ws:
        await ws.say(frame)
        error = await ws.next()
        assert (error["type"], error["code"]) == ("Error", "INVALID_QUERY")
        assert await ws.lives(room)


async def test_an_unknown_sub_id_is_an_error_and_no_more(node: RunningNode) -> None:
    room = Room(node)
    async with peer(node) as ws:
        await ws.say({"type": "Close", "sub_id": "nobody's"})
        assert (await ws.next())["code"] == "INVALID_QUERY"
        assert await ws.lives(room)


async def test_a_fragmented_message_is_one_message(node: RunningNode) -> None:
    room = Room(node)
    async with peer(node) as ws:
        text = encode(wire_commit(room.commit("alice", "message", "ü" * 100))).decode()
        async with asyncio.timeout(PATIENCE):
            await ws.socket.send([text[i : i + 7] for i in range(0, len(text), 7)])
        assert (await ws.next())["type"] == "Receipt"


async def test_a_character_may_be_torn_between_two_fragments(node: RunningNode) -> None:
    room = Room(node)
    raw = encode(wire_commit(room.commit("alice", "message", "ü")))
    middle = raw.index("ü".encode()) + 1
    async with peer(node) as ws:
        await frames(ws, Frame(Opcode.TEXT, raw[:middle], fin=False), Frame(Opcode.CONT, raw[middle:]))
        assert (await ws.next())["type"] == "Receipt"


async def frames(ws: Peer, *sent: Frame | bytes) -> None:
    """Send these bytes unchanged."""
    for frame in sent:
        ws.socket.transport.write(frame.serialize(mask=True) if isinstance(frame, Frame) else frame)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ([Frame(Opcode.TEXT, b"\xff\xfe")], 1007),
        ([Frame(Opcode.CONT, b"{}")], 1002),
        ([Frame(Opcode.TEXT, b"{", fin=False), Frame(Opcode.TEXT, b"}")], 1002),
        ([b"\xc1\x82" + bytes(4) + b"{}"], 1002),
    ],
    ids=["no UTF-8", "a continuation of nothing", "a message within a message", "compressed without agreement"],
)
async def test_frames_that_break_the_protocol_end_the_connection(
    node: RunningNode, sent: list[Frame | bytes], code: int
) -> None:
    async with peer(node) as ws:
        await frames(ws, *sent)
        assert await ws.ended() == ([], code)


async def test_a_message_over_the_limit_ends_the_connection_with_1009(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node", env={"ENC_NODE_LIMITS_BODY": "8192"}) as node:
        room = Room(node)
        async with peer(node) as ws:
            await ws.say(b" " * 8192)
            assert (await ws.next())["code"] == "INVALID_QUERY"
            await ws.say(b" " * 8193)
            assert await ws.ended() == ([], 1009)
        async with peer(node) as ws:
            await frames(ws, *(Frame(Opcode.TEXT if not i else Opcode.CONT, b" " * 999, fin=False) for i in range(9)))
            assert await ws.ended() == ([], 1009)
        async with peer(node) as ws:
            assert await ws.lives(room)


async def test_pings_are_answered(node: RunningNode) -> None:
    async with peer(node) as ws, asyncio.timeout(PATIENCE):
        await (await ws.socket.ping())


# Limits


async def test_limits_on_subscriptions_and_websockets(tmp_path: Path) -> None:
    env = {
        "ENC_NODE_LIMITS_SUBSCRIPTIONS_PER_CONNECTION": "2",
        "ENC_NODE_LIMITS_SUBSCRIPTIONS": "3",
        "ENC_NODE_LIMITS_WEBSOCKETS": "2",
    }
    with RunningNode(tmp_path / "node", env=env) as node:
        room = Room(node)
        bob = room.reader("bob")
        async with peer(node) as one, peer(node) as two:
            for _ in range(2):
                await one.say(bob.query(**NOTHING))
                await one.until("EOSE")
            await one.say(bob.query())
            assert (await one.next())["code"] == "RATE_LIMITED"
            await two.say(bob.query(**NOTHING))
            await two.until("EOSE")
            await two.say(bob.query())
            assert (await two.next())["code"] == "UNAVAILABLE"
            async with peer(node) as three:
                (error,), code = await three.ended()
                assert (error["code"], code) == ("UNAVAILABLE", 1013)
            assert await one.lives(room)
        await eventually(node, "enc_websockets", 0.0)
        async with peer(node) as four:
            assert await four.lives(room)


async def test_rate_limits(tmp_path: Path) -> None:
    """An identity's rate counts its own requests, an address's every message."""
    env = {
        "ENC_NODE_RATES_IDENTITY_PER_S": "0.001",
        "ENC_NODE_RATES_IDENTITY_BURST": "3",
        "ENC_NODE_RATES_ADDRESS_PER_S": "0.001",
        "ENC_NODE_RATES_ADDRESS_BURST": "100",
    }
    with RunningNode(tmp_path / "node", "--no-dev", env=env) as node:
        room = Room(node)  # alice's first request, and the address's
        alice, bob = room.reader("alice"), room.reader("bob")
        async with peer(node) as ws:
            await ws.say(room.commit("alice", "message"))
            assert (await ws.next())["type"] == "Receipt"
            await ws.say(alice.query("s", **NOTHING))
            await ws.until("EOSE")
            late = room.commit("alice", "message")
            await ws.say(late)
            error = await ws.next()
            assert (error["code"], error["hash"]) == ("RATE_LIMITED", late.hash.hex())
            assert error["retry_after_ms"] > 0
            await ws.say(bob.query("t", **NOTHING))
            await ws.until("EOSE")
            code = "INVALID_QUERY"
            for _ in range(100):  # reads cost more than a token if they take long
                await ws.say("nonsense")
                code = (await ws.next())["code"]
                if code != "INVALID_QUERY":
                    break
            assert code == "RATE_LIMITED"
            await ws.say(room.commit("bob", "message"))
            assert (await ws.next())["code"] == "RATE_LIMITED"


# Under load


async def follow(room: Room, start: int, last: int) -> None:
    """Subscribe from `start` on, and receive every event up to `last` exactly once."""
    bob, seqs, page = room.reader("bob"), list[int](), 0
    async with peer(room.node) as ws:
        await ws.say(bob.query("0", seq={"start_at": start}, limit=1000))
        while not seqs or seqs[-1] < last:
            message = await ws.next()
            if message["sub_id"] != str(page):
                continue
            if message["type"] == "Event":
                seqs.append(parse_event(encode(bob.plain(message)["event"])).seq)
            elif message == {"type": "EOSE", "sub_id": str(page), "more": True}:
                page += 1
                await ws.say(bob.query(str(page), seq={"start_after": seqs[-1]}, limit=1000))
            else:
                assert message == {"type": "EOSE", "sub_id": str(page)}
    assert seqs == list(range(start, last + 1))


async def test_subscriptions_that_start_while_thousands_are_written_miss_and_repeat_nothing(node: RunningNode) -> None:
    room, total, written, started = Room(node), 4000, 0, 0

    async def write(count: int) -> None:
        nonlocal written, started
        async with peer(node) as ws:
            for _ in range(count // 100):
                await ws.say(*room.say(100))
                receipts = [message for message in await ws.take(100) if message["type"] == "Receipt"]
                written += len(receipts)
                if written >= started * 600:
                    started += 1
                    tasks.create_task(follow(room, written - written % 500, total))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(write(total // 4))
    assert written == total
    assert started == 7


async def test_a_healthy_subscriber_of_a_busy_enclave_is_not_cut(node: RunningNode) -> None:
    """Batches larger than its buffer, as fast as the node accepts them."""
    room = Room(node)
    bob = room.reader("bob")
    async with peer(node) as ws, peer(node) as writer:
        await ws.say(bob.query("s"))
        await ws.until("EOSE")
        commits = room.say(150, size=20_000)
        sending = asyncio.create_task(writer.say(*commits))
        heard = await ws.take(len(commits))
        await sending
        await writer.take(len(commits))
    assert set(types(heard)) == {"Event"}
    assert events(bob, heard) == list(range(1, 151))
