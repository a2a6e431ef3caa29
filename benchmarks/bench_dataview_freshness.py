"""Freshness: from a commit's receipt to its row in the serving API's answer, at 500 commits a second.

A real node, a writer with many commits under way, the pipeline on local[2] that pulls, verifies and publishes, and the
server of views, each in a process of its own. A reader asks the API for what it has of the enclave, over and over: a
commit is visible from the first answer whose progress is past its seq.
"""

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from floors import verdict

from enc.client import AsyncClient, Identity

PER_SECOND, SECONDS, WARM_S = 500, 30, 20
AT_MOST_S = 5.0
ENC = [sys.executable, "-c", "from enc.cli import main; main()"]
PIPELINE = """
import sys, threading
from enc.dataview.job import Job, JobSettings
from enc.dataview.session import spark_session
root, node, enclave, database = sys.argv[1:]
source = {"format": "enc", "node": node, "enclaves": enclave}
settings = JobSettings(root=root, sources=(source,), database=database, ingest_seconds=0.5)
job = Job(settings, spark_session("freshness", "local[2]"))
print("ready", flush=True)
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
job.run(stop)
"""
MANIFEST = {
    "enc_v": 2,
    "meta": {},
    "states": ["OWNER"],
    "readers": [{"type": "Public", "reads": "*"}],
    "customs": [{"event": "post", "operator": "OWNER", "ops": ["C"]}],
}


@contextlib.contextmanager
def process(*command: str) -> Iterator[str]:
    """A process for as long as the block runs; what it gives is its first line."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as running:  # noqa: S603
        try:
            assert running.stdout is not None
            yield running.stdout.readline()
        finally:
            running.terminate()


class Reader(threading.Thread):
    """Asks how far the view is, and remembers when it first was there."""

    def __init__(self, url: str, enclave: str) -> None:
        super().__init__(daemon=True)
        self._url, self._enclave = url, enclave
        self.seen: list[tuple[float, int]] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        asked = {"enclave": self._enclave, "limit": 1, "order": "-seq"}
        with httpx.Client(base_url=self._url, trust_env=False) as http:
            while not self.is_over.wait(0.02):
                answer = http.get("/views/events", params=asked).json()
                next_seq = answer.get("complete", {}).get(self._enclave, 0)
                self.seen.append((time.perf_counter(), next_seq))

    @property
    def next_seq(self) -> int:
        return self.seen[-1][1] if self.seen else 0


async def write(url: str, identity: Identity, enclave: str, seconds: float) -> list[tuple[int, float]]:
    """Seqs, with when their receipt was there."""
    told: list[tuple[int, float]] = []
    async with AsyncClient(url, identity, pins=None) as client:
        log = client.enclave(enclave)

        async def one(n: int) -> None:
            receipt = await log.commit("post", f"post {n} at {time.time_ns()}")
            told.append((receipt.seq, time.perf_counter()))

        start, under_way = time.perf_counter(), set[asyncio.Task[None]]()
        for n in range(int(PER_SECOND * seconds)):
            await asyncio.sleep(max(0.0, start + n / PER_SECOND - time.perf_counter()))
            task = asyncio.create_task(one(n))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)
    return told


def found(url: str, identity: Identity) -> str:
    async def create() -> str:
        async with AsyncClient(url, identity, pins=None) as client:
            init = [{"identity": identity.hex, "state": "OWNER", "traits": []}]
            return (await client.create({**MANIFEST, "init": init})).hex

    return asyncio.run(create())


def ages(told: list[tuple[int, float]], seen: list[tuple[float, int]]) -> list[float]:
    """Seconds from each receipt to the first answer that has its event."""
    found, place = [], 0
    for seq, when in sorted(told):
        while seen[place][1] <= seq:
            place += 1
        found.append(max(0.0, seen[place][0] - when))
    return sorted(found)


def measure(folder: Path, url: str, identity: Identity) -> list[float]:
    enclave, database = found(url, identity), str(folder / "serving.db")
    serve = [*ENC, "dataview", "serve", "--database", database, "--listen", "127.0.0.1:0", "--public", "events"]
    pipeline = [sys.executable, "-c", PIPELINE, str(folder / "lake"), url, enclave, database]
    with process(*pipeline) as ready, process(*serve, "--json") as line:
        assert ready == "ready\n"
        reader = Reader(json.loads(line)["url"], enclave)
        reader.start()
        asyncio.run(write(url, identity, enclave, WARM_S))
        told = asyncio.run(write(url, identity, enclave, SECONDS))
        deadline = time.perf_counter() + 120
        while reader.next_seq <= max(told)[0]:
            assert time.perf_counter() < deadline, "it is never there"
            time.sleep(0.1)
        reader.is_over.set()
        reader.join()
        rate = len(told) / (max(when for _, when in told) - min(when for _, when in told))
        print(f"freshness: {len(told):,} commits acknowledged at {rate:,.0f} a second")
        return ages(told, reader.seen)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        node = [*ENC, "node", "run", "--data", f"{folder}/node", "--port", "0", "--dev"]
        with process(*node) as line:
            taken = measure(Path(folder), json.loads(line)["url"], Identity.new())
    p50, p95 = statistics.median(taken), taken[len(taken) * 95 // 100]
    what = f"freshness at {PER_SECOND} commits a second: receipt to row in the API"
    print(f"{what}, p95: {p95:.2f} s (p50 {p50:.2f}), at most {AT_MOST_S:g}: {verdict(what, p95 <= AT_MOST_S)}")


if __name__ == "__main__":
    main()
