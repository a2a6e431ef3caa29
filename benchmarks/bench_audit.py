"""Audits on Spark: fully verified events a second, beside two raw verifications an event on as many cores.

Two fleets: 1,000,000 events in 1,000 enclaves, and 300,000 events in one; each on two cores and on one. The Spark
session starts before the clock; everything else, from the first read of the archives to the last verdict, is
timed. `--quick` takes a twentieth of the events. `--keep DIR` stores the fleets there, and uses existing ones.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from floors import missed, raw_verify, verdict

from enc.audit.archive_reader import found_archives, read_lines
from enc.audit.audit import AuditRequest, run_audit
from enc.audit.collected_heads import collect_heads
from enc.bench.fleet import generate
from enc.core.log.event import parse_event
from enc.core.primitives.hashing import event_hash

AT_LEAST = 0.6
FLEETS = {"1,000 enclaves": (1000, 1_000_000), "one enclave": (1, 300_000)}
SAMPLE = 4000
Checks = list[tuple[bytes, bytes, bytes]]


def sample(folder: Path) -> Checks:
    """Return signatures of one log, as an audit reads them."""
    checks: Checks = []
    largest = max(found_archives([folder]), key=os.path.getsize)
    for lines in read_lines(largest, 0, SAMPLE):
        for event in map(parse_event, lines):
            if event.alg == "schnorr":
                checks.append((event.from_, event.hash, event.sig))
                digest = event_hash(event.timestamp, event.seq, event.sequencer, event.sig)
                checks.append((event.sequencer, digest, event.seq_sig))
    return checks


def _verify(checks: Checks, start: "multiprocessing.synchronize.Barrier", took: "multiprocessing.Queue[float]") -> None:
    work = raw_verify(checks)
    work()
    start.wait()
    began = time.perf_counter()
    for _ in range(4):
        work()
    took.put((time.perf_counter() - began) / 4)


def floor(checks: Checks, cores: int) -> float:
    """Return the events a second of an audit that only did two raw verifications an event, on all cores at once."""
    context = multiprocessing.get_context("spawn")
    start, took = context.Barrier(cores), context.Queue()
    workers = [context.Process(target=_verify, args=(checks, start, took)) for _ in range(cores)]
    for worker in workers:
        worker.start()
    slowest = max(took.get() for _ in workers)
    for worker in workers:
        worker.join()
    return cores * len(checks) / 2 / slowest


@contextmanager
def spark(cores: int) -> Iterator[object]:
    from enc.audit.spark_runner import OnSpark
    from enc.dataview.lake.session import spark_session

    session = spark_session("bench audit", f"local[{cores}]")
    runner = OnSpark(session)
    session.sparkContext.parallelize(range(cores), cores).map(lambda n: n).collect()
    try:
        yield runner
    finally:
        session.stop()


def measure(name: str, folder: Path, cores: int) -> None:
    checks = sample(folder)
    before = floor(checks, cores)
    with spark(cores) as runner:
        began = time.perf_counter()
        heads = collect_heads([folder / "heads.jsonl"], {})
        found = run_audit(AuditRequest(paths=found_archives([folder]), heads=heads), runner)  # type: ignore[arg-type]
        took = time.perf_counter() - began
    assert not found.findings, found.findings[:3]
    assert not found.problems, found.problems[:3]
    after = floor(checks, cores)
    events, best = sum(each.checked for each in found.verdicts), (before + after) / 2
    rate = events / took
    what = f"audit, {name}, {cores} core{'s' if cores > 1 else ''}"
    bound = f"at least {AT_LEAST}: {verdict(what, rate / best >= AT_LEAST)}" if cores == 2 else "for comparison"
    print(
        f"{what}: {rate:,.0f} events/s ({events:,} in {took:.1f} s) = {rate / best:.2f} x floor ({best:,.0f}), {bound}"
    )


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--cores", type=int, nargs="*", default=[2, 1])
    given = parser.parse_args(words)
    with TemporaryDirectory() as made:
        home: Path = given.keep or Path(made)
        for seed, (name, (enclaves, events)) in enumerate(FLEETS.items(), 1):
            part = 20 if given.quick else 1
            folder = home / f"fleet-{enclaves}-{events // part}"
            if not folder.exists():
                enclaves, jobs = max(enclaves // part, 1), os.cpu_count() or 1
                generate(folder, enclaves=enclaves, events=events // part, seed=seed, jobs=jobs)
            for cores in given.cores:
                measure(name, folder, cores)


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.exit(f"missed: {', '.join(missed)}" if missed else 0)
