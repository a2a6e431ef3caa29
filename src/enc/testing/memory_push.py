"""Endpoints, outbox, queues and batches in dictionaries: the push part of a MemoryStore."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from msgspec.json import encode

from enc.core.log.event import wire_event
from enc.core.primitives.types import Event
from enc.node.store.push_interface import (
    BatchLimits,
    BatchNotice,
    ChallengeResult,
    DeadBatch,
    DueBatch,
    Endpoints,
    EndpointState,
    EventRange,
    PostponedResult,
    PushBatch,
    PushResult,
    PushTotals,
    QueueReport,
    Recipients,
    register,
)
from enc.node.store.sqlite.push.batching import OutboxRun, batches_of
from enc.node.store.sqlite.push.delivery_results import DEAD, DELIVERED, MAX_ERROR, WAITING
from enc.node.store.sqlite.push.endpoint_state import NOT_CONFIRMED
from enc.node.store.steps import Step


@dataclass
class _Batch:
    batch: PushBatch
    events: int
    bytes: int
    next_try: int
    state: int = WAITING
    tries: int = 0
    settled_at: int = 0


@dataclass
class _Queue:
    number: int
    identity: bytes
    url: str
    push_seq: int = 0
    delivered: int = 0
    last_error: str = ""
    last_error_at: int | None = None
    confirmed_at: int | None = None
    challenges: int = 0
    held_until: int = 0
    missing: int = 0
    is_suspended: bool = False
    registrar: int = 0
    failures: int = 0
    confirmed_to: str = ""
    renew_at: int = 0
    batches: dict[int, _Batch] = field(default_factory=dict)

    def having(self, state: int) -> list[_Batch]:
        return [batch for batch in self.batches.values() if batch.state == state]

    def report(self) -> QueueReport:
        waiting = self.having(WAITING)
        return QueueReport(
            queue=self.number,
            identity=self.identity,
            url=self.url,
            push_seq=self.push_seq,
            waiting=len(waiting),
            waiting_events=sum(each.events for each in waiting),
            oldest=min((each.batch.made_at for each in waiting), default=None),
            delivered=self.delivered,
            dead=len(self.having(DEAD)),
            last_error=self.last_error,
            last_error_at=self.last_error_at,
            state=self.state,
            confirmed_at=self.confirmed_at,
            held_until=self.held_until,
        )

    @property
    def state(self) -> EndpointState:
        if self.is_suspended or self.confirmed_at is not None:
            return "suspended" if self.is_suspended else "confirmed"
        return "challenge failed" if self.challenges else "unconfirmed"


@dataclass
class _Waiting:
    """One event in the outbox."""

    event: Event
    recipients: Recipients
    type_seq: int


class PushMemory:
    """The part of a MemoryStore that holds no logs."""

    def __init__(self) -> None:
        self._endpoints: dict[bytes, Endpoints] = {}
        self._queues: dict[tuple[bytes, str], _Queue] = {}
        self._outbox: list[_Waiting] = []
        self._types: dict[bytes, Counter[str]] = {}
        self._made_at = 0

    def _push(self, step: Step) -> None:
        """Record what a step means for pushing."""
        event = step.event
        if event is None:
            return
        counts = self._types.setdefault(event.enclave, Counter())
        counts[event.type] += 1
        register(self._endpoints.setdefault(event.enclave, {}), step.effects)
        for change in step.effects.endpoints:
            if change.url is not None:
                queue = self._queue(change.identity, change.url)
                if queue.confirmed_at is None:
                    queue.challenges = queue.held_until = queue.missing = queue.failures = 0
                    queue.registrar = list(self._endpoints).index(event.enclave) + 1
        if step.recipients:
            self._outbox.append(_Waiting(event, step.recipients, counts[event.type]))

    def _again(self, enclave: bytes, steps: Sequence[Step]) -> None:
        """Rebuild after an enclave's log was replaced. Waiting events keep waiting."""
        self._endpoints.pop(enclave, None)
        self._types.pop(enclave, None)
        for step in steps:
            self._push(step)

    def _forget(self, enclave: bytes) -> None:
        """Forget everything of a purged enclave; batches that refer to it find nothing."""
        self._endpoints.pop(enclave, None)
        self._types.pop(enclave, None)
        self._outbox = [each for each in self._outbox if each.event.enclave != enclave]

    def _queue(self, identity: bytes, url: str) -> _Queue:
        return self._queues.setdefault((identity, url), _Queue(len(self._queues) + 1, identity, url))

    def _numbered(self, number: int) -> _Queue | None:
        return next((queue for queue in self._queues.values() if queue.number == number), None)

    # Reading

    def endpoints(self, enclave: bytes) -> Endpoints:
        return dict(self._endpoints.get(enclave, {}))

    def due(self, now: int, limit: int, after: int = 0) -> list[DueBatch]:
        found = list[DueBatch]()
        for queue in sorted(self._queues.values(), key=lambda each: each.number):
            waiting = [(each.next_try, n) for n, each in queue.batches.items() if each.state == WAITING]
            if queue.number > after and waiting and min(waiting)[0] <= now and queue.held_until <= now:
                push_seq = min(waiting)[1]
                batch = queue.batches[push_seq]
                state = queue.confirmed_at, queue.challenges, queue.missing, queue.registrar
                past = queue.failures, queue.confirmed_to, queue.renew_at
                found.append(
                    DueBatch(queue.number, push_seq, queue.identity, queue.url, batch.tries, batch.bytes, *state, *past)
                )
        return found[:limit]

    def batch(self, queue: int, push_seq: int) -> PushBatch | None:
        found = self._numbered(queue)
        return found.batches[push_seq].batch if found and push_seq in found.batches else None

    def list_batches(self, identity: bytes, url: str, first: int, last: int, limit: int) -> list[PushBatch]:
        queue = self._queues.get((identity, url))
        kept = sorted(queue.batches) if queue else []
        return [queue.batches[n].batch for n in kept if queue and first <= n <= last][:limit]

    def queue_reports(
        self, enclave: bytes | None = None, identity: bytes | None = None, limit: int = 10_000
    ) -> list[QueueReport]:
        urls = {(who, url) for (who, _), url in self._endpoints.get(enclave or b"", {}).items()}
        chosen = [
            queue
            for key, queue in sorted(self._queues.items())
            if (enclave is None or key in urls) and identity in (None, key[0])
        ]
        return [queue.report() for queue in chosen[:limit]]

    def totals(self) -> PushTotals:
        reports = self.queue_reports(limit=len(self._queues))
        return PushTotals(
            queues=len(reports),
            waiting=sum(each.waiting for each in reports),
            dead=sum(each.dead for each in reports),
            delivered=sum(each.delivered for each in reports),
            oldest=min((each.oldest for each in reports if each.oldest is not None), default=None),
            unconfirmed=sum(bool(each.waiting) and each.confirmed_at is None for each in reports),
        )

    # Writing

    def fan_out(self, now: int, limits: BatchLimits = BatchLimits()) -> bool:  # noqa: B008
        taken, self._outbox = self._outbox[: limits.rows], self._outbox[limits.rows :]
        self._made_at = max(self._made_at, now)
        waiting = dict[tuple[bytes, str], list[OutboxRun[bytes]]]()
        for each in taken:
            event, size = each.event, len(encode(wire_event(each.event)))
            for to in each.recipients:
                run = OutboxRun(
                    event.enclave, event.seq, list(accumulate([size])), to.right, {event.type: each.type_seq}
                )
                waiting.setdefault((to.identity, to.url), []).append(run)
        for key, runs in waiting.items():
            self._add(self._queue(*key), runs, limits)
        return bool(self._outbox)

    def _add(self, queue: _Queue, waiting: list[OutboxRun[bytes]], limits: BatchLimits) -> None:
        for draft in batches_of(waiting, limits):
            queue.push_seq += 1
            batch = PushBatch(
                push_seq=queue.push_seq,
                made_at=self._made_at,
                runs=tuple(EventRange(*run) for run in draft.runs),
                notices=tuple(BatchNotice(*notice) for notice in draft.notices),
            )
            queue.batches[queue.push_seq] = _Batch(batch, draft.events, draft.bytes, self._made_at)

    def record_results(self, results: Sequence[PushResult]) -> list[DeadBatch]:
        died = list[DeadBatch]()
        for result in results:
            queue = self._numbered(result.queue)
            if isinstance(result, ChallengeResult):
                if queue:
                    self._record_challenge(queue, result)
                continue
            batch = queue.batches.get(result.push_seq) if queue else None
            if queue is None or batch is None or batch.state != WAITING:
                continue
            if isinstance(result, PostponedResult):
                batch.next_try = result.next_try
                continue
            if not result.error:
                batch.state, batch.settled_at = DELIVERED, result.at
                queue.delivered += 1
                queue.missing = queue.failures = queue.held_until = 0
                continue
            queue.last_error, queue.last_error_at = result.error[:MAX_ERROR], result.at
            queue.missing, queue.failures, queue.held_until = result.missing, result.failures, result.resume_at
            if result.must_confirm:
                queue.confirmed_at, queue.challenges = None, 0
            if result.suspend_until is not None:
                queue.confirmed_at, queue.challenges, queue.missing, queue.is_suspended = None, 0, 0, True
                queue.held_until = result.suspend_until
                continue
            batch.tries += 1
            if result.next_try is not None:
                batch.next_try = result.next_try
                continue
            batch.state, batch.settled_at = DEAD, result.at
            queue.missing, queue.confirmed_at = 0, None
            died.append(DeadBatch(queue.number, result.push_seq, queue.identity, queue.url, result.error))
        return died

    def _record_challenge(self, queue: _Queue, result: ChallengeResult) -> None:
        if result.error:
            if result.is_confirmed:
                queue.renew_at = result.held_until
            else:
                queue.confirmed_at, queue.held_until = None, result.held_until
            queue.challenges += 1
            queue.last_error, queue.last_error_at = result.error[:MAX_ERROR], result.at
        else:
            queue.confirmed_at, queue.confirmed_to, queue.is_suspended = result.at, result.address, False
            queue.challenges = queue.held_until = queue.missing = queue.failures = queue.renew_at = 0

    def expire_unconfirmed(self, made_before: int, now: int, limit: int = 10_000) -> int:
        old = [
            (each.batch.made_at, queue.number, each)
            for queue in self._queues.values()
            for each in queue.having(WAITING)
            if queue.confirmed_at is None and max(each.batch.made_at, each.next_try) <= made_before
        ]
        for _, number, batch in sorted(old, key=lambda each: each[0])[:limit]:
            batch.state, batch.settled_at = DEAD, now
            queue = self._numbered(number)
            if queue and not queue.last_error:
                queue.last_error, queue.last_error_at = NOT_CONFIRMED, now
        return min(len(old), limit)

    def delete_settled(self, delivered_before: int, dead_before: int, limit: int = 10_000) -> bool:
        until = {DELIVERED: delivered_before, DEAD: dead_before}
        old = [
            (each.state, each.settled_at, queue.number, push_seq)
            for queue in self._queues.values()
            for push_seq, each in queue.batches.items()
            if each.state in until and each.settled_at <= until[each.state]
        ]
        for *_, number, push_seq in sorted(old)[:limit]:
            queue = self._numbered(number)
            if queue:
                del queue.batches[push_seq]
        return len(old) >= limit

    def redeliver(self, now: int, identity: bytes | None = None, url: str | None = None) -> int:
        count = 0
        for queue in self._queues.values():
            if identity in (None, queue.identity) and url in (None, queue.url):
                if queue.held_until:
                    queue.registrar = 0 if queue.confirmed_at is None else queue.registrar
                    queue.challenges = queue.held_until = queue.missing = queue.failures = queue.renew_at = 0
                for batch in queue.having(DEAD):
                    batch.state, batch.tries, batch.next_try = WAITING, 0, now
                    count += 1
        return count
