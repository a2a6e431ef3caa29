"""Peers that race each other, and peers that mean harm. What each of them gets is in the test's name or first line."""

import asyncio
import select
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
import pytest
from msgspec.json import decode, encode
from websockets.frames import Frame, Opcode

from enc.core.log.commit import build_manifest, wire_commit
from enc.core.log.receipt import check_receipt, parse_receipt
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Commit
from tests.core.world import Json, about, move, person
from tests.node.api.websocket_peer import PATIENCE, Peer, Room, events, eventually, metric, now, peer
from tests.node.api.websocket_stage import ROOM, closed
from tests.node.running import RunningNode

pytestmark = pytest.mark.anyio

MIB = 1 << 20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("races") / "node") as node:
        yield node


def rss(node: RunningNode) -> int:
    """Bytes of memory that the node's process holds."""
    status = Path(f"/proc/{node.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def answers(messages: Sequence[Json]) -> Counter[str]:
    return Counter(message["code"] if "code" in message else message["type"] for message in messages)


class Raw:
    """A TCP connection to the node, byte by byte."""

    def __init__(self, node: RunningNode, receive_buffer: int = 0) -> None:
        parts = urlsplit(node.url)
        self.host = f"{parts.hostname}:{parts.port}"
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        self.socket.connect((parts.hostname, parts.port))
        self._got = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    @property
    def is_held(self) -> bool:
        """Whether the node's process still has its end of this connection; one without a process has no inode."""
        ours, theirs = self.socket.getsockname()[1], self.socket.getpeername()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if [int(address.partition(":")[2], 16) for address in fields[1:3]] == [theirs, ours]:
                return fields[9] != "0"
        return False

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def end(self) -> None:
        """End it for whoever still sends or reads here."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def post(self, body: bytes, **headers: str) -> None:
        lines = {"Host": self.host, "Content_Length": str(len(body)), **headers}
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
        self.send(f"POST / HTTP/1.1\r\n{head}\r\n".encode() + body)

    def upgrade(self) -> None:
        self.send(
            f"GET / HTTP/1.1\r\nHost: {self.host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        head, _, self._got = self._until(b"\r\n\r\n").partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head

    def frame(self, message: Json | Commit) -> None:
        body = encode(wire_commit(message) if isinstance(message, Commit) else message)
        self.send(Frame(Opcode.TEXT, body).serialize(mask=True))

    def _until(self, end: bytes) -> bytes:
        while end not in self._got:
            self._more()
        return self._got

    def _more(self) -> None:
        got = self.socket.recv(65536)
        if not got:
            raise EOFError
        self._got += got

    def _take(self, count: int) -> bytes:
        while len(self._got) < count:
            self._more()
        taken, self._got = self._got[:count], self._got[count:]
        return taken

    def read_frame(self) -> tuple[int, bytes]:
        """Opcode and payload of the next frame; a server's are not masked."""
        first, size = self._take(2)
        if size == 126:
            size = int.from_bytes(self._take(2), "big")
        elif size == 127:
            size = int.from_bytes(self._take(8), "big")
        return first & 15, self._take(size)

    def next(self) -> Json:
        """The next message; pings are passed over, and not answered."""
        opcode, payload = self.read_frame()
        while opcode == Opcode.PING:
            opcode, payload = self.read_frame()
        assert opcode == Opcode.TEXT, (opcode, payload)
        message: Json = decode(payload)
        return message

    def rest(self) -> bytes:
        """Everything up to the end of the connection, which the node must make."""
        try:
            while True:
                self._more()
        except (EOFError, ConnectionResetError):
            return self._got


# Races


async def test_two_clients_of_one_identity_see_each_other_s_commits_in_one_order(node: RunningNode) -> None:
    """Every commit has one outcome, no seq is given twice, and both hear all of it in the log's order."""
    room, count = Room(node), 300
    alice = room.reader("alice")

    async def play(ws: Peer, commits: list[Commit]) -> list[Json]:
        await ws.say(alice.query("s"))
        await ws.until("EOSE")
        await ready.wait()
        await ws.say(*commits)
        return await ws.take(3 * count)

    async with peer(node) as one, peer(node) as two:
        ready, mine, yours = asyncio.Barrier(2), room.say(count), room.say(count)
        heard = await asyncio.gather(play(one, mine), play(two, yours))
    receipts = [[m for m in found if m["type"] == "Receipt"] for found in heard]
    assert [[r["hash"] for r in found] for found in receipts] == [[c.hash.hex() for c in cs] for cs in (mine, yours)]
    assert sorted(r["seq"] for found in receipts for r in found) == list(range(1, 2 * count + 1))
    assert [events(alice, found) for found in heard] == [list(range(1, 2 * count + 1))] * 2


async def test_one_commit_from_fifty_connections_is_accepted_once_and_all_get_its_receipt(node: RunningNode) -> None:
    room = Room(node)
    commit = room.commit("alice", "message")
    outcomes = await from_many(node, commit, 50)
    assert answers(outcomes) == {"Receipt": 1, "DUPLICATE": 49}
    (receipt,) = [message for message in outcomes if message["type"] == "Receipt"]
    check_receipt(parse_receipt(encode(receipt)), commit, node.seq_pub)
    for message in outcomes:
        if message["type"] == "Error":
            assert (message["hash"], message["receipt"]) == (commit.hash.hex(), receipt)
    assert [event.hash for event in room.reader("alice").log(node.url)[1:]] == [commit.hash]


async def from_many(node: RunningNode, commit: Commit, count: int) -> list[Json]:
    """The same commit by as many connections, all of them open before the first one sends."""

    async def send(ws: Peer) -> Json:
        await ws.say(commit)
        return await ws.next()

    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(peer(node)) for _ in range(count)]
        return await asyncio.gather(*(send(ws) for ws in peers))


async def test_one_manifest_from_many_connections_founds_one_enclave(node: RunningNode) -> None:
    content = compact_json({**ROOM, "meta": {"race": now()}})
    manifest = build_manifest(person("alice"), content, now() + 60_000)
    outcomes = await from_many(node, manifest, 20)
    assert answers(outcomes) == {"Receipt": 1, "DUPLICATE": 19}
    (receipt,) = [message for message in outcomes if message["type"] == "Receipt"]
    assert all(message["receipt"] == receipt for message in outcomes if message["type"] == "Error")


async def test_of_contradicting_commits_exactly_one_is_accepted(node: RunningNode) -> None:
    """Ten connections move bob away from MEMBER: he goes once."""
    room = Room(node)
    commits = [room.commit("alice", "Move", move("bob", "MEMBER", "OUTSIDER", n=i)) for i in range(10)]

    async def send(ws: Peer, commit: Commit) -> Json:
        await ws.say(commit)
        return await ws.next()

    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(peer(node)) for _ in commits]
        outcomes = await asyncio.gather(*map(send, peers, commits))
    assert answers(outcomes) == {"Receipt": 1, "STATE_MISMATCH": 9}


async def test_updates_that_race_a_delete_come_before_it_or_are_refused(node: RunningNode) -> None:
    room = Room(node)
    message = room.commit("alice", "message")
    room.post(message)
    target = about(room.reader("alice").log(node.url)[1])
    updates = [room.commit("alice", "Update", f"{i}", target) for i in range(100)]
    delete = room.commit("alice", "Delete", {"reason": "author"}, target)

    async def send(ws: Peer, commits: list[Commit]) -> list[Json]:
        await ws.say(*commits)
        return await ws.take(len(commits))

    async with peer(node) as one, peer(node) as two:
        answered, (deleted,) = await asyncio.gather(send(one, updates), send(two, [delete]))
    assert deleted["type"] == "Receipt"
    assert answers(answered).keys() <= {"Receipt", "EVENT_DELETED"}
    accepted = [answer["seq"] for answer in answered if answer["type"] == "Receipt"]
    assert accepted == list(range(2, 2 + len(accepted)))
    assert deleted["seq"] == 2 + len(accepted)


async def test_commits_of_one_connection_keep_their_order_whatever_others_send(node: RunningNode) -> None:
    room = Room(node)
    async with peer(node) as one, peer(node) as two:
        mine, others = room.say(500), room.say(500, "bob")
        await asyncio.gather(one.say(*mine), two.say(*others))
        receipts, _ = await asyncio.gather(one.take(500), two.take(500))
    assert [receipt["hash"] for receipt in receipts] == [commit.hash.hex() for commit in mine]
    seqs = [receipt["seq"] for receipt in receipts]
    assert seqs == sorted(seqs)


async def test_a_client_that_disconnects_with_commits_in_flight_loses_nothing(node: RunningNode) -> None:
    """What the node took stands in the order in which it was sent, and sending all of it again completes it."""
    room = Room(node)
    commits = room.say(400)
    async with peer(node) as ws:
        await ws.say(*commits)
        receipt = await ws.next()
        ws.socket.transport.abort()
    assert receipt["hash"] == commits[0].hash.hex()
    await eventually(node, "enc_waiting_commits", 0.0)
    kept = [event.hash for event in room.reader("alice").log(node.url)[1:]]
    assert kept == [commit.hash for commit in commits[: len(kept)]]
    assert kept
    async with peer(node) as ws:
        await ws.say(*commits)
        again = await ws.take(400)
    assert answers(again) == +Counter({"DUPLICATE": len(kept), "Receipt": 400 - len(kept)})
    receipts = {m["hash"]: m.get("receipt", m)["seq"] for m in again}
    assert receipts == {commit.hash.hex(): i + 1 for i, commit in enumerate(commits)}


async def test_a_flood_of_duplicates_is_answered_and_adds_nothing(node: RunningNode) -> None:
    room = Room(node)
    commit = room.commit("alice", "message")
    receipt = room.post(commit)
    async with peer(node) as ws, peer(node) as other:
        flood = asyncio.create_task(ws.say(*[commit] * 2000))
        assert await other.lives(room)
        outcomes = await ws.take(2000)
        await flood
    assert answers(outcomes) == {"DUPLICATE": 2000}
    assert {outcome["receipt"]["id"] for outcome in outcomes} == {receipt.id.hex()}
    assert len(room.reader("alice").log(node.url)) == 3


async def test_a_flood_of_nonsense_does_not_keep_others_waiting(node: RunningNode) -> None:
    room = Room(node)
    async with peer(node) as ws, peer(node) as other:
        flood = asyncio.create_task(ws.say(*["nonsense"] * 5000))
        for _ in range(5):
            assert await other.lives(room)
        assert answers(await ws.take(5000)) == {"INVALID_QUERY": 5000}
        await flood


def test_peers_that_always_have_a_commit_in_flight_cannot_keep_the_node_from_stopping(tmp_path: Path) -> None:
    """The node stops, with 0, although commits keep coming on connections that were there before."""
    never = {"ENC_NODE_LIMITS_WS_PING_S": "3600"}  # or they would be dropped for answering no ping
    with RunningNode(tmp_path / "node", env=never) as node, ExitStack() as stack:
        room = Room(node)
        commit = room.commit("alice", "message")
        room.post(commit)
        again = Frame(Opcode.TEXT, encode(wire_commit(commit))).serialize(mask=True) * 100
        for _ in range(4):
            raw = stack.enter_context(Raw(node))
            raw.upgrade()
            for args in ((raw.send, again), (raw.socket.recv, MIB)):
                thread = threading.Thread(target=_for_ever, args=args)
                stack.callback(thread.join)
                thread.start()
            stack.callback(raw.end)
        node.stop()


def _for_ever(act: Callable[[Any], Any], what: Any) -> None:
    """Until the connection ends."""
    with suppress(OSError):
        while act(what) != b"":
            pass


# Bodies


def test_a_body_over_the_limit_is_413_by_its_length_and_by_its_bytes(node: RunningNode) -> None:
    with Raw(node) as raw:
        raw.post(b"", Content_Length=str(2 * MIB + 1))
        assert raw.rest().startswith(b"HTTP/1.1 413 ")
    with Raw(node) as raw:
        raw.send(f"POST / HTTP/1.1\r\nHost: {raw.host}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        raw.send((b"10000\r\n" + b" " * 65536 + b"\r\n") * 33)
        assert raw.rest().startswith(b"HTTP/1.1 413 ")


def test_a_truncated_body_changes_nothing(node: RunningNode) -> None:
    room = Room(node)
    body = encode(wire_commit(room.commit("alice", "message")))
    for cut in (0, 1, len(body) // 2, len(body) - 1):
        with Raw(node) as raw:
            raw.post(body[:cut], Content_Length=str(len(body)))
            raw.socket.shutdown(socket.SHUT_WR)
            assert b"200 OK" not in raw.rest()
    assert len(room.reader("alice").log(node.url)) == 1


@pytest.mark.parametrize(
    "sent",
    [b"\x00" * 1000, b"GET\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"],
    ids=["zeros", "half a request line", "a negative length", "a TLS hello"],
)
def test_what_is_no_http_is_400_and_closed(node: RunningNode, sent: bytes) -> None:
    with Raw(node) as raw:
        raw.send(sent)
        assert raw.rest().startswith(b"HTTP/1.1 400 ")


def test_a_head_without_end_is_refused(node: RunningNode) -> None:
    """Header lines for ever: the node answers or closes, and holds no more than a little of them."""
    before = rss(node)
    with Raw(node) as raw:
        raw.send(f"GET /info HTTP/1.1\r\nHost: {raw.host}\r\n".encode())
        sent = _pour(raw, b"X-A: " + b"a" * 65_000 + b"\r\n", 64 * MIB)
        assert sent < 64 * MIB or rss(node) - before < 16 * MIB


def _pour(raw: Raw, data: bytes, most: int) -> int:
    """Send it again and again until the node closes, or takes nothing for a while; how much it took."""
    raw.socket.setblocking(False)
    sent = 0
    try:
        while sent < most:
            if not select.select([], [raw.socket], [], 2)[1]:
                break
            sent += raw.socket.send(data)
    except (ConnectionResetError, BrokenPipeError):
        pass
    raw.socket.settimeout(PATIENCE)
    return sent


# Slow writers


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node with little patience."""
    env = {
        "ENC_NODE_LIMITS_REQUEST_TIMEOUT_S": "1",
        "ENC_NODE_LIMITS_IDLE_TIMEOUT_S": "1",
        "ENC_NODE_LIMITS_WS_PING_S": "1",
    }
    with RunningNode(tmp_path_factory.mktemp("strict") / "node", env=env) as node:
        yield node


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"PO",
        b"POST / HTTP/1.1\r\nHost: x\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n",
    ],
    ids=["nothing", "a word", "half a head", "no body", "half a body", "half of the chunks", "half an upgrade"],
)
def test_a_request_that_never_completes_is_closed(strict: RunningNode, sent: bytes) -> None:
    with Raw(strict) as raw:
        raw.send(sent)
        assert b"200" not in raw.rest()


def test_bytes_that_trickle_in_do_not_prolong_it(strict: RunningNode) -> None:
    """The time is for the whole request."""
    with Raw(strict) as raw:
        raw.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        raw.socket.settimeout(0.05)
        for _ in range(20 * PATIENCE):
            try:
                raw.send(b" ")
                assert raw.socket.recv(100) == b""
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("the node waits for ever")


def test_a_connection_that_asks_nothing_more_is_closed(strict: RunningNode) -> None:
    with Raw(strict) as raw:
        raw.send(f"GET /info HTTP/1.1\r\nHost: {raw.host}\r\n\r\n".encode())
        assert raw.rest().startswith(b"HTTP/1.1 200 ")


# Peers that are gone


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
        with Raw(strict) as raw:  # as long as it takes to drop one that does not
            raw.upgrade()
            await asyncio.get_running_loop().run_in_executor(None, raw.rest)
        seq = room.send("alice", "message").seq
        assert bob.seq(await ws.next()) == seq


async def test_a_peer_that_neither_reads_nor_answers_is_dropped_however_much_waits_for_it(strict: RunningNode) -> None:
    """It is cut from its subscription, and its socket is closed although what waits cannot be sent."""
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
    """Whether the node closes its end in time. Each look is a round trip with the node."""
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
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
        raw._until(b"\r\n\r\n")
        assert await _lets_go(strict, raw)


# Slow readers


async def test_a_subscriber_that_stops_reading_is_cut_with_too_slow(node: RunningNode) -> None:
    """It finds all events up to the cut, in order, then Closed, then the end by 1000; others are not held up."""
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
    """The node stops reading, or closes, or drops what it would answer."""
    before = rss(node)
    with Raw(node, receive_buffer=4096) as raw:
        raw.upgrade()
        _pour(raw, Frame(Opcode.PING, b"x" * 125).serialize(mask=True) * 500, 32 * MIB)
        assert rss(node) - before < 16 * MIB
        assert httpx.get(f"{node.url}/info", timeout=PATIENCE).status_code == 200


def test_queries_whose_answers_are_not_read_do_not_hold_a_page_each(node: RunningNode) -> None:
    """60 Queries for 8 MB each, by a peer that reads nothing."""
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
    """60 of them ask for 8 MB each, by HTTP and by WebSocket; who reads is answered."""
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
        assert _pour(raw, again, 24 * MIB) < 24 * MIB
        assert httpx.get(f"{node.url}/info", timeout=PATIENCE).status_code == 200


# Numbers


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


async def test_connections_beyond_the_limit_get_503_and_room_is_made_when_one_goes(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node", env={"ENC_NODE_LIMITS_CONNECTIONS": "3"}) as node:
        room = Room(node)
        async with peer(node) as one, peer(node) as two:
            with Raw(node) as third:
                third.send(f"GET /info HTTP/1.1\r\nHost: {third.host}\r\n\r\n".encode())
                assert third._until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
                with Raw(node) as fourth:
                    head, _, body = fourth.rest().partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 503 ")
                assert b"retry-after: 1" in head.lower()
                assert decode(body)["code"] == "UNAVAILABLE"
                assert await one.lives(room)
                assert await two.lives(room)
        assert (await _get(node, "/info")).status_code == 200


async def _get(node: RunningNode, path: str) -> httpx.Response:
    """As soon as the node takes it."""
    async with asyncio.timeout(PATIENCE), httpx.AsyncClient(timeout=PATIENCE) as client:
        while True:
            try:
                answer = await client.get(node.url + path)
            except httpx.TransportError:
                continue
            if answer.status_code != 503:
                return answer
