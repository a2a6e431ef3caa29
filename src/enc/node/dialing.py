"""Calling another node: the address that its name turns out to have is judged, and then called, and no other.

A name may resolve to another address every time it is asked. So the connection goes to an address that was looked at,
not to the name. Redirects are not followed.
"""

import socket
import ssl
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from enc.core.errors import UpstreamUnreachable
from enc.node.endpoints import Endpoint, check_address

TIMEOUT_S = 30


def resolve(endpoint: Endpoint, *, allow_private: bool) -> list[Any]:
    """The addresses of the endpoint's host, all of them such that may be called."""
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UpstreamUnreachable("the host's name cannot be resolved") from None
    if not allow_private:
        for *_, address in found:
            check_address(ip_address(str(address[0]).partition("%")[0]))
    return found


def connect(endpoint: Endpoint, *, allow_private: bool) -> socket.socket:
    """A connection to one of the addresses that were judged."""
    for family, kind, protocol, _, address in resolve(endpoint, allow_private=allow_private):
        plain = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(TIMEOUT_S)
            plain.connect(address)
            if not endpoint.is_tls:
                return plain
            return ssl.create_default_context().wrap_socket(plain, server_hostname=endpoint.host)
        except (OSError, ValueError):
            plain.close()
    raise UpstreamUnreachable("the node cannot be reached")


class _Connection(HTTPConnection):
    def __init__(self, endpoint: Endpoint, *, allow_private: bool) -> None:
        super().__init__(endpoint.host, endpoint.port, timeout=TIMEOUT_S)
        self._endpoint, self._allow_private = endpoint, allow_private

    def connect(self) -> None:
        self.sock = connect(self._endpoint, allow_private=self._allow_private)


def post(endpoint: Endpoint, path: str, body: bytes, *, max_bytes: int, allow_private: bool) -> tuple[int, bytes]:
    """The status and body of what is answered; UpstreamUnreachable if nothing is, or more than `max_bytes`."""
    prefix = urlsplit(endpoint.url).path.rstrip("/")
    headers: Mapping[str, str] = {"Content-Type": "application/json", "Connection": "close"}
    with closing(_Connection(endpoint, allow_private=allow_private)) as connection:
        try:
            connection.request("POST", prefix + path, body, headers)
            with connection.getresponse() as response:
                return response.status, _read(response, max_bytes)
        except (OSError, HTTPException) as e:
            raise UpstreamUnreachable(f"the node does not answer: {type(e).__name__}") from None


def _read(response: HTTPResponse, max_bytes: int) -> bytes:
    body = response.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise UpstreamUnreachable(f"the node's answer is over {max_bytes} bytes")
    return body
