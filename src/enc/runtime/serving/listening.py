"""Listening sockets, and the URLs of their servers."""

import errno
import os
import socket

from enc.core.errors import MisuseError


def listen(host: str, port: int, *, field: str = "", flag: str, backlog: int = 512) -> socket.socket:
    """Return a socket that listens there.

    Raises MisuseError, which begins with `field`, and names the `flag` that gives another port.
    """
    return _listen(host, port, f"{host} port {port}", field, flag, backlog)


def listen_at(place: str, *, field: str, flag: str = "--listen") -> socket.socket:
    """Return a socket that listens at HOST:PORT; MisuseError, which begins with `field`, if not."""
    host, _, port = place.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise MisuseError(f"{field}: expected HOST:PORT, not {place!r}")
    return _listen(host, int(port), place, f"{field}: ", flag, 512)


def _listen(host: str, port: int, place: str, field: str, flag: str, backlog: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as e:
        # An unknown name has an error text of its own; other errors would repeat the address.
        is_named = isinstance(e, socket.gaierror) or not e.errno
        why = e.strerror or str(e) if is_named else os.strerror(e.errno or 0)
        if e.errno == errno.EADDRINUSE:
            why += f"; stop the program that uses it, or choose another with {flag}"
        raise MisuseError(f"{field}cannot listen on {place}: {why}") from None
    # Connections inherit it. Head and body of an answer are two writes: without it the second
    # would wait until the peer has acknowledged the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def url_of(listening: socket.socket, *, is_tls: bool = False) -> str:
    """Return the URL of a server on this socket."""
    host, port = listening.getsockname()[:2]
    return f"{'https' if is_tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
