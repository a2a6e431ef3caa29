"""One POST to one endpoint: to a checked address or not at all."""

import asyncio
import socket
import threading

import pytest

from enc.runtime import checked_http_async
from enc.runtime.checked_http_async import EndpointCaller
from enc.runtime.endpoints import Address
from tests.runtime.endpoint_cases import ADDRESSES, HOSTILE, NEIGHBOURS
from tests.runtime.endpoint_server import (
    OK,
    PATIENCE_S,
    PUBLIC,
    SYSTEM,
    Authority,
    World,
    at,
    called,
    read_request,
    says,
    serving,
)

PRIVATE_URLS = [f"https://{f'[{text}]' if ':' in text else text}/" for text in ADDRESSES]


@pytest.mark.parametrize("url", HOSTILE + PRIVATE_URLS)
def test_a_url_that_must_not_be_called_is_not_even_resolved(url: str) -> None:
    """The node may have accepted the URL with other settings than it has now."""
    world = World()
    assert asyncio.run(world.caller().call(url, b"")) == checked_http_async.NOT_CALLED
    assert (world.asked, world.dialled) == ([], [])


@pytest.mark.parametrize("text", ADDRESSES)
def test_a_name_with_an_address_that_must_not_be_called(text: str) -> None:
    for answer in (at(text), at(PUBLIC, text), at(text, PUBLIC), at(PUBLIC, PUBLIC, PUBLIC, PUBLIC, PUBLIC, text)):
        world = World([answer])
        assert asyncio.run(world.caller().call("https://hook.example/", b"")) == checked_http_async.NO_ADDRESS
        assert world.dialled == []


@pytest.mark.parametrize("text", NEIGHBOURS.split())
def test_a_name_with_an_address_that_may_be_called(text: str) -> None:
    async def refuse(address: Address) -> socket.socket:
        world.dialled.append(str(address[1][0]))
        raise ConnectionRefusedError

    world = World([at(text)])
    caller = EndpointCaller(timeout_s=PATIENCE_S, most=1, tls=SYSTEM, resolve=world.resolve, dial=refuse)
    assert asyncio.run(caller.call("https://hook.example/", b"")) == checked_http_async.NO_CONNECTION
    assert world.dialled == [text]


@pytest.mark.parametrize("failure", [socket.gaierror(-2, "unknown"), UnicodeError("label too long"), ValueError("no")])
def test_a_name_that_is_unknown_is_not_told_from_one_that_is_private(failure: Exception) -> None:
    def resolve(host: str, port: int) -> list[Address]:
        raise failure

    caller = EndpointCaller(timeout_s=PATIENCE_S, most=1, tls=SYSTEM, resolve=resolve)
    assert asyncio.run(caller.call("https://hook.example/", b"")) == checked_http_async.NO_ADDRESS


@pytest.mark.parametrize("answer", [[], [(socket.AF_INET, ("not an address", 443))]])
def test_a_resolver_that_answers_nonsense(answer: list[Address]) -> None:
    world = World([answer])
    assert asyncio.run(world.caller().call("https://hook.example/", b"")) == checked_http_async.NO_ADDRESS
    assert world.dialled == []


def test_the_system_s_own_names_are_judged_by_their_addresses() -> None:
    caller = EndpointCaller(timeout_s=PATIENCE_S, most=1)
    assert asyncio.run(caller.call("https://localhost/", b"")) == checked_http_async.NO_ADDRESS


def test_the_name_is_resolved_for_every_try_and_the_checked_address_is_called(authority: Authority) -> None:
    """A changed answer of the resolver misdirects no call: neither between check and connection, nor between tries."""
    world = World([at(PUBLIC), at("127.0.0.1"), at("1.1.1.1"), at(PUBLIC, "10.0.0.1")])

    async def work() -> list[str | None]:
        async with serving(world, says(OK), authority.server("hook.example")):
            caller = world.caller(tls=authority.client)
            return [await caller.call("https://hook.example/", b"{}") for _ in range(4)]

    assert asyncio.run(work()) == ["", checked_http_async.NO_ADDRESS, "", checked_http_async.NO_ADDRESS]
    assert world.asked == ["hook.example"] * 4
    assert world.dialled == [PUBLIC, "1.1.1.1"]


def test_a_connection_is_not_kept() -> None:
    """A connection that is kept would outlive the check of its address."""
    requests: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        assert await reader.read() == b""

    async def work() -> list[bytes]:
        world = World()
        async with serving(world, handler) as ended:
            caller = world.caller(allow_private=True)
            for _ in range(2):
                assert await caller.call("http://hook.example/", b"{}") == ""
            while len(ended) < 2:
                await asyncio.sleep(0)
            assert len(world.dialled) == 2
            return ended

    assert len(asyncio.run(work())) == 2
    assert all(b"\r\nConnection: close\r\n" in request for request in requests)


def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    world = World([at("1.1.1.1", "1.1.1.2", "1.1.1.2", "1.1.1.3", "1.1.1.4", "1.1.1.5")])

    async def dial(address: Address) -> socket.socket:
        if address[1][0] != "1.1.1.3":
            world.dialled.append(str(address[1][0]))
            raise OSError("no route")
        return await world.dial(address)

    async def work() -> str | None:
        async with serving(world, says(OK)):
            caller = EndpointCaller(timeout_s=PATIENCE_S, most=1, allow_private=True, resolve=world.resolve, dial=dial)
            return await caller.call("http://hook.example/", b"")

    assert asyncio.run(work()) == ""
    assert world.dialled == ["1.1.1.1", "1.1.1.2", "1.1.1.3"]


def test_no_more_than_a_few_addresses_are_tried() -> None:
    world = World([at(*(f"1.1.1.{i}" for i in range(100)))])

    async def dial(address: Address) -> socket.socket:
        world.dialled.append(str(address[1][0]))
        raise OSError("no route")

    caller = EndpointCaller(timeout_s=PATIENCE_S, most=1, tls=SYSTEM, resolve=world.resolve, dial=dial)
    assert asyncio.run(caller.call("https://hook.example/", b"")) == checked_http_async.NO_CONNECTION
    assert len(world.dialled) == checked_http_async.MAX_ADDRESSES


@pytest.mark.parametrize(
    "variable", ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"]
)
def test_proxies_of_the_environment_are_not_asked(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert called(says(OK)) == ""


class Stuck(World):
    """A world in which `stuck.example` is not resolved until the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.let_go = threading.Semaphore(0), threading.Event()

    def resolve(self, host: str, port: int) -> list[Address]:
        if host == "stuck.example":
            self.begun.release()
            assert self.let_go.wait(PATIENCE_S)
        return super().resolve(host, port)


def test_names_whose_servers_do_not_answer_keep_no_other_from_being_resolved() -> None:
    """Each call has a thread of its own."""
    world = Stuck()

    async def work() -> None:
        async with serving(world, says(OK)):
            caller = world.caller(allow_private=True)
            stuck = [asyncio.create_task(caller.call("http://stuck.example/", b"")) for _ in range(3)]
            assert await caller.call("http://hook.example/", b"") == ""
            assert not any(task.done() for task in stuck)
            world.let_go.set()
            assert await asyncio.gather(*stuck) == [""] * 3
            caller.close()

    asyncio.run(work())


def test_a_call_is_not_over_before_its_thread_is_free() -> None:
    """Otherwise names that hang would occupy the threads of later calls."""
    world = Stuck()

    async def work() -> None:
        call = asyncio.create_task(world.caller().call("https://stuck.example/", b""))
        while not world.begun.acquire(blocking=False):
            await asyncio.sleep(0)
        call.cancel()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not call.done()
        world.let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(work())
    assert world.dialled == []


def test_a_name_that_is_resolved_too_late_is_not_called() -> None:
    let_go = threading.Event()
    world = World()

    def resolve(host: str, port: int) -> list[Address]:
        assert let_go.wait(PATIENCE_S)
        return at(PUBLIC)

    async def work() -> str | None:
        caller = EndpointCaller(timeout_s=0.01, most=1, resolve=resolve, dial=world.dial)
        call = asyncio.create_task(caller.call("https://hook.example/", b""))
        asyncio.get_running_loop().call_later(0.05, let_go.set)
        return await call

    assert asyncio.run(work()) == checked_http_async.TIMED_OUT
    assert world.dialled == []
