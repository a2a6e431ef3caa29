"""Ingest: archives -> verified -> the lake's raw_events, quarantine, events and heads, on local[2].

    python benchmarks/run.py dataview_ingest            10^5 and 10^6 events
    ENC_BENCH_EVENTS=20000,100000 python benchmarks/run.py dataview_ingest

The floor is two raw Schnorr verifications an event on both cores, measured before and after, the better one counts.
"""

import os
import shutil
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

from floors import raw_verify, verdict
from node_commits import AUTHORS, manifest, now_ms, text

CORES = 2
PER_ENCLAVE = 20_000
AT_LEAST, WITHOUT, GROWTH = 0.55, 40_000, 0.15
SIZES = [int(size) for size in os.environ.get("ENC_BENCH_EVENTS", "100000,1000000").split(",")]


def fill(path: Path, n: int, size: int) -> None:
    """The archive of bench enclave `n`, all signatures true."""
    from enc.core.archive import Header, write_archive
    from enc.core.commit import build_commit
    from enc.core.event import finalize
    from enc.core.signing import PrivateKey
    from enc.core.types import Event

    node, founding, start = PrivateKey(bytes([99] * 32)), manifest(n), now_ms()
    exp = start + 60_000

    def events() -> "list[Event]":
        commits = (
            build_commit(AUTHORS[i % len(AUTHORS)], founding.enclave, "message", text(i), exp + i)
            for i in range(1, size)
        )
        return [
            finalize(founding, node, start, 0),
            *(finalize(c, node, start + i, i) for i, c in enumerate(commits, 1)),
        ]

    header = Header(
        enclave=founding.enclave,
        enc_v=2,
        sequencers=((node.public, 0),),
        events=size,
        sth=None,
        checkpoint_seq=size - 1,
        checkpoint_root=bytes(32),
    )
    path.write_bytes(b"".join(write_archive(header, events())))


def archives(directory: Path, events: int) -> Path:
    """As many archives as it takes, made by both cores."""
    directory.mkdir()
    sizes = [PER_ENCLAVE] * (events // PER_ENCLAVE) + [events % PER_ENCLAVE] * bool(events % PER_ENCLAVE)
    with get_context("fork").Pool(CORES) as pool:
        pool.starmap(fill, [(directory / f"{n:05}.enc", n, size) for n, size in enumerate(sizes)])
    return directory


def _verify_some(seconds: float) -> float:
    """Raw verifications a second of this core."""
    checks = [(key.public, bytes([i] * 32), key.sign_schnorr(bytes([i] * 32))) for i in range(100) for key in AUTHORS]
    work, done, start = raw_verify(checks), 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        work()
        done += len(checks)
    return done / spent


def floor() -> float:
    """Events a second, if nothing had to be done but two verifications of each, on all cores."""
    with get_context("spawn").Pool(CORES) as pool:
        return sum(pool.map(_verify_some, [3.0] * CORES)) / 2


def ingest(directory: Path, lake_root: Path, *, check: bool) -> float:
    """Seconds to take all archives into a new lake."""
    from enc.dataview.archive_source import ArchiveSource
    from enc.dataview.ingest import Ingest
    from enc.dataview.kept import Kept
    from enc.dataview.lake import Lake
    from enc.dataview.pipeline import Setting
    from enc.dataview.session import spark_session

    spark = spark_session("bench", f"local[{CORES}]", {"spark.local.dir": str(lake_root.parent)})
    spark.dataSource.register(ArchiveSource)
    lake = Lake(str(lake_root)).create(spark)
    setting = Setting(lake=lake)
    body = Ingest(setting, "bench", Kept(lake["heads"], setting.limits))
    reader = spark.readStream.format("enc_archive").option("maxFilesPerTrigger", 50).option("stage", str(lake_root))
    frame = reader.option("verify", "full" if check else "form").load(str(directory))
    writer = frame.writeStream.foreachBatch(body).option("checkpointLocation", lake.checkpoint("ingest"))
    start = time.perf_counter()
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    spent = time.perf_counter() - start
    found, bad = lake["events"].read(spark).count(), lake["quarantine"].read(spark).count()
    assert bad == 0, f"{bad} events are in quarantine"
    expected = sum(1 for _ in directory.iterdir())
    assert found > (expected - 1) * PER_ENCLAVE, f"{found} events came"
    return spent


def run(home: Path, size: int) -> dict[bool, float]:
    made, rates = archives(home / f"archives-{size}", size), {}
    for check in (True, False):
        lake = home / "lake"
        best = floor() if check else 0.0
        rates[check] = size / ingest(made, lake, check=check)
        shutil.rmtree(lake)
        if not check:
            kept = verdict(f"ingest without verification, {size}", rates[check] >= WITHOUT)
            print(f"ingest without verification, {size} events: {rates[check]:.0f}/s, at least {WITHOUT}: {kept}")
            continue
        best = max(best, floor())
        kept = verdict(f"ingest with verification, {size}", rates[check] >= AT_LEAST * best)
        share = rates[check] / best
        print(
            f"ingest with verification, {size} events: {rates[check]:.0f}/s = {share:.2f} of the floor "
            f"({best:.0f}/s: two verifications an event on {CORES} cores), at least {AT_LEAST}: {kept}",
            flush=True,
        )
    shutil.rmtree(made)
    return rates


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="enc-bench-"))
    try:
        warm = archives(home / "warm", 2000)
        ingest(warm, home / "lake", check=True)
        shutil.rmtree(home / "lake")
        found = [run(home, size) for size in SIZES]
        for check, name in ((True, "with"), (False, "without")):
            first, last = found[0][check], found[-1][check]
            kept = verdict(f"growth {name} verification", last >= (1 - GROWTH) * first)
            print(f"{name} verification, {SIZES[-1]} beside {SIZES[0]} events: {last / first:.2f}, within 15 %: {kept}")
    finally:
        shutil.rmtree(home)
