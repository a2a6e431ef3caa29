"""The WebSocket API of a running node: connections and why subscriptions end."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import create_connection
from typing import Any

import httpx
import pytest
from msgspec.json import encode
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.receipt import check_receipt, parse_receipt
from enc.core.primitives.encoding import compact_json
from enc.core.session.session import SKEW
from tests.core.world import Json, give, move, person
from tests.node.api.websocket_peer import NOTHING, PATIENCE, Peer, Room, _numbers, events, now, peer
from tests.node.api.websocket_stage import ENDS, ROOM, WITHOUT_NOTES, Reader, closed, types
from tests.node.running import RunningNode

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("ws") / "node") as node:
        yield node


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


async def test_an_enclave_created_on_a_websocket_can_be_subscribed_to_there(node: RunningNode) -> None:
    content = compact_json({**ROOM, "meta": {"n": next(_numbers)}})
    manifest = build_manifest(person("alice"), content, now() + 60_000)
    async with peer(node) as ws:
        await ws.say(manifest)
        assert (await ws.next())["seq"] == 0
        alice = Reader("alice", manifest.enclave, node.seq_pub, now() // 1000)
        await ws.say(alice.query())
        assert events(alice, await ws.until("EOSE")) == [0]


# Reasons why subscriptions end


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
