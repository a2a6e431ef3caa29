"""Commits that a node must all accept, even if it dies meanwhile.

The load sends them over pipelined connections until each is answered with a receipt or as a duplicate.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from urllib.parse import urlsplit

CONNECTIONS, WINDOW = 8, 64
"""The number of connections, and of requests in flight on each."""
AGAIN = (429, 503)


class Load:
    """Sends commits until the node has all.

    `taken`: accepted commits; `up`: whether the node runs; `mark`: set when `mark_at` commits are accepted.
    """

    def __init__(self, url: str, bodies: Sequence[bytes], mark_at: int) -> None:
        self._host, self._port = urlsplit(url).hostname, urlsplit(url).port
        self._waiting, self._size, self.taken = deque(bodies), len(bodies), 0
        self.up, self.mark, self._mark_at = asyncio.Event(), asyncio.Event(), mark_at
        self.up.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._keep_sending())

    async def _keep_sending(self) -> None:
        while self.taken < self._size:
            await self.up.wait()
            sent = deque[bytes]()
            try:
                reader, writer = await asyncio.open_connection(self._host, self._port)
                try:
                    await self._send(reader, writer, sent)
                finally:
                    writer.close()
            except (OSError, asyncio.IncompleteReadError):
                pass
            self._waiting.extend(sent)
            await asyncio.sleep(0)

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: deque[bytes]) -> None:
        while self._waiting or sent:
            while self._waiting and len(sent) < WINDOW:
                sent.append(self._waiting.popleft())
                writer.write(_request(sent[-1]))
            await writer.drain()
            status, answer = await _response(reader)
            body = sent.popleft()
            if status in AGAIN:
                self._waiting.append(body)
                continue
            assert status == 200 or (status == 409 and b'"DUPLICATE"' in answer), answer
            self.taken += 1
            if self.taken >= self._mark_at:
                self.mark.set()


def _request(body: bytes) -> bytes:
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


async def _response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return int(head.split(b" ", 2)[1]), await reader.readexactly(int(length.split(b":")[1]))
