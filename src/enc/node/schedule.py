"""Which batch of which queue is sent next. A pure machine: no I/O, and the time is an argument.

- One batch of a queue at a time: it holds its queue until its outcome is durable.
- Queues stand in three ways, by how their last try went: QUICK, FAILING, or UNKNOWN, which is never tried and also slow
  to answer. FAILING ones get at most a quarter of all there is (connections, memory for bodies, places in line),
  together with UNKNOWN ones at most three quarters. So QUICK ones never wait for any that hang.
- Within these shares whoever came first goes first: nobody starves.
- A host gets so many tries a second, whatever the number of its endpoints. A try that would be one too many waits for
  its time, without keeping others waiting.
- A failed try is repeated after a time that doubles, up to a limit; after so many tries the batch is dead.

What it holds is bounded: places in line, batches on their way, and how queues stood when they were last tried, of which
the oldest is forgotten first (such a queue is UNKNOWN again).
"""

from collections import OrderedDict
from collections.abc import Iterable
from enum import IntEnum
from heapq import heappop, heappush
from itertools import islice
from urllib.parse import urlsplit

from msgspec import Struct

from enc.node.store.push import DueBatch

OVERHEAD = 16 * 1024
"""Bytes that a connection takes beside its body."""
COPIES = 3
"""A body is larger than its events, and lies in the socket's hands as well while it is sent."""
HOST_BURST_MS = 1000
"""A host that was left alone may get what this time is worth at once."""
HOST_AHEAD_MS = 1000
"""How long a try may stand in line for its host: places are for those that can go."""


class QueueHealth(IntEnum):
    """How a queue's last try went."""

    QUICK = 0
    UNKNOWN = 1
    FAILING = 2


class Bounds(Struct, frozen=True, kw_only=True):
    connections: int = 256
    unsent_bytes: int = 128 << 20
    waiting: int = 4096
    """Places in line."""
    known: int = 65_536
    """Queues of which it is remembered how they stood."""
    slow_ms: int = 5000
    """An answer after this is not QUICK."""
    host_per_s: float = 0.0
    """0: no limit."""
    tries: int = 10
    first_retry_ms: int = 1000
    max_retry_ms: int = 300_000


class _Share:
    """So much of something, and how much of it each standing has taken."""

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


class _InFlight(Struct):
    """A batch that was taken and whose outcome is not durable yet."""

    health: QueueHealth
    weight: int
    is_over: bool = False
    """The try is; its outcome is on the way to the disk."""


class Schedule:
    """`offer` what is due, `take` what goes next, `finish` a try, `free` its queue once the outcome is durable."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._known: OrderedDict[int, QueueHealth] = OrderedDict()
        self._lines: tuple[list[tuple[float, int, DueBatch]], ...] = ([], [], [])
        """For each standing a heap by the time at which it may go, then by who came first."""
        self._in_line: set[int] = set()
        self._flights: dict[int, _InFlight] = {}
        self._hosts: dict[str, float] = {}
        """When all tries that a host was promised are paid for."""
        self._count = 0
        self._places = _Share(bounds.waiting)
        self._connections, self._bytes = _Share(bounds.connections), _Share(bounds.unsent_bytes)

    def health(self, due: DueBatch) -> QueueHealth:
        """A batch that failed before tells of its queue, where nothing later is known."""
        return self._known.get(due.queue, QueueHealth.FAILING if due.tries else QueueHealth.UNKNOWN)

    def remember_failing(self, queues: Iterable[int]) -> None:
        """What was known before a restart: those that hang must not delay others once more."""
        self._known.update((queue, QueueHealth.FAILING) for queue in islice(queues, self.bounds.known))

    @property
    def waiting(self) -> int:
        return self._places.used

    @property
    def calling(self) -> int:
        """Tries under way."""
        return self._connections.used

    def holds(self, queue: int) -> bool:
        return queue in self._in_line or queue in self._flights

    def offer(self, due: DueBatch, now: int, ahead_ms: int = HOST_AHEAD_MS) -> bool:
        """Put a batch in line, unless its queue is there already or on its way, or there is no place for it yet.

        `ahead_ms`: how long it may stand there for its host.
        """
        standing, host = self.health(due), urlsplit(due.url).hostname or ""
        ready_at = max(now, self._hosts.get(host, 0.0) - HOST_BURST_MS)
        if self.holds(due.queue) or ready_at > now + ahead_ms or not self._places.fits(standing, 1):
            return False
        self._places.add(standing, 1)
        self._in_line.add(due.queue)
        self._count += 1
        heappush(self._lines[standing], (ready_at, self._count, due))
        self._promise(host, now)
        return True

    def take(self, now: int) -> DueBatch | None:
        """The batch that goes now."""
        heads = [(line[0], standing) for standing, line in self._open_lines() if line[0][0] <= now]
        if not heads:
            return None
        (_, _, due), standing = min(heads, key=lambda head: head[0][:2])
        heappop(self._lines[standing])
        self._places.add(standing, -1)
        self._in_line.discard(due.queue)
        flight = _InFlight(standing, self._weight(due))
        self._connections.add(standing, 1)
        self._bytes.add(standing, flight.weight)
        self._flights[due.queue] = flight
        return due

    def next_at(self) -> float | None:
        """When `take` has something, if nothing else happens; None: not before something does."""
        return min((line[0][0] for _, line in self._open_lines()), default=None)

    def finish(self, queue: int, *, has_failed: bool, took_ms: int) -> tuple[QueueHealth, QueueHealth]:
        """A try is over: how its queue stood before it, and stands now. The queue is held until `free`."""
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
        """The outcome is durable, or there was none: the queue's next batch may go."""
        self._release(self._flights.pop(queue))

    def retry_at(self, due: DueBatch, now: int, jitter: float) -> int | None:
        """When a batch whose try failed just now is tried again; None: never. `jitter`: from 0 up to 1."""
        if due.tries + 1 >= self.bounds.tries:
            return None
        delay = min(self.bounds.first_retry_ms << due.tries, self.bounds.max_retry_ms)
        return now + delay - int(delay * jitter / 5)

    def _open_lines(self) -> list[tuple[QueueHealth, list[tuple[float, int, DueBatch]]]]:
        """The lines whose first may go by their share; none while too many outcomes are not durable."""
        if len(self._flights) >= self.bounds.waiting:
            return []
        return [
            (standing, line)
            for standing, line in zip(QueueHealth, self._lines, strict=True)
            if line and self._connections.fits(standing, 1) and self._bytes.fits(standing, self._weight(line[0][2]))
        ]

    def _weight(self, due: DueBatch) -> int:
        """What a batch takes while it is sent. It never counts for more than the least share, or it would not go."""
        return min(due.bytes * COPIES + OVERHEAD, self.bounds.unsent_bytes // 4)

    def _release(self, flight: _InFlight) -> None:
        if not flight.is_over:
            self._connections.add(flight.health, -1)
            self._bytes.add(flight.health, -flight.weight)
            flight.is_over = True

    def _promise(self, host: str, now: int) -> None:
        """One more try, which the host has paid for when its time has passed."""
        if not self.bounds.host_per_s:
            return
        if len(self._hosts) > self.bounds.waiting:
            self._hosts = {host: paid for host, paid in self._hosts.items() if paid > now}
        self._hosts[host] = max(self._hosts.get(host, 0.0), now) + 1000 / self.bounds.host_per_s
