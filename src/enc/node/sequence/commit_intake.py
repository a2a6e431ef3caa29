"""The event loop's side of writing: takes in commits as they arrive and passes their results back.

Commits that arrive within a few milliseconds go to admission as one group, and the results of one
batch come back in one call. Under load, threads are woken once for many commits, not once for each.
A commit that arrives alone does not wait.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from enc.core.errors import EncError, Unavailable
from enc.core.primitives.types import Receipt
from enc.node.ops.internal_errors import internal_error
from enc.node.sequence.admission import MAX_GROUP, Admission, Arrival, Rejection
from enc.node.sequence.admitted import CommitOutcome
from enc.runtime.fair_share import FairShare

MAX_BYTES = 256 << 20
"""Total size of the commits that may wait."""
ORDINARY = 64 << 10
"""Size that most commits do not exceed."""
GATHER_S = 0.004
"""Time between two groups, unless a group is full earlier."""

Result = Receipt | EncError
Reply = Callable[[Result, bytes | None], None]
"""Takes a commit's result, and its hash if it could be parsed. Called on the event loop's thread."""


class CommitSender(Struct):
    """Where the result of a commit goes, and what is counted for it."""

    reply: Reply
    size: int
    address: str
    began: float
    request: str
    """Id of the request, for the log."""


class CommitReplies:
    """Passes results to the senders of commits. `reject` and `deliver` may be called from any thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        max_waiting: int,
        on_results: Callable[[Sequence[Result], Sequence[float]], None] = lambda results, seconds: None,
        *,
        by_address: bool = True,
    ) -> None:
        """`on_results` gets results, and the seconds that each took. `by_address`: whether each address
        has a share of the places.
        """
        self._loop, self._on_results = loop, on_results
        self._count, self._bytes = FairShare(max_waiting), FairShare(MAX_BYTES)
        """Number and total size of the commits that have no result yet, shared by address."""
        self._by_address = by_address

    @property
    def waiting(self) -> int:
        """Number of commits that have no result yet."""
        return self._count.used

    @property
    def is_full(self) -> bool:
        """Whether no further commit of ordinary size may wait."""
        return self._count.free < 1 or self._bytes.free < ORDINARY

    def expect(self, address: str, size: int) -> bool:
        """Count a commit that will get a result; return False if it must not wait."""
        key = address if self._by_address else None
        if not self._count.take(key):
            return False
        if not self._bytes.take(key, size):
            self._count.release(key)
            return False
        return True

    def reject(self, rejections: Sequence[Rejection]) -> None:
        self._loop.call_soon_threadsafe(self._reply, rejections)

    def deliver(self, outcomes: Sequence[CommitOutcome]) -> None:
        results = [(admitted.sender, result, admitted.commit.hash) for admitted, result in outcomes]
        self._loop.call_soon_threadsafe(self._reply, results)

    def _reply(self, results: Sequence[tuple[CommitSender, Result, bytes | None]]) -> None:
        for sender, result, commit_hash in results:
            key = sender.address if self._by_address else None
            self._count.release(key)
            self._bytes.release(key, sender.size)
            try:
                sender.reply(result, commit_hash)
            except Exception as e:  # a failing reply must not affect the others
                internal_error(e, "reply", sender.request)
        now = time.monotonic()  # the loop's own time has milliseconds only
        self._on_results([result for _, result, _ in results], [now - sender.began for sender, _, _ in results])


class CommitIntake:
    """Groups commits and submits them to admission. To be used on the event loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        admission: Admission,
        replies: CommitReplies,
        gather_s: float = GATHER_S,
    ) -> None:
        self._loop, self._admission, self._replies = loop, admission, replies
        self._gather_s = gather_s
        self._arrivals: list[Arrival] = []
        self._due = 0.0
        """Earliest time of the next group, by the loop's clock."""
        self._timer: asyncio.Handle
        self.is_closed = False
        """Whether the node is stopping: waiting commits are answered, new ones are rejected."""

    @property
    def waiting(self) -> int:
        """Number of commits that have no result yet."""
        return self._replies.waiting

    @property
    def is_full(self) -> bool:
        """Whether no further commit of ordinary size may wait."""
        return self._replies.is_full

    def submit(self, body: bytes, reply: Reply, address: str = "", request: str = "") -> None:
        """Queue a commit from an address; `reply` is called once with its result. `request`: its id.

        Raises Unavailable if too many commits wait, or too many of this address.
        """
        if self.is_closed:
            raise Unavailable("the node is shutting down", retry_after_ms=1000)
        if not self._replies.expect(address, len(body)):
            raise Unavailable("too many commits are waiting, of this address or of all", retry_after_ms=1000)
        sender = CommitSender(reply, len(body), address, time.monotonic(), request)
        self._arrivals.append((body, sender, address))
        if len(self._arrivals) == 1:
            self._timer = self._schedule()
        elif len(self._arrivals) == MAX_GROUP:
            self._timer.cancel()
            self._pass_on()

    def _schedule(self) -> asyncio.Handle:
        if self._due <= self._loop.time():
            return self._loop.call_soon(self._pass_on)
        return self._loop.call_at(self._due, self._pass_on)

    def _pass_on(self) -> None:
        self._due = self._loop.time() + self._gather_s
        arrivals, self._arrivals = self._arrivals, []
        self._admission.submit(arrivals)

    async def drained(self) -> None:
        """Wait until no commit waits for its result."""
        while self._replies.waiting:
            await asyncio.sleep(0.005)
