"""Answers whose body is read, and addresses to which no connection is made."""

import asyncio
import socket

import pytest

from enc.runtime import checked_http_async
from enc.runtime.checked_http_async import EndpointAnswer, EndpointCaller
from enc.runtime.endpoints import Address, network_of
from tests.runtime.endpoint_server import OK, PATIENCE_S, PUBLIC, Handler, World, at, endless, says, serving

URL = "http://hook.example/"
MAX = 1000


def asked(handler: Handler) -> EndpointAnswer | None:
    async def work() -> EndpointAnswer | None:
        world = World()
        async with serving(world, handler):
            caller = world.caller(allow_private=True)
            return await asyncio.wait_for(caller.ask(URL, b"{}", max_answer=MAX), PATIENCE_S)

    return asyncio.run(work())


def test_the_body_of_an_answer() -> None:
    head = b"HTTP/1.1 200 OK\r\n"
    for parts in (
        (OK,),
        (head + b"Content-Length: 2\r\n\r\n", b"o", b"k"),
        (head + b"Connection: close\r\n\r\n", b"ok"),
        (head + b"Transfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",),
        (b"HTTP/1.1 100 Continue\r\n\r\n", OK),
    ):
        assert asked(says(*parts)) == EndpointAnswer("", b"ok")
    assert asked(says(b"HTTP/1.1 204 No Content\r\n\r\n")) == EndpointAnswer("")


def test_a_body_is_read_up_to_a_limit() -> None:
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    assert asked(says(head, b"x" * MAX)) == EndpointAnswer("", b"x" * MAX)
    assert asked(says(head, b"x" * (MAX + 1))) == EndpointAnswer(checked_http_async.TOO_LONG)
    assert asked(endless(head, b"x" * 65536)) == EndpointAnswer(checked_http_async.TOO_LONG)


def test_the_body_of_an_error_is_not_read() -> None:
    assert asked(endless(b"HTTP/1.1 404 No\r\n\r\n", b"x" * 65536)) == EndpointAnswer("status 404")


def test_an_address_that_is_not_allowed_gets_no_connection() -> None:
    async def work(seen: list[str]) -> tuple[str | None, EndpointAnswer | None]:
        caller = world.caller(allow_private=True)

        def may_connect(address: str) -> bool:
            seen.append(address)
            return False

        return await caller.call(URL, b"{}", may_connect), await caller.ask(URL, b"{}", may_connect, max_answer=9)

    world, seen = World(), list[str]()
    assert asyncio.run(work(seen)) == (None, None)
    assert seen == [PUBLIC] * 2
    assert world.dialled == []


def test_a_call_has_failed_if_one_address_did_not_answer_and_the_next_is_not_allowed() -> None:
    async def refuse(address: Address) -> socket.socket:
        raise OSError("no route")

    async def work() -> str | None:
        caller = EndpointCaller(timeout_s=1, most=1, allow_private=True, resolve=world.resolve, dial=refuse)
        return await caller.call(URL, b"{}", lambda address: address == "1.1.1.1")

    world = World([at("1.1.1.1", "1.1.1.2")])
    assert asyncio.run(work()) == checked_http_async.NO_CONNECTION


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("93.184.216.34", "93.184.216.34"),
        ("2606:4700::1", "2606:4700::/64"),
        ("2606:4700::ffff:1", "2606:4700::/64"),
        ("::ffff:93.184.216.34", "93.184.216.34"),
    ],
)
def test_addresses_of_one_party(address: str, network: str) -> None:
    assert network_of(at(address)[0]) == network
