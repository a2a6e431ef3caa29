"""Connections that the node ends by itself: those that are slow to ask, slow to take an answer, or at rest."""

from typing import Any

from uvicorn.server import ServerState

from enc.node.http_protocol import HttpProtocol


def close_slow(state: ServerState, now: float, patience: float) -> int:
    """Close the connections whose request has not come in time; how many there were."""
    slow: list[Any] = [
        connection
        for connection in state.connections
        if isinstance(connection, HttpProtocol)
        and connection.waiting_since is not None
        and now - connection.waiting_since > patience
    ]
    for connection in slow:
        connection.transport.abort()
    return len(slow)


def close_stuck(state: ServerState, now: float, patience: float) -> int:
    """Close the connections whose peers have taken nothing of what waits for them in this time; how many there were.

    It is progress that counts, not speed: what is in the transport is less, or more has gone there. Call it now and
    then: it compares with how things stood before.
    """
    stuck: list[Any] = []
    connection: Any
    for connection in state.connections:
        waits = connection.transport.get_write_buffer_size()
        stands, (stood, since) = (waits, connection.peer.turn), getattr(connection, "stood", (None, now))
        if not waits or stands != stood:
            connection.stood = (stands, now)
        elif now - since > patience:
            stuck.append(connection)
    for connection in stuck:
        connection.transport.abort()
    return len(stuck)


def close_idle(state: ServerState) -> None:
    """Drop the connections on which nothing is asked and nothing is left to send.

    At once: a TLS peer that does not answer would keep a polite close waiting.
    """
    for connection in list(state.connections):
        if isinstance(connection, HttpProtocol) and connection.is_idle:
            connection.transport.abort()
