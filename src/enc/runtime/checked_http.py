"""HTTP to a URL that somebody else gave: connects to an address that was checked, and to no other.

A name may resolve to another address each time. So the connection goes to a checked address, not to
the name; certificates are checked against the name. Redirects are not followed.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from urllib.parse import urlsplit

from enc.core.errors import MisuseError, UpstreamUnreachable
from enc.runtime.endpoints import Address, HttpEndpoint, resolve_checked

TIMEOUT_S = 30
MAX_S = 300
"""Most seconds for one answer, even if it makes progress."""
WATCH_S = 0.2
PIECE = 1 << 16
"""Most bytes that are read at once."""
REPORT = 1 << 14
"""Bytes after which `received` is called again."""


def authorities(file: str = "", field: str = "") -> ssl.SSLContext:
    """Return the context that checks certificates: by the authorities in a file, or the system's.

    Raises MisuseError about `field` if the file cannot be used.
    """
    try:
        return ssl.create_default_context(cafile=file or None)
    except (OSError, ValueError) as e:
        raise MisuseError(f"{field}: {file}: {getattr(e, 'strerror', None) or e}") from None


def addresses_of(endpoint: HttpEndpoint, *, allow_private: bool) -> list[Address]:
    """Return the addresses of the endpoint's host, all of which may be called.

    Raises UpstreamUnreachable if it has none, or InvalidEndpointUrl if one may not be called.
    """
    try:
        return resolve_checked(endpoint, allow_private=allow_private)
    except (OSError, UnicodeError):
        raise UpstreamUnreachable("the host's name cannot be resolved") from None


def connect(
    endpoint: HttpEndpoint,
    addresses: Iterable[Address],
    *,
    began: Callable[[socket.socket], None] = lambda sock: None,
) -> socket.socket:
    """Return a connection to one of these addresses; `began` gets each socket that is tried."""
    for family, address in addresses:
        plain = socket.socket(family, socket.SOCK_STREAM)
        try:
            plain.settimeout(TIMEOUT_S)
            began(plain)
            plain.connect(address)
            if not endpoint.is_tls:
                return plain
            tls = authorities().wrap_socket(plain, server_hostname=endpoint.host, do_handshake_on_connect=False)
            plain = tls
            began(tls)
            tls.do_handshake()
            return tls
        except (OSError, ValueError, MisuseError):
            plain.close()
    raise UpstreamUnreachable("the node cannot be reached")


class _Connection(HTTPConnection):
    def __init__(self, endpoint: HttpEndpoint, addresses: Iterable[Address]) -> None:
        super().__init__(endpoint.host, endpoint.port, timeout=TIMEOUT_S)
        self._endpoint, self._addresses = endpoint, addresses
        self._tried: socket.socket | None = None
        self.is_late = False
        """It took longer than MAX_S, and was closed."""

    def connect(self) -> None:
        self.sock = connect(self._endpoint, self._addresses, began=self._try)

    def _try(self, sock: socket.socket) -> None:
        self._tried = sock

    def _cut(self) -> None:
        """End the wait for the peer, from another thread."""
        if self._tried is not None:
            with suppress(OSError):
                # Of the plain socket: TLS would free its state under the thread that reads.
                socket.socket.shutdown(self._tried, socket.SHUT_RDWR)

    def check_in_time(self) -> None:
        if self.is_late:
            raise UpstreamUnreachable(f"the node's answer took longer than {MAX_S} s, and was cut off") from None

    @contextmanager
    def watched(self, stopped: threading.Event) -> Iterator[None]:
        """Cut the connection once it takes too long, or when `stopped` is set."""
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
    endpoint: HttpEndpoint,
    addresses: Iterable[Address],
    path: str,
    body: bytes,
    *,
    max_bytes: int,
    stopped: threading.Event,
    received: Callable[[int], object] = lambda size: None,
) -> tuple[int, bytes]:
    """Return the status and body of the answer. `addresses`: those of the endpoint, checked by
    `addresses_of`. `received` gets the sizes of the body's pieces as they arrive.

    Raises UpstreamUnreachable if there is none, or if its body is longer than `max_bytes`.
    """
    prefix = urlsplit(endpoint.url).path.rstrip("/")
    headers: Mapping[str, str] = {"Content-Type": "application/json", "Connection": "close"}
    with closing(_Connection(endpoint, addresses)) as connection, connection.watched(stopped):
        try:
            connection.request("POST", prefix + path, body, headers)
            with closing(connection.getresponse()) as response:
                status, answer = response.status, _read(response, max_bytes, received)
        except (OSError, HTTPException, UpstreamUnreachable) as e:
            connection.check_in_time()
            if isinstance(e, UpstreamUnreachable):
                raise
            raise UpstreamUnreachable(f"the node does not answer: {type(e).__name__}") from None
        # An answer without a length ends where it was cut, without an error.
        connection.check_in_time()
        return status, answer


def _read(response: HTTPResponse, max_bytes: int, received: Callable[[int], object]) -> bytes:
    body, reported = bytearray(), 0
    while piece := response.read1(PIECE):
        body += piece
        if len(body) > max_bytes:
            raise UpstreamUnreachable(f"the node's answer is over {max_bytes} bytes")
        if len(body) - reported >= REPORT:  # a peer may send byte by byte
            received(len(body) - reported)
            reported = len(body)
    received(len(body) - reported)
    if response.length:  # bytes that are missing: a read with a limit raises nothing
        raise UpstreamUnreachable("the node's answer was cut off")
    return bytes(body)
