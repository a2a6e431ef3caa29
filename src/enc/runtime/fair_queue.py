"""A bounded queue that serves its senders in turn by measured cost.

A sender is a tuple of keys from the outside in, for example `(address,)` or `(address, identity)`:
addresses share the work among themselves, and so do the identities of one address. Use only keys
that are proved: an identity by its signature or session, an address by its connection.

This is weighted fair queuing. Each sender has a clock that advances by the cost of its jobs. Next
is the sender whose clock would be lowest after one more job like its last. So a sender whose last
jobs were expensive waits longer, and a sender of few cheap jobs is served at once. A sender that
arrives starts at the group's clock, which advances by the cost of every job, divided by the number
of active members: it has no credit from before, and a stream of new senders cannot keep a waiting
one from its turn for ever.
"""

from collections import deque
from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from threading import Lock
from typing import Generic, TypeVar

from msgspec import Struct

from enc.core.errors import MisuseError, RateLimited, Unavailable

LEAST_COST = 1e-5
"""Cost of a job that measured less: no job is free."""
RETRY_AFTER_MS = 1000
_SLACK = 64
"""Outdated entries of a heap that are not worth removing."""

T = TypeVar("T")
Sender = tuple[Hashable, ...]


class _Member(Generic[T]):
    """A sender, or a group of senders that share an outer key."""

    __slots__ = (
        "active",
        "clock",
        "entry",
        "expected",
        "fresh",
        "fresh_count",
        "heap",
        "key",
        "members",
        "parent",
        "running",
        "served",
        "started",
        "waiting",
    )

    def __init__(self, key: Hashable, parent: "_Member[T] | None") -> None:
        self.key, self.parent = key, parent
        self.clock, self.active = 0.0, 0
        self.served: float = parent.clock if parent is not None else 0.0
        """Its clock in its parent: the cost that it was charged."""
        self.expected = 0.0
        """Cost of its last job: it is charged in advance, so that others come first while a job runs."""
        self.waiting = self.running = self.fresh_count = 0
        self.entry = -1
        """Number of its valid entry in the parent's heap."""
        self.members: dict[Hashable, _Member[T]] = {}
        self.heap: list[tuple[float, int, _Member[T]]] = []
        """What `served` would be after one more job like the last, number of the entry, member."""
        self.fresh: deque[T] = deque()
        self.started: deque[T] = deque()
        """Jobs that were put back: they are served before its fresh ones."""

    @property
    def is_active(self) -> bool:
        return self.waiting > 0 or self.running > 0


class Turn(Struct, Generic[T]):
    """A job that was taken. Pass it to `finish` with its cost, exactly once."""

    item: T
    member: "_Member[T]"
    expected: float

    @property
    def sender(self) -> Sender:
        keys, at = list[Hashable](), self.member
        while at.parent is not None:
            keys.append(at.key)
            at = at.parent
        return tuple(reversed(keys))


class FairQueue(Generic[T]):
    """Holds at most `max_waiting` jobs, and `max_each` of one outermost key. For any thread.

    `max_running`: most taken and not finished jobs of one outermost key; 0: no limit. It keeps
    places for others where a job cannot be interrupted.

    When all places are taken, a sender with fewer jobs than the largest one gets the place of that
    one's newest job. Each operation costs O(log senders). A sender without jobs is forgotten as
    soon as its debt does not matter any more; nothing is kept when nothing waits or runs.
    """

    def __init__(
        self, max_waiting: int, max_each: int, *, levels: int = 1, max_running: int = 0, jobs: str = "requests"
    ) -> None:
        """`levels`: number of keys of a sender. `jobs`: what the errors call the jobs."""
        if max_waiting < 1 or max_each < 1 or levels < 1:
            raise MisuseError("a fair queue needs room for at least one job, and at least one key for a sender")
        self._max_waiting, self._max_each, self._levels, self._jobs = max_waiting, max_each, levels, jobs
        self._max_running = max_running
        self._root: _Member[T] = _Member(None, None)
        self._by_count: dict[int, dict[_Member[T], None]] = {}
        """Outermost members by their number of fresh jobs."""
        self._most = 0
        self._numbers, self._lock = count(), Lock()

    def __len__(self) -> int:
        """Number of jobs that wait."""
        return self._root.waiting

    @property
    def senders(self) -> int:
        """Number of outermost keys that are remembered."""
        return len(self._root.members)

    def full(self) -> Unavailable:
        """Return the error for a job that has no place: also for one that `put` has displaced."""
        return Unavailable(f"too many {self._jobs} are waiting", retry_after_ms=RETRY_AFTER_MS)

    # Jobs in

    def put(self, sender: Sender, item: T) -> T | None:
        """Add a job. Return the job of another sender that lost its place to it, if one did.

        Raises RateLimited if this sender has too many jobs, or Unavailable if all places are taken
        by senders that have no more jobs than this one.
        """
        with self._lock:
            leaf = self._find(sender)
            top = self._top(leaf)
            displaced = None
            try:
                if top.fresh_count >= self._max_each:
                    raise RateLimited(
                        f"too many {self._jobs} of this sender are waiting", retry_after_ms=RETRY_AFTER_MS
                    )
                if self._root.fresh_count >= self._max_waiting:
                    if self._most <= top.fresh_count + 1:
                        raise self.full()
                    displaced = self._displace()
            except (RateLimited, Unavailable):
                self._forget_if_idle(leaf)
                raise
            self._append(leaf, item)
            return displaced

    def move(self, sender: Sender, item: T) -> None:
        """Add a job that was taken only to find out its sender's inner keys: always accepted, and
        the last of this sender's jobs.
        """
        with self._lock:
            self._append(self._find(sender), item)

    def _append(self, leaf: _Member[T], item: T) -> None:
        leaf.fresh.append(item)
        self._count_fresh(leaf, 1)
        self._add_waiting(leaf)

    def put_back(self, sender: Sender, item: T) -> None:
        """Add a job that was taken and has more to do: always accepted, and first among its sender's
        jobs. It is never displaced.
        """
        with self._lock:
            leaf = self._find(sender)
            leaf.started.append(item)
            self._add_waiting(leaf)

    def _find(self, sender: Sender) -> _Member[T]:
        if len(sender) != self._levels:
            raise MisuseError(f"a sender of this queue has {self._levels} keys")
        at = self._root
        for key in sender:
            found = at.members.get(key)
            if found is None:
                found = at.members[key] = _Member(key, at)
            at = found
        return at

    def _top(self, at: _Member[T]) -> _Member[T]:
        while at.parent is not None and at.parent is not self._root:
            at = at.parent
        return at

    def _add_waiting(self, leaf: _Member[T]) -> None:
        at = leaf
        while at.parent is not None:
            if not at.is_active:
                at.parent.active += 1
                at.served = max(at.served, at.parent.clock)
            at.waiting += 1
            if at.waiting == 1:
                self._schedule(at, at.parent)
            at = at.parent
        at.waiting += 1

    def _schedule(self, member: _Member[T], group: _Member[T]) -> None:
        member.entry = next(self._numbers)
        heappush(group.heap, (member.served + member.expected, member.entry, member))
        if len(group.heap) > 2 * len(group.members) + _SLACK:
            group.heap = [entry for entry in group.heap if entry[2].entry == entry[1]]
            heapify(group.heap)

    # Places

    def _count_fresh(self, leaf: _Member[T], by: int) -> None:
        """Count fresh jobs in or out. `_most` follows in steps of one, so this is O(1) per level."""
        top, at = self._top(leaf), leaf
        while at.parent is not None:
            at.fresh_count += by
            at = at.parent
        at.fresh_count += by
        before = self._by_count.get(top.fresh_count - by, {})
        before.pop(top, None)
        if not before:
            self._by_count.pop(top.fresh_count - by, None)
        if top.fresh_count:
            self._by_count.setdefault(top.fresh_count, {})[top] = None
        if self._most not in self._by_count or top.fresh_count > self._most:
            self._most = top.fresh_count if by > 0 else self._most - 1

    def _displace(self) -> T:
        """Remove the newest job of the sender that has most."""
        at = next(iter(self._by_count[self._most]))
        while at.members:
            at = max(at.members.values(), key=lambda member: member.fresh_count)
        item = at.fresh.pop()
        self._count_fresh(at, -1)
        self._remove_waiting(at)
        self._forget_if_idle(at)
        return item

    def _remove_waiting(self, leaf: _Member[T]) -> None:
        at = leaf
        while at.parent is not None:
            at.waiting -= 1
            if not at.is_active:
                at.parent.active -= 1
            at = at.parent
        at.waiting -= 1

    # Jobs out

    def take(self) -> Turn[T] | None:
        """Return the next job; None if no job waits, or no waiting sender may run another."""
        with self._lock:
            at, path = self._next_outermost(), list[_Member[T]]()
            while at is not None:
                path.append(at)
                at = self._next_of(at) if len(path) < self._levels else None
            if not path:
                return None
            leaf = path[-1]
            for at in path:
                at.running += 1
                at.served += leaf.expected
            self._root.running += 1
            if leaf.started:
                item = leaf.started.popleft()
            else:
                item = leaf.fresh.popleft()
                self._count_fresh(leaf, -1)
            self._remove_waiting(leaf)
            for at in path:
                if at.waiting and at.parent is not None:
                    self._schedule(at, at.parent)
            return Turn(item, leaf, leaf.expected)

    def _next_outermost(self) -> _Member[T] | None:
        """Return the next outermost member that may run another job, if there is one.

        Those that may not lose their entry in the heap here; `finish` schedules them again.
        """
        while (member := self._next_of(self._root)) is not None:
            if not self._max_running or member.running < self._max_running:
                return member
        return None

    def _next_of(self, group: _Member[T]) -> _Member[T] | None:
        """Return the group's waiting member with the lowest clock; forget idle ones on the way."""
        while group.heap:
            _, entry, member = heappop(group.heap)
            if entry != member.entry:
                continue
            if member.waiting:
                return member
            if not member.running:
                del group.members[member.key]
        return None

    def finish(self, turn: Turn[T], cost: float) -> None:
        """Charge a taken job's measured cost, in any unit that is the same for all jobs."""
        cost = max(cost, LEAST_COST)
        with self._lock:
            at = turn.member
            while at.parent is not None:
                group = at.parent
                group.clock += cost / group.active
                at.served += cost - turn.expected
                at.expected = cost
                at.running -= 1
                if at.waiting:
                    self._schedule(at, group)
                elif not at.running:
                    group.active -= 1
                at = group
            at.running -= 1
            self._forget_if_idle(turn.member)

    def _forget_if_idle(self, leaf: _Member[T]) -> None:
        """Remove a sender without jobs if it owes nothing; one in debt is removed when that has passed."""
        if not self._root.waiting and not self._root.running:
            self._root = _Member(None, None)
            return
        at = leaf
        while at.parent is not None:
            if not at.is_active:
                if at.served <= at.parent.clock and at.parent.members.get(at.key) is at:
                    del at.parent.members[at.key]
                    at.entry = -1
                else:
                    self._schedule(at, at.parent)
            at = at.parent
