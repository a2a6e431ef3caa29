"""Calls to sources of imports: on threads of their own, which other requests do not need.

A name whose servers do not answer holds a thread for as long as the system tries. So names are
looked up on few threads, which addresses share: nobody occupies more than half of them.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from enc.core.errors import UpstreamUnreachable
from enc.runtime.checked_http import addresses_of, post
from enc.runtime.endpoints import Address, HttpEndpoint
from enc.runtime.fair_threads import FairThreads

LOOKUP_THREADS = 16
MAX_LOOKUPS, MAX_LOOKUPS_EACH = 256, 32
"""Most names that wait to be looked up, and most of them for one address."""
LOOKUP_S = 10.0
"""Seconds after which a name counts as unknown."""


class SourceCalls:
    """Looks names up and posts to sources, for the address that ordered it. For one event loop."""

    def __init__(self, most: int, *, allow_private: bool) -> None:
        """`most`: calls at one time."""
        self._allow_private = allow_private
        self._lookups = FairThreads(LOOKUP_THREADS, MAX_LOOKUPS, MAX_LOOKUPS_EACH, name="lookups")
        self._posts = ThreadPoolExecutor(most, thread_name_prefix="sources")

    async def addresses(self, source: HttpEndpoint, orderer: str) -> list[Address]:
        """Return the source's addresses, all of which may be called.

        Raises UpstreamUnreachable, or InvalidEndpointUrl if one may not be called; RateLimited or
        Unavailable if too many names are being looked up.
        """
        look_up = partial(addresses_of, source, allow_private=self._allow_private)
        try:
            async with asyncio.timeout(LOOKUP_S):
                return await self._lookups.run(orderer, look_up)
        except TimeoutError:
            raise UpstreamUnreachable(f"the host's name was not resolved within {LOOKUP_S:g} s") from None

    async def post(
        self,
        source: HttpEndpoint,
        orderer: str,
        path: str,
        body: bytes,
        *,
        max_bytes: int,
        received: Callable[[int], object],
    ) -> tuple[int, bytes]:
        """Return the status and body of the answer; a cancelled call ends within moments.

        Raises what `addresses` raises, and UpstreamUnreachable.
        """
        addresses = await self.addresses(source, orderer)
        loop, stopped = asyncio.get_running_loop(), threading.Event()
        call = partial(
            post,
            source,
            addresses,
            path,
            body,
            max_bytes=max_bytes,
            stopped=stopped,
            received=lambda size: loop.call_soon_threadsafe(received, size),
        )
        try:
            return await loop.run_in_executor(self._posts, call)
        finally:
            stopped.set()

    def close(self) -> None:
        """End; do not wait for names that are being looked up."""
        self._posts.shutdown(wait=False, cancel_futures=True)
        self._lookups.close(wait=False)
