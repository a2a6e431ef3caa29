"""The WebSocket API of a running node, by real clients on sockets."""

import asyncio
import http.client
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from socket import create_connection
from typing import Any

import httpx
import pytest
from msgspec.json import decode, encode
from websockets.asyncio.client import ClientConnection, connect
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.log.event import parse_event
from enc.core.log.receipt import check_receipt, parse_receipt
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Commit, Receipt, Tags
from enc.core.session.session import SKEW
from tests.core.world import Json, give, move, person
from tests.node.api.test_subscriptions import ENDS, ROOM, WITHOUT_NOTES, Reader, closed, types
from tests.node.running import RunningNode

pytestmark = pytest.mark.anyio

PATIENCE = 60
"""Seconds after which an expected message counts as lost."""
NOTHING: Json = {"id": "00" * 32}
"""A filter that no event matches."""

KEY = "AAAAAAAAAAAAAAAAAAAAAA=="

_numbers = itertools.count()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("ws") / "node") as node:
        yield node


def now() -> int:
    return time.time_ns() // 1_000_000


class Room:
    """An enclave of its own on a running node."""

    def __init__(self, node: RunningNode, **changes: Any) -> None:
        self.node = node
        content = compact_json({**ROOM, "meta": {"n": next(_numbers)}, **changes})
        manifest = build_manifest(person("alice"), content, now() + 600_000)
        self.enclave = manifest.enclave
        self.post(manifest)

    def commit(self, name: str, type_: str, content: Any = None, tags: Tags = (), **more: Any) -> Commit:
        """Return a new commit, unique unless its content is given."""
        content = f"{next(_numbers)}" if content is None else content
        text = content if isinstance(content, str) else compact_json(content)
        return build_commit(person(name), self.enclave, type_, text, now() + 600_000, tags, **more)

    def say(self, count: int, name: str = "alice", size: int = 0) -> list[Commit]:
        return [self.commit(name, "message", f"{next(_numbers)} {'x' * size}") for _ in range(count)]

    def post(self, commit: Commit) -> Receipt:
        """Write it by HTTP; it must be accepted."""
        answer = httpx.post(self.node.url, content=encode(wire_commit(commit)), timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        receipt = parse_receipt(answer.content)
        check_receipt(receipt, commit, self.node.seq_pub)
        return receipt

    def send(self, *what: Any) -> Receipt:
        return self.post(self.commit(*what))

    def reader(self, name: str, duration: int = 7200) -> Reader:
        return Reader(name, self.enclave, self.node.seq_pub, now() // 1000, duration)

    def end(self, type_: str) -> Receipt:
        """Pause, Terminate or Migrate it."""
        if type_ != "Migrate":
            return self.send("alice", type_, "")
        alice = self.reader("alice")
        checkpoint = alice.ask(self.node.url, "/checkpoint", "Checkpoint")
        content = {"new_sequencer": person("node2").public.hex()}
        return self.send(
            "alice", "Migrate", {**content, "prev_seq": checkpoint["seq"], "ct_root": checkpoint["ct_root"]}
        )


class Peer:
    """A client on one WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def say(self, *messages: Json | Commit | str | bytes) -> None:
        async with asyncio.timeout(PATIENCE):
            for message in messages:
                plain = wire_commit(message) if isinstance(message, Commit) else message
                await self.socket.send(plain if isinstance(plain, str | bytes) else encode(plain).decode())

    async def next(self) -> Json:
        async with asyncio.timeout(PATIENCE):
            text = await self.socket.recv()
        assert isinstance(text, str)
        message: Json = decode(text)
        return message

    async def until(self, type_: str) -> list[Json]:
        """Return all messages up to and including the first of this type."""
        found = [await self.next()]
        while found[-1]["type"] != type_:
            found.append(await self.next())
        return found

    async def take(self, count: int) -> list[Json]:
        return [await self.next() for _ in range(count)]

    async def ended(self) -> tuple[list[Json], int]:
        """Return the remaining messages, and the code that the node closed with."""
        found: list[Json] = []
        try:
            while True:
                found.append(await self.next())
        except ConnectionClosed as e:
            return found, e.rcvd.code if e.rcvd else 1006

    async def lives(self, room: Room) -> bool:
        """Return whether this connection still answers a commit."""
        await self.say(room.commit("alice", "message"))
        return (await self.until("Receipt"))[-1]["type"] == "Receipt"


@asynccontextmanager
async def peer(node: RunningNode, path: str = "/", **options: Any) -> AsyncIterator[Peer]:
    url = node.url.replace("http", "ws", 1) + path
    defaults: Json = {"max_size": None, "compression": None, "proxy": None, "open_timeout": PATIENCE}
    async with connect(url, **{**defaults, **options}) as socket:
        yield Peer(socket)


def events(reader: Reader, messages: Sequence[Json]) -> list[int]:
    return [reader.seq(message) for message in messages if message["type"] == "Event"]


def metric(node: RunningNode, name: str) -> float:
    for line in httpx.get(f"{node.url}/metrics", timeout=PATIENCE).text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


async def eventually(node: RunningNode, name: str, value: float) -> None:
    """Wait until the node's metric has this value."""
    async with asyncio.timeout(PATIENCE), httpx.AsyncClient(timeout=PATIENCE) as client:
        while True:
            text = (await client.get(f"{node.url}/metrics")).text
            if f"\n{name} {value}\n" in text:
                return


# The connection model


async def test_query_events_eose_events_commit_receipt_close(node: RunningNode) -> None:
    room = Room(node)
    for commit in room.say(3):
        room.post(commit)
    bob = room.reader("bob")
    async with peer(node) as ws:
        await ws.say(bob.query())
        stored = await ws.until("EOSE")
        assert events(bob, stored) == [0, 1, 2, 3]
        assert "more" not in stored[-1]
        (sub_id,) = {message["sub_id"] for message in stored}
        commit = room.commit("bob", "message", "mine")
        await ws.say(commit)
        answers = {message["type"]: message for message in await ws.take(2)}
        check_receipt(parse_receipt(encode(answers["Receipt"])), commit, node.seq_pub)
        assert bob.item(answers["Event"])["event"].hash == commit.hash
        assert answers["Event"]["sub_id"] == sub_id
        await ws.say({"type": "Close", "sub_id": sub_id})
        assert await ws.ended() == ([], 1000)


async def test_eose_says_that_the_limit_cut(node: RunningNode) -> None:
    room, sizes = Room(node), list[tuple[int, bool]]()
    for commit in room.say(5):
        room.post(commit)
    bob = room.reader("bob")
    async with peer(node) as ws:
        for limit in (5, 6):
            await ws.say(bob.query(limit=limit))
            stored = await ws.until("EOSE")
            sizes.append((len(stored) - 1, stored[-1].get("more", False)))
    assert sizes == [(5, True), (6, False)]


async def test_several_identities_on_one_connection_each_with_its_session(node: RunningNode) -> None:
    room = Room(node)
    readers = {name: room.reader(name) for name in ("alice", "bob", "dave")}
    async with peer(node) as ws:
        for name, reader in readers.items():
            await ws.say(reader.query(name))
            await ws.until("EOSE")
        message, secret = room.send("alice", "message"), room.send("alice", "secret")
        heard = await ws.take(5)
    for name, reader in readers.items():
        seqs = [reader.seq(m) for m in heard if m["sub_id"] == name]
        assert seqs == ([message.seq] if name == "dave" else [message.seq, secret.seq])


async def test_an_offered_name_is_taken_if_free_and_else_the_node_gives_one(node: RunningNode) -> None:
    bob = Room(node).reader("bob")
    async with peer(node) as ws:
        names = []
        for offer in ("mine", "mine", None):
            await ws.say(bob.query(offer, **NOTHING))
            names.append((await ws.next())["sub_id"])
    assert names[0] == "mine"
    assert len(set(names)) == 3


async def test_a_connection_with_commits_only_lives_on(node: RunningNode) -> None:
    room = Room(node)
    async with peer(node) as ws:
        for commit in room.say(3):
            await ws.say(commit)
            assert (await ws.next())["hash"] == commit.hash.hex()
        assert await ws.lives(room)


async def test_errors_of_commits_name_their_hash(node: RunningNode) -> None:
    room = Room(node)
    accepted = room.commit("alice", "message")
    room.post(accepted)
    cases = [
        (room.commit("erin", "message"), "UNAUTHORIZED"),
        (accepted, "DUPLICATE"),
        (build_commit(person("alice"), bytes(32), "message", "x", now() + 1000), "ENCLAVE_NOT_FOUND"),
        (build_commit(person("alice"), room.enclave, "message", "x", now() - 1000), "EXPIRED"),
        (build_commit(person("alice"), room.enclave, "message", "x", now() + 7_200_000), "INVALID_COMMIT"),
    ]
    async with peer(node) as ws:
        for commit, code in cases:
            await ws.say(commit)
            error = await ws.next()
            assert (error["type"], error["code"], error["hash"]) == ("Error", code, commit.hash.hex())


async def test_commits_by_ecdsa_are_answered_as_such(node: RunningNode) -> None:
    room = Room(node)
    commit = room.commit("alice", "message", alg="ecdsa")
    async with peer(node) as ws:
        await ws.say(commit)
        receipt = await ws.next()
    assert receipt["alg"] == "ecdsa"
    check_receipt(parse_receipt(encode(receipt)), commit, node.seq_pub)


async def test_an_enclave_founded_on_a_websocket_can_be_subscribed_to_there(node: RunningNode) -> None:
    content = compact_json({**ROOM, "meta": {"n": next(_numbers)}})
    manifest = build_manifest(person("alice"), content, now() + 60_000)
    async with peer(node) as ws:
        await ws.say(manifest)
        assert (await ws.next())["seq"] == 0
        alice = Reader("alice", manifest.enclave, node.seq_pub, now() // 1000)
        await ws.say(alice.query())
        assert events(alice, await ws.until("EOSE")) == [0]


# Reasons


@pytest.mark.parametrize(
    ("name", "type_", "content"),
    [
        ("bob", "Move", move("bob", "MEMBER", "OUTSIDER")),
        ("dave", "Revoke", give("dave", "reader")),
        ("carol", "Gate", {"alias": "lobby", "state": "closed"}),
    ],
    ids=["Move", "Revoke", "Gate"],
)
async def test_access_revoked(node: RunningNode, name: str, type_: str, content: Json) -> None:
    room = Room(node, **WITHOUT_NOTES)
    reader = room.reader(name)
    async with peer(node) as ws:
        await ws.say(reader.query("s"))
        await ws.until("EOSE")
        room.send("alice", type_, content)
        assert closed(await ws.next()) == ("s", "access_revoked")
        assert await ws.ended() == ([], 1000)
    async with peer(node) as ws:
        await ws.say(reader.query("s"))
        assert (await ws.next())["code"] == "UNAUTHORIZED"


@pytest.mark.parametrize("type_", ENDS)
async def test_an_enclave_that_pauses_ends_or_moves(node: RunningNode, type_: str) -> None:
    """Subscribers get the event, then Closed; after an end later subscribers get it after the stored events."""
    room = Room(node)
    bob = room.reader("bob")
    async with peer(node) as ws:
        await ws.say(bob.query("s"))
        await ws.until("EOSE")
        seq = room.end(type_).seq
        assert bob.seq(await ws.next()) == seq
        assert closed(await ws.next()) == ("s", ENDS[type_])
        assert await ws.ended() == ([], 1000)
    async with peer(node) as ws:
        await ws.say(bob.query("s"))
        stored = await ws.until("EOSE")
        assert events(bob, stored)[-1] == seq
        if type_ == "Pause":
            assert bob.seq(await _after(ws, lambda: room.send("alice", "Resume", ""))) == seq + 1
            assert await ws.lives(room)
        else:
            assert closed(await ws.next()) == ("s", ENDS[type_])
            assert await ws.ended() == ([], 1000)


async def _after(ws: Peer, act: Any) -> Json:
    act()
    return await ws.next()


async def test_session_expired(node: RunningNode) -> None:
    """One session is close to the end of its grace minute; the other identity's continues."""
    room = Room(node)
    bob, alice = room.reader("bob", duration=4 - SKEW), room.reader("alice")
    async with peer(node) as ws:
        await ws.say(alice.query("alice"))
        await ws.until("EOSE")
        await ws.say(bob.query("bob"))
        await ws.until("EOSE")
        assert closed(await ws.next()) == ("bob", "session_expired")
        await ws.say(bob.query("bob"))
        assert (await ws.next())["code"] == "SESSION_EXPIRED"
        seq = room.send("alice", "message").seq
        assert alice.seq(await ws.next()) == seq


async def test_shutting_down(tmp_path: Path) -> None:
    """Every peer gets a Notice, subscribers Closed; then connections end with 1000, and the node with 0."""
    with RunningNode(tmp_path / "node") as node:
        room = Room(node)
        bob = room.reader("bob")
        async with peer(node) as ws, peer(node) as idle:
            await ws.say(bob.query("one"), bob.query("two"))
            for _ in range(2):
                await ws.until("EOSE")
            assert await idle.lives(room)
            await ws.take(2)
            stopping = asyncio.get_running_loop().run_in_executor(None, node.stop)
            (notice, *ends), code = await ws.ended()
            others = await idle.ended()
            await stopping
        assert notice["type"] == "Notice"
        assert sorted(closed(message) for message in ends) == [("one", "shutting_down"), ("two", "shutting_down")]
        assert code == 1000
        assert (types(others[0]), others[1]) == (["Notice"], 1000)


async def test_what_was_taken_before_a_shutdown_is_answered_and_kept(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node") as node:
        room = Room(node)
        commits = room.say(500)
        async with peer(node) as ws:
            await ws.say(*commits)
            first = await ws.next()
            stopping = asyncio.get_running_loop().run_in_executor(None, node.stop)
            rest, _ = await ws.ended()
            await stopping
    accepted = {answer["hash"]: answer["seq"] for answer in (first, *rest) if answer["type"] == "Receipt"}
    refused = {answer.get("hash") for answer in rest if answer["type"] == "Error"}
    assert accepted
    assert not accepted.keys() & refused
    with RunningNode(tmp_path / "node") as again:
        room.node = again
        kept = room.reader("alice").log(again.url)
    assert {event.hash.hex(): event.seq for event in kept[1:]} == accepted


def test_a_stop_reads_on_until_its_peers_have_closed(tmp_path: Path) -> None:
    """A peer that still sends when the node closes must not meet a closed socket: a reset would lose the answers."""
    with RunningNode(tmp_path / "node") as node, ThreadPoolExecutor(1) as pool:
        ws = ClientProtocol(parse_uri(node.url.replace("http", "ws")))
        ws.send_request(ws.connect())
        with create_connection(("127.0.0.1", httpx.URL(node.url).port or 0), PATIENCE) as sock:
            sock.sendall(b"".join(ws.data_to_send()))
            while ws.state is not State.OPEN:
                ws.receive_data(sock.recv(1 << 16))
            stopping = pool.submit(node.stop)
            while ws.close_rcvd is None:
                ws.receive_data(sock.recv(1 << 16))
            for _ in range(200):
                sock.sendall(Frame(Opcode.TEXT, b"x" * 60_000).serialize(mask=True))
            sock.sendall(b"".join(ws.data_to_send()))
            assert sock.recv(1) == b""
        stopping.result(PATIENCE)


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
        given = {"Host": "x", "Upgrade": "websocket", "Connection": "Upgrade", **headers}
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
        "ENC_NODE_RATES_ADDRESS_BURST": "10",
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
            for _ in range(5):
                await ws.say("nonsense")
                assert (await ws.next())["code"] == "INVALID_QUERY"
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
