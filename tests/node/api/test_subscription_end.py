"""Subscriptions without a socket: how a subscription ends, by the node or by its peer."""

from typing import Any

import pytest

from enc.core.session.session import SKEW
from tests.core.world import Json, give, move
from tests.node.api.websocket_stage import ENDS, WITHOUT_NOTES, Socket, Stage, closed, end, quiet, types

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# How a subscription ends


LOSSES: dict[str, tuple[str, str, Json]] = {
    "its State by a Move": ("bob", "Move", move("bob", "MEMBER", "OUTSIDER")),
    "its trait by a Revoke": ("dave", "Revoke", give("dave", "reader")),
    "its entry by a closing gate": ("carol", "Gate", {"alias": "lobby", "state": "closed"}),
    "its State within an AC_Bundle": (
        "bob",
        "AC_Bundle",
        {"operations": [{"type": "Move", **move("bob", "MEMBER", "OUTSIDER")}]},
    ),
}


@pytest.mark.parametrize("what", LOSSES)
async def test_who_can_read_nothing_any_more_is_closed_with_access_revoked_and_hears_nothing_of_it(what: str) -> None:
    name, type_, content = LOSSES[what]
    stage = Stage()
    enclave = stage.create(**WITHOUT_NOTES)
    socket, reader = Socket(stage), stage.reader(name, enclave)
    socket.say(reader.query("s"))
    await socket.until("EOSE")
    stage.send(enclave, "alice", type_, content)
    stage.send(enclave, "alice", "message", "too late")
    assert [closed(message) for message in await socket.rest()] == [("s", "access_revoked")]
    assert await socket.ended() == 1000
    assert stage.hub.count == 0


@pytest.mark.parametrize("what", LOSSES)
async def test_the_same_while_it_catches_up(what: str) -> None:
    name, type_, content = LOSSES[what]
    stage = Stage()
    enclave = stage.create(**WITHOUT_NOTES)
    socket, reader = Socket(stage), stage.reader(name, enclave)
    stage.hands.held = True
    socket.say(reader.query("s"))
    await quiet()
    stage.hands.do(1)
    await quiet()
    stage.send(enclave, "alice", type_, content)
    stage.send(enclave, "alice", "message", "too late")
    stage.hands.let_go()
    found = await socket.rest()
    assert closed(found[-1]) == ("s", "access_revoked")
    assert all(reader.seq(message) == 0 for message in found if message["type"] == "Event")
    assert stage.hub.count == 0


async def test_others_do_not_notice_that_one_lost_access() -> None:
    stage = Stage()
    enclave = stage.create(**WITHOUT_NOTES)
    socket, bob, dave = Socket(stage), stage.reader("bob", enclave), stage.reader("dave", enclave)
    socket.say(bob.query("bob"), dave.query("dave"))
    await socket.until("EOSE")
    await socket.until("EOSE")
    revoked = stage.send(enclave, "alice", "Revoke", give("dave", "reader"))
    message = stage.send(enclave, "alice", "message", "on we go")
    found = await socket.rest()
    assert [closed(m) for m in found if m["type"] == "Closed"] == [("dave", "access_revoked")]
    assert [bob.event(m) for m in found if m["sub_id"] == "bob"] == [revoked, message]
    assert socket.is_open


async def test_a_session_ends_a_minute_after_it_expires_and_not_before() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave, duration=100)
    expires = bob.session.token.expires
    socket.say(bob.query("s"))
    await socket.until("EOSE")
    stage.hub.expire(expires + SKEW - 1)
    assert await socket.rest() == []
    stage.hub.expire(expires + SKEW)
    assert closed(await socket.next()) == ("s", "session_expired")
    assert await socket.ended() == 1000


async def test_a_query_is_refused_exactly_when_its_subscription_would_be_ended() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave, duration=100)
    stage.now = (bob.session.token.expires + SKEW - 1) * 1000
    socket.say(bob.query("in time"))
    await socket.until("EOSE")
    stage.now += 1000
    socket.say(bob.query("too late"))
    error = await socket.next()
    assert (error["type"], error["code"], error["sub_id"]) == ("Error", "SESSION_EXPIRED", "too late")


async def test_one_identity_s_expiry_leaves_the_other_s_subscriptions_alone() -> None:
    stage = Stage()
    enclave = stage.create()
    socket = Socket(stage)
    bob, alice = stage.reader("bob", enclave, duration=100), stage.reader("alice", enclave, duration=200)
    socket.say(bob.query("bob 1"), bob.query("bob 2"), alice.query("alice"))
    for _ in range(3):
        await socket.until("EOSE")
    stage.hub.expire(bob.session.token.expires + SKEW)
    ends = [closed(message) for message in await socket.rest()]
    assert sorted(ends) == [("bob 1", "session_expired"), ("bob 2", "session_expired")]
    event = stage.send(enclave, "alice", "message", "still there")
    assert alice.event(await socket.next()) == event
    assert socket.is_open
    stage.hub.expire(alice.session.token.expires + SKEW)
    assert closed(await socket.next()) == ("alice", "session_expired")
    assert await socket.ended() == 1000


async def test_one_session_serves_several_enclaves_and_each_identity_has_its_own() -> None:
    stage = Stage()
    enclaves = [stage.create(), stage.create(meta={"n": 1})]
    socket = Socket(stage)
    readers = {f"{name} {i}": stage.reader(name, e) for name in ("alice", "bob") for i, e in enumerate(enclaves)}
    for sub_id, reader in readers.items():
        socket.say(reader.query(sub_id))
        await socket.until("EOSE")
    events = [stage.send(enclave, "alice", "message", "hello") for enclave in enclaves]
    heard = {message["sub_id"]: readers[message["sub_id"]].event(message) for message in await socket.rest()}
    assert heard == {sub_id: events[int(sub_id[-1])] for sub_id in readers}


@pytest.mark.parametrize("type_", ENDS)
async def test_subscribers_get_the_event_that_ends_the_enclave_then_closed(type_: str) -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    await socket.until("EOSE")
    event = end(stage, enclave, type_)
    first, second = await socket.rest()
    assert bob.event(first) == event
    assert closed(second) == ("s", ENDS[type_])
    assert await socket.ended() == 1000


@pytest.mark.parametrize("type_", ENDS)
async def test_who_cannot_read_that_event_or_did_not_ask_for_it_gets_closed_alone(type_: str) -> None:
    stage = Stage()
    enclave = stage.create()
    socket, dave, bob = Socket(stage), stage.reader("dave", enclave), stage.reader("bob", enclave)
    socket.say(dave.query("cannot"), bob.query("did not", type="message"))
    for _ in range(2):
        await socket.until("EOSE")
    end(stage, enclave, type_)
    ends = [closed(message) for message in await socket.rest()]
    assert ends == [("cannot", ENDS[type_]), ("did not", ENDS[type_])]


@pytest.mark.parametrize("type_", ENDS)
async def test_an_enclave_that_ends_while_a_subscription_catches_up_closes_it_after_the_event(type_: str) -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held = True
    socket.say(bob.query("s"))
    await quiet()
    stage.hands.do(1)
    await quiet()
    event = end(stage, enclave, type_)
    stage.hands.let_go()
    found = await socket.rest()
    assert types(found) == ["Event", "EOSE", "Event", "Closed"]
    assert bob.event(found[2]) == event
    assert closed(found[3]) == ("s", ENDS[type_])


async def test_a_new_subscription_on_a_paused_enclave_reads_and_hears_resume() -> None:
    stage = Stage()
    enclave = stage.create()
    stage.send(enclave, "alice", "Pause")
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    stored = await socket.until("EOSE")
    assert [bob.event(message).type for message in stored[:-1]] == ["Manifest", "Pause"]
    resumed, message = stage.send(enclave, "alice", "Resume"), stage.send(enclave, "alice", "message", "again")
    paused = stage.send(enclave, "alice", "Pause")
    found = await socket.rest()
    assert [bob.event(each) for each in found[:-1]] == [resumed, message, paused]
    assert closed(found[-1]) == ("s", "enclave_paused")


@pytest.mark.parametrize("type_", ["Terminate", "Migrate"])
async def test_a_new_subscription_on_an_ended_enclave_gets_stored_events_eose_and_closed(type_: str) -> None:
    stage = Stage()
    enclave = stage.create()
    stage.talk(enclave, 2)
    last = end(stage, enclave, type_)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    stored = await socket.until("Closed")
    assert types(stored) == ["Event"] * 4 + ["EOSE", "Closed"]
    assert bob.event(stored[3]) == last
    assert closed(stored[-1]) == ("s", ENDS[type_])
    assert await socket.ended() == 1000


async def test_a_purged_enclave_is_terminated_and_cannot_be_subscribed_to() -> None:
    stage = Stage()
    enclave = stage.create()
    stage.send(enclave, "alice", "Terminate")
    stage.store.purge(enclave)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    error = await socket.next()
    assert (error["code"], error["sub_id"]) == ("ENCLAVE_TERMINATED", "s")
    assert stage.hub.count == 0


# Close


async def test_close_ends_one_subscription_and_says_nothing() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("one"), bob.query("two"))
    for _ in range(2):
        await socket.until("EOSE")
    socket.say({"type": "Close", "sub_id": "one"})
    await quiet()
    event = stage.send(enclave, "alice", "message", "for two")
    (message,) = await socket.rest()
    assert (message["sub_id"], bob.event(message)) == ("two", event)
    assert stage.hub.count == 1


async def test_after_a_close_nothing_more_comes_for_the_subscription_not_even_eose() -> None:
    stage = Stage()
    enclave = stage.create()
    stage.talk(enclave, 5)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("stays"))
    await socket.until("EOSE")
    stage.hands.held = True
    socket.say(bob.query("s"))
    await quiet()
    stage.hands.do(1)
    await quiet()
    socket.say({"type": "Close", "sub_id": "s"})
    await quiet()
    stage.hands.let_go()
    assert await socket.rest() == []


async def test_after_closed_nothing_more_comes_for_the_subscription_not_even_eose() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob, alice = Socket(stage), stage.reader("bob", enclave, duration=100), stage.reader("alice", enclave)
    socket.say(alice.query("stays"))
    await socket.until("EOSE")
    stage.hands.held = True
    socket.say(bob.query("s"))
    await quiet()
    stage.hands.do(1)
    await quiet()
    stage.hub.expire(bob.session.token.expires + SKEW)
    stage.hands.let_go()
    assert [closed(message) for message in await socket.rest()] == [("s", "session_expired")]


async def test_a_name_that_was_closed_is_free_again_and_no_old_answer_goes_to_its_new_owner() -> None:
    """A Close and a new Query under the same name, while the first one is still being answered."""
    stage = Stage()
    enclave = stage.create()
    stage.talk(enclave, 3)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("stays", id="00" * 32))
    await socket.until("EOSE")
    stage.hands.held = True
    socket.say(bob.query("s", seq=1))
    await quiet()
    stage.hands.do(1)
    await quiet()
    socket.say({"type": "Close", "sub_id": "s"}, bob.query("s", seq=2))
    await quiet()
    stage.hands.let_go()
    found = await socket.rest()
    assert types(found) == ["Event", "EOSE"]
    assert (bob.seq(found[0]), found[0]["sub_id"]) == (2, "s")


@pytest.mark.parametrize("sub_id", ["nobody's", "", 7, None, ["s"], {"s": 1}])
async def test_closing_what_is_not_there_is_an_error_and_nothing_else(sub_id: Any) -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    await socket.until("EOSE")
    socket.say({"type": "Close", "sub_id": sub_id})
    assert (await socket.next())["code"] == "INVALID_QUERY"
    assert socket.is_open
