"""WebSocket on a socket, with the bound that uvicorn's protocol lacks."""

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Answers no pings of a peer that does not read the answers: they would fill memory (RFC 6455, section 5.5.3)."""

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()
