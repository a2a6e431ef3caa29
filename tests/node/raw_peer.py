"""A peer that writes to a node byte by byte and reads only on demand, and measures of the node's process."""

import select
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from msgspec.json import decode, encode
from websockets.frames import Frame, Opcode

from enc.core.log.commit import wire_commit
from enc.core.primitives.types import Commit
from tests.core.world import Json
from tests.node.api.websocket_peer import PATIENCE
from tests.node.running import RunningNode

MIB = 1 << 20


def rss(node: RunningNode) -> int:
    """Return the bytes of memory that the node's process holds."""
    status = Path(f"/proc/{node.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def answers(messages: Sequence[Json]) -> Counter[str]:
    return Counter(message["code"] if "code" in message else message["type"] for message in messages)


class Raw:
    """A TCP connection to the node, written byte by byte."""

    def __init__(self, node: RunningNode, receive_buffer: int = 0) -> None:
        parts = urlsplit(node.url)
        self.host = f"{parts.hostname}:{parts.port}"
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        self.socket.connect((parts.hostname, parts.port))
        self._got = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    @property
    def is_held(self) -> bool:
        """Return whether the node's process still holds its end: a connection without a process has no inode."""
        ours, theirs = self.socket.getsockname()[1], self.socket.getpeername()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if [int(address.partition(":")[2], 16) for address in fields[1:3]] == [theirs, ours]:
                return fields[9] != "0"
        return False

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def end(self) -> None:
        """Shut the connection down in both directions, for all threads that use it."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def post(self, body: bytes, **headers: str) -> None:
        lines = {"Host": self.host, "Content_Length": str(len(body)), **headers}
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
        self.send(f"POST / HTTP/1.1\r\n{head}\r\n".encode() + body)

    def upgrade(self) -> None:
        self.send(
            f"GET / HTTP/1.1\r\nHost: {self.host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        head, _, self._got = self.until(b"\r\n\r\n").partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head

    def frame(self, message: Json | Commit) -> None:
        body = encode(wire_commit(message) if isinstance(message, Commit) else message)
        self.send(Frame(Opcode.TEXT, body).serialize(mask=True))

    def until(self, end: bytes) -> bytes:
        while end not in self._got:
            self._more()
        return self._got

    def _more(self) -> None:
        got = self.socket.recv(65536)
        if not got:
            raise EOFError
        self._got += got

    def _take(self, count: int) -> bytes:
        while len(self._got) < count:
            self._more()
        taken, self._got = self._got[:count], self._got[count:]
        return taken

    def read_frame(self) -> tuple[int, bytes]:
        """Return the opcode and payload of the next frame; a server does not mask its frames."""
        first, size = self._take(2)
        if size == 126:
            size = int.from_bytes(self._take(2), "big")
        elif size == 127:
            size = int.from_bytes(self._take(8), "big")
        return first & 15, self._take(size)

    def next(self) -> Json:
        """Return the next message; skip pings, and do not answer them."""
        opcode, payload = self.read_frame()
        while opcode == Opcode.PING:
            opcode, payload = self.read_frame()
        assert opcode == Opcode.TEXT, (opcode, payload)
        message: Json = decode(payload)
        return message

    def rest(self) -> bytes:
        """Return everything up to the end of the connection, which the node must close."""
        try:
            while True:
                self._more()
        except (EOFError, ConnectionResetError):
            return self._got


def pour(raw: Raw, data: bytes, most: int) -> int:
    """Send the data repeatedly until the node closes or stops reading; return how many bytes it took."""
    raw.socket.setblocking(False)
    sent = 0
    try:
        while sent < most:
            if not select.select([], [raw.socket], [], 2)[1]:
                break
            sent += raw.socket.send(data)
    except (ConnectionResetError, BrokenPipeError):
        pass
    raw.socket.settimeout(PATIENCE)
    return sent
