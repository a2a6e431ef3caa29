"""Peers that race each other: the outcome of each commit, and the order of all. Floods do not delay others."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode
from websockets.frames import Frame, Opcode

from enc.core.log.commit import build_manifest, wire_commit
from enc.core.log.receipt import check_receipt, parse_receipt
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Commit
from tests.core.world import Json, about, move, person
from tests.node.api.websocket_peer import Peer, Room, events, eventually, now, peer
from tests.node.api.websocket_stage import ROOM
from tests.node.raw_peer import MIB, Raw, answers
from tests.node.running import RunningNode

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("races") / "node") as node:
        yield node


async def test_two_clients_of_one_identity_see_each_other_s_commits_in_one_order(node: RunningNode) -> None:
    """Every commit has one outcome, no seq is used twice, and both clients receive all events in the log's order."""
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
    """Send the same commit over this many connections, all of which are open before the first one sends."""

    async def send(ws: Peer) -> Json:
        await ws.say(commit)
        return await ws.next()

    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(peer(node)) for _ in range(count)]
        return await asyncio.gather(*(send(ws) for ws in peers))


async def test_one_manifest_from_many_connections_creates_one_enclave(node: RunningNode) -> None:
    content = compact_json({**ROOM, "meta": {"race": now()}})
    manifest = build_manifest(person("alice"), content, now() + 60_000)
    outcomes = await from_many(node, manifest, 20)
    assert answers(outcomes) == {"Receipt": 1, "DUPLICATE": 19}
    (receipt,) = [message for message in outcomes if message["type"] == "Receipt"]
    assert all(message["receipt"] == receipt for message in outcomes if message["type"] == "Error")


async def test_of_contradicting_commits_exactly_one_is_accepted(node: RunningNode) -> None:
    """Ten connections move bob out of MEMBER: exactly one Move succeeds."""
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
    """Accepted commits are in the order in which they were sent, and sending all again adds the missing ones."""
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
    """The node stops with 0, although commits keep arriving on existing connections."""
    never = {"ENC_NODE_LIMITS_WS_PING_S": "3600"}  # a ping without an answer would drop these peers
    hasty = "from enc.runtime import serving; serving.GRACE_S = 1"
    with RunningNode(tmp_path / "node", env=never, first=hasty) as node, ExitStack() as stack:
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
    """Send until the connection ends."""
    with suppress(OSError):
        while act(what) != b"":
            pass
