"""Upkeep: its cost for each new event, while the tables grow to ten times their size, and the size of the lake.

    python benchmarks/run.py dataview_upkeep
    ENC_BENCH_EVENTS=1000000 python benchmarks/run.py dataview_upkeep

In each of ten rounds a job ingests a tenth of the events, from twenty archives and so into twenty files of a table,
derives the other tables, and compacts.
Bytes do not depend on the machine: the bound is how often compaction rewrites a byte of new data. The floor of the
lake's size are its archives.
"""

import os
import shutil
import tempfile
import time
from pathlib import Path

from bench_dataview_ingest import CORES, fill
from floors import verdict

EVENTS, ROUNDS, FILES = int(os.environ.get("ENC_BENCH_EVENTS", "100000")), 10, 20
REWRITES, GROWTH, SIZE = 3.0, 1.5, 3.0
FIRST = 3
"""Rounds that are compared with all rounds."""


class Rounds:
    """A job over a growing directory of archives."""

    def __init__(self, home: Path) -> None:
        from enc.dataview.lake.session import spark_session
        from enc.dataview.pipeline.job import Job, JobSettings

        self.archives, self.root, self._next = home / "archives", home / "lake", 0
        self.archives.mkdir()
        source = {"format": "enc_archive", "path": str(self.archives), "maxFilesPerTrigger": str(FILES)}
        self._spark = spark_session("bench", f"local[{CORES}]", {"spark.local.dir": str(home)})
        self.job = Job(JobSettings(root=str(self.root), sources=(source,)), self._spark)

    def run(self) -> tuple[float, int]:
        """Return the seconds of upkeep, and the bytes that all rounds have rewritten until now."""
        for _ in range(FILES):
            fill(self.archives / f"{self._next:05}.enc", self._next, EVENTS // ROUNDS // FILES)
            self._next += 1
        with self.job._locked("bench"):
            for query in self.job.ingest(availableNow=True):
                query.awaitTermination()
            self.job.derive(availableNow=True).awaitTermination()
            start = time.perf_counter()
            self.job.upkeep.clean_files(self._spark, vacuum=False)
            return time.perf_counter() - start, self._rewritten()

    def _rewritten(self) -> int:
        total = 0
        for name in self.job.lake.names:
            history = self.job.lake[name].delta(self._spark).history().where("operation = 'OPTIMIZE'")
            total += sum(int(row[0]) for row in history.select("operationMetrics.numAddedBytes").collect())
        return total

    def live_bytes(self) -> int:
        return sum(self.job.lake[name].size(self._spark) for name in self.job.lake.names)

    def vacuumed_bytes(self) -> int:
        """Return the bytes of all files of the lake after a vacuum that keeps no old version."""
        for name in self.job.lake.names:
            self.job.lake[name].vacuum(self._spark, 0)
        return _bytes(self.root)


def _bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="enc-bench-"))
    try:
        rounds = Rounds(home)
        each = [rounds.run() for _ in range(ROUNDS)]
        seconds = [took for took, _ in each]
        few, many = sum(seconds[:FIRST]) / FIRST, sum(seconds[-FIRST:]) / FIRST
        new, live = EVENTS // ROUNDS, rounds.live_bytes()
        print(f"upkeep, seconds of each round of {new:,} events: {', '.join(f'{took:.1f}' for took in seconds)}")
        kept = verdict("upkeep growth", many / few <= GROWTH)
        print(f"upkeep, last {FIRST} rounds beside the first {FIRST}: {many / few:.2f}, at most {GROWTH}: {kept}")
        rewrites = each[-1][1] / live
        kept = verdict("upkeep rewrites", rewrites <= REWRITES)
        print(f"upkeep rewrites each live byte {rewrites:.2f} times, at most {REWRITES}: {kept}")
        size = rounds.vacuumed_bytes() / _bytes(rounds.archives)
        kept = verdict("lake size", size <= SIZE)
        print(f"lake of {EVENTS:,} events: {size:.2f} of its archives, at most {SIZE}: {kept}")
    finally:
        shutil.rmtree(home)
