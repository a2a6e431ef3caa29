"""A node under load: durable commits, proofs, pages, memory and start-up, with node and load on the same cores.

All commits are signed before the clock starts. Floor of a commit: one raw schnorrsig_verify and one schnorrsig_sign32,
the two that the protocol requires of a node, on one core. It runs for a second right before and right after each
run: a shared machine is slower for seconds than for milliseconds, and its speed changes from minute to minute.
`python benchmarks/bench_node.py --quick` leaves out everything that needs a store of 1,000,000 events.
"""

import gc
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing import Pool
from multiprocessing.pool import Pool as Workers
from pathlib import Path

import msgspec
from floors import best_by_turns, missed, report, verdict
from node_commits import AUTHORS, manifest, now_ms, sign
from node_fill import ENCLAVES, EVENTS, LONGEST, fill
from node_process import NAMES, Node, describe, load, send
from node_proofs import READERS, Reader, bench_proofs
from node_writing import bench_bulk, bench_commits, bench_half, bench_many

from enc.core.primitives.sealing import seal_text
from enc.core.session.envelope import parse_request
from enc.core.session.session import client_keys
from enc.node.main import GC_THRESHOLD
from enc.node.read.request_handlers import SealedHandlers
from enc.node.sequence.state_cache import StateCache
from enc.node.store.sqlite.store import SqliteStore
from enc.runtime.rate_limit import RateLimiter

ACTIVE = 100
"""Enclaves of the filled store that are written to and queried."""
COMMITS, ROUNDS = 9_000, 5
"""The commits of one run, and the number of runs; the best counts."""
REQUESTS = 3_000
"""The number of proofs of one kind."""
STARTS = 3


def bench_page(folder: Path) -> None:
    """Time a Query of 1,000 events, from the request's bytes to the answer's, in this process and without a socket."""
    key, path = AUTHORS[0], folder / "page.db"
    fill(path, key.public, 2, 3_000, 2_000)
    store = SqliteStore(path)
    unlimited = RateLimiter(0, 1, time.monotonic)
    answers = SealedHandlers(
        StateCache(store), store, key, now_ms, unlimited, lambda *_: sys.exit("not asked for"), 1 << 23
    )
    reader, enclave = Reader(key.public), manifest(0).enclave
    asked = reader.ask(0, enclave, "Query", {"filter": {"seq": {"start_at": 1}, "limit": 1000}})
    keys = client_keys(reader.session(0), key.public, enclave)
    gc.set_threshold(*GC_THRESHOLD)  # like a node
    body = reader.open(0, enclave, answers.answer(parse_request(asked)))
    assert len(body["events"]) == 1000
    cost, floor = best_by_turns(
        lambda: answers.answer(parse_request(asked)),
        lambda: seal_text(keys.response, msgspec.json.encode(body), os.urandom(24)),
        rounds=500,
    )
    report("answer a Query of 1,000 events", cost, floor, "JSON, sealing and base64 alone", 1.6)
    store.close()


def bench_memory(pool: Workers, node: Node, enclaves: list[bytes], size: int) -> None:
    active, reader = enclaves[:ACTIVE], Reader(node.seq_pub)
    written = send(node, sign(pool, active, size), web_socket=True)
    print(f"{ACTIVE} enclaves of {ENCLAVES:,} in turn, {NAMES[True]}: {written.per_second:,.0f}/s; {describe(written)}")
    asked = [reader.ask(0, each, "Query", {"filter": {"limit": 1000, "reverse": True}}) for each in active]
    result = load(node, asked, window=READERS)
    full = reader.open(0, active[0], result.answers[0])["events"]
    assert len(full) == 1000, "the longest log must fill a page"
    now, most = node.memory("VmRSS"), node.memory("VmHWM")
    ok = verdict("memory", now < 300)
    print(
        f"resident memory with {ENCLAVES:,} enclaves, {EVENTS:,} events, {ACTIVE} of them written to and queried: "
        f"{now:.0f} MB (at most {most:.0f} MB before), under 300: {ok}"
    )


def stop(nodes: Sequence[Node]) -> None:
    codes = [node.stop() for node in nodes]
    print(f"stopped by SIGTERM, exit codes {codes}: {verdict('exit code', not any(codes))}")


def bench_start(pool: Workers, data: Path, enclaves: int, events: int, longest: int) -> None:
    """Fill a store, and time the start of a node on it."""
    with Node(data) as node:
        assert node.stop() == 0
    start = time.perf_counter()
    pool.apply(fill, (data / "enc.db", node.seq_pub, enclaves, events, longest))
    print(f"filled: {enclaves:,} enclaves, {events:,} events, {time.perf_counter() - start:.0f} s")
    seconds = []
    for _ in range(STARTS):
        with Node(data) as node:
            assert node.stop() == 0
        seconds.append(node.seconds)
    ok = verdict(f"start with {enclaves:,} enclaves", min(seconds) < 2)
    print(f"start with {enclaves:,} enclaves: {min(seconds):.2f} s until ready, under 2: {ok}")


def sync_ms(folder: Path) -> float:
    """Return the milliseconds that making 4 KiB durable takes on this disk, at best."""
    with (folder / "sync").open("wb", buffering=0) as file:

        def work() -> None:
            file.write(bytes(4096))
            os.fsync(file.fileno())

        return best_by_turns(work, rounds=50)[0] * 1e3


def bench(folder: Path, pool: Workers, quick: bool) -> None:
    print(f"node and load on {os.cpu_count()} cores; an fsync takes {sync_ms(folder):.2f} ms")
    size, rounds = (COMMITS // 3, 1) if quick else (COMMITS, ROUNDS)
    data = {"fresh": folder / "fresh"}
    bench_page(folder)
    bench_start(pool, folder / "ten", 10, 1_000, 100)
    if not quick:
        data["filled"] = folder / "filled"
        bench_start(pool, data["filled"], ENCLAVES, EVENTS, LONGEST)
    with ExitStack() as running:
        nodes = {name: running.enter_context(Node(path)) for name, path in data.items()}
        best = bench_commits(pool, nodes, size, rounds)
        bench_half(pool, nodes["fresh"], COMMITS // 3, 2.0, rounds + 1)
        if not quick:
            bench_memory(pool, nodes["filled"], [manifest(n).enclave for n in range(ACTIVE)], size)
        bench_proofs(nodes["fresh"], best[False], manifest(ENCLAVES).enclave, REQUESTS // 3 if quick else REQUESTS)
        bench_bulk(pool, nodes["fresh"], COMMITS // 3)
        bench_many(pool, nodes["fresh"], size)
        stop(list(nodes.values()))


def main(quick: bool = False) -> None:
    with tempfile.TemporaryDirectory() as folder, Pool() as pool:
        bench(Path(folder), pool, quick)


if __name__ == "__main__":
    main(quick="--quick" in sys.argv[1:])
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")
