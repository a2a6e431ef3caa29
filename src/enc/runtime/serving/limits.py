"""Limits of a server on what its peers can make it hold."""

from msgspec import Struct

HANDSHAKE_S = 10.0
"""Most seconds for a TLS handshake; a shorter request timeout applies to it, too."""


class ServingLimits(Struct, frozen=True, kw_only=True):
    """Limits of one server; 0 for one address means no limit. The defaults suit a small service."""

    connections: int = 512
    """Most open connections, counted from accept on."""
    connections_per_address: int = 128
    unsent_bytes: int = 256 << 20
    """Most bytes that wait to be sent to all peers."""
    incoming_bytes: int = 128 << 20
    """Most bytes of incomplete requests and messages of all peers."""
    incoming_bytes_per_address: int = 64 << 20
    request_timeout_s: float = 30.0
    """Time for a whole request, for a message of a WebSocket, and for reading some of an answer."""
    idle_timeout_s: int = 30
    """Time between two requests on a connection."""
    max_body: int = 2 << 20
    """Largest body on the fast path, and largest message of a WebSocket."""

    @property
    def handshake_s(self) -> float:
        return min(HANDSHAKE_S, self.request_timeout_s)
