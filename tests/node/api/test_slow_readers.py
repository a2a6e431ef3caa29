"""Subscriptions without a socket: peers that read slowly or not at all, and shutdown."""

import asyncio
import gc
import weakref
from collections import Counter
from typing import Any

import pytest
from msgspec.json import encode

from enc.core.errors import Unavailable
from enc.core.log.filter import MAX_LIMIT
from enc.core.session.envelope import parse_request
from enc.core.session.session import SKEW
from enc.node.api import send_queue, stored_events, websocket
from enc.node.api.send_queue import SendQueue
from enc.node.api.subscriptions import SubscriptionHub
from enc.node.api.websocket import MAX_SKIPPED
from tests.core.world import Json, move
from tests.node.api.websocket_stage import PATIENCE, WITHOUT_NOTES, Socket, Stage, closed, quiet, types

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# Slow readers


async def test_a_subscriber_that_stops_reading_is_cut_and_holds_no_more_than_its_buffer() -> None:
    stage = Stage(buffer=20_000)
    enclave = stage.create()
    slow, fast, bob = Socket(stage), Socket(stage), stage.reader("bob", enclave)
    for socket in (slow, fast):
        socket.say(bob.query("s"))
        await socket.until("EOSE")
    (waits,) = [c._queue for c in stage.api.connections if c._subscriptions and c._queue._send == slow._send]
    slow.stop_reading()
    largest = 0
    for _ in range(100):
        stage.talk(enclave, 1, "x" * 500)
        await quiet()
        largest = max(largest, waits._size)
    assert 20_000 <= largest < 20_000 + 3_000
    assert stage.hub.count == 1
    assert len([m for m in await fast.rest() if m["type"] == "Event"]) == 100
    slow.read_on()
    found = await slow.rest()
    assert closed(found[-1]) == ("s", "too_slow")
    seen = [bob.seq(message) for message in found[:-1]]
    assert seen == list(range(1, len(seen) + 1))
    assert await slow.ended() == 1000


async def test_a_subscriber_that_reads_is_not_cut_by_one_large_batch() -> None:
    """One batch may exceed the buffer; a peer that reads at once gets all of it."""
    stage = Stage(buffer=20_000)
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    await socket.until("EOSE")
    events = stage.talk(enclave, 100, "x" * 500)
    await quiet()
    assert types(await socket.rest()) == ["Event"] * len(events)


async def test_stored_events_wait_for_a_slow_reader_and_do_not_cut_it() -> None:
    stage = Stage(buffer=5_000)
    enclave = stage.create()
    stage.talk(enclave, 60, "x" * 500)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    await quiet()
    socket.stop_reading()
    socket.say(bob.query("s", limit=1000))
    await quiet()
    (connection,) = stage.api.connections
    assert 5_000 <= connection._queue._size < 5_000 + 3_000
    stage.talk(enclave, 60, "x" * 500)
    await quiet()
    socket.read_on()
    found = await socket.until("EOSE")
    while len(found) < 122:
        found.append(await socket.next())
    assert [bob.seq(m) for m in found if m["type"] == "Event"] == list(range(121))


async def test_who_does_not_read_answers_is_not_read_from() -> None:
    stage = Stage(buffer=2_000)
    enclave = stage.create()
    socket = Socket(stage)
    await quiet()
    socket.stop_reading()
    for _ in range(200):
        socket.say("nonsense")
    await quiet()
    assert socket.unread > 150
    socket.read_on()
    for _ in range(200):
        assert (await socket.next())["code"] == "INVALID_QUERY"
    socket.say(stage.commit(enclave, "alice", "message", "hello"))
    assert (await socket.next())["type"] == "Receipt"


@pytest.mark.parametrize("stops", ["before the end", "after the end"])
async def test_a_connection_that_ends_does_not_wait_for_ever_for_a_peer_that_does_not_read(
    stops: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sending the last messages and closing take bounded time, whenever the peer stopped reading."""
    monkeypatch.setattr(send_queue, "FLUSH_S", 0.01)
    reads = asyncio.Event()

    async def send(message: Any) -> None:
        await reads.wait()

    waits = SendQueue(send, 1000, lambda size: None)
    task = asyncio.get_running_loop().create_task(waits.run())
    if stops == "before the end":
        waits.put(b"{}")
        await quiet()
    waits.end(1000)
    done, _ = await asyncio.wait([task], timeout=PATIENCE)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert done


async def test_what_waits_in_lines_and_in_slices_is_counted_and_let_go_of() -> None:
    stage = Stage(buffer=20_000)
    enclave = stage.create()
    stage.talk(enclave, 100, "x" * 1000)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    await quiet()
    socket.stop_reading()
    socket.say(bob.query("s", limit=1000))
    await quiet()
    (connection,) = stage.api.connections
    assert connection._queue._size >= 20_000
    assert stage.peers.unsent == socket.peer.unsent > connection._queue._size + 100_000
    socket.read_on()
    assert types(await socket.rest()) == ["Event"] * 101 + ["EOSE"]
    assert stage.peers.unsent == 0


@pytest.mark.parametrize("ends", ["hangs up", "is closed"])
async def test_nothing_waits_for_a_connection_that_is_over(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is queued for an ended connection either, though its commits are still answered."""
    monkeypatch.setattr(send_queue, "FLUSH_S", 0.01)
    stage = Stage(buffer=5_000)
    enclave = stage.create()
    stage.talk(enclave, 60, "x" * 500)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    await quiet()
    stage.admitting = False
    socket.stop_reading()
    socket.say(stage.commit(enclave, "alice", "message", "in flight"), bob.query("s"))
    await quiet()
    assert socket.peer.unsent > 5_000
    if ends == "hangs up":
        await socket.hang_up()
    else:
        (connection,) = stage.api.connections
        connection.end(1000)
        async with asyncio.timeout(PATIENCE):
            await socket.task
    assert socket.peer.unsent == 0
    stage.admit()
    await quiet()
    assert (socket.peer.unsent, stage.intake.waiting) == (0, 0)


async def test_a_line_that_is_over_is_kept_by_nobody() -> None:
    """Nothing that ended the connection may keep the message in memory: it would wait for the collector or a timer."""

    class Gone(Exception):
        pass

    ended_by = list["weakref.ref[Gone]"]()

    def gone() -> Gone:
        error = Gone()
        ended_by.append(weakref.ref(error))
        return error

    async def send(message: Any) -> None:
        raise gone()

    waits = SendQueue(send, 1000, lambda size: None)
    task = asyncio.get_running_loop().create_task(waits.run())
    await asyncio.sleep(0)
    waits.put(b"{}")
    waits.end(1000)
    gc.disable()
    try:
        await asyncio.gather(task, return_exceptions=True)
        del task
        await quiet()
        assert [error() for error in ended_by] == [None]
    finally:
        gc.enable()


async def test_a_peer_that_does_not_read_has_a_slice_of_what_is_stored_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored_events, "MAX_SLICE", 20_000)
    stage = Stage(buffer=10_000)
    enclave = stage.create()
    stage.talk(enclave, 200, "x" * 1000)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    await quiet()
    socket.stop_reading()
    socket.say(*(bob.query(f"{i}", limit=1000) for i in range(5)))
    await quiet()
    assert 20_000 < stage.peers.unsent < 20_000 + 10_000 + 5_000
    socket.read_on()
    found = [message for message in await socket.rest() if message["type"] == "Event"]
    assert Counter(message["sub_id"] for message in found) == {f"{i}": 201 for i in range(5)}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("short", [-100, 0, 1, 12])
@pytest.mark.parametrize(
    ("filter_", "matching"),
    [
        ({}, range(61)),
        ({"seq": {"start_at": 5, "end_at": 41}}, range(5, 42)),
        ({"seq": [*range(3, 60, 3), 999]}, range(3, 60, 3)),
        ({"type": "message"}, range(1, 61)),
    ],
)
async def test_slices_make_up_what_the_filter_asks_for(
    reverse: bool, short: int, filter_: Json, matching: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices hold a few events, and one event is longer than a slice; `short` limits cut some of them."""
    monkeypatch.setattr(stored_events, "MAX_SLICE", 5_000)
    stage, limit = Stage(), len(matching) - short
    enclave = stage.create()
    for content in [""] * 30 + ["x" * 10_000] + [""] * 29:
        stage.talk(enclave, 1, content)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s", reverse=reverse, limit=limit, **filter_))
    *stored, eose = await socket.until("EOSE")
    assert [bob.seq(message) for message in stored] == list(matching[:: -1 if reverse else 1])[:limit]
    assert eose.get("more", False) is (limit < len(matching))
    stage.talk(enclave, 1)
    assert [bob.seq(message) for message in await socket.rest()] == ([] if "seq" in filter_ else [61])


async def test_nothing_stored_comes_after_the_end_of_a_session() -> None:
    stage = Stage(buffer=1)
    enclave = stage.create()
    stage.talk(enclave, 10)
    socket, alice, bob = Socket(stage), stage.reader("alice", enclave), stage.reader("bob", enclave, duration=100)
    socket.say(alice.query("lasts", id="00" * 32))
    await socket.until("EOSE")
    socket.stop_reading()
    socket.say(bob.query("s"))
    await quiet()
    stage.hub.expire(stage.now // 1000 + 100 + SKEW)
    socket.read_on()
    *stored, end = await socket.rest()
    assert closed(end) == ("s", "session_expired")
    assert types(stored) == ["Event"]
    assert socket.is_open


async def test_few_more_events_are_read_than_go_into_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a subscriber has fallen behind: each slice reads at most twice as many events as the last one held."""
    monkeypatch.setattr(stored_events, "MAX_SLICE", 20_000)
    stage = Stage(buffer=20_000)
    enclave = stage.create()
    stage.talk(enclave, 10, "x" * 15_000)
    limits, find = list[int](), stage.store.find

    def counted(enclave: bytes, filter_: Any, readable: Any) -> Any:
        limits.append(filter_.limit)
        return find(enclave, filter_, readable)

    monkeypatch.setattr(stage.store, "find", counted)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s", limit=50))
    await socket.until("EOSE")
    assert limits == [50, 4, *[2] * 8]
    limits.clear()
    stage.talk(enclave, 10, "x" * 15_000)
    assert [bob.seq(m) for m in await socket.rest()] == list(range(11, 21))
    assert (limits[0], set(limits[1:])) == (MAX_LIMIT, {2})


async def test_who_is_sent_away_while_catching_up_gets_no_more_than_the_slice_that_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored_events, "MAX_SLICE", 5_000)
    stage = Stage(buffer=1)
    enclave = stage.create(**WITHOUT_NOTES)
    stage.talk(enclave, 100)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    await quiet()
    socket.stop_reading()
    socket.say(bob.query("s", limit=1000))
    await quiet()
    stage.send(enclave, "alice", "Move", move("bob", "MEMBER", "OUTSIDER"))
    socket.read_on()
    *stored, end = await socket.rest()
    assert closed(end) == ("s", "access_revoked")
    assert 0 < len(stored) < 20


async def test_a_large_event_reaches_many_subscribers_without_being_held_for_all_of_them_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Subscribers without room read from the store in turn; none is dropped or closed."""
    monkeypatch.setattr(websocket, "MAX_CONCURRENT_READS", 4)
    stage = Stage(unsent=4_000_000)
    enclave = stage.create()
    sockets, bob = [Socket(stage, f"10.0.0.{i}") for i in range(60)], stage.reader("bob", enclave)
    for socket in sockets:
        socket.say(bob.query("s"))
        await socket.until("EOSE")
    most = 0

    def watch(message: Json) -> None:
        nonlocal most
        most = max(most, stage.peers.unsent)

    for socket in sockets:
        socket._heard = watch
    for _ in range(3):
        event = stage.send(enclave, "alice", "message", "x" * 100_000)
        for socket in sockets:
            assert bob.seq(await socket.next()) == event.seq
    assert 2_000_000 < most < 4_000_000
    assert stage.peers.dropped == stage.peers.unsent == 0
    assert stage.hub.count == 60


async def test_who_has_taken_everything_is_not_cut_however_long_the_store_takes() -> None:
    stage = Stage(buffer=20_000, unsent=1_000_000)
    enclave = stage.create()
    socket, other, bob = Socket(stage), Socket(stage, "10.0.0.2"), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    await socket.until("EOSE")
    stage.hands.held = True
    with other.peer.counting_unsent(600_000):
        for _ in range(MAX_SKIPPED * 2):
            stage.talk(enclave, 1)
            await quiet()
        stage.hands.let_go()
        assert [bob.seq(m) for m in await socket.rest()] == list(range(1, MAX_SKIPPED * 2 + 1))


async def test_only_so_many_slices_are_read_at_once() -> None:
    stage = Stage()
    enclave = stage.create()
    addresses = [f"10.0.0.{i % 10}" for i in range(websocket.MAX_CONCURRENT_READS + 4)]
    sockets, bob = [Socket(stage, address) for address in addresses], stage.reader("bob", enclave)
    for socket in sockets:
        socket.say(bob.query("s"))
    await quiet()
    for socket in sockets:
        await socket.until("EOSE")
    stage.hands.held = True
    with sockets[0].peer.counting_unsent(1 << 27 | 1):
        stage.talk(enclave, 1)
        await quiet()
        assert len(stage.hands.work) == websocket.MAX_CONCURRENT_READS
        stage.hands.let_go()
        for socket in sockets:
            assert bob.seq(await socket.next()) == 1


async def test_a_peer_that_is_dropped_is_forgotten_by_everybody() -> None:
    stage = Stage(buffer=20_000, unsent=30_000)
    enclave = stage.create()
    stage.talk(enclave, 60, "x" * 500)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    await quiet()
    socket.stop_reading()
    socket.say(bob.query("s", limit=1000))
    await quiet()
    assert socket.was_dropped
    async with asyncio.timeout(PATIENCE):
        await socket.task
    assert (stage.peers.unsent, stage.hub.count, stage.api.connections) == (0, 0, set())


# Shutting down


async def test_a_node_that_stops_tells_subscribers_and_ends_their_connections() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, idle, bob = Socket(stage), Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("one"), bob.query("two"))
    for _ in range(2):
        await socket.until("EOSE")
    stage.api.shut_down()
    assert types(await idle.rest()) == ["Notice"]
    notice, *ends = await socket.rest()
    assert (notice["type"], type(notice["message"])) == ("Notice", str)
    assert [closed(message) for message in ends] == [("one", "shutting_down"), ("two", "shutting_down")]
    assert [await socket.ended(), await idle.ended()] == [1000, 1000]


async def test_commits_that_were_taken_are_answered_before_that() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    await socket.until("EOSE")
    stage.admitting = False
    commit = stage.commit(enclave, "alice", "message", "in flight")
    socket.say(commit)
    await quiet()
    stage.api.shut_down()
    await quiet()
    assert socket.is_open
    stage.admit()
    await quiet()
    stage.api.shut_down()
    assert await socket.ended() == 1000
    answers = await socket.rest()
    assert [a["hash"] for a in answers if a["type"] == "Receipt"] == [commit.hash.hex()]
    assert [closed(a) for a in answers if a["type"] == "Closed"] == [("s", "shutting_down")]


@pytest.mark.parametrize("turns", range(3))
async def test_a_query_that_is_being_answered_does_not_keep_the_connection_open(turns: int) -> None:
    """The Query is not opened yet, is opened, or has caught up."""
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held = True
    socket.say(bob.query("s"))
    for _ in range(turns):
        await quiet()
        stage.hands.do(1)
    await quiet()
    stage.api.shut_down()
    await quiet()
    stage.api.shut_down()
    await quiet()
    stage.hands.let_go()
    assert await socket.ended() == 1000
    assert stage.hub.count == 0
    found = await socket.rest()
    assert types(found)[:1] == ["Notice"] if turns < 2 else closed(found[-1]) == ("s", "shutting_down")


async def test_a_query_that_is_cancelled_before_its_first_step_gives_its_place_back() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    await quiet()
    (connection,) = stage.api.connections
    connection._subscribe(parse_request(encode(bob.query("s"))), "s")
    assert stage.hub.count == 1
    connection.shut_down()
    assert await socket.ended() == 1000
    assert stage.hub.count == 0


async def test_one_subscriber_s_trouble_is_not_the_next_one_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscriber whose rights cannot be looked up reads on from the store; the others continue."""
    stage = Stage()
    enclave = stage.create()
    first, second, bob = Socket(stage), Socket(stage), stage.reader("bob", enclave)
    for socket in (first, second):
        socket.say(bob.query("s"))
        await socket.until("EOSE")
    tell, failed = SubscriptionHub._deliver, list[Any]()

    def fail(hub: SubscriptionHub, subscription: Any, *args: Any) -> None:
        if not failed:
            failed.append(subscription)
            subscription.after += 1
            raise KeyError("a node of the tree is missing")
        tell(hub, subscription, *args)

    monkeypatch.setattr(SubscriptionHub, "_deliver", fail)
    events = stage.talk(enclave, 3)
    await quiet()
    for socket in (first, second):
        assert [bob.seq(message) for message in await socket.rest()] == [event.seq for event in events]


async def test_commits_that_wait_are_bounded_by_their_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.node.sequence.commit_intake.MAX_BYTES", 100)
    stage, settled = Stage(), list[Any]()
    stage.admitting = False
    intake = stage.intake
    intake.submit(b"x" * 49, lambda result, _: settled.append(result))
    intake.submit(b"x", lambda result, _: settled.append(result))
    with pytest.raises(Unavailable):
        intake.submit(b"x", lambda result, _: None)
    intake.submit(b"x" * 25, lambda result, _: settled.append(result), "another address")
    await quiet()
    stage.replies._reply([(sender, Unavailable("later"), None) for _, sender, _ in stage._arrivals])
    assert (len(settled), intake.waiting, stage.replies._bytes.used) == (3, 0, 0)
