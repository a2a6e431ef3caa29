"""One POST to one endpoint: to a checked address or not at all, and nothing that the endpoint answers can do harm."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trustme

from enc.core.errors import MisuseError
from enc.runtime import checked_http_async
from enc.runtime.checked_http import authorities
from enc.runtime.checked_http_async import Caller
from enc.runtime.endpoints import Address, parse_endpoint
from tests.runtime.test_endpoints import ADDRESSES, HOSTILE, NEIGHBOURS

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

PATIENCE_S = 30.0
PUBLIC = "93.184.216.34"
SYSTEM = ssl.create_default_context()
"""Made once: it reads the system's authorities."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def at(*texts: str) -> list[Address]:
    return [(socket.AF_INET6, (text, 443, 0, 0)) if ":" in text else (socket.AF_INET, (text, 443)) for text in texts]


class World:
    """Names with addresses that the test gives, and one server behind all addresses."""

    def __init__(self, answers: Sequence[list[Address]] = ()) -> None:
        self.port = 0
        self.asked: list[str] = []
        self.dialled: list[str] = []
        self._answers = list(answers) or [at(PUBLIC)]

    def resolve(self, host: str, port: int) -> list[Address]:
        """The last answer holds for good."""
        self.asked.append(host)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    async def dial(self, address: Address) -> socket.socket:
        self.dialled.append(str(address[1][0]))
        return await checked_http_async.dial((socket.AF_INET, ("127.0.0.1", self.port)))

    def caller(self, timeout_s: float = PATIENCE_S, tls: ssl.SSLContext | None = None, **more: bool) -> Caller:
        return Caller(timeout_s=timeout_s, most=4, tls=tls or SYSTEM, resolve=self.resolve, dial=self.dial, **more)


@asynccontextmanager
async def serving(world: World, handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[list[bytes]]:
    """A server, and what its handlers have ended with."""
    ended: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
            ended.append(b"whole")
        except (OSError, asyncio.IncompleteReadError):
            ended.append(b"cut")
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    world.port = server.sockets[0].getsockname()[1]
    async with server:
        yield ended


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return head + await reader.readexactly(size)


def says(*parts: bytes) -> Handler:
    """A server that takes the whole request, then says this and closes."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for part in parts:
            writer.write(part)
            await writer.drain()
        writer.write_eof()
        await reader.read()

    return handler


def endless(head: bytes, more: bytes) -> Handler:
    """A server that never ends its answer."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(head)
        while True:
            writer.write(more)
            await writer.drain()

    return handler


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()  # until the caller has gone


def called(
    handler: Handler, url: str = "http://hook.example:8080/in?a=1", body: bytes = b"{}", timeout_s: float = PATIENCE_S
) -> str:
    """What a caller makes of an answer, over plain HTTP."""

    async def work() -> str:
        world = World()
        async with serving(world, handler):
            return await asyncio.wait_for(world.caller(timeout_s, allow_private=True).call(url, body), PATIENCE_S)

    return asyncio.run(work())


# Who may be called

PRIVATE_URLS = [f"https://{f'[{text}]' if ':' in text else text}/" for text in ADDRESSES]


@pytest.mark.parametrize("url", HOSTILE + PRIVATE_URLS)
def test_a_url_that_must_not_be_called_is_not_even_resolved(url: str) -> None:
    """Its node may have taken it with other settings than it has now."""
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
    caller = Caller(timeout_s=PATIENCE_S, most=1, tls=SYSTEM, resolve=world.resolve, dial=refuse)
    assert asyncio.run(caller.call("https://hook.example/", b"")) == checked_http_async.NO_CONNECTION
    assert world.dialled == [text]


@pytest.mark.parametrize("failure", [socket.gaierror(-2, "unknown"), UnicodeError("label too long"), ValueError("no")])
def test_a_name_that_is_unknown_is_not_told_from_one_that_is_private(failure: Exception) -> None:
    def resolve(host: str, port: int) -> list[Address]:
        raise failure

    caller = Caller(timeout_s=PATIENCE_S, most=1, tls=SYSTEM, resolve=resolve)
    assert asyncio.run(caller.call("https://hook.example/", b"")) == checked_http_async.NO_ADDRESS


@pytest.mark.parametrize("answer", [[], [(socket.AF_INET, ("not an address", 443))]])
def test_a_resolver_that_answers_nonsense(answer: list[Address]) -> None:
    world = World([answer])
    assert asyncio.run(world.caller().call("https://hook.example/", b"")) == checked_http_async.NO_ADDRESS
    assert world.dialled == []


def test_the_system_s_own_names_are_judged_by_their_addresses() -> None:
    caller = Caller(timeout_s=PATIENCE_S, most=1)
    assert asyncio.run(caller.call("https://localhost/", b"")) == checked_http_async.NO_ADDRESS


class Authority:
    """Certificates of an authority that the caller trusts."""

    def __init__(self) -> None:
        self.ca = trustme.CA()

    def server(self, *names: str, ca: trustme.CA | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        (ca or self.ca).issue_cert(*names).configure_cert(context)
        return context

    @property
    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        return context


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def test_the_name_is_resolved_for_every_try_and_the_checked_address_is_called(authority: Authority) -> None:
    """A resolver that changes its mind reaches nothing: not between check and connection, and not between tries."""
    world = World([at(PUBLIC), at("127.0.0.1"), at("1.1.1.1"), at(PUBLIC, "10.0.0.1")])

    async def work() -> list[str]:
        async with serving(world, says(OK), authority.server("hook.example")):
            caller = world.caller(tls=authority.client)
            return [await caller.call("https://hook.example/", b"{}") for _ in range(4)]

    assert asyncio.run(work()) == ["", checked_http_async.NO_ADDRESS, "", checked_http_async.NO_ADDRESS]
    assert world.asked == ["hook.example"] * 4
    assert world.dialled == [PUBLIC, "1.1.1.1"]


def test_a_connection_is_not_kept() -> None:
    """It would outlive what its address was checked by."""
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

    async def work() -> str:
        async with serving(world, says(OK)):
            caller = Caller(timeout_s=PATIENCE_S, most=1, allow_private=True, resolve=world.resolve, dial=dial)
            return await caller.call("http://hook.example/", b"")

    assert asyncio.run(work()) == ""
    assert world.dialled == ["1.1.1.1", "1.1.1.2", "1.1.1.3"]


def test_no_more_than_a_few_addresses_are_tried() -> None:
    world = World([at(*(f"1.1.1.{i}" for i in range(100)))])

    async def dial(address: Address) -> socket.socket:
        world.dialled.append(str(address[1][0]))
        raise OSError("no route")

    caller = Caller(timeout_s=PATIENCE_S, most=1, tls=SYSTEM, resolve=world.resolve, dial=dial)
    assert asyncio.run(caller.call("https://hook.example/", b"")) == checked_http_async.NO_CONNECTION
    assert len(world.dialled) == checked_http_async.MAX_ADDRESSES


@pytest.mark.parametrize(
    "variable", ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"]
)
def test_proxies_of_the_environment_are_not_asked(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert called(says(OK)) == ""


class Stuck(World):
    """A world where `stuck.example` is not resolved before it is let go."""

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
    """Or names that hang would take the threads of calls that came later."""
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

    async def work() -> str:
        caller = Caller(timeout_s=0.01, most=1, resolve=resolve, dial=world.dial)
        call = asyncio.create_task(caller.call("https://hook.example/", b""))
        asyncio.get_running_loop().call_later(0.05, let_go.set)
        return await call

    assert asyncio.run(work()) == checked_http_async.TIMED_OUT
    assert world.dialled == []


# What is said


def test_the_request_is_what_a_receiver_expects() -> None:
    requests: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(OK)
        await writer.drain()

    assert called(handler, "http://Hook.example:8080/in/%20x?a=1&b=//c", b'{"type":"Push"}') == ""
    head, _, body = requests[0].partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in lines)
    assert first == b"POST /in/%20x?a=1&b=//c HTTP/1.1"
    assert body == b'{"type":"Push"}'
    assert fields[b"host"] == b"hook.example:8080"
    assert fields[b"content-type"] == b"application/json"
    assert fields[b"content-length"] == b"15"
    assert len(lines) == len(fields)


@pytest.mark.parametrize(
    ("url", "first", "host"),
    [
        ("https://hook.example", "POST / HTTP/1.1", "hook.example"),
        ("https://hook.example?x=1", "POST /?x=1 HTTP/1.1", "hook.example"),
        ("https://hook.example:443/a", "POST /a HTTP/1.1", "hook.example"),
        ("https://hook.example:8443/a", "POST /a HTTP/1.1", "hook.example:8443"),
        ("https://[2606:4700::1]/a", "POST /a HTTP/1.1", "[2606:4700::1]"),
        ("https://[2606:4700::1]:8443/a", "POST /a HTTP/1.1", "[2606:4700::1]:8443"),
    ],
)
def test_where_a_request_goes(url: str, first: str, host: str) -> None:
    head = checked_http_async.request_head(parse_endpoint(url), 0).decode()
    assert head.startswith(f"{first}\r\nHost: {host}\r\n")


def test_a_body_of_many_megabytes_arrives_whole() -> None:
    body = bytes(range(256)) * 4 * 8192
    requests: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(OK)
        await writer.drain()

    assert called(handler, body=body) == ""
    assert requests[0].endswith(body)


# TLS


def secured(server: ssl.SSLContext, client: ssl.SSLContext, url: str = "https://hook.example/") -> tuple[str, World]:
    async def work() -> str:
        async with serving(world, says(OK), server):
            return await world.caller(tls=client).call(url, b"{}")

    world = World()
    return asyncio.run(work()), world


def test_a_certificate_for_the_url_s_host(authority: Authority) -> None:
    names: list[str | None] = []
    server = authority.server("hook.example")
    server.sni_callback = lambda _, name, __: names.append(name)
    assert secured(server, authority.client)[0] == ""
    assert names == ["hook.example"]


def test_a_certificate_for_an_address(authority: Authority) -> None:
    assert secured(authority.server(PUBLIC), authority.client, f"https://{PUBLIC}/")[0] == ""


@pytest.mark.parametrize("name", ["other.example", "sub.hook.example", "*.hook.example", PUBLIC])
def test_a_certificate_for_another_name(authority: Authority, name: str) -> None:
    found, world = secured(authority.server(name), authority.client)
    assert found == checked_http_async.NOT_TRUSTED
    assert world.dialled == [PUBLIC]


def test_a_certificate_of_an_authority_that_nobody_knows(authority: Authority) -> None:
    assert (
        secured(authority.server("hook.example", ca=trustme.CA()), authority.client)[0]
        == checked_http_async.NOT_TRUSTED
    )


def test_by_default_the_system_s_authorities_count(authority: Authority) -> None:
    async def work() -> str:
        world = World()
        async with serving(world, says(OK), authority.server("hook.example")):
            caller = Caller(timeout_s=PATIENCE_S, most=1, resolve=world.resolve, dial=world.dial)
            return await caller.call("https://hook.example/", b"{}")

    assert asyncio.run(work()) == checked_http_async.NOT_TRUSTED


def test_authorities_of_the_operator_s_own(authority: Authority, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    authority.ca.cert_pem.write_to_path(str(file))
    assert secured(authority.server("hook.example"), authorities(str(file)))[0] == ""


def test_a_file_of_authorities_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("no certificate")
    for file in (empty, tmp_path / "missing.pem", tmp_path):
        with pytest.raises(MisuseError, match=str(file)):
            authorities(str(file))


def test_private_endpoints_have_certificates_too(authority: Authority) -> None:
    async def work() -> str:
        world = World()
        async with serving(world, says(OK), authority.server("other.example")):
            return await world.caller(tls=authority.client, allow_private=True).call("https://hook.example/", b"{}")

    assert asyncio.run(work()) == checked_http_async.NOT_TRUSTED


def test_a_server_that_speaks_no_tls(authority: Authority) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async def work() -> str:
        world = World()
        async with serving(world, handler):
            return await world.caller(tls=authority.client).call("https://hook.example/", b"{}")

    assert asyncio.run(work()) == checked_http_async.NO_TLS


# What is answered


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_a_success(status: int) -> None:
    assert called(says(b"HTTP/1.1 %d X\r\n\r\n" % status)) == ""


@pytest.mark.parametrize("status", [300, 304, 400, 401, 404, 410, 413, 429, 500, 502, 503, 599, 999])
def test_any_other_status_is_a_failure(status: int) -> None:
    assert called(says(b"HTTP/1.1 %d X\r\n\r\n" % status)) == f"status {status}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "to", ["http://127.0.0.1/", "https://169.254.169.254/latest", "https://hook.example/other", "/x"]
)
def test_a_redirect_is_a_failure_and_is_not_followed(status: int, to: str) -> None:
    async def work() -> None:
        world = World()
        async with serving(world, says(b"HTTP/1.1 %d X\r\nLocation: %b\r\n\r\n" % (status, to.encode()))):
            found = await world.caller(allow_private=True).call("http://hook.example/", b"")
        assert found == f"status {status}"
        assert (world.asked, world.dialled) == (["hook.example"], [PUBLIC])

    asyncio.run(work())


def test_informational_answers_are_not_the_answer() -> None:
    assert called(says(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n", OK)) == ""
    assert called(says(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 500 No\r\n\r\n")) == "status 500"
    assert called(says(b"HTTP/1.1 100 Continue\r\n\r\n")) == checked_http_async.CUT


def test_only_a_whole_head_is_an_answer() -> None:
    assert called(says(b"")) == checked_http_async.CUT
    assert called(says(b"HTTP/1.1 200 OK\r\nX: y\r\n")) == checked_http_async.CUT
    assert called(says(*(bytes([byte]) for byte in OK))) == ""


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00" * 100,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"<html>200</html>",
        b"200 OK\r\n\r\n",
        b"HTTP/9.9 OK\r\n\r\n",
        b"HTTP/1.1 OK 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
)
def test_what_is_no_http_is_a_failure(answer: bytes) -> None:
    assert called(says(answer)) in (checked_http_async.NOT_HTTP, checked_http_async.CUT)


def test_a_body_without_end_is_not_read() -> None:
    async def work() -> None:
        world = World()
        more = endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536)
        async with serving(world, more) as ended:
            assert await world.caller(allow_private=True).call("http://hook.example/", b"") == ""
            while not ended:
                await asyncio.sleep(0)
            assert ended == [b"cut"]

    asyncio.run(work())


@pytest.mark.parametrize(
    ("head", "more"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"x" * 1000 + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65536),
        (b"HTTP/1.1 200 ", b"OK" * 1000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    ],
)
def test_a_head_without_end_is_a_failure(head: bytes, more: bytes) -> None:
    assert called(endless(head, more)) == checked_http_async.TOO_LONG


def test_a_head_of_usual_length_is_read() -> None:
    lines = b"".join(b"X-%d: %b\r\n" % (i, b"x" * 100) for i in range(100))
    assert called(says(b"HTTP/1.1 204 No Content\r\n" + lines + b"\r\n")) == ""


def test_an_answer_that_does_not_come_in_time() -> None:
    assert called(silence, timeout_s=0.02) == checked_http_async.TIMED_OUT


def test_an_answer_that_comes_by_drips() -> None:
    """Progress buys no time: the whole try has one limit."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not reader.at_eof():
            writer.write(b"x")
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(), 0.01)  # until the caller has gone

    assert called(handler, timeout_s=0.1) == checked_http_async.TIMED_OUT


def test_a_peer_that_takes_nothing() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    async def work() -> None:
        world = World()
        async with serving(world, handler):
            found = await world.caller(0.05, allow_private=True).call("http://hook.example/", b"x" * (32 << 20))
            assert found == checked_http_async.TIMED_OUT
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

    asyncio.run(work())


def test_a_handshake_that_does_not_end(authority: Authority) -> None:
    async def work() -> str:
        world = World()
        async with serving(world, silence):
            return await world.caller(0.05, tls=authority.client).call("https://hook.example/", b"{}")

    assert asyncio.run(work()) == checked_http_async.TIMED_OUT


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        caller = Caller(timeout_s=PATIENCE_S, most=1, allow_private=True)
        assert asyncio.run(caller.call(f"http://127.0.0.1:{port}/", b"")) == checked_http_async.NO_CONNECTION


def test_no_reason_names_an_address() -> None:
    reasons = [value for name, value in vars(checked_http_async).items() if name.isupper() and isinstance(value, str)]
    assert len(reasons) == 9
    assert not any(character.isdigit() for reason in reasons for character in reason)
