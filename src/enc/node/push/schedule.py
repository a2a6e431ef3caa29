"""Decides which batch of which queue is sent next. A pure state machine: no I/O, and the time is an
argument.

- A queue sends one batch at a time: the batch holds its queue until its result is durable.
- A queue's health is the result of its last attempt: QUICK, FAILING, or UNKNOWN, which means never
  tried or slow. FAILING queues get at most a quarter of every resource (connections, memory for
  bodies, places in line), FAILING and UNKNOWN ones together at most three quarters. So QUICK ones
  never wait for endpoints that hang.
- Within these shares, first come, first served: no queue starves.
- A host gets a limited number of requests and bytes per second, and of requests at a time, whatever
  the number of its endpoints. Further requests wait without delaying other hosts.
- A queue whose endpoint is not confirmed gets a challenge in place of its batch, within narrower
  limits. One whose confirmation is old gets a challenge within the limits of batches, so that
  strangers cannot delay it.
- A failed attempt is repeated after a delay that doubles, up to a limit; after a number of attempts
  the batch is dead. The queue's other batches wait for a delay that doubles with each failure of the
  queue in a row; after a number of them the endpoint is not confirmed any more.

Its memory is bounded: places in line, batches in flight, and the health of recently tried queues,
of which the oldest is forgotten first (such a queue is UNKNOWN again).
"""

from collections import OrderedDict
from collections.abc import Iterable
from enum import IntEnum
from heapq import heappop, heappush
from itertools import islice
from math import inf
from urllib.parse import urlsplit

from msgspec import Struct

from enc.node.push.challenge_limits import ChallengeLimits, ChallengeReservation
from enc.node.push.host_limits import HostLimits, HostRates, Reservation
from enc.node.push.known_addresses import KnownAddresses
from enc.node.push.request_kind import RequestKind, kind_of
from enc.node.store.push_interface import DueBatch

OVERHEAD = 16 * 1024
"""Memory that a connection takes beside its body."""
COPIES = 3
"""A body is larger than its events, and is also in the socket's buffers while it is sent."""
CHALLENGE_BYTES = 1024
"""Approximate size of a challenge."""
HOST_AHEAD_MS = 1000
"""How long a request may wait in line for its host: places are for requests that can be sent."""


class QueueHealth(IntEnum):
    """Result of a queue's last attempt."""

    QUICK = 0
    UNKNOWN = 1
    FAILING = 2


class Bounds(Struct, frozen=True, kw_only=True):
    connections: int = 256
    unsent_bytes: int = 128 << 20
    waiting: int = 4096
    """Places in line."""
    known: int = 65_536
    """Queues whose health is remembered."""
    slow_ms: int = 5000
    """A slower answer is not QUICK."""
    host: HostRates = HostRates()
    confirmed_ms: int | None = None
    """How long a confirmation counts; None: endpoints need none."""
    tries: int = 10
    first_retry_ms: int = 1000
    max_retry_ms: int = 300_000
    max_hold_ms: int | None = None
    """For development: longest time that a queue is held, in place of limits on challenges."""


class _Share:
    """A limited resource, and how much of it queues of each health use."""

    def __init__(self, total: int) -> None:
        self.total, self._used = total, [0, 0, 0]

    @property
    def used(self) -> int:
        return sum(self._used)

    def fits(self, standing: QueueHealth, amount: int) -> bool:
        _, unknown, failing = self._used
        if standing >= QueueHealth.UNKNOWN and unknown + failing + amount > self.total * 3 // 4:
            return False
        if standing == QueueHealth.FAILING and failing + amount > self.total // 4:
            return False
        return self.used + amount <= self.total

    def add(self, standing: QueueHealth, amount: int) -> None:
        self._used[standing] += amount


class _Place(Struct):
    """What a request takes of its host's limits."""

    kind: RequestKind
    host: Reservation
    challenge: ChallengeReservation | None
    """None: it takes nothing from the limits of challenges, or its end was recorded."""


class _InFlight(Struct):
    """A batch that was taken and whose result is not durable yet."""

    health: QueueHealth
    weight: int
    place: _Place
    is_over: bool = False
    """The request has ended; its result is not durable yet."""


class Schedule:
    """Schedules batches: `offer` due ones, `take` the next to send, `finish` an attempt, `free` its
    queue once the result is durable.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._known: OrderedDict[int, QueueHealth] = OrderedDict()
        self._lines: tuple[list[tuple[float, int, DueBatch]], ...] = ([], [], [])
        """For each health a heap, by the earliest time to send, then by arrival."""
        self._in_line: dict[int, _Place] = {}
        self._flights: dict[int, _InFlight] = {}
        self._addresses = KnownAddresses(bounds.known)
        self._hosts = HostLimits(bounds.host, self._addresses, bounds.known)
        self._challenges = ChallengeLimits(bounds.first_retry_ms, self._addresses, bounds.known, bounds.max_hold_ms)
        self._count = 0
        self._places = _Share(bounds.waiting)
        self._connections, self._bytes = _Share(bounds.connections), _Share(bounds.unsent_bytes)

    def health(self, due: DueBatch) -> QueueHealth:
        """Return a queue's health; if unknown, judged by the batch's failed attempts."""
        return self._known.get(due.queue, QueueHealth.FAILING if due.tries else QueueHealth.UNKNOWN)

    def remember_failing(self, queues: Iterable[int]) -> None:
        """Mark queues as failing after a restart: endpoints that hang must not delay others again."""
        self._known.update((queue, QueueHealth.FAILING) for queue in islice(queues, self.bounds.known))

    @property
    def waiting(self) -> int:
        return self._places.used

    @property
    def calling(self) -> int:
        """Requests in flight."""
        return self._connections.used

    def holds(self, queue: int) -> bool:
        return queue in self._in_line or queue in self._flights

    def offer(self, due: DueBatch, now: int, ahead_ms: int = HOST_AHEAD_MS) -> bool:
        """Put a batch in line, unless its queue is in line or in flight, or there is no place.
        Returns whether it was.

        `ahead_ms`: how long it may wait there for its host.
        """
        standing, host = self.health(due), urlsplit(due.url).hostname or ""
        kind = kind_of(due, now, self.bounds.confirmed_ms)
        ready_at = self._ready_at(due, host, now, kind)
        if self.holds(due.queue) or ready_at > now + ahead_ms or not self._places.fits(standing, 1):
            return False
        self._places.add(standing, 1)
        size, challenge = CHALLENGE_BYTES, None
        if kind is RequestKind.BATCH:
            size = due.bytes * 4 // 3
        if kind is RequestKind.CHALLENGE:
            challenge = self._challenges.reserve(host, due.registrar, now, is_new=not due.challenges)
        self._in_line[due.queue] = _Place(kind, self._hosts.reserve(host, size, now), challenge)
        self._count += 1
        heappush(self._lines[standing], (ready_at, self._count, due))
        return True

    def take(self, now: int) -> DueBatch | None:
        """Return the batch to send now; None if there is none."""
        heads = [(line[0], standing) for standing, line in self._open_lines() if line[0][0] <= now]
        if not heads:
            return None
        (_, _, due), standing = min(heads, key=lambda head: head[0][:2])
        heappop(self._lines[standing])
        self._places.add(standing, -1)
        weight, place = self._weight(due), self._in_line.pop(due.queue)
        flight = _InFlight(standing, weight, place)
        self._connections.add(standing, 1)
        self._bytes.add(standing, flight.weight)
        self._flights[due.queue] = flight
        return due

    def kind(self, queue: int) -> RequestKind:
        """Return what is to be sent for the batch that was taken."""
        return self._flights[queue].place.kind

    def may_connect(self, queue: int, address: str, now: int) -> bool:
        """Charge a connection to an address. Return whether it may be made; if not, `free` the
        queue.
        """
        place = self._flights[queue].place
        self._addresses.note(place.host.host, address)
        if place.challenge is not None and not self._challenges.may_connect(place.challenge, address, now):
            return False
        return self._hosts.may_connect(place.host, address, now)

    def address(self, queue: int) -> str:
        """Return the last address to which the request of a queue could connect; empty if none."""
        host = self._flights[queue].place.host
        return host.address if host.may_connect else ""

    def is_elsewhere(self, due: DueBatch) -> bool:
        """Return whether a request went to an address at which nobody has shown that it is the
        host's.
        """
        address, host = self.address(due.queue), self._flights[due.queue].place.host.host
        return address not in ("", due.confirmed_to) and not self._addresses.is_proven(host, address)

    def note_answer(self, due: DueBatch) -> None:
        """Record that the endpoint took a batch or answered a challenge; call `finish` after it."""
        place, address = self._flights[due.queue].place, self.address(due.queue)
        if place.kind is not RequestKind.BATCH or urlsplit(due.url).scheme == "https":
            self._addresses.prove(place.host.host, address)
        if due.confirmed_at is not None:
            self._challenges.note_answer(place.host.host, due.registrar)

    def end_challenge(self, queue: int, now: int, *, has_failed: bool) -> None:
        """Record the result of a challenge; call `finish` after it."""
        place = self._flights[queue].place
        challenge, place.challenge = place.challenge, None
        if challenge is not None and has_failed:
            self._challenges.fail(challenge, now)
        elif challenge is not None:
            self._challenges.succeed(challenge)

    def next_at(self) -> float | None:
        """Return when `take` will have a batch if nothing else happens; None if it will not."""
        return min((line[0][0] for _, line in self._open_lines()), default=None)

    def finish(self, queue: int, *, has_failed: bool, took_ms: int) -> tuple[QueueHealth, QueueHealth]:
        """Record the end of an attempt. Returns its queue's health before and after. The queue is
        held until `free`.
        """
        flight = self._flights[queue]
        self._release(flight)
        well = QueueHealth.QUICK if took_ms < self.bounds.slow_ms else QueueHealth.UNKNOWN
        now = QueueHealth.FAILING if has_failed else well
        self._known[queue] = now
        self._known.move_to_end(queue)
        while len(self._known) > self.bounds.known:
            self._known.popitem(last=False)
        return flight.health, now

    def free(self, queue: int) -> None:
        """Release a queue whose result is durable, or that had nothing to send."""
        self._release(self._flights.pop(queue))

    def retry_at(self, due: DueBatch, now: int, jitter: float) -> int | None:
        """Return when to retry a batch that failed just now; None: never. `jitter`: from 0 up to 1."""
        return None if due.tries + 1 >= self.bounds.tries else self._delayed(due.tries, now, jitter)

    def resume_at(self, due: DueBatch, now: int, jitter: float) -> int:
        """Return when any batch of a queue may be sent again after one failed just now."""
        return self._delayed(due.failures, now, jitter)

    def must_confirm(self, due: DueBatch) -> bool:
        """Return whether a failed delivery ends the endpoint's confirmation."""
        if self.bounds.confirmed_ms is None:
            return False
        return due.failures + 1 >= self.bounds.tries or self.is_elsewhere(due)

    def _delayed(self, failures: int, now: int, jitter: float) -> int:
        delay = min(self.bounds.first_retry_ms << min(failures, 32), self.bounds.max_retry_ms)
        return now + delay - int(delay * jitter / 5)

    def _open_lines(self) -> list[tuple[QueueHealth, list[tuple[float, int, DueBatch]]]]:
        """Return the lines whose first batch fits its share; none while too many results are not
        durable.
        """
        if len(self._flights) >= self.bounds.waiting:
            return []
        return [
            (standing, line)
            for standing, line in zip(QueueHealth, self._lines, strict=True)
            if line and self._connections.fits(standing, 1) and self._bytes.fits(standing, self._weight(line[0][2]))
        ]

    def _ready_at(self, due: DueBatch, host: str, now: int, kind: RequestKind) -> float:
        """Return when the host's limits allow the request, or infinity if others must end first."""
        times = [now, self._hosts.ready_at(host)]
        if kind is RequestKind.CHALLENGE:
            times.append(self._challenges.ready_at(host, due.registrar, is_new=not due.challenges))
        return max(inf if at is None else at for at in times)

    def _weight(self, due: DueBatch) -> int:
        """Return the memory that a batch in line takes while it is sent; at most the smallest share, or it
        could never be sent.
        """
        size = due.bytes if self._in_line[due.queue].kind is RequestKind.BATCH else CHALLENGE_BYTES
        return min(size * COPIES + OVERHEAD, self.bounds.unsent_bytes // 4)

    def _release(self, flight: _InFlight) -> None:
        if not flight.is_over:
            self._connections.add(flight.health, -1)
            self._bytes.add(flight.health, -flight.weight)
            flight.is_over = True
            self._hosts.release(flight.place.host)
            if flight.place.challenge is not None:
                self._challenges.cancel(flight.place.challenge)
