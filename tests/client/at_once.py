"""Many requests of one async client at the same time, and what it sends for them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from enc.client.wire.flow import Answer, Call
from tests.client.stage import Stage

MANY = 20


class Counting:
    """A client's transport that lets the other tasks run before each answer. `paths`: what was sent."""

    def __init__(self, client: Any) -> None:
        self._inner = client._inner._transport
        self.url, self.timeout = self._inner.url, self._inner.timeout
        self.paths = list[str]()
        client._inner._transport = self

    async def send(self, call: Call) -> Answer:
        self.paths.append(f"{call.base or ''}{call.path}")
        for _ in range(5):
            await asyncio.sleep(0)
        answer: Answer = await self._inner.send(call)
        return answer

    async def close(self) -> None:
        await self._inner.close()


def at_once(stage: Stage, work: Callable[[], Coroutine[Any, Any, Any]]) -> list[Any]:
    """Run this many coroutines at once; return their results."""

    async def main() -> list[Any]:
        return await asyncio.gather(*(work() for _ in range(MANY)))

    return stage._runner.run(main())
