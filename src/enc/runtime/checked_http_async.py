"""Many POSTs to endpoints at once, each over a connection to an address that was checked.

Each try resolves the name again. If any of its addresses may not be called, none is; otherwise the
connection goes to one of the checked addresses. So nothing depends on DNS answers that change
between check and connection, or between two tries: no connection is used twice. Certificates are
checked against the name in the URL. There are no redirects, no cookies, no proxies from the
environment. Of an answer the head is read, and on request a body, each up to a limit.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import httptools
from msgspec import Struct

from enc.core.errors import InvalidEndpointUrl
from enc.runtime.checked_http import authorities
from enc.runtime.endpoints import (
    Address,
    HttpEndpoint,
    Resolve,
    network_of,
    parse_endpoint,
    resolve,
    resolve_checked,
)
from enc.version import __version__

MAX_HEAD = 16 * 1024
"""Most bytes of an answer up to the end of its head, including informational answers before it."""
MAX_ADDRESSES = 4
"""Addresses of one name that are tried."""

# Whoever registered the endpoint gets these texts. They contain no address, and are the same for an
# unknown name and for one that is known only inside the node's network.
NOT_CALLED = "the URL may not be called"
NO_ADDRESS = "the host has no address that may be called"
NO_CONNECTION = "no connection"
NO_TLS = "no TLS connection"
NOT_TRUSTED = "the certificate is not valid"
TIMED_OUT = "no answer in time"
CUT = "the connection was closed without an answer"
NOT_HTTP = "the answer is not HTTP"
TOO_LONG = "the answer is too long"

Dial = Callable[[Address], Awaitable[socket.socket]]
MayConnect = Callable[[str], bool]
"""Gets the address, or the network, before a connection to it. Returns whether to connect."""


class EndpointAnswer(Struct, frozen=True):
    """The end of a call: an error, or none and a body."""

    error: str
    body: bytes = b""


def _connect_to_all(address: str) -> bool:
    return True


class _NotAllowed(Exception):
    """No connection may be made to the address now."""


class _Failed(Exception):
    """There is no answer; the message says why."""


async def dial(address: Address) -> socket.socket:
    """Connect to this address."""
    connection = socket.socket(address[0], socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, address[1])
    except BaseException:
        connection.close()
        raise
    return connection


class EndpointCaller:
    """Calls endpoints, `most` at a time. Create it on the event loop's thread."""

    def __init__(
        self,
        *,
        timeout_s: float,
        most: int,
        allow_private: bool = False,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve = resolve,
        dial: Dial = dial,
    ) -> None:
        self._timeout_s, self._allow_private = timeout_s, allow_private
        self._tls = tls or authorities()
        self._resolve, self._dial = resolve, dial
        # One thread for each call: a name whose servers do not answer must not delay other names.
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="names")

    async def call(self, url: str, body: bytes, may_connect: MayConnect = _connect_to_all) -> str | None:
        """POST the body. Return "" if the answer is 2xx and arrives in time, otherwise the reason.
        None: nothing was sent, since `may_connect` did not allow it.
        """
        answer = await self._call(url, body, may_connect, _Answer())
        return None if answer is None else answer.error

    async def ask(
        self, url: str, body: bytes, may_connect: MayConnect = _connect_to_all, *, max_answer: int
    ) -> EndpointAnswer | None:
        """POST the body, as `call`, and read the body of the answer, of at most this many bytes."""
        return await self._call(url, body, may_connect, _Answer(max_answer))

    async def _call(self, url: str, body: bytes, may_connect: MayConnect, answer: "_Answer") -> EndpointAnswer | None:
        try:
            endpoint = parse_endpoint(url, allow_private=self._allow_private)
        except InvalidEndpointUrl:
            return EndpointAnswer(NOT_CALLED)
        try:
            async with asyncio.timeout(self._timeout_s):
                status = await self._post(endpoint, body, may_connect, answer)
        except TimeoutError:
            return EndpointAnswer(TIMED_OUT)
        except _Failed as e:
            return EndpointAnswer(str(e))
        except _NotAllowed:
            return None
        return EndpointAnswer("", answer.body) if 200 <= status < 300 else EndpointAnswer(f"status {status}")

    async def _post(self, endpoint: HttpEndpoint, body: bytes, may_connect: MayConnect, answer: "_Answer") -> int:
        connection = await self._connect(await self._addresses(endpoint), may_connect)
        try:
            transport = await self._open(connection, endpoint, answer)
        except BaseException:
            connection.close()
            raise
        try:
            transport.write(request_head(endpoint, len(body)))
            transport.write(body)
            return await answer.status
        finally:
            transport.abort()  # a TLS peer that does not answer would delay a graceful close

    async def _addresses(self, endpoint: HttpEndpoint) -> list[Address]:
        """Return the checked addresses that the host has now."""
        look_up = partial(resolve_checked, endpoint, allow_private=self._allow_private, resolver=self._resolve)
        lookup = asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        try:
            found = await asyncio.shield(lookup)
        except asyncio.CancelledError:
            await asyncio.wait([lookup])  # until then its thread is busy, so this call still counts
            raise
        except (OSError, ValueError, InvalidEndpointUrl):
            raise _Failed(NO_ADDRESS) from None
        if not found:
            raise _Failed(NO_ADDRESS)
        return found[:MAX_ADDRESSES]

    async def _connect(self, addresses: list[Address], may_connect: MayConnect) -> socket.socket:
        """Connect to the first that answers; each gets an equal part of the time."""
        for number, address in enumerate(addresses):
            if not may_connect(network_of(address)):
                raise _Failed(NO_CONNECTION) if number else _NotAllowed
            with suppress(OSError):  # TimeoutError is one
                async with asyncio.timeout(self._timeout_s / len(addresses)):
                    return await self._dial(address)
        raise _Failed(NO_CONNECTION)

    async def _open(
        self, connection: socket.socket, endpoint: HttpEndpoint, answer: "_Answer"
    ) -> asyncio.WriteTransport:
        secure = {"ssl": self._tls, "server_hostname": endpoint.host} if endpoint.is_tls else {}
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.create_connection(lambda: answer, sock=connection, **secure)  # type: ignore[call-overload]
        except ssl.SSLCertVerificationError:
            raise _Failed(NOT_TRUSTED) from None
        except (OSError, ValueError):
            raise _Failed(NO_TLS if endpoint.is_tls else NO_CONNECTION) from None
        return cast(asyncio.WriteTransport, transport)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def request_head(endpoint: HttpEndpoint, size: int) -> bytes:
    """Return the head of the request. A URL is printable ASCII without spaces: it cannot end its line."""
    parts = urlsplit(endpoint.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    is_usual = endpoint.port == (443 if endpoint.is_tls else 80)
    lines = (
        f"POST {target} HTTP/1.1",
        f"Host: {host if is_usual else f'{host}:{endpoint.port}'}",
        "Content-Type: application/json",
        f"Content-Length: {size}",
        f"User-Agent: enc/{__version__}",
        "Accept: */*",
        "Connection: close",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class _Answer(asyncio.Protocol):
    """Reads the status of an answer, and its body if one of up to `max_body` bytes is wanted."""

    def __init__(self, max_body: int = 0) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.body = b""
        self._parser = httptools.HttpResponseParser(self)
        self._size, self._max_body, self._found = 0, max_body, 0

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self._found = status
            if not self._max_body or status >= 300:
                self._succeed()

    def on_body(self, data: bytes) -> None:
        if self._found:
            self.body += data
            if len(self.body) > self._max_body:
                self._fail(TOO_LONG)

    def on_message_complete(self) -> None:
        if self._found:
            self._succeed()

    def data_received(self, data: bytes) -> None:
        if self.status.done():
            return
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(NOT_HTTP)
        if self._size > MAX_HEAD + self._max_body:
            self._fail(TOO_LONG)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._found and exc is None:  # a body without a length ends with the connection
            self._succeed()
        self._fail(CUT)

    def _succeed(self) -> None:
        if not self.status.done():
            self.status.set_result(self._found)

    def _fail(self, why: str) -> None:
        """Fail unless there is a result already; nothing may be waiting for it any more."""
        if not self.status.done():
            self.status.set_exception(_Failed(why))
            self.status.exception()
