"""HTTP to a URL that somebody else gave: connects to an address that was checked, and to no other.

A name may resolve to another address each time. So the connection goes to a checked address, not to
the name; certificates are checked against the name. Redirects are not followed.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from urllib.parse import urlsplit

from enc.core.errors import MisuseError, UpstreamUnreachable
from enc.runtime.endpoints import Address, HttpEndpoint, resolve_checked

TIMEOUT_S = 30
MAX_S = 300
"""Most seconds for one answer, even if it makes progress."""
WATCH_S = 0.2


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
    endpoint: HttpEndpoint, *, allow_private: bool, began: Callable[[socket.socket], None] = lambda sock: None
) -> socket.socket:
    """Return a connection to a checked address; `began` gets each socket that is tried."""
    for family, address in addresses_of(endpoint, allow_private=allow_private):
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
    def __init__(self, endpoint: HttpEndpoint, *, allow_private: bool) -> None:
        super().__init__(endpoint.host, endpoint.port, timeout=TIMEOUT_S)
        self._endpoint, self._allow_private = endpoint, allow_private
        self._tried: socket.socket | None = None
        self.is_late = False
        """It took longer than MAX_S, and was closed."""

    def connect(self) -> None:
        self.sock = connect(self._endpoint, allow_private=self._allow_private, began=self._try)

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
    endpoint: HttpEndpoint, path: str, body: bytes, *, max_bytes: int, allow_private: bool, stopped: threading.Event
) -> tuple[int, bytes]:
    """Return the status and body of the answer.

    Raises UpstreamUnreachable if there is none, or if its body is longer than `max_bytes`.
    """
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
        # An answer without a length ends where it was cut, without an error.
        connection.check_in_time()
        return status, answer


def _read(response: HTTPResponse, max_bytes: int) -> bytes:
    body = response.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise UpstreamUnreachable(f"the node's answer is over {max_bytes} bytes")
    if response.length:  # bytes that are missing: a read with a limit raises nothing
        raise UpstreamUnreachable("the node's answer was cut off")
    return body
