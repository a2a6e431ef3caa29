"""One POST to one endpoint: the request, the checks of TLS, and bounded answers."""

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from enc.core.errors import MisuseError
from enc.runtime import checked_http_async
from enc.runtime.checked_http import authorities
from enc.runtime.checked_http_async import EndpointCaller
from enc.runtime.endpoints import parse_endpoint
from tests.runtime.endpoint_server import (
    OK,
    PATIENCE_S,
    PUBLIC,
    Authority,
    World,
    called,
    endless,
    read_request,
    says,
    serving,
    silence,
)

# Requests


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


def secured(
    server: ssl.SSLContext, client: ssl.SSLContext, url: str = "https://hook.example/"
) -> tuple[str | None, World]:
    async def work() -> str | None:
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
    async def work() -> str | None:
        world = World()
        async with serving(world, says(OK), authority.server("hook.example")):
            caller = EndpointCaller(timeout_s=PATIENCE_S, most=1, resolve=world.resolve, dial=world.dial)
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
    async def work() -> str | None:
        world = World()
        async with serving(world, says(OK), authority.server("other.example")):
            return await world.caller(tls=authority.client, allow_private=True).call("https://hook.example/", b"{}")

    assert asyncio.run(work()) == checked_http_async.NOT_TRUSTED


def test_a_server_that_speaks_no_tls(authority: Authority) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async def work() -> str | None:
        world = World()
        async with serving(world, handler):
            return await world.caller(tls=authority.client).call("https://hook.example/", b"{}")

    assert asyncio.run(work()) == checked_http_async.NO_TLS


# Answers


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
    """Progress does not extend the time: the whole try has one limit."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not reader.at_eof():
            writer.write(b"x")
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(), 0.01)  # until the caller has closed the connection

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
    async def work() -> str | None:
        world = World()
        async with serving(world, silence):
            return await world.caller(0.05, tls=authority.client).call("https://hook.example/", b"{}")

    assert asyncio.run(work()) == checked_http_async.TIMED_OUT


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        caller = EndpointCaller(timeout_s=PATIENCE_S, most=1, allow_private=True)
        assert asyncio.run(caller.call(f"http://127.0.0.1:{port}/", b"")) == checked_http_async.NO_CONNECTION


def test_no_reason_names_an_address() -> None:
    reasons = [value for name, value in vars(checked_http_async).items() if name.isupper() and isinstance(value, str)]
    assert len(reasons) == 9
    assert not any(character.isdigit() for reason in reasons for character in reason)
