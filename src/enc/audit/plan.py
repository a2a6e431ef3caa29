"""Which tasks an audit has. A large archive is many: its log is tried in one, its events are checked in others."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from enc.audit.court import Checked, Tried, check_part, try_log, try_whole
from enc.audit.heads import HeldHead
from enc.audit.piece import version_told
from enc.audit.reading import digest_of, read_header, read_lines
from enc.core.errors import EncError

PART = 40_000
"""Events that are worth a task of their own."""
TASKS_PER_CORE = 16
"""So that no core waits long for another at the end, and progress is seen."""
_TRY, _CHECK, _SKIP = 35, 100, 1
"""Microseconds of an event, about: tried in its log, checked by itself, and skipped."""


class Known(Struct, frozen=True):
    """What an earlier audit verified: so many events, and the SHA-256 of their lines."""

    events: int
    digest: str


class Survey(Struct, frozen=True, kw_only=True):
    """What an archive says of itself."""

    path: str
    enclave: bytes = b""
    enc_v: int = 2
    events: int = 0
    last_seq: int = -1
    known: int = 0
    """So many of its first events were verified before, and are the same."""
    problem: str = ""


class Item(Struct, frozen=True, kw_only=True):
    """One task. `tries`: the log; `checks`: the events from line `first` to before line `last`."""

    path: str
    enclave: bytes
    enc_v: int
    tries: bool
    checks: bool
    first: int = 0
    last: int | None = None
    weight: int = 0
    heads: tuple[HeldHead, ...] = ()
    seqs: frozenset[int] = frozenset()

    def run(self) -> list[Checked | Tried]:
        if self.tries and self.checks:
            return [*try_whole(self.path, self.enc_v, self.heads, self.seqs, self.first)]
        if self.tries:
            return [try_log(self.path, self.heads, self.seqs)]
        return [check_part(self.path, self.enclave, self.enc_v, self.first, self.last)]


def survey(path: str, known: Mapping[bytes, Known]) -> Survey:
    """Look at an archive's beginning; and at all of its bytes, but into none, where some of it was verified before."""
    try:
        header = read_header(path)
        enc_v = header.enc_v
        for lines in read_lines(path, 0, 1):
            enc_v = version_told(lines[0], enc_v)
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
    surveys: Iterable[Survey], heads: Mapping[bytes, Sequence[HeldHead]], part: int = PART, cores: int = 2
) -> list[Item]:
    """The tasks of an audit. Where there is one core, nothing is gained by many tasks for one archive."""
    found = [each for each in surveys if not each.problem]
    seqs: dict[bytes, set[int]] = {}
    for each in found:
        seqs.setdefault(each.enclave, set()).add(each.last_seq)
    return [
        item
        for each in found
        for item in _items(each, tuple(heads.get(each.enclave, ())), frozenset(seqs[each.enclave]), part, cores)
    ]


def _items(each: Survey, heads: tuple[HeldHead, ...], seqs: frozenset[int], part: int, cores: int) -> list[Item]:
    asked = seqs if len(seqs) > 1 else frozenset[int]()
    new = max(each.events - each.known, 0)
    whole = Item(
        path=each.path,
        enclave=each.enclave,
        enc_v=each.enc_v,
        tries=True,
        checks=True,
        first=each.known,
        weight=each.events * _TRY + new * _CHECK,
        heads=heads,
        seqs=asked,
    )
    if new <= part or cores == 1:
        return [whole]
    trying = replace(whole, checks=False, first=0, weight=each.events * _TRY)
    return [trying, *(_checking(whole, first, last, count) for first, last, count in _parts(each.known, new, part))]


def _checking(whole: Item, first: int, last: int | None, count: int) -> Item:
    return replace(
        whole, tries=False, first=first, last=last, weight=count * _CHECK + first * _SKIP, heads=(), seqs=frozenset()
    )


def _parts(first: int, count: int, part: int) -> Iterator[tuple[int, int | None, int]]:
    """Ranges of lines, the small ones first: a task skips what stands before its part, and small ones fill gaps."""
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
    """Things with their weights, in at most so many bins of about one weight; the heaviest bin first."""
    heap = [(0, i) for i in range(bins)]
    filled: list[list[tuple[int, T]]] = [[] for _ in range(bins)]
    for weight, item in sorted(items, key=lambda pair: -pair[0]):
        load, i = heappop(heap)
        filled[i].append((weight, item))
        heappush(heap, (load + weight + 1, i))
    return sorted((each for each in filled if each), key=lambda each: -sum(weight for weight, _ in each))
