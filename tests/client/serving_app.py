"""A real server for an ASGI app, in a thread of this process."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from tests.plain_http import NO_TLS

PATIENCE_S = 60
"""How long the server may take to answer or to stop."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: signals are for the main thread, which is the test's."""
        yield


@contextmanager
def served(app: Any) -> Iterator[httpx.Client]:
    """Serve an ASGI app with a real server; yield a client of it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = _Server(uvicorn.Config(app, lifespan="on", log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_S, verify=NO_TLS) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
        assert not thread.is_alive()
