"""A whole fleet of enclaves in a folder, made on all cores; the same bytes from a seed, however many there are."""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile

import msgspec
from msgspec import Struct

from enc.bench.collecting import Line, collect
from enc.bench.kinds import Kind, Planted
from enc.bench.making import Maker
from enc.bench.packing import earlier, pack, whole
from enc.bench.people import population
from enc.bench.plan import Plan, draw_plan
from enc.bench.planting import assign, conduct_of
from enc.core.errors import MisuseError

MAX_ENCLAVES, MAX_EVENTS, MAX_SEED, MAX_JOBS = 100_000, 100_000_000, 2**53 - 1, 256
HEADS, PLANTED = "heads.jsonl", "planted.json"
_SPOOL = 4 << 20
"""Bytes of lines that are kept in memory; what exceeds them goes to a file without a name."""
_PORTION = 2_000
"""Events that are worth handing to another process."""

Progress = Callable[[int, int], None]
"""Called with how many events are made, and how many there will be."""


class Made(Struct, frozen=True):
    """One enclave that is in the folder."""

    events: int
    bytes: int
    archives: int
    heads: tuple[Line, ...]
    planted: Planted | None


class Fleet(Struct, frozen=True, kw_only=True):
    enclaves: int
    events: int
    bytes: int
    archives: int
    heads: int
    planted: tuple[Planted, ...]


def generate(
    out: Path,
    *,
    enclaves: int,
    events: int,
    seed: int,
    plants: Sequence[Kind] = (),
    jobs: int = 1,
    progress: Progress = lambda made, total: None,
) -> Fleet:
    """Make a fleet in `out`, which must be empty or not there. One enclave is made by one process."""
    _check(enclaves, events, seed, jobs)
    people = population(enclaves)
    drawn = [draw_plan(seed, i, size, people) for i, size in enumerate(sizes(enclaves, events))]
    plans = assign(drawn, plants, seed)
    _prepare(out)
    total, heads, planted = Made(0, 0, 0, (), None), 0, list[Planted]()
    with (out / HEADS).open("wb") as file, _workers(min(jobs, enclaves)) as run:
        for made in run(out, plans):
            file.writelines(msgspec.json.encode(line) + b"\n" for line in made.heads)
            heads += len(made.heads)
            planted += [made.planted] if made.planted else []
            total = Made(total.events + made.events, total.bytes + made.bytes, total.archives + made.archives, (), None)
            progress(total.events, events)
    (out / PLANTED).write_bytes(msgspec.json.format(msgspec.json.encode(planted), indent=1) + b"\n")
    return Fleet(
        enclaves=enclaves,
        events=total.events,
        bytes=total.bytes,
        archives=total.archives,
        heads=heads,
        planted=tuple(planted),
    )


def sizes(enclaves: int, events: int) -> list[int]:
    """By Zipf's law: the second has half as many events as the first, the third a third. At least one each."""
    weights = [1 / rank for rank in range(1, enclaves + 1)]
    spare, unit = events - enclaves, (events - enclaves) / sum(weights)
    found = [1 + int(weight * unit) for weight in weights]
    short = spare + enclaves - sum(found)
    return [size + (i < short) for i, size in enumerate(found)]


def _check(enclaves: int, events: int, seed: int, jobs: int) -> None:
    for name, number, least, most in (
        ("enclaves", enclaves, 1, MAX_ENCLAVES),
        ("events", events, 1, MAX_EVENTS),
        ("seed", seed, 0, MAX_SEED),
        ("jobs", jobs, 1, MAX_JOBS),
    ):
        if not least <= number <= most:
            raise MisuseError(f"{name}: expected {least} to {most}, and not {number}")
    if events < enclaves:
        raise MisuseError(f"events: {enclaves} enclaves have at least as many events: their Manifests")


def _prepare(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        is_empty = next(out.iterdir(), None) is None
    except OSError as e:
        raise MisuseError(f"{out}: {e.strerror}") from None
    if not is_empty:
        raise MisuseError(f"{out} is not empty: give another folder, or remove it")


# On all cores

_LEAVE_INTERRUPTS = (signal.SIGINT, signal.SIG_IGN)
"""To the process that waits for the others."""

_Run = Callable[[Path, Sequence[Plan]], Iterable[Made]]


@contextmanager
def _workers(jobs: int) -> Iterator[_Run]:
    """Makes enclaves in the order of their plans, which are by falling size."""
    if jobs == 1:
        yield lambda out, plans: (make(out, plan) for plan in plans)
        return
    context, others = multiprocessing.get_context("spawn"), multiprocessing.active_children()
    with ProcessPoolExecutor(jobs, context, initializer=signal.signal, initargs=_LEAVE_INTERRUPTS) as pool:
        try:
            yield lambda out, plans: _spread(pool, out, plans)
        except BaseException:
            for process in multiprocessing.active_children():
                if process not in others:
                    process.terminate()
            raise


def _spread(pool: ProcessPoolExecutor, out: Path, plans: Sequence[Plan]) -> Iterator[Made]:
    portions = list(_portions(plans))
    for made in pool.map(_make_all, [out] * len(portions), portions):
        yield from made


def _portions(plans: Sequence[Plan]) -> Iterator[list[Plan]]:
    """Small enclaves go together."""
    waiting, events = list[Plan](), 0
    for plan in plans:
        waiting.append(plan)
        events += plan.events
        if events >= _PORTION:
            yield waiting
            waiting, events = [], 0
    if waiting:
        yield waiting


def _make_all(out: Path, plans: Sequence[Plan]) -> list[Made]:
    return [make(out, plan) for plan in plans]


def make(out: Path, plan: Plan) -> Made:
    """Make one enclave, and write its archives."""
    conduct = conduct_of(plan)
    with SpooledTemporaryFile(_SPOOL, dir=str(out)) as spool:
        maker = Maker(plan, conduct, spool)
        log = maker.run()
        header = log.header(conduct.sth(log), maker.checkpoint_root)
        size = pack(out / f"{log.enclave.hex()}.enc", header, whole(spool, log, conduct))
        for taken in log.earlier:
            size += pack(out / f"{log.enclave.hex()}.earlier.enc", taken.header, earlier(spool, log, taken))
    heads = collect(log, conduct, plan.random("heads"))
    return Made(log.places, size, 1 + len(log.earlier), tuple(heads), conduct.planted(log))
