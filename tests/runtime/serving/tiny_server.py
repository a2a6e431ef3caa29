"""A server of a tiny application in a thread, with limits and certificates of a test."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import trustme

from enc.runtime.serving.limits import ServingLimits
from enc.runtime.serving.server import Server
from enc.runtime.serving.server_config import server_config
from enc.runtime.serving.server_thread import ServerThread
from enc.runtime.serving.sites import SiteRules

PATIENCE_S = 30
TURNS = 100_000
"""Turns of the event loop after which an expected change counts as lost."""
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
T = TypeVar("T")


async def app(scope: Any, receive: Any, send: Any) -> None:
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"here"})


class TinyServer(Server):
    """A server whose event loop a test can use."""

    def on_loop(self, work: Callable[[], T]) -> T:
        assert self._loop is not None
        done: Future[T] = Future()
        self._loop.call_soon_threadsafe(lambda: done.set_result(work()))
        return done.result(PATIENCE_S)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until this condition holds on the event loop's thread."""
        for _ in range(TURNS):
            if self.on_loop(holds):
                return
        raise AssertionError("it never came")

    def dial(self, address: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(self._socket.getsockname(), PATIENCE_S, (address, 0))


@contextmanager
def running(
    loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    *,
    sites: SiteRules = SiteRules(),  # noqa: B008
    cert: Path | None = None,
    **limits: Any,
) -> Iterator[TinyServer]:
    config = server_config(app, limits=ServingLimits(**limits), cert=cert, lifespan="off")
    server = TinyServer(config, socket.create_server(("127.0.0.1", 0)), sites=sites)

    def run() -> None:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(server.run_until_stopped())

    thread = ServerThread(server, run, name="tiny")
    assert thread.start()
    try:
        yield server
    finally:
        thread.stop()
        server._socket.close()


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return a file with a certificate and its key, and the context of a client that trusts it."""
    authority, path, context = trustme.CA(), folder / "cert.pem", ssl.create_default_context()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(path))
    authority.configure_trust(context)
    return path, context
