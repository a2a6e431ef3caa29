"""The sender: takes due batches from the store, seals them, posts them, and reports each result.

It only reads the store; the node writes the results. Until a result is durable, its queue waits. A
killed sender loses nothing: batches without a reported result are still due, and are sent once
more.
"""

import asyncio
import base64
import os
import random
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

import structlog
from msgspec.json import encode

from enc.core.errors import EncError
from enc.core.primitives.sealing import NONCE_SIZE, encrypt
from enc.core.session.envelope import is_challenge_answer, seal_challenge
from enc.node.push.body import EventSource, render
from enc.node.push.outcomes import challenge_result, delivery_result
from enc.node.push.request_kind import RequestKind
from enc.node.push.schedule import QueueHealth, Schedule
from enc.node.push.sender_pipe import MAX_RESULTS
from enc.node.store.push_interface import DeliveryResult, DueBatch, PostponedResult, PushBatch, PushReads, PushResult
from enc.runtime.checked_http_async import EndpointAnswer, MayConnect
from enc.runtime.clock import now_ms

PAGE = 1024
"""Queues per page."""
PAGES = 4
"""Pages per look; further queues follow with the next look."""
MAX_KEYS = 4096
"""Maximum number of cached recipient keys."""
PAUSE_S = 1.0
"""Pause after the store could not be read or written."""

NO_KEY = "the identity is not a public key"
NOT_READABLE = "the batch cannot be read"
SUSPENDED = "the batch has events of a suspended enclave"
SUSPENDED_MS = 30_000
"""When a batch with events of a suspended enclave is looked at again. Others of its queue go on."""
NOT_ANSWERED = "not the answer to the challenge"
CHALLENGE_SIZE = 32
MAX_ANSWER = 4096
"""Most bytes of an answer to a challenge; the answer itself has about 100."""

_RANDOM = random.SystemRandom()
_log = structlog.get_logger("enc.push.sender")


class Reads(PushReads, EventSource, Protocol):
    """What the sender reads from the store."""

    def is_suspended(self, batch: PushBatch) -> bool:
        """Return whether the batch has events or notices of a suspended enclave."""
        ...


class SenderNode(Protocol):
    """The node, at the other end of the pipe."""

    async def key_of(self, identity: bytes) -> bytes:
        """Return the key that seals the identity's deliveries; empty if there is none."""
        ...

    async def store_results(self, results: tuple[PushResult, ...]) -> bool:
        """Return whether the results are durable."""
        ...


class Calls(Protocol):
    async def call(self, url: str, body: bytes, may_connect: MayConnect) -> str | None: ...

    async def ask(
        self, url: str, body: bytes, may_connect: MayConnect, *, max_answer: int
    ) -> EndpointAnswer | None: ...


class PushSender:
    """Sends due batches: `run` until `stop`. Create it on the event loop's thread."""

    def __init__(
        self,
        schedule: Schedule,
        reads: Reads,
        node: SenderNode,
        calls: Calls,
        seq_pub: bytes,
        *,
        look_s: float = 0.25,
        clock: Callable[[], int] = now_ms,
        jitter: Callable[[], float] = _RANDOM.random,
    ) -> None:
        """`look_s`: seconds between two looks for due batches."""
        self._schedule, self._reads, self._node, self._calls, self._seq_pub = schedule, reads, node, calls, seq_pub
        self._look_s, self._clock, self._jitter = look_s, clock, jitter
        self._keys: OrderedDict[bytes, bytes] = OrderedDict()
        self._tries: set[asyncio.Task[None]] = set()
        self._results: list[PushResult] = []
        self._reported = 0
        """Number of results at the start of the list that were reported and not answered yet."""
        self._wake, self._has_news, self._is_over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._after = 0
        """The queue after which the next look begins: the last one that was scheduled."""
        self._freed: list[int] = []
        self._look_at = 0.0

    def stop(self) -> None:
        """Start no further requests."""
        self._is_over.set()
        self._wake.set()

    async def run(self) -> None:
        """Run until `stop` is called. Running requests continue: see `finish`."""
        reporting = asyncio.create_task(self._report_results())
        try:
            while not self._is_over.is_set():
                self._wake.clear()
                try:
                    self._look()
                except EncError as e:
                    _log.error("push_store_failed", reason=e.message)
                    await asyncio.sleep(PAUSE_S)
                while (due := self._schedule.take(self._clock())) is not None:
                    self._start(due)
                await self._rest()
        finally:
            reporting.cancel()

    async def finish(self, grace_s: float) -> tuple[PushResult, ...]:
        """Wait up to `grace_s` for running requests; return the results that were not reported to
        the node.
        """
        if self._tries:
            await asyncio.wait(self._tries, timeout=grace_s)
        return tuple(self._results[self._reported :])

    async def _rest(self) -> None:
        """Wait until something happens, or until the next look is due."""
        loop = asyncio.get_running_loop()
        pause = max(self._look_at - loop.time(), 0.0)
        if (at := self._schedule.next_at()) is not None:
            pause = min(pause, max(at - self._clock(), 1) / 1000)
        try:
            async with asyncio.timeout(pause):
                await self._wake.wait()
        except TimeoutError:
            pass

    # What is due

    def _look(self) -> None:
        """Offer due batches: regularly from all queues, and in between from queues that have just
        become free, if their host may be called.

        A look begins after the last queue that was scheduled: if there are not enough places for
        all, queues take turns.
        """
        loop, now = asyncio.get_running_loop(), self._clock()
        freed, self._freed = self._freed, []
        if loop.time() < self._look_at and len(freed) <= PAGE // 8:
            for queue in freed:
                for due in self._reads.due(now, 1, queue - 1):
                    self._schedule.offer(due, now, 0)
            return
        self._look_at = loop.time() + self._look_s
        start, after, last, is_round = self._after, self._after, 0, not self._after
        for _ in range(PAGES):
            page = self._reads.due(now, PAGE, after)
            for due in page:
                last = due.queue if self._schedule.offer(due, now) else last
            after = page[-1].queue if len(page) == PAGE else 0
            if not after and is_round:
                after = start
                break
            is_round = is_round or not after
        self._after = last or after

    # One try

    def _start(self, due: DueBatch) -> None:
        task = asyncio.create_task(self._try(due))
        self._tries.add(task)
        task.add_done_callback(self._tries.discard)

    async def _try(self, due: DueBatch) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            error = await self._send(due)
        except EncError as e:  # not the endpoint's fault: it is not counted against the endpoint
            _log.error("push_store_failed", reason=e.message)
            await asyncio.sleep(PAUSE_S)
            error = None
        except Exception as e:  # a damaged batch must not stop the others
            _log.error("internal_error", where="sender", exc_info=e)
            error = NOT_READABLE
        if error is None:
            self._free(due.queue)
        elif error == SUSPENDED:
            self._report(PostponedResult(due.queue, due.push_seq, self._clock() + SUSPENDED_MS))
        else:
            self._finish(due, error, int((loop.time() - start) * 1000))

    async def _send(self, due: DueBatch) -> str | None:
        """Send a batch, or a challenge in its place. Returns the error, or an empty string; None if
        there was nothing to send any more, or if nothing may be sent to the host's address now.
        """
        key = await self._key_of(due.identity)
        if self._schedule.kind(due.queue) is not RequestKind.BATCH:
            return await self._challenge(due, key) if key else NO_KEY
        batch = self._reads.batch(due.queue, due.push_seq)
        if batch is None:
            return None
        if self._reads.is_suspended(batch):
            return SUSPENDED
        if not key:
            return NO_KEY
        body = sealed(self._seq_pub, due, render(self._reads, batch), key)
        return await self._calls.call(due.url, body, self._may_connect(due))

    async def _challenge(self, due: DueBatch, key: bytes) -> str | None:
        """Ask whether the recipient answers at its URL. Returns as `_send`."""
        challenge, nonce = os.urandom(CHALLENGE_SIZE), os.urandom(NONCE_SIZE)
        body = encode(seal_challenge(key, self._seq_pub, due.identity, due.url, challenge, nonce))
        answer = await self._calls.ask(due.url, body, self._may_connect(due), max_answer=MAX_ANSWER)
        if answer is None:
            return None
        if answer.error:
            return answer.error
        return "" if is_challenge_answer(challenge, answer.body) else NOT_ANSWERED

    def _may_connect(self, due: DueBatch) -> MayConnect:
        return lambda address: self._schedule.may_connect(due.queue, address, self._clock())

    async def _key_of(self, identity: bytes) -> bytes:
        if identity not in self._keys:
            self._keys[identity] = await self._node.key_of(identity)
        self._keys.move_to_end(identity)
        while len(self._keys) > MAX_KEYS:
            self._keys.popitem(last=False)
        return self._keys[identity]

    def _finish(self, due: DueBatch, error: str, took_ms: int) -> None:
        result = self._result(due, error, self._clock())
        before, _ = self._schedule.finish(due.queue, has_failed=bool(error), took_ms=took_ms)
        if error and before is not QueueHealth.FAILING:
            _log.warning("endpoint_failing", **_named(due), reason=error)
        if not error and before is QueueHealth.FAILING:
            _log.info("endpoint_recovered", **_named(due))
        if isinstance(result, DeliveryResult) and result.suspend_until is not None:
            _log.warning("endpoint_suspended", **_named(due), reason=error)
        self._report(result)

    def _report(self, result: PushResult) -> None:
        self._results.append(result)
        self._wake.set()
        self._has_news.set()

    def _result(self, due: DueBatch, error: str, now: int) -> PushResult:
        if not error:
            self._schedule.note_answer(due)
        if self._schedule.kind(due.queue) is RequestKind.BATCH:
            return delivery_result(due, error, now, self._schedule, self._jitter())
        result = challenge_result(due, error, now, self._schedule, self._jitter())
        if error != NO_KEY:  # nothing was sent
            self._schedule.end_challenge(due.queue, now, has_failed=bool(error))
        return result

    def _free(self, queue: int) -> None:
        self._schedule.free(queue)
        self._freed.append(queue)
        self._wake.set()

    # Results

    async def _report_results(self) -> None:
        """Report results to the node, many at once, and repeat until they are durable."""
        while True:
            await self._has_news.wait()
            results = self._results[:MAX_RESULTS]
            self._reported = len(results)
            is_durable = await self._node.store_results(tuple(results))
            self._reported = 0
            if not is_durable:
                await asyncio.sleep(PAUSE_S)
                continue
            del self._results[: len(results)]
            if not self._results:
                self._has_news.clear()
            for result in results:
                self._free(result.queue)


def sealed(seq_pub: bytes, due: DueBatch, plaintext: bytes, key: bytes) -> bytes:
    """Return a delivery as it is posted (enc.core.session.envelope.seal_push). It may be megabytes: its
    parts are joined once.

    The url is also inside the sealed part: all endpoints of a recipient share one key, and nothing
    binds the url outside.
    """
    nonce = os.urandom(NONCE_SIZE)
    plaintext = b'{"url":%b,%b' % (encode(due.url), plaintext[1:])
    content = base64.b64encode(nonce + encrypt(key, plaintext, nonce))
    outside = encode({"type": "Push", "from": seq_pub.hex(), "to": due.identity.hex(), "url": due.url})
    return b"".join((outside[:-1], b',"content":"', content, b'"}'))


def _named(due: DueBatch) -> dict[str, str]:
    """Return the log fields of a batch. Only the host of the url: the rest may be a secret."""
    return {"identity": due.identity.hex(), "host": urlsplit(due.url).hostname or ""}
