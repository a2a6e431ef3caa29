"""Generates a fleet of enclaves in a folder, on all cores. A seed gives the same bytes on any
number of cores.
"""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile

import msgspec
from msgspec import Struct

from enc.bench.archives import earlier, pack, whole
from enc.bench.fault_kinds import Kind, Planted
from enc.bench.fault_places import assign, behaviour_of
from enc.bench.head_files import Line, collect
from enc.bench.log_maker import LogMaker
from enc.bench.people import population
from enc.bench.plan import Plan, draw_plan
from enc.core.errors import MisuseError

MAX_ENCLAVES, MAX_EVENTS, MAX_SEED, MAX_JOBS = 100_000, 100_000_000, 2**53 - 1, 256
HEADS, PLANTED = "heads.jsonl", "planted.json"
_SPOOL = 4 << 20
"""Bytes of lines kept in memory; more go to an unnamed temporary file."""
_PORTION = 2_000
"""Least events worth sending to another process."""

Progress = Callable[[int, int], None]
"""Called with the number of events made so far, and the total."""


class WrittenEnclave(Struct, frozen=True):
    """What was written for one enclave."""

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
    """Generate a fleet in `out`, which must be empty or missing. One process makes each enclave."""
    _check(enclaves, events, seed, jobs)
    people = population(enclaves)
    drawn = [draw_plan(seed, i, size, people) for i, size in enumerate(sizes(enclaves, events))]
    plans = assign(drawn, plants, seed)
    _prepare(out)
    count = size = archives = heads = 0
    planted = list[Planted]()
    with (out / HEADS).open("wb") as file, _workers(min(jobs, enclaves)) as run:
        for made in run(out, plans):
            file.writelines(msgspec.json.encode(line) + b"\n" for line in made.heads)
            heads += len(made.heads)
            planted += [made.planted] if made.planted else []
            count, size, archives = count + made.events, size + made.bytes, archives + made.archives
            progress(count, events)
    (out / PLANTED).write_bytes(msgspec.json.format(msgspec.json.encode(planted), indent=1) + b"\n")
    return Fleet(
        enclaves=enclaves,
        events=count,
        bytes=size,
        archives=archives,
        heads=heads,
        planted=tuple(planted),
    )


def sizes(enclaves: int, events: int) -> list[int]:
    """Return sizes by Zipf's law: the second enclave has half as many events as the first, the
    third a third. Each has at least one.
    """
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
            raise MisuseError(f"{name}: expected {least} to {most}, not {number}")
    if events < enclaves:
        raise MisuseError(f"events: expected at least {enclaves}: each enclave has a Manifest")


def _prepare(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        is_empty = next(out.iterdir(), None) is None
    except OSError as e:
        raise MisuseError(f"{out}: {e.strerror}") from None
    if not is_empty:
        raise MisuseError(f"{out} is not empty: give another folder, or remove it")


# Worker processes

_IGNORE_INTERRUPTS = (signal.SIGINT, signal.SIG_IGN)
"""Only the parent process handles interrupts."""

_Run = Callable[[Path, Sequence[Plan]], Iterable[WrittenEnclave]]


@contextmanager
def _workers(jobs: int) -> Iterator[_Run]:
    """Provide a function that makes enclaves in the order of their plans, the largest first."""
    if jobs == 1:
        yield lambda out, plans: (make(out, plan) for plan in plans)
        return
    context, others = multiprocessing.get_context("spawn"), multiprocessing.active_children()
    with ProcessPoolExecutor(jobs, context, initializer=signal.signal, initargs=_IGNORE_INTERRUPTS) as pool:
        try:
            yield lambda out, plans: _spread(pool, out, plans)
        except BaseException:
            for process in multiprocessing.active_children():
                if process not in others:
                    process.terminate()
            raise


def _spread(pool: ProcessPoolExecutor, out: Path, plans: Sequence[Plan]) -> Iterator[WrittenEnclave]:
    portions = list(_portions(plans))
    for made in pool.map(_make_all, [out] * len(portions), portions):
        yield from made


def _portions(plans: Sequence[Plan]) -> Iterator[list[Plan]]:
    """Group small enclaves."""
    waiting, events = list[Plan](), 0
    for plan in plans:
        waiting.append(plan)
        events += plan.events
        if events >= _PORTION:
            yield waiting
            waiting, events = [], 0
    if waiting:
        yield waiting


def _make_all(out: Path, plans: Sequence[Plan]) -> list[WrittenEnclave]:
    return [make(out, plan) for plan in plans]


def make(out: Path, plan: Plan) -> WrittenEnclave:
    """Make one enclave and write its archives."""
    behaviour = behaviour_of(plan)
    with SpooledTemporaryFile(_SPOOL, dir=str(out)) as spool:
        maker = LogMaker(plan, behaviour, spool)
        log = maker.run()
        header = log.header(behaviour.sth(log), maker.checkpoint_root)
        size = pack(out / f"{log.enclave.hex()}.enc", header, whole(spool, log, behaviour))
        for taken in log.earlier:
            size += pack(out / f"{log.enclave.hex()}.earlier.enc", taken.header, earlier(spool, log, taken))
    heads = collect(log, behaviour, plan.random("heads"))
    return WrittenEnclave(log.places, size, 1 + len(log.earlier), tuple(heads), behaviour.planted(log))
