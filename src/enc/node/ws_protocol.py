"""WebSocket on a socket, with what uvicorn's protocol lacks: bounds, and errors that look as everywhere."""

from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidHandshake, InvalidState
from websockets.http11 import Request

from enc.core.errors import InvalidQuery
from enc.node.http_protocol import PIECE, raw_error
from enc.node.peers import Peer


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Takes over a connection with its peer's account, from the HTTP protocol.

    It answers no pings of a peer that does not read the answers: they would fill memory (RFC 6455, section 5.5.3). A
    long message goes out in fragments, as fast as the peer takes them, so that what waits is in the node's own hands.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.peer: Peer = self.app_state["peer"]
        self.peer.drop = self.drop

    def drop(self) -> None:
        """End the connection at once."""
        self.disconnected = True
        self.transport.abort()

    def shutdown(self) -> None:
        """A close that was sent is waited for, as long as it may take.

        What a peer still sends would else meet a closed socket, which resets the connection: a peer that is writing
        then never gets to read the answers that it was sent before.
        """
        self.stop_keepalive()
        if not self.close_sent or self.close_timer is None:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        self.peer.leave()
        super().connection_lost(exc)
        self._free()

    def _free(self) -> None:
        """Let go of what an unfinished message holds: the parser knows itself, and would not be freed for long."""
        self.peer.drop = self.frames.clear
        self.frames.clear()
        self.conn.parser.close()
        self.conn.reader.buffer.clear()

    # The handshake: it comes whole, as the first thing that is received

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated:
            self._refuse("the handshake has too many headers, or one that is too long")

    def handle_connect(self, event: Request) -> None:
        try:
            self.conn.process_request(event)
        except InvalidHandshake as e:
            self._refuse(f"this is no WebSocket handshake: {e}")
            return
        if event.path.partition("?")[0] == "/":
            super().handle_connect(event)
        else:
            self._refuse("no such path", 404)

    def _refuse(self, why: str, status: int = 400) -> None:
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        self.transport.write(raw_error(InvalidQuery(why), status))
        self.transport.close()

    # Frames

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    async def send(self, message: Any) -> None:
        text: str = message.get("text") or ""
        if len(text) <= PIECE:
            await super().send(message)
            return
        for start in range(0, len(text), PIECE):
            await self.writable.wait()
            self._send_fragment(text[start : start + PIECE].encode(), start == 0, start + PIECE >= len(text))
            self.peer.hold(0)

    def _send_fragment(self, data: bytes, is_first: bool, is_last: bool) -> None:
        if self.disconnected:
            raise ClientDisconnected
        try:
            (self.conn.send_text if is_first else self.conn.send_continuation)(data, is_last)
        except InvalidState:
            raise ClientDisconnected from None
        self.transport.write(b"".join(self.conn.data_to_send()))
