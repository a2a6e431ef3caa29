"""Freshness: from a commit's receipt to its row in the serving API's answer, at 500 commits a second.

A real node, the pipeline on local[2] that pulls, verifies and publishes, the server of views, and the load, each in a
separate process. The commits are signed before the clock starts, and sent at fixed times, independent of the answers.
A reader requests the newest row continuously: a commit is visible from the first answer that is past its seq.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pool
from pathlib import Path

import httpx
from floors import verdict
from node_commits import AUTHORS, LIFE_MS, now_ms, wire
from node_process import Node, describe, send

from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.receipt import parse_receipt
from enc.core.primitives.encoding import compact_json

PER_SECOND, SECONDS, WARM_S = 500, 30, 60
AT_MOST_S = 5.0
ENC = [sys.executable, "-c", "from enc.cli import main; main()"]
MANIFEST = {
    "enc_v": 2,
    "states": ["OWNER"],
    "readers": [{"type": "Public", "reads": "*"}],
    "customs": [{"event": "post", "operator": "OWNER", "ops": ["C"]}],
    "init": [{"identity": AUTHORS[0].public.hex(), "state": "OWNER", "traits": []}],
}


def sign(enclave: bytes, first: int, size: int) -> list[bytes]:
    exp = now_ms() + LIFE_MS
    return [wire(build_commit(AUTHORS[0], enclave, "post", f"post {i}", exp)) for i in range(first, first + size)]


class Reader(threading.Thread):
    """Requests the view's progress, and records when each position was first visible."""

    def __init__(self, url: str, enclave: str) -> None:
        super().__init__(daemon=True)
        self._url, self._enclave = url, enclave
        self.seen: list[tuple[float, int]] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        asked = {"enclave": self._enclave, "limit": 1, "order": "-seq"}
        with httpx.Client(base_url=self._url, trust_env=False) as http:
            while not self.is_over.wait(0.1):
                answer = http.get("/views/events", params=asked).json()
                next_seq = answer.get("complete", {}).get(self._enclave, 0)
                self.seen.append((time.perf_counter(), next_seq))

    def wait_for(self, seq: int) -> None:
        deadline = time.perf_counter() + 120
        while not self.seen or self.seen[-1][1] <= seq:
            assert time.perf_counter() < deadline, "the event never became visible"
            time.sleep(0.1)


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process until the block ends."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:  # noqa: S603
        try:
            yield running
        finally:
            running.terminate()


def ages(receipts: list[tuple[int, float]], seen: list[tuple[float, int]]) -> list[float]:
    """Return the seconds from each receipt to the first answer that has its event."""
    found, place = [], 0
    for seq, when in sorted(receipts):
        while seen[place][1] <= seq:
            place += 1
        found.append(max(0.0, seen[place][0] - when))
    return sorted(found)


def measure(folder: Path, node: Node) -> list[float]:
    manifest = build_manifest(AUTHORS[0], compact_json(MANIFEST), now_ms() + LIFE_MS)
    send(node, [wire(manifest)], web_socket=False)
    counts = (PER_SECOND * WARM_S, PER_SECOND * SECONDS)
    with Pool(2) as pool:
        warm, timed = pool.starmap(sign, [(manifest.enclave, 0, counts[0]), (manifest.enclave, *counts)])
    enclave, database = manifest.enclave.hex(), str(folder / "serving.db")
    pull = f"node=http://127.0.0.1:{node.port};enclaves={enclave}"
    how = ["--lake", str(folder / "lake"), "--database", database, "--master", "local[2]"]
    serve = ["--database", database, "--listen", "127.0.0.1:0", "--public", "events", "--json"]
    with (
        process(*ENC, "dataview", "run", "--pull", pull, *how),
        process(*ENC, "dataview", "serve", *serve) as serving,
    ):
        assert serving.stdout is not None
        reader = Reader(json.loads(serving.stdout.readline())["url"], enclave)
        reader.start()
        reader.wait_for(0)
        send(node, warm, web_socket=False, rate=PER_SECOND)
        result = send(node, timed, web_socket=False, rate=PER_SECOND)
        receipts = [(parse_receipt(text).seq, when) for text, when in zip(result.answers, result.done, strict=True)]
        reader.wait_for(max(receipts)[0])
        reader.is_over.set()
        reader.join()
    print(f"freshness: {len(receipts):,} commits acknowledged at {result.per_second:,.0f} a second, {describe(result)}")
    return ages(receipts, reader.seen)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Node(Path(folder) / "node") as node:
        taken = measure(Path(folder), node)
    p50, p95 = statistics.median(taken), taken[len(taken) * 95 // 100]
    what = f"freshness at {PER_SECOND} commits a second: receipt to row in the API"
    print(f"{what}, p95: {p95:.2f} s (p50 {p50:.2f}), at most {AT_MOST_S:g}: {verdict(what, p95 <= AT_MOST_S)}")


if __name__ == "__main__":
    main()
