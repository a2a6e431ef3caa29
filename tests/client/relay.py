"""A connection between a client and a node that can be cut; the next connection works again."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Relay:
    """Relays bytes in both directions at `url`; `cut` drops every connection."""

    def __init__(self, url: str) -> None:
        self._node = (urlsplit(url).hostname, urlsplit(url).port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock, self._open = threading.Lock(), set[socket.socket]()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.connections = 0
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                node = socket.create_connection(self._node)
                with self._lock:
                    self.connections += 1
                    self._open |= {client, node}
                for pair in ((client, node), (node, client)):
                    self._threads.append(threading.Thread(target=self._pass, args=pair, daemon=True))
                    self._threads[-1].start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        self._end(source, target)

    def _end(self, *sockets: socket.socket) -> None:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        with self._lock:
            self._end(*self._open)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self._listener)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)
        for each in self._open:
            each.close()
