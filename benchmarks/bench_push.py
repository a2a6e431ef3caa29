"""Delivery: events a second to one endpoint and to 100, and what 100 endpoints cost the commits.

Floor of a delivered event: its share of encoding a batch's JSON and sealing it, in this process, without a socket.
The queue is filled while the receiver does not answer; then it answers every request. Node, sender and
receiver share the cores.
"""

import os
import sys
import tempfile
import time
from multiprocessing import Pool
from multiprocessing.pool import Pool as Workers
from pathlib import Path

from floors import best_by_turns, missed, verdict
from node_commits import AUTHORS, LIFE_MS, now_ms, sign, wire
from node_process import NAMES, Node, send
from push_sink import Sink, to_of

from enc.core.log.commit import build_commit, build_manifest
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.signing import PrivateKey
from enc.core.session.envelope import open_push, seal_push
from enc.node.store.sqlite.connection import open_existing

ENDPOINTS = 100
SUBSCRIBERS = [PrivateKey(bytes([i + 1, 0x77] * 16)) for i in range(ENDPOINTS)]
ONE, EACH = 20_000, 2_000
"""The number of events delivered to one endpoint, and to each of 100."""
COMMITS, ROUNDS = 6_000, 5
KEPT = 0.85
"""The share of the speed without endpoints that commits must keep."""
PATIENCE = 300


def subscribed(node: Node, name: str, sink: Sink, endpoints: int) -> bytes:
    """Create an enclave in which all authors write messages, which are pushed to this many endpoints."""
    owner, exp = AUTHORS[0], now_ms() + LIFE_MS
    members = [{"identity": key.public.hex(), "state": "MEMBER", "traits": []} for key in AUTHORS[1:] + SUBSCRIBERS]
    content = {
        "enc_v": 2,
        "states": ["MEMBER"],
        "traits": ["owner(0)", "hook(1)"],
        "readers": [{"type": "MEMBER", "reads": "*"}],
        "grants": [{"event": "Grant", "operator": "owner", "scope": "MEMBER", "trait": "hook"}],
        "customs": [
            {"event": "message", "operator": "MEMBER", "ops": ["C"]},
            {"event": "message", "operator": "hook", "ops": ["P"]},
        ],
        "init": [{"identity": owner.public.hex(), "state": "MEMBER", "traits": ["owner"]}, *members],
        "meta": {"name": name},
    }
    manifest = build_manifest(owner, compact_json(content), exp)
    grants = [
        build_commit(
            owner,
            manifest.enclave,
            "Grant",
            compact_json(
                {"target": key.public.hex(), "trait": "hook", "endpoint": f"http://127.0.0.1:{sink.port}/{name}/{i}"}
            ),
            exp,
        )
        for i, key in enumerate(SUBSCRIBERS[:endpoints])
    ]
    send(node, [wire(manifest)], web_socket=False)
    if grants:
        send(node, [wire(grant) for grant in grants], web_socket=False)
    return manifest.enclave


def wait(data: Path, condition: str) -> None:
    """Wait until a query to the node's database returns 0."""
    db = open_existing(data / "enc.db")
    deadline = time.monotonic() + PATIENCE
    while db.execute(condition).fetchone()[0]:
        if time.monotonic() > deadline:
            sys.exit(f"after {PATIENCE} s still not 0: {condition}")
        time.sleep(0.01)
    db.close()


SPREAD = "SELECT count(*) FROM outbox"
DRAINED = "SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM batches WHERE state = 0)"


def floor(node_key: PrivateKey, body: dict[str, object], events: int) -> float:
    """Return the seconds that JSON and sealing alone take for one event."""
    to = SUBSCRIBERS[0].public
    return best_by_turns(lambda: seal_push(node_key, to, "http://x", body, os.urandom(24)), rounds=50)[0] / events


def bench_delivery(pool: Workers, node: Node, data: Path, sink: Sink, endpoints: int, size: int) -> None:
    enclave = subscribed(node, f"to{endpoints}", sink, endpoints)
    send(node, sign(pool, [enclave], 1), web_socket=True)  # the endpoints are confirmed before their first batch
    wait(data, DRAINED)
    sink.shut()
    send(node, sign(pool, [enclave], size), web_socket=True)
    wait(data, SPREAD)
    sink.bodies.clear()
    start = time.perf_counter()
    sink.open()
    wait(data, DRAINED)
    seconds = time.perf_counter() - start
    per_second = size * endpoints / seconds
    keys = {key.public: key for key in SUBSCRIBERS}
    opened = [open_push(keys[to_of(body)], body).body for body in sink.bodies[:20]]
    largest = max(opened, key=count_of)
    each = floor(AUTHORS[0], largest, count_of(largest))
    print(
        f"delivered to {endpoints} endpoint{'s' * (endpoints > 1)}: {per_second:,.0f} events/s in {len(sink.bodies)} "
        f"requests; {1e6 / per_second:.1f} us an event = {1 / per_second / each:.2f} x JSON and sealing alone "
        f"({each * 1e6:.2f} us)"
    )


def count_of(body: dict[str, object]) -> int:
    push = body.get("push")
    return sum(len(each["events"]) for each in push["enclaves"]) if isinstance(push, dict) else 0


def bench_commits(pool: Workers, node: Node, data: Path, sink: Sink, size: int, rounds: int) -> None:
    """Commit in turns to an enclave with endpoints and one without; deliveries finish before the other's turn."""
    enclaves = {count: subscribed(node, f"commits{count}", sink, count) for count in (0, ENDPOINTS)}
    send(node, sign(pool, list(enclaves.values()), 2), web_socket=True)
    for web_socket in (False, True):
        best = dict.fromkeys(enclaves, 0.0)
        for _ in range(rounds):
            for count, enclave in enclaves.items():
                wait(data, DRAINED)
                sink.bodies.clear()
                best[count] = max(best[count], send(node, sign(pool, [enclave], size), web_socket).per_second)
        share = best[ENDPOINTS] / best[0]
        ok = verdict(f"commits with endpoints, {NAMES[web_socket]}", share >= KEPT)
        print(
            f"{NAMES[web_socket]}: {best[0]:,.0f}/s without endpoints, {best[ENDPOINTS]:,.0f}/s with {ENDPOINTS}: "
            f"{share:.2f}, at least {KEPT}: {ok}"
        )


def main(quick: bool = False) -> None:
    with tempfile.TemporaryDirectory() as folder, Pool() as pool:
        data, sink = Path(folder) / "node", Sink(SUBSCRIBERS)
        with Node(data) as node:
            bench_delivery(pool, node, data, sink, 1, ONE // 4 if quick else ONE)
            bench_delivery(pool, node, data, sink, ENDPOINTS, EACH // 4 if quick else EACH)
            bench_commits(pool, node, data, sink, COMMITS // 3 if quick else COMMITS, 2 if quick else ROUNDS)
            node.stop()


if __name__ == "__main__":
    main(quick="--quick" in sys.argv[1:])
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")
