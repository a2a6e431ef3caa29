"""The tasks of an audit. A large archive is split: one task replays its log, others check
events.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from enc.audit.archive_reader import digest_of, read_header, read_lines
from enc.audit.collected_heads import CollectedHead
from enc.audit.event_check import log_version
from enc.audit.replay_task import CheckResult, ReplayResult, check_and_replay, check_part, replay_log
from enc.core.errors import EncError

PART = 40_000
"""Events that justify a task of their own."""
TASKS_PER_CORE = 16
"""Keeps all cores busy until the end, and progress visible."""
_REPLAY, _CHECK, _SKIP = 35, 100, 1
"""Estimated microseconds to replay, to check, and to skip an event."""


class VerifiedPrefix(Struct, frozen=True):
    """What an earlier audit verified: the number of events, and the SHA-256 of their lines."""

    events: int
    digest: str


class Survey(Struct, frozen=True, kw_only=True):
    """What an archive claims about itself."""

    path: str
    enclave: bytes = b""
    enc_v: int = 2
    events: int = 0
    last_seq: int = -1
    known: int = 0
    """How many of its first events an earlier audit verified."""
    problem: str = ""


class AuditTask(Struct, frozen=True, kw_only=True):
    """One task. `replays`: the log; `checks`: the events from line `first` to before line
    `last`.
    """

    path: str
    enclave: bytes
    enc_v: int
    replays: bool
    checks: bool
    first: int = 0
    last: int | None = None
    weight: int = 0
    heads: tuple[CollectedHead, ...] = ()
    seqs: frozenset[int] = frozenset()

    def run(self) -> list[CheckResult | ReplayResult]:
        if self.replays and self.checks:
            return [*check_and_replay(self.path, self.enc_v, self.heads, self.seqs, self.first)]
        if self.replays:
            return [replay_log(self.path, self.heads, self.seqs)]
        return [check_part(self.path, self.enclave, self.enc_v, self.first, self.last)]


def survey(path: str, known: Mapping[bytes, VerifiedPrefix]) -> Survey:
    """Read an archive's beginning; hash its known lines if an earlier audit verified some of it."""
    try:
        header = read_header(path)
        enc_v = header.enc_v
        for lines in read_lines(path, 0, 1):
            enc_v = log_version(lines[0], enc_v)
        before = known.get(header.enclave)
        is_known = before is not None and before.events and digest_of(path, before.events) == before.digest
    except EncError as e:
        return Survey(path=path, problem=e.message)
    return Survey(
        path=path,
        enclave=header.enclave,
        enc_v=enc_v,
        events=header.events,
        last_seq=header.checkpoint_seq,
        known=before.events if before is not None and is_known else 0,
    )


def plan(
    surveys: Iterable[Survey], heads: Mapping[bytes, Sequence[CollectedHead]], part: int = PART, cores: int = 2
) -> list[AuditTask]:
    """Return the tasks of an audit. With one core, an archive is not split."""
    found = [each for each in surveys if not each.problem]
    seqs: dict[bytes, set[int]] = {}
    for each in found:
        seqs.setdefault(each.enclave, set()).add(each.last_seq)
    return [
        item
        for each in found
        for item in _tasks_of(each, tuple(heads.get(each.enclave, ())), frozenset(seqs[each.enclave]), part, cores)
    ]


def _tasks_of(
    each: Survey, heads: tuple[CollectedHead, ...], seqs: frozenset[int], part: int, cores: int
) -> list[AuditTask]:
    asked = seqs if len(seqs) > 1 else frozenset[int]()
    new = max(each.events - each.known, 0)
    whole = AuditTask(
        path=each.path,
        enclave=each.enclave,
        enc_v=each.enc_v,
        replays=True,
        checks=True,
        first=each.known,
        weight=each.events * _REPLAY + new * _CHECK,
        heads=heads,
        seqs=asked,
    )
    if new <= part or cores == 1:
        return [whole]
    replaying = replace(whole, checks=False, first=0, weight=each.events * _REPLAY)
    return [replaying, *(_checking(whole, first, last, count) for first, last, count in _parts(each.known, new, part))]


def _checking(whole: AuditTask, first: int, last: int | None, count: int) -> AuditTask:
    return replace(
        whole, replays=False, first=first, last=last, weight=count * _CHECK + first * _SKIP, heads=(), seqs=frozenset()
    )


def _parts(first: int, count: int, part: int) -> Iterator[tuple[int, int | None, int]]:
    """Yield ranges of lines, small ones first: a task must skip the lines before its range, and
    small tasks fill gaps.
    """
    sizes, left, least = list[int](), count, max(part // 4, count // 32, 1)
    while left:
        size = left if left < 2 * least else max(least, left // 4)
        sizes.append(size)
        left -= size
    for size in reversed(sizes):
        count -= size
        yield first, first + size if count else None, size
        first += size


T = TypeVar("T")


def spread(items: Iterable[tuple[int, T]], bins: int) -> list[list[tuple[int, T]]]:
    """Distribute weighted items to at most `bins` bins of similar weight; return the heaviest
    first.
    """
    heap = [(0, i) for i in range(bins)]
    filled: list[list[tuple[int, T]]] = [[] for _ in range(bins)]
    for weight, item in sorted(items, key=lambda pair: -pair[0]):
        load, i = heappop(heap)
        filled[i].append((weight, item))
        heappush(heap, (load + weight + 1, i))
    return sorted((each for each in filled if each), key=lambda each: -sum(weight for weight, _ in each))
