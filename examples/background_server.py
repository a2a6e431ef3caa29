"""A web server that runs for the duration of a block, on a socket that outlives it.

A real app is run with `uvicorn module:app`.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


@contextmanager
def serving(app: Any, listening: socket.socket) -> Iterator[None]:
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, args=([listening.dup()],))
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()
