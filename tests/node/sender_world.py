"""A store with queues, a node and endpoints around a PushSender, without processes."""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct, structs
from msgspec.json import encode

from enc.core.primitives.sealing import push_key
from enc.core.session.envelope import challenge_answer, open_push
from enc.node.push.schedule import Bounds, Schedule
from enc.node.push.sender import PushSender
from enc.node.store.events import RawEvent
from enc.node.store.push_interface import (
    ChallengeResult,
    DeliveryResult,
    DueBatch,
    EventRange,
    PostponedResult,
    PushBatch,
    PushResult,
)
from enc.runtime.checked_http_async import EndpointAnswer, MayConnect
from tests.core.world import START, person

NODE = person("node")
PATIENCE_S = 30
URL = "https://hook.example/in"


class Waiting(Struct):
    push_seq: int
    next_try: int = 0
    tries: int = 0


class SenderWorld:
    """A store with batches, the node that records their results, and endpoints; a test can make each of them fail."""

    def __init__(self, batches: dict[int, int]) -> None:
        """Create this many batches for each queue."""
        self.now, self.step_ms = START, 1
        self.store = {
            queue: [Waiting(push_seq) for push_seq in range(1, count + 1)] for queue, count in batches.items()
        }
        self.posted: list[tuple[int, int]] = []
        """(queue, push_seq) of each try, in order."""
        self.settled: list[DeliveryResult] = []
        self.challenged: list[ChallengeResult] = []
        self.confirmed: dict[int, int] = {}
        self.held: dict[int, int] = {}
        self.missing: dict[int, int] = {}
        self.failures: dict[int, int] = {}
        """Challenges that failed in a row."""
        self.keys_asked = 0
        self.has_key = True
        self.asked: list[int] = []
        """Queues whose endpoints got a challenge, in order."""
        self.reply: Callable[[int, bytes], EndpointAnswer] = lambda queue, answer: EndpointAnswer("", answer)
        """Gets the right answer to a challenge."""
        self.address: Callable[[int], str] = lambda queue: "192.0.2.1"
        self.confirmed_to: dict[int, str] = {}
        self.renew_at: dict[int, int] = {}
        self.failed: dict[int, int] = {}
        """Deliveries that failed in a row."""
        self.registrar: Callable[[int], int] = lambda queue: 1
        self.size, self.names = 10, 1
        """Size of each batch, and number of hosts."""
        self.suspended: set[int] = set()
        """Numbers of the batches with events of a suspended enclave."""
        self.is_durable: Callable[[], bool] = lambda: True
        self.read: Callable[[int, int], None] = lambda queue, push_seq: None
        """Called before a batch is read, to raise."""
        self.answer: Callable[[int, int], Awaitable[str]] = self.well

    async def well(self, queue: int, push_seq: int) -> str:
        return ""

    def url(self, queue: int) -> str:
        return f"{URL}/{queue}" if self.names == 1 else f"https://hook{queue % self.names}.example/in/{queue}"

    # The store

    def due(self, now: int, limit: int, after: int = 0) -> list[DueBatch]:
        found = []
        for queue, batches in sorted(self.store.items()):
            ready = [batch for batch in batches if batch.next_try <= now]
            if ready and queue > after and self.held.get(queue, 0) <= now:
                first = min(ready, key=lambda batch: (batch.next_try, batch.push_seq))
                identity = person(f"queue{queue}").public
                one = DueBatch(queue, first.push_seq, identity, self.url(queue), first.tries, self.size)
                failures, missing = self.failures.get(queue, 0), self.missing.get(queue, 0)
                state = {"confirmed_at": self.confirmed.get(queue), "challenges": failures, "missing": missing}
                state |= {"failures": self.failed.get(queue, 0), "renew_at": self.renew_at.get(queue, 0)}
                to = self.confirmed_to.get(queue, "")
                found.append(structs.replace(one, registrar=self.registrar(queue), confirmed_to=to, **state))
        return found[:limit]

    def batch(self, queue: int, push_seq: int) -> PushBatch | None:
        self.read(queue, push_seq)
        return PushBatch(push_seq, START, (EventRange(bytes(32), 0, 1),), ())

    def is_suspended(self, batch: PushBatch) -> bool:
        return batch.push_seq in self.suspended

    def items(self, enclave: bytes, first_seq: int, count: int) -> list[RawEvent]:
        return []

    # The node

    async def key_of(self, identity: bytes) -> bytes:
        self.keys_asked += 1
        return push_key(NODE, identity) if self.has_key else b""

    async def store_results(self, outcomes: tuple[PushResult, ...]) -> bool:
        await asyncio.sleep(0)
        if not self.is_durable():
            return False
        for outcome in outcomes:
            if isinstance(outcome, ChallengeResult):
                self.challenged.append(outcome)
                self._record_challenge(outcome)
                continue
            if isinstance(outcome, PostponedResult):
                (batch,) = [each for each in self.store[outcome.queue] if each.push_seq == outcome.push_seq]
                batch.next_try = outcome.next_try
                continue
            self.settled.append(outcome)
            self.missing[outcome.queue], self.failed[outcome.queue] = outcome.missing, outcome.failures
            self.held[outcome.queue] = outcome.resume_at
            if outcome.must_confirm:
                self.confirmed.pop(outcome.queue, None)
            if outcome.suspend_until is not None:
                self.held[outcome.queue] = outcome.suspend_until
                self.confirmed.pop(outcome.queue, None)
                continue
            batches = self.store[outcome.queue]
            (batch,) = [batch for batch in batches if batch.push_seq == outcome.push_seq]
            if outcome.next_try is None:
                batches.remove(batch)
            else:
                batch.tries, batch.next_try = batch.tries + 1, outcome.next_try
        return True

    def _record_challenge(self, outcome: ChallengeResult) -> None:
        queue = outcome.queue
        self.failures[queue] = self.failures.get(queue, 0) + 1 if outcome.error else 0
        if outcome.error and outcome.is_confirmed:
            self.renew_at[queue] = outcome.held_until
            return
        self.confirmed.pop(queue, None)
        if not outcome.error:
            self.confirmed[queue], self.confirmed_to[queue] = outcome.at, outcome.address
        self.held[queue], self.renew_at[queue], self.failed[queue] = outcome.held_until, 0, 0

    # Endpoints

    async def call(self, url: str, body: bytes, may_connect: MayConnect) -> str | None:
        queue = int(url.rpartition("/")[2])
        if not may_connect(self.address(queue)):
            return None
        push = open_push(person(f"queue{queue}"), body)
        assert (push.from_, push.url) == (NODE.public, url)
        self.posted.append((queue, push.body["push_seq"]))
        return await self.answer(queue, push.body["push_seq"])

    async def ask(self, url: str, body: bytes, may_connect: MayConnect, *, max_answer: int) -> EndpointAnswer | None:
        queue = int(url.rpartition("/")[2])
        if not may_connect(self.address(queue)):
            return None
        challenge = open_push(person(f"queue{queue}"), body)
        assert (challenge.type, challenge.from_, challenge.url) == ("Challenge", NODE.public, url)
        self.asked.append(queue)
        return self.reply(queue, encode(challenge_answer(challenge)))

    def run(
        self,
        until: Callable[[], bool],
        bounds: Bounds = Bounds(first_retry_ms=1),  # noqa: B008
        look_s: float = 0.0,
    ) -> PushSender:
        """Let a sender work until this holds."""

        async def work() -> PushSender:
            sender = PushSender(
                Schedule(bounds), self, self, self, NODE.public, look_s=look_s, clock=self.tick, jitter=lambda: 0
            )
            running = asyncio.create_task(sender.run())
            async with asyncio.timeout(PATIENCE_S):
                while not until() and not running.done():
                    await asyncio.sleep(0)
            sender.stop()
            await running
            for task in sender._tries:
                task.cancel()
            return sender

        return asyncio.run(work())

    def tick(self) -> int:
        self.now += self.step_ms
        return self.now

    @property
    def is_empty(self) -> bool:
        return not any(self.store.values())
