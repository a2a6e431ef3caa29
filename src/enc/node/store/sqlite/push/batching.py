"""Splits the waiting events of one queue into batches.

Batches are bounded. Each enclave's events stay in order, and enclaves take turns: while events of
others wait, one enclave gets at most half of a batch. Notices are few and short: there is at most
one per enclave, about its latest event, and notices go into the first batches.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from itertools import islice
from typing import Generic, TypeVar

from msgspec import Struct

from enc.node.store.push_interface import BatchLimits, Right

E = TypeVar("E", bound=Hashable)
"""Type of an enclave's key."""

NOTICE_BYTES, TYPE_BYTES = 320, 24
"""Approximate size of a notice, and of each type that it counts, without the type's name."""


class OutboxRun(Struct, Generic[E], frozen=True):
    """A run of outbox events, as one queue receives it."""

    enclave: E
    first_seq: int
    ends: Sequence[int]
    """For each event, the end offset of its JSON if the JSON of all events of the run were joined.
    """
    right: Right
    types: dict[str, int] | None = None


Span = tuple[int, int]
"""First seq and count."""


class BatchDraft(Generic[E]):
    """A batch that is being filled."""

    def __init__(self) -> None:
        self._spans: dict[E, list[Span]] = {}
        self.notices: list[tuple[E, int, dict[str, int]]] = []
        self.pushed, self.bytes = 0, 0

    @property
    def events(self) -> int:
        return self.pushed + len(self.notices)

    @property
    def runs(self) -> list[tuple[E, int, int]]:
        return [(enclave, *span) for enclave, spans in self._spans.items() for span in spans]

    def push(self, enclave: E, first_seq: int, count: int, size: int) -> None:
        spans = self._spans.setdefault(enclave, [])
        if spans and sum(spans[-1]) == first_seq:
            spans[-1] = (spans[-1][0], spans[-1][1] + count)
        else:
            spans.append((first_seq, count))
        self.pushed += count
        self.bytes += size

    def notify(self, enclave: E, seq: int, types: dict[str, int]) -> None:
        self.notices.append((enclave, seq, types))
        self.bytes += NOTICE_BYTES + sum(len(type_.encode()) + TYPE_BYTES for type_ in types)


class _EnclaveQueue:
    """The events of one enclave that are not in a batch yet: runs by ascending seq, and how many
    events of the first run are used.
    """

    def __init__(self) -> None:
        self._runs: deque[tuple[int, Sequence[int]]] = deque()
        self._used = 0

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, first_seq: int, ends: Sequence[int]) -> None:
        self._runs.append((first_seq, ends))

    def fit(self, events: int, size: int) -> tuple[int, int, int]:
        """Return, for the first run: the next seq, how many events from there fit, and their total
        size.
        """
        first, ends = self._runs[0]
        last = min(bisect_right(ends, self._before + size, self._used), self._used + max(events, 0))
        return first + self._used, last - self._used, ends[last - 1] - self._before if last > self._used else 0

    def first(self) -> tuple[int, int, int]:
        """Return the next event as a run of one, whatever its size."""
        first, ends = self._runs[0]
        return first + self._used, 1, ends[self._used] - self._before

    @property
    def _before(self) -> int:
        return self._runs[0][1][self._used - 1] if self._used else 0

    def use(self, count: int) -> None:
        self._used += count
        if self._used == len(self._runs[0][1]):
            self._runs.popleft()
            self._used = 0


def batches_of(waiting: Iterable[OutboxRun[E]], limits: BatchLimits) -> list[BatchDraft[E]]:
    """Return the batches that hold everything that waits for a queue, in order of arrival."""
    lanes, latest = dict[E, _EnclaveQueue](), dict[E, tuple[int, dict[str, int]]]()
    for run in waiting:
        if run.right == "P":
            lanes.setdefault(run.enclave, _EnclaveQueue()).add(run.first_seq, run.ends)
        else:
            _, types = latest.get(run.enclave, (0, {}))
            latest[run.enclave] = run.first_seq + len(run.ends) - 1, {**types, **(run.types or {})}
    drafts, queue = list[BatchDraft[E]](), list(lanes.items())
    while queue:
        draft, queue = _fill(queue, limits)
        drafts.append(draft)
    _notify(drafts, latest, limits)
    return drafts


def _notify(drafts: list[BatchDraft[E]], latest: dict[E, tuple[int, dict[str, int]]], limits: BatchLimits) -> None:
    notices, at = iter(latest.items()), 0
    while some := list(islice(notices, limits.events)):
        if at == len(drafts):
            drafts.append(BatchDraft())
        for enclave, (seq, types) in some:
            drafts[at].notify(enclave, seq, types)
        at += 1


def _fill(
    queue: list[tuple[E, _EnclaveQueue]], limits: BatchLimits
) -> tuple[BatchDraft[E], list[tuple[E, _EnclaveQueue]]]:
    """Return the next batch and the remaining enclaves: those that had no turn come first."""
    draft, half = BatchDraft[E](), BatchLimits(events=max(1, limits.events // 2), bytes=limits.bytes // 2)
    later, served = list[tuple[E, _EnclaveQueue]](), list[tuple[E, _EnclaveQueue]]()
    for at, (enclave, lane) in enumerate(queue):
        if draft.pushed >= limits.events:
            later += queue[at:]
            break
        is_alone = not (later or served) and at == len(queue) - 1
        if not _take(draft, enclave, lane, limits if is_alone else half, limits):
            later.append((enclave, lane))
        elif lane:
            served.append((enclave, lane))
    if not later and len(served) == 1:  # no other enclave waits
        _take(draft, *served[0], limits, limits)
    return draft, later + [each for each in served if each[1]]


def _take(draft: BatchDraft[E], enclave: E, lane: _EnclaveQueue, share: BatchLimits, limits: BatchLimits) -> bool:
    """Move events into the batch, up to the enclave's share; into an empty batch, at least one.

    Returns whether any event was moved.
    """
    events, size = 0, 0
    while lane:
        room = min(share.events - events, limits.events - draft.pushed)
        first, count, bytes_ = lane.fit(room, min(share.bytes - size, limits.bytes - draft.bytes))
        if count <= 0:
            if draft.pushed:
                break
            first, count, bytes_ = lane.first()
        draft.push(enclave, first, count, bytes_)
        lane.use(count)
        events, size = events + count, size + bytes_
    return events > 0
