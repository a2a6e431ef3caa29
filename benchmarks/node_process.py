"""A running node, and the requests to it."""

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from node_commits import manifest, wire
from node_load import Job, Result, name_of, run

from enc.core.log.commit import parse_commit
from enc.core.log.receipt import check_receipt, parse_receipt

CONNECTIONS, WINDOW = 64, 256
"""HTTP connections with one request each; requests in flight on the one WebSocket."""
SAMPLE = 50
"""The number of answers in a run whose signatures are all checked."""

NAMES = {False: f"HTTP, {CONNECTIONS} connections", True: f"WebSocket, {WINDOW} under way"}


class Node:
    """A running node."""

    def __init__(self, data: Path, *options: str, dev: bool = True, env: dict[str, str] | None = None) -> None:
        """`dev`: without limits on rates. `env`: variables besides those of this process."""
        data.mkdir(exist_ok=True)
        command = [Path(sys.executable).with_name("enc"), "node", "run", "--data", data, "--port", "0", *options]
        command += ["--dev"] if dev else []
        self._log = data / "log"
        start = time.perf_counter()
        with self._log.open("ab") as log:
            variables = {**os.environ, **(env or {})}
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=variables)  # noqa: S603
        ready = self._first_line()
        self.seconds = time.perf_counter() - start
        self.pid, self.port = self._process.pid, urlsplit(ready["url"]).port or 0
        self.seq_pub = bytes.fromhex(ready["seq_pub"])

    def _first_line(self) -> dict[str, str]:
        out = self._process.stdout
        assert out is not None
        if select.select([out], [], [], 60)[0] and (line := out.readline()):
            return json.loads(line)
        self._process.kill()
        sys.exit(f"the node did not start: {self._log.read_text()[-2000:]}")

    def memory(self, field: str) -> float:
        """Return VmRSS or VmHWM, in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split(f"{field}:")[1].split()[0]) * 1024 / 1e6

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()


def load(node: Node, bodies: list[bytes], **how: object) -> Result:
    """Run the load; every request must succeed, or the figures are meaningless."""
    result = run(Job(port=node.port, pid=node.pid, bodies=bodies, **how))
    if result.refusals:
        sys.exit(f"{len(result.refusals)} requests failed, the first: {result.refusals[0][:1000]!r}")
    return result


def send(node: Node, bodies: list[bytes], web_socket: bool, rate: float = 0.0) -> Result:
    """Send commits; each must be answered by a Receipt."""
    result = load(node, bodies, web_socket=web_socket, window=WINDOW if web_socket else CONNECTIONS, rate=rate)
    for body, answer in zip(bodies, result.answers, strict=True):
        assert b'"type":"Receipt"' in answer, answer
        assert name_of(body) == name_of(answer), "the receipt is of another commit"
    for i in random.sample(range(len(bodies)), min(SAMPLE, len(bodies))):
        check_receipt(parse_receipt(result.answers[i]), parse_commit(bodies[i]), node.seq_pub)
    return result


def create(node: Node, first: int, size: int) -> list[bytes]:
    """Create new enclaves, and return their ids."""
    manifests = [manifest(n) for n in range(first, first + size)]
    send(node, [wire(each) for each in manifests], web_socket=False)
    return [each.enclave for each in manifests]


def describe(result: Result) -> str:
    return (
        f"p50 {result.percentile(0.5):.1f} ms, p99 {result.percentile(0.99):.1f} ms; "
        f"cores: node {result.node_cores:.2f}, load {result.load_cores:.2f}, others {result.other_cores:.2f}; "
        f"the node's CPU time for each: {result.node_cores / result.per_second * 1e6:.0f} us"
    )
