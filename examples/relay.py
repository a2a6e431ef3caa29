"""A relay to a node that can be cut and restored: it simulates a failing network."""

import asyncio
from typing import Self
from urllib.parse import urlsplit


class Relay:
    """A context manager. Its `url` leads to the node, except between `cut` and `restore`."""

    def __init__(self, url: str) -> None:
        self._node, self._port = urlsplit(url), 0
        self._ends, self._carried = list[asyncio.StreamWriter](), set[asyncio.Future[object]]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def restore(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Drop data in transit, and accept no new connections."""
        self._server.close()
        for end in self._ends:
            end.transport.abort()
        await asyncio.gather(*self._carried)

    async def _carry(self, near: asyncio.StreamReader, near_end: asyncio.StreamWriter) -> None:
        far, far_end = await asyncio.open_connection(self._node.hostname, self._node.port)
        self._ends += [near_end, far_end]
        both = asyncio.gather(_pump(near, far_end), _pump(far, near_end))
        self._carried.add(both)
        await both

    async def __aenter__(self) -> Self:
        await self.restore()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()


async def _pump(source: asyncio.StreamReader, end: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(1 << 16):
            end.write(data)
    except ConnectionError:
        pass
    finally:
        end.close()
