"""A link that carries a few bytes at a time, and can hold back the node's answers."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

PIECE = 64


class SlowLink:
    """Relays connections to a node. `hold` stops only the data from the node, `release` lets it continue."""

    def __init__(self, url: str) -> None:
        there = urlsplit(url)
        self._there = (there.hostname or "", there.port or 0)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self._goes, self._holds = threading.Event(), threading.Event()
        self._goes.set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._goes.set()
        self._door.close()

    def hold(self) -> None:
        self._holds.clear()
        self._goes.clear()

    def wait_until_something_is_held(self, patience: float) -> None:
        assert self._holds.wait(patience), "nothing came from the node"

    def release(self) -> None:
        self._goes.set()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._door.accept()
                far = socket.create_connection(self._there)
                for each in (near, far):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._carry, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._carry, args=(far, near, True), daemon=True).start()

    def _carry(self, from_: socket.socket, to: socket.socket, can_wait: bool) -> None:
        """Copy bytes until one side ends, which also ends the copy in the other direction."""
        with suppress(OSError):
            while piece := from_.recv(PIECE):
                if can_wait and not self._goes.is_set():
                    self._holds.set()
                    self._goes.wait()
                to.sendall(piece)
        for each in (from_, to):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        if can_wait:
            from_.close()
            to.close()
