"""Subscriptions without a socket: stored and live events, filters and rights."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from enc.core.log.filter import Range, parse_filter
from enc.node.api.stored_events import in_seq_range
from enc.node.store.steps import Step
from tests.core.world import START, Json, about, give, move, person
from tests.node.api.websocket_stage import Socket, Stage, closed, quiet, types

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# Stored, EOSE, live


async def test_a_query_gives_stored_events_then_eose_then_live_ones() -> None:
    stage = Stage()
    enclave = stage.create()
    stage.talk(enclave, 3)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("mine"))
    stored = await socket.until("EOSE")
    assert [bob.seq(message) for message in stored[:-1]] == [0, 1, 2, 3]
    assert {message["sub_id"] for message in stored} == {"mine"}
    assert stored[-1] == {"type": "EOSE", "sub_id": "mine"}
    events = stage.talk(enclave, 2)
    live = [await socket.next(), await socket.next()]
    assert [bob.item(message) for message in live] == [{"event": event, "status": "active"} for event in events]
    assert await socket.rest() == []


async def test_stored_items_say_what_became_of_their_events() -> None:
    stage = Stage()
    enclave = stage.create()
    first, second = stage.talk(enclave, 2)
    update = stage.send(enclave, "alice", "Update", "better", *about(first))
    stage.send(enclave, "alice", "Delete", {"reason": "author"}, *about(second))
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query(type="message"))
    stored = await socket.until("EOSE")
    (item,) = [bob.item(message) for message in stored[:-1]]
    assert (item["event"].id, item["event"].content) == (first.id, None)
    assert (item["status"], item["updated_by"]) == ("updated", update.id.hex())


@pytest.mark.parametrize(("limit", "more"), [(3, True), (4, False), (5, False)])
async def test_eose_says_more_iff_the_limit_cut(limit: int, more: bool) -> None:
    stage = Stage()
    enclave = stage.create()
    stage.talk(enclave, 3)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query(limit=limit))
    stored = await socket.until("EOSE")
    assert len(stored) - 1 == min(limit, 4)
    assert stored[-1].get("more", False) is more
    event = stage.send(enclave, "alice", "message", "live")
    assert bob.event(await socket.next()) == event


async def test_a_reversed_query_gives_the_latest_first_and_live_ones_in_the_log_s_order() -> None:
    stage = Stage()
    enclave = stage.create()
    stage.talk(enclave, 5)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query(reverse=True, limit=2))
    stored = await socket.until("EOSE")
    assert [bob.seq(message) for message in stored[:-1]] == [5, 4]
    stage.talk(enclave, 3)
    assert [bob.seq(await socket.next()) for _ in range(3)] == [6, 7, 8]


async def test_the_same_for_what_was_written_while_it_caught_up_whatever_its_limit() -> None:
    stage = Stage()
    enclave = stage.create()
    stage.talk(enclave, 5)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held = True
    socket.say(bob.query(reverse=True, limit=2))
    await quiet()
    stage.hands.do(1)
    await quiet()
    stage.talk(enclave, 5)
    stage.hands.let_go()
    found = await socket.rest()
    assert [bob.seq(m) if m["type"] == "Event" else m.get("more") for m in found] == [5, 4, True, 6, 7, 8, 9, 10]


async def test_what_is_written_while_a_subscription_catches_up_comes_once_and_in_order() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held = True
    socket.say(bob.query(limit=1000))
    for _ in range(4):  # opened, the first page, then pages of 1,000, each followed by more
        await quiet()
        stage.hands.do(1)
        await quiet()
        stage.talk(enclave, 1100)
    stage.hands.let_go()
    await quiet()
    stage.talk(enclave, 10)
    found = await socket.rest()
    seen = [bob.seq(message) for message in found if message["type"] == "Event"]
    assert seen == list(range(4411))
    assert types(found).index("EOSE") == 1


@pytest.mark.parametrize("seed", range(40))
async def test_no_interleaving_loses_or_repeats_an_event(seed: int) -> None:
    """Writers, page readers and a peer that reads irregularly run in any order.

    All events come, in order and once; or those up to a Closed too_slow do.
    """
    chance = random.Random(seed)
    stage = Stage(buffer=chance.choice([3_000, 20_000, 1 << 20]))
    enclave = stage.create()
    stage.talk(enclave, chance.randrange(5))
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held = True
    socket.say(bob.query("s", limit=1000))
    for _ in range(80):
        turn = chance.randrange(5)
        if turn == 0:
            stage.talk(enclave, chance.randrange(1, 4))
        elif turn == 1:
            stage.hands.do(1)
        elif turn in (2, 3):
            (socket.stop_reading if turn == 2 else socket.read_on)()
        await asyncio.sleep(0)
    socket.read_on()
    stage.hands.let_go()
    await quiet()
    last = stage.send(enclave, "alice", "message", "the last")
    found = await socket.rest()
    seen = [bob.seq(message) for message in found if message["type"] == "Event"]
    was_cut = found[-1]["type"] == "Closed"
    assert seen == list(range(len(seen) if was_cut else last.seq + 1))
    assert not was_cut or closed(found[-1]) == ("s", "too_slow")


async def test_an_event_that_is_published_late_is_not_sent_twice() -> None:
    """The store may show an event before the hub receives it."""
    stage = Stage()
    enclave = stage.create()
    late: list[Sequence[Step]] = []
    stage.sequencer._publish = late.append
    stage.talk(enclave, 2)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query())
    assert [bob.seq(message) for message in (await socket.until("EOSE"))[:-1]] == [0, 1, 2]
    for steps in late:
        stage.hub.publish(steps)
    assert await socket.rest() == []


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        ({}, (2, 5)),
        ({"seq": {"start_at": 3}}, (3, 5)),
        ({"seq": {"end_at": 4}}, (2, 4)),
        ({"seq": {"start_at": 6}}, (6, 5)),
    ],
)
def test_a_filter_within_bounds(filter_: Json, expected: tuple[int, int]) -> None:
    assert in_seq_range(parse_filter(filter_), 2, 5).seqs == Range(*expected)


def test_a_filter_of_single_seqs_within_bounds() -> None:
    assert in_seq_range(parse_filter({"seq": [1, 2, 5, 6]}), 2, 5).seqs == frozenset([2, 5])


# Filters and rights of live events


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        ({"type": "message"}, [0, 3]),
        ({"type": ["secret", "note"]}, [1, 2]),
        ({"from": person("bob").public.hex()}, [1]),
        ({"tags": {"k": "v"}}, [2]),
        ({"tags": {"k": True}}, [2, 3]),
        ({"seq": {"start_at": 3}}, [2, 3]),
        ({"seq": [1, 4]}, [0, 3]),
        ({"timestamp": {"end_at": START + 2}}, [0, 1]),
        ({"type": "message", "tags": {"k": True}}, [3]),
        ({"id": "00" * 32}, []),
    ],
)
async def test_live_events_obey_the_filter(filter_: Json, expected: list[int]) -> None:
    stage = Stage()
    enclave = stage.create()
    socket, alice = Socket(stage), stage.reader("alice", enclave)
    socket.say(alice.query(**filter_))
    await socket.until("EOSE")
    events = [
        stage.send(enclave, "alice", "message", "one"),
        stage.send(enclave, "bob", "secret", "two"),
        stage.send(enclave, "alice", "note", "three", ("k", "v")),
        stage.send(enclave, "alice", "message", "four", ("k", "w")),
    ]
    assert [alice.event(message) for message in await socket.rest()] == [events[i] for i in expected]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("alice", [0, 1, 2, 3]), ("carol", [0]), ("dave", [0]), ("erin", [2]), ("frank", [3])],
)
async def test_each_hears_live_what_they_may_read_and_nothing_else(name: str, expected: list[int]) -> None:
    stage = Stage()
    enclave = stage.create()
    socket, reader = Socket(stage), stage.reader(name, enclave)
    socket.say(reader.query())
    await socket.until("EOSE")
    events = [
        stage.send(enclave, "alice", "message", "one"),
        stage.send(enclave, "bob", "secret", "two"),
        stage.send(enclave, "erin", "note", "three"),
        stage.send(enclave, "frank", "note", "four"),
    ]
    assert [reader.event(message) for message in await socket.rest()] == [events[i] for i in expected]


async def test_an_update_or_delete_reaches_those_who_read_its_target_s_type() -> None:
    stage = Stage()
    enclave = stage.create()
    message, secret = stage.send(enclave, "alice", "message", "a"), stage.send(enclave, "alice", "secret", "b")
    sockets, readers = [Socket(stage), Socket(stage)], [stage.reader(name, enclave) for name in ("dave", "bob")]
    for socket, reader in zip(sockets, readers, strict=True):
        socket.say(reader.query(seq={"start_after": 2}))
        await socket.until("EOSE")
    events = [
        stage.send(enclave, "alice", "Update", "a2", *about(message)),
        stage.send(enclave, "alice", "Update", "b2", *about(secret)),
        stage.send(enclave, "alice", "Delete", {"reason": "author"}, *about(secret)),
        stage.send(enclave, "alice", "Delete", {"reason": "author"}, *about(message)),
    ]
    assert [readers[0].event(found) for found in await sockets[0].rest()] == [events[0], events[3]]
    assert [readers[1].event(found) for found in await sockets[1].rest()] == events


async def test_rights_are_those_after_the_event() -> None:
    """erin receives messages after the Grant, and everything from the Move to MEMBER on, including it."""
    stage = Stage()
    enclave = stage.create()
    socket, erin = Socket(stage), stage.reader("erin", enclave)
    socket.say(erin.query())
    await socket.until("EOSE")
    stage.send(enclave, "alice", "message", "before")
    granted = stage.send(enclave, "alice", "Grant", give("erin", "reader"))
    message = stage.send(enclave, "alice", "message", "after")
    stage.send(enclave, "alice", "secret", "not hers")
    moved = stage.send(enclave, "alice", "Move", move("erin", "OUTSIDER", "MEMBER"))
    secret = stage.send(enclave, "alice", "secret", "hers too")
    heard = [erin.event(found) for found in await socket.rest()]
    assert heard == [message, moved, secret]
    assert granted not in heard


async def test_who_loses_some_rights_stays_and_hears_the_rest() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query())
    await socket.until("EOSE")
    stage.send(enclave, "alice", "Move", move("bob", "MEMBER", "GUEST"))
    stage.send(enclave, "alice", "secret", "not for guests")
    message = stage.send(enclave, "alice", "message", "for all")
    assert [bob.event(found) for found in await socket.rest()] == [message]
