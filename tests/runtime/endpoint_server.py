"""Servers with given answers, and a caller whose names resolve to the addresses that the test gives."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import trustme

from enc.runtime import checked_http_async
from enc.runtime.checked_http_async import EndpointCaller
from enc.runtime.endpoints import Address

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

PATIENCE_S = 30.0
PUBLIC = "93.184.216.34"
SYSTEM = ssl.create_default_context()
"""Created once, because it reads the system's authorities."""
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
        """Return the next prepared answer; the last one stays valid."""
        self.asked.append(host)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    async def dial(self, address: Address) -> socket.socket:
        self.dialled.append(str(address[1][0]))
        return await checked_http_async.dial((socket.AF_INET, ("127.0.0.1", self.port)))

    def caller(self, timeout_s: float = PATIENCE_S, tls: ssl.SSLContext | None = None, **more: bool) -> EndpointCaller:
        return EndpointCaller(
            timeout_s=timeout_s, most=4, tls=tls or SYSTEM, resolve=self.resolve, dial=self.dial, **more
        )


@asynccontextmanager
async def serving(world: World, handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[list[bytes]]:
    """Run a server; yield its address, and the exceptions with which its handlers have ended."""
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
    """Return a server that reads the whole request, then sends these bytes and closes."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for part in parts:
            writer.write(part)
            await writer.drain()
        writer.write_eof()
        await reader.read()

    return handler


def endless(head: bytes, more: bytes) -> Handler:
    """Return a server that never ends its answer."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(head)
        while True:
            writer.write(more)
            await writer.drain()

    return handler


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()  # until the caller has closed the connection


def called(
    handler: Handler, url: str = "http://hook.example:8080/in?a=1", body: bytes = b"{}", timeout_s: float = PATIENCE_S
) -> str | None:
    """Return the caller's result for an answer, over plain HTTP."""

    async def work() -> str | None:
        world = World()
        async with serving(world, handler):
            return await asyncio.wait_for(world.caller(timeout_s, allow_private=True).call(url, body), PATIENCE_S)

    return asyncio.run(work())


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
