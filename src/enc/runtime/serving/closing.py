"""Closes connections that are slow to send a request, slow to read a response, or idle."""

from typing import Any

from uvicorn.server import ServerState

from enc.runtime.serving.http_protocol import HttpProtocol
from enc.runtime.serving.ws_protocol import WebSocketProtocol


def close_slow(state: ServerState, now: float, patience: float) -> int:
    """Close the connections whose request or message is not complete after `patience` seconds.

    Returns their number.
    """
    slow: list[Any] = [
        connection
        for connection in state.connections
        if isinstance(connection, HttpProtocol | WebSocketProtocol)
        and connection.waiting_since is not None
        and not _is_paused(connection)
        and now - connection.waiting_since > patience
    ]
    for connection in slow:
        connection.transport.abort()
    return len(slow)


def _is_paused(connection: HttpProtocol | WebSocketProtocol) -> bool:
    """Return whether the rest of a message may have arrived and waits for the application."""
    return isinstance(connection, WebSocketProtocol) and connection.read_paused


def close_stuck(state: ServerState, now: float, patience: float) -> int:
    """Close the connections whose peers have read nothing for `patience` seconds; return their number.

    Any progress counts, however slow: the transport's buffer changed, or more was written to it.
    Call this periodically: it compares with what the last call saw.
    """
    stuck: list[Any] = []
    connection: Any
    for connection in state.connections:
        waits = connection.transport.get_write_buffer_size()
        progress, (before, since) = (waits, connection.peer.progress), connection.last_progress
        if not waits or progress != before:
            connection.last_progress = (progress, now)
        elif now - since > patience:
            stuck.append(connection)
    for connection in stuck:
        connection.transport.abort()
    return len(stuck)


def close_idle(state: ServerState) -> None:
    """Abort the connections that have no open request and nothing left to send.

    Abort rather than close: a TLS peer that does not answer would delay a graceful close.
    """
    for connection in list(state.connections):
        if isinstance(connection, HttpProtocol) and connection.is_idle:
            connection.transport.abort()
