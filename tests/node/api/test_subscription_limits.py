"""Subscriptions without a socket: failures and limits."""

import os
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.json import encode
from structlog.testing import capture_logs

from enc.core.errors import Unavailable
from enc.core.log.commit import wire_commit
from enc.core.session.envelope import seal_request
from enc.runtime.rate_limit import RateLimiter
from enc.testing.memory_store import MemoryStore
from tests.core.world import person
from tests.node.api.websocket_stage import NODE, Socket, Stage, quiet, types

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# Failures


class Breaking(MemoryStore):
    """A store whose searches find nothing from the n-th on."""

    good = 1 << 30

    def find_in_steps(self, *args: Any) -> Iterator[Any]:
        self.good -= 1
        if self.good < 0:
            raise Unavailable("no disk", retry_after_ms=1000)
        return super().find_in_steps(*args)


@pytest.mark.parametrize("good", [0, 1])
async def test_a_subscription_that_cannot_be_caught_up_is_an_error_and_is_gone(good: int) -> None:
    """A failed subscription must not be counted, keep its name or stay open without messages."""
    stage = Stage()
    enclave = stage.create()
    broken = Breaking()
    broken.__dict__.update(stage.store.__dict__)
    stage.answers._store = broken
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("stays", id="00" * 32))
    await socket.until("EOSE")
    stage.hands.held = True
    socket.say(bob.query("s"))
    await quiet()
    stage.hands.do(1)
    await quiet()
    stage.talk(enclave, 2)
    broken.good = good
    stage.hands.let_go()
    found = await socket.rest()
    assert [(m["code"], m["sub_id"]) for m in found if m["type"] == "Error"] == [("UNAVAILABLE", "s")]
    assert stage.hub.count == 1
    broken.good = 1 << 30
    socket.say(bob.query("s"))
    stored = await socket.until("EOSE")
    assert {message["sub_id"] for message in stored} == {"s"}


async def test_more_queries_at_once_than_may_wait_are_refused_and_leave_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("enc.node.api.read_pool.MAX_WAITING_READS", 2)
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held = True
    socket.say(*(bob.query(str(i)) for i in range(5)))
    await quiet()
    stage.hands.let_go()
    found = await socket.rest()
    refused = {m["sub_id"] for m in found if m["type"] == "Error"}
    assert {m["code"] for m in found if m["type"] == "Error"} == {"UNAVAILABLE"}
    answered = {m["sub_id"] for m in found if m["type"] == "EOSE"}
    assert refused | answered == {"0", "1", "2", "3", "4"}
    assert not refused & answered
    assert stage.hub.count == len(answered)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("", "INVALID_QUERY"),
        ("{", "INVALID_QUERY"),
        ("[]", "INVALID_QUERY"),
        ("null", "INVALID_QUERY"),
        ("[" * 100_000, "INVALID_QUERY"),
        (b"", "INVALID_QUERY"),
        (b"\xff\xfe", "INVALID_QUERY"),
        ("{}", "INVALID_QUERY"),
        ({"type": "Query"}, "INVALID_QUERY"),
        ({"type": "query"}, "INVALID_QUERY"),
        ({"type": "Pull"}, "INVALID_QUERY"),
        ({"type": "Subscribe", "sub_id": "s"}, "INVALID_QUERY"),
        ({"type": ["Close"]}, "INVALID_QUERY"),
        ('"exp"', "INVALID_COMMIT"),
        ({"type": "Query", "exp": 1}, "INVALID_COMMIT"),
    ],
)
async def test_nonsense_is_answered_by_an_error_and_the_connection_lives_on(sent: Any, code: str) -> None:
    stage = Stage()
    enclave = stage.create()
    socket = Socket(stage)
    socket.say(sent)
    error = await socket.next()
    assert (error["type"], error["code"]) == ("Error", code)
    socket.say(encode(wire_commit(stage.commit(enclave, "alice", "message", "as bytes"))))
    assert (await socket.next())["type"] == "Receipt"


@pytest.mark.parametrize("field", ["type", "sub_id"])
async def test_nothing_is_built_from_a_field_of_the_wrong_type(field: str) -> None:
    """The parser would hold the event loop for over a quarter of a second."""
    socket = Socket(Stage())
    text = f'{{"{field}":[' + "[[]]," * 400_000 + "0]}"
    tracemalloc.start()
    try:
        socket.say(text)
        error = await socket.next()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (error["code"], error["message"]) == ("INVALID_QUERY", f"{field}: expected `str | null`, got `array`")
    assert most < 5 * len(text)


@pytest.mark.parametrize("type_", ["Pull", "Inclusion_Proof", "State_Proof", "Checkpoint", "Export", "Deliveries"])
async def test_other_sealed_requests_are_not_for_a_websocket(type_: Any) -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(seal_request(bob.session, NODE.public, enclave, type_, {}, os.urandom(24)))
    assert (await socket.next())["code"] == "INVALID_QUERY"


async def test_a_query_that_is_not_sealed_by_its_sender_is_refused_with_its_reason() -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob, alice = Socket(stage), stage.reader("bob", enclave), stage.reader("alice", enclave)
    good = bob.query("s")
    for change, code in (
        ({"session": alice.query()["session"]}, "INVALID_SESSION"),
        ({"from": person("alice").public.hex()}, "INVALID_SESSION"),
        ({"content": alice.query()["content"]}, "DECRYPT_FAILED"),
        ({"content": "AAAA"}, "DECRYPT_FAILED"),
        ({"enclave": "00" * 32}, "ENCLAVE_NOT_FOUND"),
    ):
        socket.say({**good, **change})
        error = await socket.next()
        assert (error["code"], error["sub_id"]) == (code, "s")
    assert stage.hub.count == 0


async def test_a_fault_of_the_node_is_an_internal_error_that_says_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    monkeypatch.setattr(stage.answers, "open", lambda request: 1 // 0)
    with capture_logs() as logs:
        socket.say(bob.query("s"))
        error = await socket.next()
    assert (error["code"], error["message"]) == ("INTERNAL_ERROR", "internal error: ZeroDivisionError")
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("internal_error", "error")]
    assert socket.is_open


# Bounds


async def test_one_connection_has_a_bounded_number_of_subscriptions() -> None:
    stage = Stage(per_connection=3)
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(*(bob.query(str(i), id="00" * 32) for i in range(4)))
    found = await socket.rest()
    assert [m["sub_id"] for m in found if m["type"] == "EOSE"] == ["0", "1", "2"]
    (error,) = [m for m in found if m["type"] == "Error"]
    assert (error["code"], error["retry_after_ms"]) == ("RATE_LIMITED", 1000)
    socket.say({"type": "Close", "sub_id": "1"}, bob.query("again", id="00" * 32))
    assert [m["sub_id"] for m in await socket.rest()] == ["again"]


async def test_one_address_leaves_subscriptions_for_others() -> None:
    stage = Stage(subscriptions=8, by_address=True)
    enclave = stage.create()
    bob = stage.reader("bob", enclave)
    sockets = [Socket(stage, "10.0.0.1") for _ in range(3)]
    for socket in sockets:
        socket.say(*(bob.query(str(i), id="00" * 32) for i in range(2)))
    found = [m for socket in sockets for m in await socket.rest()]
    assert [m["sub_id"] for m in found if m["type"] == "EOSE"] == ["0", "1", "0", "1"]
    errors = [(m["code"], m["message"]) for m in found if m["type"] == "Error"]
    assert errors == [("RATE_LIMITED", "too many subscriptions from this address")] * 2
    other = Socket(stage, "10.0.0.2")
    other.say(bob.query("s", id="00" * 32))
    assert (await other.next())["type"] == "EOSE"
    assert stage.hub.count == 5
    for socket in (*sockets, other):
        await socket.hang_up()
    await quiet()
    assert stage.hub.count == 0


async def test_one_address_leaves_websockets_for_others() -> None:
    stage = Stage(websockets=4, by_address=True)
    sockets = [Socket(stage, "10.0.0.1") for _ in range(3)]
    error = await sockets[2].next()
    assert (error["code"], error["message"]) == ("UNAVAILABLE", "too many WebSockets")
    other = Socket(stage, "10.0.0.2")
    await quiet()
    assert other.is_open
    await sockets[0].hang_up()
    await quiet()
    again = Socket(stage, "10.0.0.1")
    await quiet()
    assert again.is_open


async def test_a_subscription_counts_once_also_while_it_catches_up() -> None:
    stage = Stage(per_connection=4)
    enclave = stage.create()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held = True
    socket.say(bob.query("0"), bob.query("1"))
    await quiet()
    stage.hands.do(2)
    await quiet()
    socket.say(bob.query("2"), bob.query("3"), bob.query("4"))
    await quiet()
    stage.hands.let_go()
    found = await socket.rest()
    assert sorted(m["sub_id"] for m in found if m["type"] == "EOSE") == ["0", "1", "2", "3"]
    assert [m["code"] for m in found if m["type"] == "Error"] == ["RATE_LIMITED"]


async def test_the_node_has_a_bounded_number_of_subscriptions() -> None:
    stage = Stage(subscriptions=2)
    enclave = stage.create()
    sockets, bob = [Socket(stage) for _ in range(3)], stage.reader("bob", enclave)
    for socket in sockets[:2]:
        socket.say(bob.query())
        await socket.until("EOSE")
    sockets[2].say(bob.query())
    error = await sockets[2].next()
    assert (error["code"], error["retry_after_ms"]) == ("UNAVAILABLE", 1000)
    await sockets[0].hang_up()
    sockets[2].say(bob.query())
    await sockets[2].until("EOSE")
    assert stage.hub.count == 2


async def test_queries_that_arrive_together_do_not_pass_that_bound() -> None:
    stage = Stage(subscriptions=2)
    enclave = stage.create()
    sockets, bob = [Socket(stage) for _ in range(5)], stage.reader("bob", enclave)
    stage.hands.held = True
    for socket in sockets:
        socket.say(bob.query("s", id="00" * 32))
    await quiet()
    stage.hands.let_go()
    answers = [(await socket.rest())[0] for socket in sockets]
    assert stage.hub.count == 2
    assert sorted(types(answers)) == ["EOSE"] * 2 + ["Error"] * 3


async def test_one_websocket_too_many_is_told_so_and_closed() -> None:
    stage = Stage(websockets=2)
    enclave = stage.create()
    first, second = Socket(stage), Socket(stage)
    await quiet()
    third = Socket(stage)
    third.say(stage.reader("bob", enclave).query())
    assert await third.ended() == 1013
    error = await third.next()
    assert (error["code"], error["retry_after_ms"]) == ("UNAVAILABLE", 1000)
    assert first.is_open
    assert stage.hub.count == 0
    await second.hang_up()
    fourth = Socket(stage)
    await quiet()
    assert fourth.is_open


async def test_every_message_of_an_address_counts_against_its_rate() -> None:
    stage = Stage()
    enclave = stage.create()
    stage.addresses = stage.api.rates = RateLimiter(1, 3, lambda: stage.moment)
    socket, other, bob = Socket(stage), Socket(stage, address="10.0.0.2"), stage.reader("bob", enclave)
    socket.say(bob.query(id="00" * 32), stage.commit(enclave, "alice", "message", "1"), "nonsense", bob.query())
    codes = [(m["code"], m.get("retry_after_ms")) for m in await socket.rest() if m["type"] == "Error"]
    assert sorted(codes) == [("INVALID_QUERY", None), ("RATE_LIMITED", 1000)]
    other.say(bob.query(id="00" * 32))
    await other.until("EOSE")
    stage.moment += 1
    socket.say(stage.commit(enclave, "alice", "message", "2"))
    assert (await socket.next())["type"] == "Receipt"


async def test_an_identity_s_rate_holds_for_its_queries_and_commits_wherever_they_come_from() -> None:
    stage = Stage()
    enclave = stage.create()
    limiter = RateLimiter(1, 2, lambda: stage.moment)
    stage.answers._rates = stage._admission._validator._rates = limiter
    one, two, alice = Socket(stage), Socket(stage, address="10.0.0.2"), stage.reader("alice", enclave)
    one.say(alice.query("s", id="00" * 32))
    await one.until("EOSE")
    one.say(stage.commit(enclave, "alice", "message", "1"))
    assert (await one.next())["type"] == "Receipt"
    refused = stage.commit(enclave, "alice", "message", "2")
    two.say(refused)
    error = await two.next()
    assert (error["code"], error["hash"]) == ("RATE_LIMITED", refused.hash.hex())
    two.say(alice.query("t"))
    error = await two.next()
    assert (error["code"], error["sub_id"]) == ("RATE_LIMITED", "t")
    two.say(stage.reader("bob", enclave).query("u", id="00" * 32))
    await two.until("EOSE")


async def test_nobody_s_bucket_is_emptied_by_what_others_forge() -> None:
    stage = Stage()
    enclave = stage.create()
    stage.answers._rates = stage._admission._validator._rates = RateLimiter(1, 1, lambda: stage.moment)
    socket, good = Socket(stage), stage.commit(enclave, "alice", "message", "hers")
    forged_query = {**stage.reader("alice", enclave).query(), "content": "AAAA"}
    socket.say({**wire_commit(good), "sig": "00" * 64}, forged_query, good)
    answers = await socket.rest()
    assert sorted(answer.get("code", "Receipt") for answer in answers) == [
        "DECRYPT_FAILED",
        "INVALID_SIGNATURE",
        "Receipt",
    ]
