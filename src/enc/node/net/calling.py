"""One POST to one endpoint: a connection to an address that was checked, and to no other.

The name is resolved anew for every try, by us; if any of its addresses may not be called, none is, and the connection
goes to one of the very addresses that were checked. So an answer that changes between a check and a connection changes
nothing, and neither does one that changes between two tries: no connection is kept for a second one. Certificates are
checked by the name in the URL. There are no redirects, no cookies, no proxies of the environment. Of the answer, the
head alone is read, and only so much of it; the status is all that counts.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import cast
from urllib.parse import urlsplit

import httptools

from enc.core.errors import InvalidEndpointUrl, MisuseError
from enc.node.net.endpoints import Endpoint, check_addresses, parse_endpoint
from enc.version import __version__

MAX_HEAD = 16 * 1024
"""Bytes that an answer may take to say its status, informational answers before it included."""
MAX_ADDRESSES = 4
"""Addresses of one name that are tried."""

# Who registered the endpoint is told these. They name no address, and do not tell a name that is unknown from one that
# is known inside the node's network only.
NOT_CALLED = "the URL may not be called"
NO_ADDRESS = "the host has no address that may be called"
NO_CONNECTION = "no connection"
NO_TLS = "no TLS connection"
NOT_TRUSTED = "the certificate is not valid"
TIMED_OUT = "no answer in time"
CUT = "the connection was closed without an answer"
NOT_HTTP = "the answer is not HTTP"
TOO_LONG = "the answer is too long"

Address = tuple[socket.AddressFamily, tuple[str | int, ...]]
Resolve = Callable[[str, int], Sequence[Address]]
Dial = Callable[[Address], Awaitable[socket.socket]]


class _Failed(Exception):
    """Why there is no answer."""


def resolve(host: str, port: int) -> Sequence[Address]:
    """As the system does it, on a thread that may wait."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, cast(tuple[str | int, ...], address)) for family, _, _, _, address in found]


async def dial(address: Address) -> socket.socket:
    """A connection to this address."""
    connection = socket.socket(address[0], socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, address[1])
    except BaseException:
        connection.close()
        raise
    return connection


def authorities(file: str) -> ssl.SSLContext:
    """What certificates are checked by: the authorities in a file, or without one the system's."""
    try:
        return ssl.create_default_context(cafile=file or None)
    except (OSError, ValueError) as e:
        raise MisuseError(f"push.ca_file: {file}: {getattr(e, 'strerror', None) or e}") from None


class Caller:
    """Calls endpoints, `most` at one time; made on the event loop's thread."""

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
        self._tls = tls or authorities("")
        self._resolve, self._dial = resolve, dial
        # One thread for each call: names whose servers do not answer must not keep others from being resolved.
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="names")

    async def call(self, url: str, body: bytes) -> str:
        """POST the body; nothing if the answer is 2xx and comes in time, otherwise why not."""
        try:
            endpoint = parse_endpoint(url, allow_private=self._allow_private)
        except InvalidEndpointUrl:
            return NOT_CALLED
        try:
            async with asyncio.timeout(self._timeout_s):
                status = await self._post(endpoint, body)
        except TimeoutError:
            return TIMED_OUT
        except _Failed as e:
            return str(e)
        return "" if 200 <= status < 300 else f"status {status}"

    async def _post(self, endpoint: Endpoint, body: bytes) -> int:
        connection = await self._connect(await self._addresses(endpoint))
        answer = _Answer()
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
            transport.abort()  # at once: a TLS peer that does not answer would keep a polite close waiting

    async def _addresses(self, endpoint: Endpoint) -> list[Address]:
        """Those that the host has now. One of them that may not be called is enough to call none."""
        lookup = asyncio.get_running_loop().run_in_executor(self._threads, self._resolve, endpoint.host, endpoint.port)
        try:
            found = await asyncio.shield(lookup)
            if not self._allow_private:
                check_addresses(str(address[0]) for _, address in found)
        except asyncio.CancelledError:
            await asyncio.wait([lookup])  # its thread is not free before that, and so neither is this call's place
            raise
        except (OSError, ValueError, InvalidEndpointUrl):
            raise _Failed(NO_ADDRESS) from None
        if not found:
            raise _Failed(NO_ADDRESS)
        return list(dict.fromkeys(found))[:MAX_ADDRESSES]

    async def _connect(self, addresses: list[Address]) -> socket.socket:
        """To the first that answers; none takes more than its part of the time."""
        for address in addresses:
            with suppress(OSError):  # TimeoutError is one
                async with asyncio.timeout(self._timeout_s / len(addresses)):
                    return await self._dial(address)
        raise _Failed(NO_CONNECTION)

    async def _open(self, connection: socket.socket, endpoint: Endpoint, answer: "_Answer") -> asyncio.WriteTransport:
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


def request_head(endpoint: Endpoint, size: int) -> bytes:
    """A URL is printable ASCII without spaces: it cannot end its line."""
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
    """Reads an answer's status, and no more."""

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._size = 0

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and not self.status.done():
            self.status.set_result(status)

    def data_received(self, data: bytes) -> None:
        if self.status.done():
            return
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(NOT_HTTP)
        if self._size > MAX_HEAD:
            self._fail(TOO_LONG)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(CUT)

    def _fail(self, why: str) -> None:
        """The first word counts; nobody may be left to hear it."""
        if not self.status.done():
            self.status.set_exception(_Failed(why))
            self.status.exception()
