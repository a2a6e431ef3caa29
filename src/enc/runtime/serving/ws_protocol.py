"""WebSocket on a socket, with limits and the project's error format.

It is written by hand on top of uvicorn's protocol because plain ASGI gives no control over pings,
fragments and buffers: a peer that does not read could fill the node's memory. Sending long messages
in fragments keeps the waiting bytes bounded and counted for each peer, at no cost for short
messages.
"""

from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidHandshake, InvalidState
from websockets.http11 import Request

from enc.core.errors import InvalidQuery
from enc.runtime.serving.http_protocol import CHUNK, raw_error
from enc.runtime.serving.peers import PeerConnection


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Takes over a connection and its Peer from the HTTP protocol.

    It answers no pings while the peer does not read the answers, which would fill memory (RFC 6455,
    section 5.5.3 allows it). A long message is sent in fragments as fast as the peer reads them, so
    that the node holds and counts the rest.
    """

    last_progress: tuple[tuple[int, int] | None, float] = (None, 0.0)
    """What `closing.close_stuck` saw last, and when it last changed."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.peer: PeerConnection = self.app_state["peer"]
        self.peer.set_drop(self.drop)

    def drop(self) -> None:
        """Close the connection at once."""
        self.disconnected = True
        self.transport.abort()

    def shutdown(self) -> None:
        """Wait for the peer's close frame, up to the close timeout, if one was sent to it.

        Otherwise data that the peer still sends would meet a closed socket, which resets the
        connection: a peer that is writing could then not read the answers that were sent before.
        """
        self.stop_keepalive()
        if not self.close_sent or self.close_timer is None:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        self.peer.remove()
        super().connection_lost(exc)
        self._free()

    def _free(self) -> None:
        """Free an unfinished message: the parser refers to itself and would be collected late."""
        self.peer.set_drop(self.frames.clear)
        self.frames.clear()
        self.conn.parser.close()
        self.conn.reader.buffer.clear()

    # The handshake arrives whole, in the first read

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated:
            self._refuse("the handshake has too many headers, or a header that is too long")

    def handle_connect(self, event: Request) -> None:
        try:
            self.conn.process_request(event)
        except InvalidHandshake as e:
            self._refuse(f"not a WebSocket handshake: {e}")
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
        if len(text) <= CHUNK:
            await super().send(message)
            return
        for start in range(0, len(text), CHUNK):
            await self.writable.wait()
            self._send_fragment(text[start : start + CHUNK].encode(), start == 0, start + CHUNK >= len(text))
            self.peer.add_unsent(0)

    def _send_fragment(self, data: bytes, is_first: bool, is_last: bool) -> None:
        if self.disconnected:
            raise ClientDisconnected
        try:
            (self.conn.send_text if is_first else self.conn.send_continuation)(data, is_last)
        except InvalidState:
            raise ClientDisconnected from None
        self.transport.write(b"".join(self.conn.data_to_send()))
