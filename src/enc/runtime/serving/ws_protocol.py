"""WebSocket on a socket, with limits and the project's error format.

It is written by hand on top of uvicorn's protocol because plain ASGI gives no control over pings,
fragments and buffers: a peer that does not read could fill the node's memory. Sending long messages
in fragments keeps the waiting bytes bounded and counted for each peer, at no cost for short
messages. An incomplete message counts to the peer's limits, and has a deadline.
"""

from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidHandshake, InvalidState
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request

from enc.core.errors import InvalidQuery
from enc.runtime.serving.fast_response import CHUNK, raw_error
from enc.runtime.serving.peers import PeerConnection

FRAME_BYTES = 128
"""Counted for each frame of an incomplete message, in addition to its data: a frame may be empty."""


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Takes over a connection and its Peer from the HTTP protocol.

    It answers no pings while the peer does not read the answers, which would fill memory (RFC 6455,
    section 5.5.3 allows it). A long message is sent in fragments as fast as the peer reads them, so
    that the node holds and counts the rest.
    """

    last_progress: tuple[tuple[int, int] | None, float] = (None, 0.0)
    """What `closing.close_stuck` saw last, and when it last changed."""
    waiting_since: float | None = None
    """Loop time since which the rest of a frame or message is missing."""
    _waiting = 0
    """Bytes of complete messages that the application has not received yet."""

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
        self._count_incoming()

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

    # Incomplete messages

    def _count_incoming(self) -> None:
        """Count the bytes held, and note since when the rest of a frame or message is missing.

        A peer that sends only the head of a frame holds no memory, and can answer no ping.
        """
        size = len(self.conn.reader.buffer) + (self.conn.current_size or 0) + FRAME_BYTES * len(self.frames)
        if not size:
            self.waiting_since = None
        elif self.waiting_since is None:
            self.waiting_since = self.loop.time()
        if size + self._waiting != self.peer.incoming:
            self.peer.set_incoming(size + self._waiting)

    def _frame_ended(self) -> None:
        """Start the time of the next message, unless the frame came between the frames of one."""
        if not self.frames:
            self.waiting_since = None

    def send_receive_event_to_app(self) -> None:
        """As uvicorn's, which would log a traceback for a text that is not UTF-8."""
        data, self.frames = b"".join(self.frames), []
        self._frame_ended()
        if self.close_sent:
            return
        try:
            if self.curr_msg_data_type == "text":
                self.queue.put_nowait({"type": "websocket.receive", "text": data.decode()})
            else:
                self.queue.put_nowait({"type": "websocket.receive", "bytes": data})
        except UnicodeDecodeError:
            self.conn.fail(CloseCode.INVALID_DATA, "the text is not UTF-8")
            self.handle_parser_exception()
            return
        self._waiting += len(data)
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    async def receive(self) -> Any:
        """As uvicorn's; while reading was paused, nothing was missing from the peer."""
        was_paused, message = self.read_paused, await super().receive()
        if message["type"] == "websocket.receive":
            self._waiting = 0 if self.queue.empty() else self._waiting
            self._count_incoming()
        if was_paused and not self.read_paused and self.waiting_since is not None:
            self.waiting_since = self.loop.time()
        return message

    # Frames

    def handle_pong(self, event: Frame) -> None:
        self._frame_ended()
        super().handle_pong(event)

    def handle_ping(self) -> None:
        self._frame_ended()
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
