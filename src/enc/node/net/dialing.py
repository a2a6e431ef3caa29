"""Calling another node: the address that its name turns out to have is judged, and then called, and no other.

A name may resolve to another address every time it is asked. So the connection goes to an address that was looked at,
not to the name. Redirects are not followed.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from enc.core.errors import UpstreamUnreachable
from enc.node.net.endpoints import Endpoint, check_addresses

TIMEOUT_S = 30
MAX_S = 300
"""Seconds that one answer may take, however steadily it comes."""
WATCH_S = 0.2


def resolve(endpoint: Endpoint, *, allow_private: bool) -> list[Any]:
    """The addresses of the endpoint's host, all of them such that may be called."""
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UpstreamUnreachable("the host's name cannot be resolved") from None
    if not allow_private:
        check_addresses(str(address[0]) for *_, address in found)
    return found


def connect(
    endpoint: Endpoint, *, allow_private: bool, began: Callable[[socket.socket], None] = lambda sock: None
) -> socket.socket:
    """A connection to one of the addresses that were judged. `began` gets each socket that is tried."""
    for family, kind, protocol, _, address in resolve(endpoint, allow_private=allow_private):
        plain = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(TIMEOUT_S)
            began(plain)
            plain.connect(address)
            if not endpoint.is_tls:
                return plain
            context = ssl.create_default_context()
            tls = context.wrap_socket(plain, server_hostname=endpoint.host, do_handshake_on_connect=False)
            plain = tls
            began(tls)
            tls.do_handshake()
            return tls
        except (OSError, ValueError):
            plain.close()
    raise UpstreamUnreachable("the node cannot be reached")


class _Connection(HTTPConnection):
    def __init__(self, endpoint: Endpoint, *, allow_private: bool) -> None:
        super().__init__(endpoint.host, endpoint.port, timeout=TIMEOUT_S)
        self._endpoint, self._allow_private = endpoint, allow_private
        self._tried: socket.socket | None = None
        self.is_late = False
        """It took longer than it may, and was cut."""

    def connect(self) -> None:
        self.sock = connect(self._endpoint, allow_private=self._allow_private, began=self._try)

    def _try(self, sock: socket.socket) -> None:
        self._tried = sock

    def _cut(self) -> None:
        """From another thread: whoever waits for the peer waits no longer."""
        if self._tried is not None:
            with suppress(OSError):
                # Of the socket below: TLS would take itself apart under the thread that reads.
                socket.socket.shutdown(self._tried, socket.SHUT_RDWR)

    def check_in_time(self) -> None:
        if self.is_late:
            raise UpstreamUnreachable(f"the node's answer took longer than {MAX_S} s, and was cut off") from None

    @contextmanager
    def watched(self, stopped: threading.Event) -> Iterator[None]:
        """It is cut once it takes too long, or when nobody wants the answer any more."""
        done, end = threading.Event(), time.monotonic() + MAX_S

        def watch() -> None:
            while not done.wait(WATCH_S):
                self.is_late = time.monotonic() > end
                if stopped.is_set() or self.is_late:
                    self._cut()

        watcher = threading.Thread(target=watch, name="watch", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def post(
    endpoint: Endpoint, path: str, body: bytes, *, max_bytes: int, allow_private: bool, stopped: threading.Event
) -> tuple[int, bytes]:
    """The status and body of what is answered; UpstreamUnreachable if nothing is, or more than `max_bytes`."""
    prefix = urlsplit(endpoint.url).path.rstrip("/")
    headers: Mapping[str, str] = {"Content-Type": "application/json", "Connection": "close"}
    with closing(_Connection(endpoint, allow_private=allow_private)) as connection, connection.watched(stopped):
        try:
            connection.request("POST", prefix + path, body, headers)
            with closing(connection.getresponse()) as response:
                status, answer = response.status, _read(response, max_bytes)
        except (OSError, HTTPException, UpstreamUnreachable) as e:
            connection.check_in_time()
            if isinstance(e, UpstreamUnreachable):
                raise
            raise UpstreamUnreachable(f"the node does not answer: {type(e).__name__}") from None
        # One that does not say how long it is ends where it was cut, and complains of nothing.
        connection.check_in_time()
        return status, answer


def _read(response: HTTPResponse, max_bytes: int) -> bytes:
    body = response.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise UpstreamUnreachable(f"the node's answer is over {max_bytes} bytes")
    if response.length:  # what was to come still: a read that is told how much to read does not complain
        raise UpstreamUnreachable("the node's answer was cut off")
    return body
