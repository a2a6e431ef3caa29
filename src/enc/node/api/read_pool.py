"""A bounded pool of threads for reads of the APIs."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from enc.core.errors import (
    Unavailable,
)
from enc.node.read.request_handlers import SealedHandlers

MAX_WAITING_READS = 512
"""Most requests that wait for a reader thread."""


class ReadPool:
    """Runs reads on a thread pool of their own; rejects requests when too many wait."""

    def __init__(self, handlers: SealedHandlers, executor: Executor) -> None:
        self.handlers, self._executor = handlers, executor
        self._waiting = 0

    async def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """Run `work` on a reader thread and return its result; raise Unavailable if too many wait."""
        if self._waiting >= MAX_WAITING_READS:
            raise Unavailable("too many requests are waiting", retry_after_ms=1000)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work, *args)
        finally:
            self._waiting -= 1
