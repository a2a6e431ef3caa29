"""WebSocket connections without a socket: names, commits, and the end of a connection."""

from typing import Any

import pytest
from msgspec.json import encode

from enc.core.log.commit import wire_commit
from enc.core.log.receipt import check_receipt, parse_receipt
from tests.node.api.websocket_stage import NODE, WITHOUT_NOTES, Socket, Stage, quiet, types

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# Names


async def test_an_offered_name_is_taken_if_it_is_free_and_else_the_node_gives_one() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    names = []
    for offer in ("a", "a", None, "x" * 64, "sub-99", "\N{WAVING HAND SIGN}" * 64, "b"):
        socket.say(bob.query(offer, id="00" * 32))
        names.append((await socket.next())["sub_id"])
    assert names[0] == "a"
    assert names[3:] == ["x" * 64, "sub-99", "\N{WAVING HAND SIGN}" * 64, "b"]
    assert len(set(names)) == len(names)
    assert all(0 < len(name) <= 64 for name in names)


@pytest.mark.parametrize("offer", ["", "x" * 65, 7, True, ["a"], {}])
async def test_an_offered_name_that_is_none_is_refused(offer: Any) -> None:
    stage = Stage()
    socket, bob = Socket(stage), stage.reader("bob", stage.create())
    socket.say(bob.query(offer))
    error = await socket.next()
    assert (error["code"], error["message"].startswith("sub_id:")) == ("INVALID_QUERY", True)
    assert "sub_id" not in error
    assert stage.hub.count == 0
    socket.say(bob.query("a"))
    assert types(await socket.rest()) == ["Event", "EOSE"]


async def test_an_event_of_a_name_in_any_script_is_plain_ascii_of_the_same_name() -> None:
    stage = Stage()
    enclave = stage.create()
    sent, bob = list[Any](), stage.reader("bob", enclave)
    socket = Socket(stage, heard=sent.append)
    for name in ("plain", '\N{WAVING HAND SIGN}"\\'):
        sent.clear()
        socket.say(bob.query(name))
        (event, eose) = await socket.until("EOSE")
        assert (event["sub_id"], eose["sub_id"]) == (name, name)
        assert [message["text"].isascii() for message in sent if "Event" in message.get("text", "")] == [True]


async def test_an_error_about_a_query_that_offered_a_name_says_so() -> None:
    """The Query was rejected at once, when it was opened, or because no subscription was free."""
    stage = Stage(per_connection=1)
    enclave = stage.create(**WITHOUT_NOTES)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say({**bob.query("at once"), "content": 7}, stage.reader("mallory", enclave).query("opened"))
    errors = await socket.rest()
    assert [(e["code"], e["sub_id"]) for e in errors] == [("INVALID_QUERY", "at once"), ("UNAUTHORIZED", "opened")]
    socket.say(bob.query("a"), bob.query("no place"))
    (error,) = [message for message in await socket.rest() if message["type"] == "Error"]
    assert (error["code"], error["sub_id"]) == ("RATE_LIMITED", "no place")


async def test_the_same_name_on_two_connections_is_two_subscriptions() -> None:
    stage = Stage()
    enclave = stage.create()
    sockets, bob = [Socket(stage), Socket(stage)], stage.reader("bob", enclave)
    for socket in sockets:
        socket.say(bob.query("same"))
        assert (await socket.until("EOSE"))[-1]["sub_id"] == "same"
    sockets[0].say({"type": "Close", "sub_id": "same"})
    assert await sockets[0].ended() == 1000
    event = stage.send(enclave, "alice", "message", "hello")
    assert bob.event(await sockets[1].next()) == event


# Commits on the same connection


async def test_a_commit_is_answered_by_its_receipt() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, commit = Socket(stage), stage.commit(enclave, "alice", "message", "hello")
    socket.say(commit)
    receipt = await socket.next()
    assert receipt["type"] == "Receipt"
    check_receipt(parse_receipt(encode(receipt)), commit, NODE.public)
    assert stage.intake.waiting == 0


async def test_a_refused_commit_is_answered_by_an_error_with_its_hash() -> None:
    stage = Stage()
    enclave = stage.create()
    socket = Socket(stage)
    commit = stage.commit(enclave, "dave", "message", "not his to write")
    forged = {**wire_commit(stage.commit(enclave, "alice", "message", "x")), "sig": "00" * 64}
    nowhere = stage.commit(bytes(32), "alice", "message", "x")
    for sent, code in ((commit, "UNAUTHORIZED"), (forged, "INVALID_SIGNATURE"), (nowhere, "ENCLAVE_NOT_FOUND")):
        socket.say(sent)
        error = await socket.next()
        assert (error["type"], error["code"]) == ("Error", code)
        assert error["hash"] == (sent["hash"] if isinstance(sent, dict) else sent.hash.hex())
    socket.say({"exp": 1})
    error = await socket.next()
    assert error["code"] == "INVALID_COMMIT"
    assert "hash" not in error
    assert stage.intake.waiting == 0


async def test_a_repeated_commit_gets_the_first_one_s_receipt() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, commit = Socket(stage), stage.commit(enclave, "alice", "message", "once")
    socket.say(commit, commit)
    receipt, error = await socket.next(), await socket.next()
    assert (error["code"], error["hash"]) == ("DUPLICATE", commit.hash.hex())
    assert error["receipt"] == receipt


async def test_commits_of_one_connection_keep_their_order() -> None:
    stage = Stage()
    enclave = stage.create()
    socket = Socket(stage)
    commits = [stage.commit(enclave, "alice", "message", str(i)) for i in range(50)]
    socket.say(*commits)
    receipts = [await socket.next() for _ in commits]
    assert [(r["seq"], r["hash"]) for r in receipts] == [(i + 1, c.hash.hex()) for i, c in enumerate(commits)]


async def test_too_many_waiting_commits_are_unavailable_for_a_while() -> None:
    stage = Stage(waiting=4)
    enclave = stage.create()
    socket, stage.admitting = Socket(stage), False
    socket.say(*(stage.commit(enclave, "alice", "message", str(i)) for i in range(3)))
    error = await socket.next()
    assert (error["code"], error["retry_after_ms"]) == ("UNAVAILABLE", 1000)
    stage.admit()
    assert types(await socket.rest()) == ["Receipt", "Receipt"]


# When the connection ends


async def test_a_connection_with_commits_only_lives_on() -> None:
    stage = Stage()
    enclave = stage.create()
    socket = Socket(stage)
    for i in range(3):
        socket.say(stage.commit(enclave, "alice", "message", str(i)))
        assert (await socket.next())["type"] == "Receipt"
    assert socket.is_open


async def test_a_connection_whose_query_was_refused_lives_on() -> None:
    stage = Stage()
    enclave = stage.create(**WITHOUT_NOTES)
    socket, erin = Socket(stage), stage.reader("erin", enclave)
    socket.say(erin.query("s"))
    error = await socket.next()
    assert (error["code"], error["sub_id"]) == ("UNAUTHORIZED", "s")
    await quiet()
    assert socket.is_open


async def test_the_connection_ends_with_its_last_subscription() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("one"), bob.query("two"))
    for _ in range(2):
        await socket.until("EOSE")
    socket.say({"type": "Close", "sub_id": "one"})
    await quiet()
    assert socket.is_open
    socket.say({"type": "Close", "sub_id": "two"})
    assert await socket.ended() == 1000
    assert not stage.api.connections


async def test_but_not_before_its_commits_are_answered() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    await socket.until("EOSE")
    stage.admitting = False
    commits = [stage.commit(enclave, "alice", "message", "1"), stage.commit(enclave, "dave", "message", "2")]
    socket.say(*commits, {"type": "Close", "sub_id": "s"})
    await quiet()
    assert socket.is_open
    stage.admit()
    assert await socket.ended() == 1000
    answers = await socket.rest()
    assert sorted(types(answers)) == ["Error", "Receipt"]
    assert {answer["hash"] for answer in answers} == {commit.hash.hex() for commit in commits}


async def test_nor_while_another_query_is_being_answered() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("one"))
    await socket.until("EOSE")
    stage.hands.held = True
    socket.say(bob.query("two"), {"type": "Close", "sub_id": "one"})
    await quiet()
    assert socket.is_open
    stage.hands.let_go()
    assert (await socket.until("EOSE"))[-1]["sub_id"] == "two"
    assert socket.is_open


async def test_but_when_that_query_is_refused() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("one"))
    await socket.until("EOSE")
    stage.hands.held = True
    socket.say(bob.query("two", no_such_field=1), {"type": "Close", "sub_id": "one"})
    await quiet()
    stage.hands.let_go()
    assert (await socket.next())["code"] == "INVALID_FILTER"
    assert await socket.ended() == 1000


@pytest.mark.parametrize("when", range(3))
async def test_a_peer_that_vanishes_leaves_nothing_behind(when: int) -> None:
    """The peer vanishes before its Query is opened, while it catches up, or live; its commits are kept."""
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held, stage.admitting = True, False
    commit = stage.commit(enclave, "alice", "message", "in flight")
    socket.say(commit, bob.query("s"))
    for _ in range(when):
        await quiet()
        stage.hands.do(1)
    await quiet()
    await socket.hang_up()
    stage.admit()
    stage.hands.let_go()
    stage.talk(enclave, 1)
    await quiet()
    assert (stage.hub.count, stage.intake.waiting, len(stage.api.connections)) == (0, 0, 0)
    assert stage.store.committed(enclave, commit.hash, commit.exp) is not None
