"""Ingest: archives -> verified -> the lake's raw_events, quarantine, events and heads, on local[2].

    python benchmarks/run.py dataview_ingest            of a running stream: the first 10^5 events, and all 10^6
    ENC_BENCH_EVENTS=300000 python benchmarks/run.py dataview_ingest

A running stream gets archives, and has ingested them when their rows are in the tables. The start of Java and of a
query happens once, and is not in these figures. The floor is two raw Schnorr verifications an event on both
cores, measured before and after; the better one counts.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

from floors import raw_verify, verdict
from node_commits import AUTHORS, manifest, now_ms, text

CORES = 2
PER_ENCLAVE = 20_000
AT_LEAST, WITHOUT, GROWTH = 0.55, 40_000, 0.15
EVENTS, BATCH, WARM = int(os.environ.get("ENC_BENCH_EVENTS", "1000000")), 100_000, 100_000


def fill(path: Path, n: int, size: int) -> None:
    """Write the archive of bench enclave `n`, with valid signatures."""
    from enc.core.log.commit import build_commit
    from enc.core.log.event import finalize
    from enc.core.machine.archive import Header, write_archive
    from enc.core.primitives.signing import PrivateKey
    from enc.core.primitives.types import Event

    node, creation, start = PrivateKey(bytes([99] * 32)), manifest(n), now_ms()
    exp = start + 60_000

    def events() -> "list[Event]":
        commits = (
            build_commit(AUTHORS[i % len(AUTHORS)], creation.enclave, "message", text(i), exp + i)
            for i in range(1, size)
        )
        return [
            finalize(creation, node, start, 0),
            *(finalize(c, node, start + i, i) for i, c in enumerate(commits, 1)),
        ]

    header = Header(
        enclave=creation.enclave,
        enc_v=2,
        sequencers=((node.public, 0),),
        events=size,
        sth=None,
        checkpoint_seq=size - 1,
        checkpoint_root=bytes(32),
    )
    path.write_bytes(b"".join(write_archive(header, events())))


def archives(directory: Path, events: int, first: int = 0) -> Path:
    """Write as many archives as needed, on both cores."""
    directory.mkdir()
    numbers = range(first, first + events // PER_ENCLAVE)
    with get_context("fork").Pool(CORES) as pool:
        pool.starmap(fill, [(directory / f"{n:05}.enc", n, PER_ENCLAVE) for n in numbers])
    return directory


def _verify_some(seconds: float) -> float:
    """Return the raw verifications a second of this core."""
    checks = [(key.public, bytes([i] * 32), key.sign_schnorr(bytes([i] * 32))) for i in range(100) for key in AUTHORS]
    work, done, start = raw_verify(checks), 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        work()
        done += len(checks)
    return done / spent


def floor() -> float:
    """Return the events a second with two raw verifications each and nothing else, on all cores."""
    with get_context("spawn").Pool(CORES) as pool:
        return sum(pool.map(_verify_some, [3.0] * CORES)) / 2


class Running:
    """A warm stream over a directory of archives into a new lake, set up as `enc dataview run` does."""

    def __init__(self, home: Path, *, check: bool) -> None:
        from enc.dataview.fold.known_heads import Heads
        from enc.dataview.lake.lake import Lake
        from enc.dataview.lake.session import spark_session
        from enc.dataview.pipeline.batch_context import PipelineContext
        from enc.dataview.pipeline.ingest import Ingest
        from enc.dataview.source.archive_source import ArchiveSource

        self._home, self._inbox = home, home / "inbox"
        self._inbox.mkdir(parents=True)
        self._spark = spark_session("bench", f"local[{CORES}]", {"spark.local.dir": str(home.parent)})
        self._spark.dataSource.register(ArchiveSource)
        self._lake = Lake(str(home / "lake")).create(self._spark)
        setting = PipelineContext(lake=self._lake)
        body = Ingest(setting, "bench", Heads(self._lake, setting.limits))
        reader = self._spark.readStream.format("enc_archive").option("stage", str(home / "lake"))
        frame = reader.option("maxFilesPerTrigger", BATCH // PER_ENCLAVE).option("verify", "full" if check else "form")
        writer = frame.load(f"{self._inbox}/*/*.enc").writeStream.foreachBatch(body)
        self._query = writer.option("checkpointLocation", self._lake.checkpoint("ingest")).start()

    def take(self, files: Sequence[Path]) -> float:
        """Return the seconds from the moment that the archives exist until all their rows are in the tables."""
        together = self._home / f"{files[0].stem}-{files[-1].stem}"
        together.mkdir()
        for file in files:
            os.link(file, together / file.name)
        start = time.perf_counter()
        together.rename(self._inbox / together.name)
        self._query.processAllAvailable()
        return time.perf_counter() - start

    def close(self, events: int) -> None:
        self._query.stop()
        found = self._lake["events"].read(self._spark).count()
        bad = self._lake["quarantine"].read(self._spark).count()
        shutil.rmtree(self._home)
        assert (found, bad) == (events, 0), f"{found} events came, and {bad} are in quarantine"


def run(home: Path, made: Path, warm: Path, *, check: bool) -> list[float]:
    """Return the events a second of a running stream: of the first BATCH, and of all."""
    files, stream = sorted(made.iterdir()), Running(home / "running", check=check)
    stream.take(sorted(warm.iterdir()))
    few = BATCH // PER_ENCLAVE
    first = stream.take(files[:few])
    rest = stream.take(files[few:])
    stream.close(EVENTS + WARM)
    return [BATCH / first, EVENTS / (first + rest)]


def report_checked(rates: list[float], best: float) -> None:
    for size, rate in zip((BATCH, EVENTS), rates, strict=True):
        kept = verdict(f"ingest with verification, {size}", rate >= AT_LEAST * best)
        print(
            f"ingest with verification, {size:,} events: {rate:,.0f}/s = {rate / best:.2f} of the floor "
            f"({best:,.0f}/s: two verifications an event on {CORES} cores), at least {AT_LEAST}: {kept}"
        )


def report_unchecked(rates: list[float]) -> None:
    for size, rate in zip((BATCH, EVENTS), rates, strict=True):
        kept = verdict(f"ingest without verification, {size}", rate >= WITHOUT)
        print(f"ingest without verification, {size:,} events: {rate:,.0f}/s, at least {WITHOUT:,}: {kept}")


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="enc-bench-"))
    try:
        warm, made = archives(home / "warm", WARM, 9000), archives(home / "archives", EVENTS)
        before = floor()
        checked = run(home, made, warm, check=True)
        report_checked(checked, max(before, floor()))
        unchecked = run(home, made, warm, check=False)
        report_unchecked(unchecked)
        for name, (few, many) in (("with", checked), ("without", unchecked)):
            kept = verdict(f"growth {name} verification", abs(many / few - 1) <= GROWTH)
            print(f"{name} verification, {EVENTS:,} beside {BATCH:,} events: {many / few:.2f}, within 15 %: {kept}")
    finally:
        shutil.rmtree(home)
