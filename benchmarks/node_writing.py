"""A node's commit rate: alone, at half its speed, and with many enclaves."""

import time
from multiprocessing.pool import Pool as Workers

import msgspec
from floors import raw_sign, raw_verify, verdict
from node_commits import AUTHORS, sign, text
from node_fill import ENCLAVES, EVENTS
from node_load import Result
from node_process import NAMES, Node, create, describe, load, send

from enc.core.log.commit import build_commit

BULK = 64
"""Commits of one request to /commits."""
FLOOR_S = 1.0
"""Seconds for which the floor is measured before and after a run."""


def commit_floor(seconds: float) -> float:
    """Return the commits a second that need only the two signatures, measured for this long."""
    commits = [build_commit(AUTHORS[i % len(AUTHORS)], bytes(32), "message", text(i), i) for i in range(200)]
    verify = raw_verify([(commit.from_, commit.hash, commit.sig) for commit in commits])
    sign = raw_sign(AUTHORS[0].secret, [commit.hash for commit in commits])
    start, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < seconds:
        verify()
        sign()
        done += len(commits)
    return done / passed


class Share(msgspec.Struct, frozen=True):
    """A run, and the floor right before and after it."""

    result: Result
    floor: float

    @property
    def share(self) -> float:
        return self.result.per_second / self.floor


def against_floor(node: Node, bodies: list[bytes], web_socket: bool) -> Share:
    before = commit_floor(FLOOR_S)
    result = send(node, bodies, web_socket)
    return Share(result, (before + commit_floor(FLOOR_S)) / 2)


def bench_commits(pool: Workers, nodes: dict[str, Node], size: int, rounds: int) -> dict[bool, Result]:
    """Measure one enclave of each node, over HTTP and over a WebSocket; return the best run on the fresh node."""
    enclaves = {name: create(node, ENCLAVES + i, 1) for i, (name, node) in enumerate(nodes.items())}
    best = dict[tuple[str, bool], Share]()
    for _ in range(rounds):
        for web_socket in NAMES:
            for name, node in nodes.items():
                run = against_floor(node, sign(pool, enclaves[name], size), web_socket)
                if (kept := best.get((name, web_socket))) is None or run.share > kept.share:
                    best[name, web_socket] = run
    for web_socket, at_least in ((False, 0.30), (True, 0.45)):
        run, what = best["fresh", web_socket], f"durable commits over {NAMES[web_socket]}"
        ok = verdict(what, run.share >= at_least)
        print(f"{what}: {run.result.per_second:,.0f}/s = {run.share:.2f} of the floor, at least {at_least:.2f}: {ok}")
        print(f"  floor: one verify and one sign, {run.floor:,.0f}/s on one core; {describe(run.result)}")
    for web_socket in NAMES if "filled" in nodes else ():
        run = best["filled", web_socket]
        share, what = run.share / best["fresh", web_socket].share, f"{EVENTS:,} events stored"
        ok = verdict(f"{what}, {NAMES[web_socket]}", share >= 0.85)
        print(
            f"  {what}, {NAMES[web_socket]}: {run.share:.2f} of the floor = {share:.2f} of empty, at least 0.85: {ok}"
        )
        print(f"    {run.result.per_second:,.0f}/s, floor {run.floor:,.0f}/s; {describe(run.result)}")
    return {web_socket: best["fresh", web_socket].result for web_socket in NAMES}


def bench_half(pool: Workers, node: Node, size: int, seconds: float, rounds: int) -> None:
    """Measure at half of the rate that the node has just reached, because the machine's speed changes."""
    (enclave,) = create(node, 2 * ENCLAVES, 1)
    for web_socket, name in NAMES.items():
        halves = list[tuple[float, Result]]()
        for _ in range(rounds):
            rate = send(node, sign(pool, [enclave], size), web_socket).per_second / 2
            halves.append((rate, send(node, sign(pool, [enclave], int(rate * seconds)), web_socket, rate=rate)))
        rate, result = min(halves, key=lambda half: half[1].percentile(0.99))
        what = f"half load over {name}"
        ok = verdict(f"{what}: p99", result.percentile(0.99) < 25)
        print(f"{what}, {rate:,.0f} commits/s: {describe(result)}; p99 under 25 ms: {ok}")


def bench_bulk(pool: Workers, node: Node, size: int) -> None:
    """Measure one connection that waits for each answer: commits one by one, and `BULK` in each request."""
    (enclave,) = create(node, 5 * ENCLAVES, 1)
    alone = load(node, sign(pool, [enclave], size), window=1)
    commits = sign(pool, [enclave], size)
    bodies = [b"\n".join(commits[i : i + BULK]) for i in range(0, size, BULK)]
    bulk = load(node, bodies, path="/commits", window=1)
    accepted = sum(answer.count(b'"type":"Receipt"') for answer in bulk.answers)
    assert accepted == size, "every commit must be accepted"
    rate = accepted / bulk.seconds
    ok = verdict(f"{BULK} commits in a request", rate > alone.per_second)
    print(
        f"one connection that waits for answers: {rate:,.0f} commits/s by {BULK} in a request = "
        f"{rate / alone.per_second:.1f} times as many as one by one, {alone.per_second:,.0f}/s, more than 1: {ok}"
    )


def bench_many(pool: Workers, node: Node, size: int) -> None:
    for i, many in enumerate((100, 1000)):
        enclaves = create(node, (3 + i) * ENCLAVES, many)
        for web_socket, name in NAMES.items():
            result = send(node, sign(pool, enclaves, size), web_socket)
            print(f"{many:,} enclaves in turn, {name}: {result.per_second:,.0f}/s; {describe(result)}")
