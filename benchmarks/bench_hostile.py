"""A victim's commits and queries while others attack the node, as ratio to the quiet figure of the same run.

A node with its normal limits, a victim and one attacker's process share the cores. The victim sends a commit and a
query every 50 ms from 127.0.0.1, over one connection each; a latency counts from when the request was due, so it
includes what the node, the attacker's process and this one take from each other. The attacker has other identities and
the address 127.0.0.2, and sends requests that are prepared before the clock starts. Every attack is bounded in number
and time. For slow sources of imports it counts that another's import proceeds, for import bombs also the disk.
"""

import http.client
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from floors import missed, verdict
from hostile_load import ATTACKER, Attack, Attacker, Call
from hostile_requests import (
    archive,
    grants,
    grants_manifest,
    manifest_commit,
    manifests,
    new_key,
    open_manifest,
    orders,
    query,
    readers_manifest,
    turns,
    write,
)
from msgspec.structs import replace
from node_commits import wire
from node_process import Node

BOUND = 10.0
"""Most times the quiet figure."""
EVERY_S = 0.05
QUIET_S, ATTACK_S = 12.0, 10.0
PATIENCE_S = 30.0
"""What counts as the latency of a request that is not answered by then; the victim then gives up."""
SETTLE_S = 2.0
"""Seconds between two measurements, for what the node has to finish."""
MAX_DISK_MB = 32
SLOW_PORT = 48_711
SLOW_NAMES = """import socket, time
_plain = socket.getaddrinfo
def getaddrinfo(host, *args, **kwargs):
    if isinstance(host, str) and host.endswith(".slow.example"):
        time.sleep(10)
        raise socket.gaierror(-3, "temporary failure")
    return _plain(host, *args, **kwargs)
socket.getaddrinfo = getaddrinfo
"""
"""Gives the node a resolver whose name servers do not answer, as glibc's does by default."""


class Victim:
    """An identity that writes and reads at a steady pace."""

    def __init__(self, node: Node) -> None:
        self._node, self._key = node, new_key()
        manifest = manifest_commit(self._key, open_manifest(self._key))
        self.enclave = manifest.enclave
        post(node, Call(wire(manifest)))

    def measure(self, seconds: float) -> dict[str, float]:
        """Return the p99 of commits and of queries in milliseconds."""
        count = int(seconds / EVERY_S)
        bodies = {
            "commit": [wire(write(self._key, self.enclave, "note", f"{time.time_ns()}", i)) for i in range(count)],
            "query": [
                query(self._key, self._node.seq_pub, self.enclave, {"filter": {"limit": 10, "reverse": True}})
                for _ in range(count)
            ],
        }
        found: dict[str, list[float]] = {name: [] for name in bodies}
        threads = [threading.Thread(target=self._send, args=(bodies[name], found[name])) for name in bodies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {name: statistics.quantiles(each, n=100)[98] * 1e3 for name, each in found.items()}

    def _send(self, bodies: Sequence[bytes], latencies: list[float]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._node.port, timeout=PATIENCE_S)
        began = time.perf_counter()
        for i, body in enumerate(bodies):
            due = began + i * EVERY_S
            time.sleep(max(0.0, due - time.perf_counter()))
            try:
                connection.request("POST", "/", body, {"content-type": "application/json"})
                answer = connection.getresponse()
                text = answer.read()
            except TimeoutError:
                latencies += [PATIENCE_S] * 2
                return
            assert answer.status == 200, text[:500]
            latencies.append(time.perf_counter() - due)

    def import_s(self, contents: int) -> float:
        """Return the seconds until an enclave of this identity's is imported."""
        call, name = archive(self._node.seq_pub, ["x" * 100] * contents)
        began = time.perf_counter()
        post(self._node, call)
        while True:
            status = json.loads(get(self._node, f"/import/{name}"))
            if status["status"] != "running":
                assert status["status"] == "done", status
                return time.perf_counter() - began
            assert time.perf_counter() - began < 60, status
            time.sleep(0.01)


def post(node: Node, call: Call) -> bytes:
    status, text = exchange(node, "POST", call)
    assert status in (200, 202), text[:500]
    return text


def get(node: Node, path: str) -> bytes:
    return exchange(node, "GET", Call(b"", path))[1]


def exchange(node: Node, method: str, call: Call) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=60)
    connection.request(method, call.path, call.body, {"content-type": call.kind})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, text


# The attacks


def gates(node: Node) -> Attack:
    owners, calls = [new_key() for _ in range(3)], list[Call]()
    for owner in owners:
        manifest = manifest_commit(owner, grants_manifest(owner))
        post(node, Call(wire(manifest)))
        calls += grants(owner, manifest.enclave, 30)
    return Attack(port=node.port, calls=calls, seconds=ATTACK_S)


def subscriptions(node: Node) -> Attack:
    owner = new_key()
    manifest = manifest_commit(owner, readers_manifest(owner))
    post(node, Call(wire(manifest)))
    asked = {"filter": {"type": "nothing"}}
    sockets = [
        [query(owner, node.seq_pub, manifest.enclave, asked, sub_id=f"s{i}") for i in range(64)] for _ in range(4)
    ]
    calls = list(turns(owner, manifest.enclave, 400))
    return Attack(port=node.port, calls=calls, seconds=ATTACK_S, connections=1, per_s=40, subscriptions=sockets)


def heavy(node: Node) -> Attack:
    authors = [new_key() for _ in range(10)]
    manifest = manifest_commit(authors[0], open_manifest(authors[0], bundle={"size": 1, "timeout": 1000}))
    post(node, Call(wire(manifest)))
    for i in range(1000):
        post(node, Call(wire(write(authors[i % 10], manifest.enclave, "note", f"n{i}"))))
        time.sleep(0.002)
    asked = {"filter": {"limit": 1000}, "proof": True}
    calls = [Call(query(authors[i % 10], node.seq_pub, manifest.enclave, asked)) for i in range(1000)]
    slow = list(orders(node.seq_pub, [f"https://h{i}.slow.example" for i in range(12)]))
    return Attack(port=node.port, calls=[*calls[:12], *slow, *calls[12:]], seconds=ATTACK_S, connections=24)


def large_manifests(node: Node) -> Attack:
    return Attack(port=node.port, calls=list(manifests(60)), seconds=ATTACK_S)


def cold_enclaves(node: Node) -> Attack:
    """Return commits without valid signatures to enclaves whose Manifests do not fit into memory together."""
    owner, stranger, enclaves = new_key(), new_key(), list[bytes]()
    for _ in range(40):
        manifest = manifest_commit(owner, {**grants_manifest(owner), "meta": {"n": len(enclaves)}})
        post(node, Call(wire(manifest)))
        enclaves.append(manifest.enclave)
    commits = [write(stranger, enclaves[i % 40], "note", f"n{i}") for i in range(4000)]
    calls = [Call(wire(replace(commit, sig=bytes(64)))) for commit in commits]
    return Attack(port=node.port, calls=calls, seconds=ATTACK_S, connections=64)


def slow_sources(node: Node) -> Attack:
    calls = list(orders(node.seq_pub, [f"http://{ATTACKER}:{SLOW_PORT}"] * 16))
    return Attack(port=node.port, calls=calls, seconds=ATTACK_S, slow_port=SLOW_PORT)


def bombs(node: Node) -> Attack:
    """Return uploads of 10 kB and 30 kB that hold 64 MB each: in contents that no node accepts, and in small ones."""
    calls = [archive(node.seq_pub, ["a" * size] * ((64 << 20) // size))[0] for size in (8 << 20, 1 << 20) * 2]
    return Attack(port=node.port, calls=calls, seconds=ATTACK_S, connections=2)


ATTACKS: dict[str, Callable[[Node], Attack]] = {
    "7 AC_Bundles against gates": gates,
    "8 subscriptions and gates": subscriptions,
    "9 heavy queries and slow DNS": heavy,
    "10 large Manifests": large_manifests,
    "10b unsigned commits to large enclaves": cold_enclaves,
    "11 slow sources of imports": slow_sources,
    "12 import bombs": bombs,
}


def disk_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def report(name: str, what: str, figure: float, quiet: float, unit: str = "ms") -> None:
    ratio = figure / quiet
    ok = verdict(f"{name}: {what}", ratio <= BOUND)
    print(f"{name}: {what} {figure:.1f} {unit} = {ratio:.1f} x quiet ({quiet:.1f} {unit}), at most {BOUND:g}: {ok}")


def bench(node: Node, data: Path, names: Sequence[str]) -> None:
    victim = Victim(node)
    victim.measure(SETTLE_S)  # opens files and fills caches
    quiet, quiet_import = victim.measure(QUIET_S), victim.import_s(200)
    print(f"quiet: commit p99 {quiet['commit']:.1f} ms, query p99 {quiet['query']:.1f} ms; import {quiet_import:.2f} s")
    for name in names:
        attack = ATTACKS[name](node)
        time.sleep(SETTLE_S)
        before = disk_mb(data)
        attacker = Attacker(attack)
        time.sleep(0.5)
        if name.startswith("11"):
            report(name, "another's import", victim.import_s(200), quiet_import, "s")
        under = victim.measure(ATTACK_S - 3 if name.startswith("11") else ATTACK_S - 1)
        counts = attacker.end()
        for what in quiet:
            report(name, f"{what} p99", under[what], quiet[what])
        if name.startswith("12"):
            grown, sent = disk_mb(data) - before, sum(len(call.body) for call in attack.calls) / 1e6
            ok = verdict(f"{name}: disk", grown <= MAX_DISK_MB)
            print(f"{name}: {sent:.2f} MB sent, the disk grew by {grown:.1f} MB, at most {MAX_DISK_MB}: {ok}")
        print(f"  the attacker's answers: {json.dumps(counts)}")


def main(*only: str) -> None:
    """`only`: numbers of attacks; all of them by default."""
    names = [name for name in ATTACKS if not only or name.split()[0] in only]
    with tempfile.TemporaryDirectory() as folder:
        hook = Path(folder) / "hook"
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(SLOW_NAMES)
        env = {"PYTHONPATH": f"{hook}:{os.environ.get('PYTHONPATH', '')}", "ENC_NODE_ENDPOINTS_ALLOW_PRIVATE": "true"}
        with Node(Path(folder) / "node", dev=False, env=env) as node:
            bench(node, Path(folder) / "node", names)
            node.stop()


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")
