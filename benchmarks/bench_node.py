"""A node under load: durable commits, proofs, pages, memory and start-up, with node and load on the same cores.

All commits are signed before the clock starts. Floor of a commit: one raw schnorrsig_verify and one schnorrsig_sign32,
the two that the protocol forces on a node, on one core. It is kept up for a second right before and right after each
run: a shared machine is slower for seconds than for milliseconds, and differs from one minute to the next.
`python benchmarks/bench_node.py --quick` leaves out everything that needs a store of 1,000,000 events.
"""

import gc
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count, pairwise
from multiprocessing import Pool
from multiprocessing.pool import Pool as Workers
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from floors import best_by_turns, missed, raw_sign, raw_verify, report, verdict
from node_load import Job, Result, name_of, run

from enc.core import enclave as machine
from enc.core.bundle import check_membership
from enc.core.commit import build_commit, build_manifest, parse_commit, wire_commit
from enc.core.encoding import compact_json
from enc.core.envelope import RequestType, open_answer, parse_request, seal_request
from enc.core.hashing import content_hash
from enc.core.memory import EnclaveMemory
from enc.core.policy import Effects
from enc.core.proof import Leaf, check_leaf, check_state_proof, parse_bundle_proof, parse_inclusion, parse_state_proof
from enc.core.receipt import check_receipt, parse_receipt
from enc.core.sealing import seal_text
from enc.core.session import Session, client_keys, open_session
from enc.core.signing import PrivateKey
from enc.core.state_key import tree_key
from enc.core.tree_head import check_bound_head, parse_head
from enc.core.types import Commit, Event, TreeHead
from enc.node.answers import Answers
from enc.node.directory import Directory
from enc.node.main import GC_THRESHOLD
from enc.node.rate_limit import RateLimiter
from enc.node.store.base import Step
from enc.node.store.sqlite import SqliteStore

ENCLAVES, EVENTS, LONGEST = 10_000, 1_000_000, 100_000
"""What the filled store holds, and how many of the events lie in one enclave."""
ACTIVE = 100
"""Enclaves of the filled store that are written to and queried."""
COMMITS, ROUNDS = 9_000, 5
"""Of one run, and how often a run is done; the best counts."""
CONNECTIONS, WINDOW = 64, 256
"""HTTP connections with one request each; requests under way on the one WebSocket."""
REQUESTS, READERS = 3_000, 16
"""Of one kind of proof, and by how many connections."""
SAMPLE = 50
"""Answers of a run that are checked to the last signature."""
STARTS = 3
FLOOR_S = 1.0
"""For how long the floor is measured before and after a run."""
LIFE_MS = 50 * 60_000

AUTHORS = [PrivateKey(bytes([i + 1] * 32)) for i in range(4)]
NAMES = {False: f"HTTP, {CONNECTIONS} connections", True: f"WebSocket, {WINDOW} under way"}
numbers = count()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# What is sent


def manifest(n: int) -> Commit:
    """The Manifest of bench enclave `n`: every author may write messages and read everything."""
    content = {
        "enc_v": 2,
        "states": ["MEMBER"],
        "readers": [{"type": "MEMBER", "reads": "*"}],
        "customs": [{"event": "message", "operator": "MEMBER", "ops": ["C"]}],
        "init": [{"identity": key.public.hex(), "state": "MEMBER", "traits": []} for key in AUTHORS],
        "meta": {"n": n},
    }
    return build_manifest(AUTHORS[0], compact_json(content), now_ms() + LIFE_MS)


def text(i: int) -> str:
    return f"{i:09}" + "x" * 191


def wire(commit: Commit) -> bytes:
    return msgspec.json.encode(wire_commit(commit))


def sign_some(enclaves: Sequence[bytes], first: int, size: int) -> list[bytes]:
    exp = now_ms() + LIFE_MS
    return [
        wire(build_commit(AUTHORS[i % len(AUTHORS)], enclaves[i % len(enclaves)], "message", text(i), exp))
        for i in range(first, first + size)
    ]


def sign(pool: Workers, enclaves: Sequence[bytes], size: int) -> list[bytes]:
    """Commits for the enclaves in turn, signed by all cores; no two are ever the same."""
    first = next(numbers) * 1_000_000
    tasks = [(enclaves, first + i, min(500, size - i)) for i in range(0, size, 500)]
    return [body for part in pool.starmap(sign_some, tasks) for body in part]


# What it is sent to


class Node:
    """A running node."""

    def __init__(self, data: Path) -> None:
        data.mkdir(exist_ok=True)
        command = [Path(sys.executable).with_name("enc"), "node", "run", "--data", data, "--port", "0", "--dev"]
        self._log = data / "log"
        start = time.perf_counter()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)  # noqa: S603
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
        """VmRSS or VmHWM, in MB."""
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
    """Every request must succeed, or the figures mean nothing."""
    result = run(Job(port=node.port, pid=node.pid, bodies=bodies, **how))
    if result.refusals:
        sys.exit(f"{len(result.refusals)} requests failed, the first: {result.refusals[0][:1000]!r}")
    return result


def send(node: Node, bodies: list[bytes], web_socket: bool, rate: float = 0.0) -> Result:
    """Commits, each answered by a Receipt."""
    result = load(node, bodies, web_socket=web_socket, window=WINDOW if web_socket else CONNECTIONS, rate=rate)
    for body, answer in zip(bodies, result.answers, strict=True):
        assert b'"type":"Receipt"' in answer, answer
        assert name_of(body) == name_of(answer), "the receipt of another commit"
    for i in random.sample(range(len(bodies)), min(SAMPLE, len(bodies))):
        check_receipt(parse_receipt(result.answers[i]), parse_commit(bodies[i]), node.seq_pub)
    return result


def found(node: Node, first: int, size: int) -> list[bytes]:
    """New enclaves."""
    manifests = [manifest(n) for n in range(first, first + size)]
    send(node, [wire(each) for each in manifests], web_socket=False)
    return [each.enclave for each in manifests]


def describe(result: Result) -> str:
    return (
        f"p50 {result.percentile(0.5):.1f} ms, p99 {result.percentile(0.99):.1f} ms; "
        f"cores: node {result.node_cores:.2f}, load {result.load_cores:.2f}, others {result.other_cores:.2f}; "
        f"the node's CPU time for each: {result.node_cores / result.per_second * 1e6:.0f} us"
    )


# Filling


def garbage(commit: Commit, seq_pub: bytes, timestamp: int, seq: int) -> Event:
    """An event like any other to a store, but nobody has signed it."""
    noise = os.urandom(96)
    return Event(
        **msgspec.structs.asdict(commit),
        id=noise[:32],
        timestamp=timestamp,
        sequencer=seq_pub,
        seq=seq,
        seq_sig=noise[32:],
    )


def step(transition: machine.Transition, event: Event | None, effects: Effects) -> Step:
    heads = [TreeHead(transition.state.floor, b.index + 1, bytes(32), bytes(64)) for b in transition.closed]
    subject = event.type if event else ""
    return Step(transition=transition, event=event, effects=effects, subject=subject, heads=tuple(heads))


def history(n: int, seq_pub: bytes, size: int, start: int) -> Iterator[Step]:
    """The life of enclave `n` until it fell idle: `size` events, a millisecond apart, and its last bundle sealed."""
    founding, nothing = manifest(n), EnclaveMemory()
    policy, effects = machine.judge_manifest(founding)
    event = garbage(founding, seq_pub, start, 0)
    transition = machine.found(event, policy, effects)
    yield step(transition, event, effects)
    for seq in range(1, size):
        content, noise = text(seq), os.urandom(96)
        commit = Commit(
            hash=noise[:32],
            enclave=founding.enclave,
            from_=AUTHORS[seq % len(AUTHORS)].public,
            type="message",
            content=content,
            content_hash=content_hash(content),
            exp=start + seq + 60_000,
            tags=(),
            sig=noise[32:],
        )
        event = garbage(commit, seq_pub, start + seq, seq)
        transition = machine.apply(transition.state, event, Effects(), nothing)
        yield step(transition, event, Effects())
    sealed = machine.seal(transition.state, start + size + LIFE_MS, nothing)
    if sealed:
        yield step(sealed, None, Effects())


def fill(path: Path, seq_pub: bytes, enclaves: int, events: int, longest: int) -> None:
    """Write `events` events through the store, by big transactions; enclave 0 has the longest log."""
    store, start, waiting = SqliteStore(path), now_ms() - 600_000, list[Step]()
    bounds = [longest + (events - longest) * i // (enclaves - 1) for i in range(enclaves)]
    for n, (low, high) in enumerate(pairwise([0, *bounds])):
        for each in history(n, seq_pub, high - low, start):
            waiting.append(each)
            if len(waiting) == 10_000:
                store.write(waiting, now_ms())
                waiting.clear()
    store.write(waiting, now_ms())
    store.close()


# The figures


def commit_floor(seconds: float) -> float:
    """Commits a second of which nothing is done but the two signatures, kept up for as long as this."""
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
    """One enclave of each node, over HTTP and over a WebSocket; what was best on the fresh node is returned."""
    enclaves = {name: found(node, ENCLAVES + i, 1) for i, (name, node) in enumerate(nodes.items())}
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
    """Half of what the node took a moment before: the machine's own speed swings."""
    (enclave,) = found(node, 2 * ENCLAVES, 1)
    for web_socket, name in NAMES.items():
        halves = list[tuple[float, Result]]()
        for _ in range(rounds):
            rate = send(node, sign(pool, [enclave], size), web_socket).per_second / 2
            halves.append((rate, send(node, sign(pool, [enclave], int(rate * seconds)), web_socket, rate=rate)))
        rate, result = min(halves, key=lambda half: half[1].percentile(0.99))
        what = f"half load over {name}"
        ok = verdict(f"{what}: p99", result.percentile(0.99) < 25)
        print(f"{what}, {rate:,.0f} commits/s: {describe(result)}; p99 under 25 ms: {ok}")


def bench_many(pool: Workers, node: Node, size: int) -> None:
    for i, many in enumerate((100, 1000)):
        enclaves = found(node, (3 + i) * ENCLAVES, many)
        for web_socket, name in NAMES.items():
            result = send(node, sign(pool, enclaves, size), web_socket)
            print(f"{many:,} enclaves in turn, {name}: {result.per_second:,.0f}/s; {describe(result)}")


class Reader:
    """An author who asks, in one session or several."""

    def __init__(self, seq_pub: bytes, sessions: int = 1) -> None:
        expires = now_ms() // 1000 + 3600
        self.seq_pub = seq_pub
        self.sessions = [open_session(AUTHORS[0], expires + i) for i in range(sessions)]

    def session(self, i: int) -> Session:
        return self.sessions[i % len(self.sessions)]

    def ask(self, i: int, enclave: bytes, type_: RequestType, body: dict[str, Any]) -> bytes:
        return msgspec.json.encode(
            seal_request(self.session(i), self.seq_pub, enclave, type_, body, os.urandom(24)),
        )

    def open(self, i: int, enclave: bytes, answer: bytes) -> Any:
        return open_answer(client_keys(self.session(i), self.seq_pub, enclave), answer)


class Proofs:
    """Requests for proofs of one enclave, and the checks of what comes back."""

    def __init__(self, enclave: bytes, seq_pub: bytes, events: list[bytes], size: int) -> None:
        self.enclave, self.seq_pub, self.events, self.size = enclave, seq_pub, events, size

    def _head(self, body: Any) -> TreeHead:
        head = parse_head(msgspec.json.encode(body["sth"]))
        check_bound_head(head, self.seq_pub, self.enclave)
        return head

    def ask(self, kind: str, i: int) -> dict[str, Any]:
        if kind == "inclusion":
            return {"leaf_index": i % self.size}
        if kind == "bundle":
            return {"event_id": self.events[i % len(self.events)].hex()}
        return {"namespace": "rbac", "key": AUTHORS[i % len(AUTHORS)].public.hex()}

    def check(self, kind: str, i: int, body: Any) -> None:
        if kind == "bundle":
            proof = parse_bundle_proof(msgspec.json.encode(body))
            check_membership(proof, self.events[i % len(self.events)], bytes.fromhex(body["events_root"]))
            return
        wire = body["inclusion"] if kind == "state" else body
        leaf = Leaf(bytes.fromhex(wire["events_root"]), bytes.fromhex(wire["state_hash"]))
        inclusion = parse_inclusion(msgspec.json.encode(wire))
        if kind == "inclusion":
            check_leaf(leaf, inclusion, self._head(body))
        else:
            key = tree_key("rbac", AUTHORS[i % len(AUTHORS)].public)
            check_state_proof(key, parse_state_proof(msgspec.json.encode(body)), leaf, inclusion, self._head(body))


KINDS: dict[str, RequestType] = {
    "inclusion": "Inclusion_Proof",
    "bundle": "Bundle_Proof",
    "state": "State_Proof",
}


def bench_proofs(node: Node, written: Result, enclave: bytes, size: int) -> None:
    """Proofs a second; `written` are the enclave's receipts, of which the early ones lie in closed bundles."""
    heads = load(node, [b""] * size, path=f"/{enclave.hex()}/sth", window=READERS)
    head = parse_head(heads.answers[-1])
    check_bound_head(head, node.seq_pub, enclave)
    print(f"STH over HTTP, {READERS} connections: {heads.per_second:,.0f}/s; {describe(heads)}")
    receipts = [parse_receipt(answer) for answer in written.answers[:SAMPLE]]
    proofs = Proofs(enclave, node.seq_pub, [receipt.id for receipt in receipts], head.ts)
    reader = Reader(node.seq_pub, READERS)
    for kind, type_ in KINDS.items():
        bodies = [reader.ask(i, enclave, type_, proofs.ask(kind, i)) for i in range(size)]
        result = load(node, bodies, path=f"/{kind}", window=READERS)
        for i in random.sample(range(size), min(SAMPLE, size)):
            proofs.check(kind, i, reader.open(i, enclave, result.answers[i]))
        print(f"{kind} proofs over HTTP, {READERS} connections: {result.per_second:,.0f}/s; {describe(result)}")


def bench_page(folder: Path) -> None:
    """A Query of 1,000 events, from the request's bytes to the answer's, in this process and without a socket."""
    key, path = AUTHORS[0], folder / "page.db"
    fill(path, key.public, 2, 3_000, 2_000)
    store = SqliteStore(path)
    unlimited = RateLimiter(0, 1, time.monotonic)
    answers = Answers(Directory(store), store, key, now_ms, unlimited, lambda *_: sys.exit("not asked for"), 1 << 23)
    reader, enclave = Reader(key.public), manifest(0).enclave
    asked = reader.ask(0, enclave, "Query", {"filter": {"seq": {"start_at": 1}, "limit": 1000}})
    keys = client_keys(reader.session(0), key.public, enclave)
    gc.set_threshold(*GC_THRESHOLD)  # as in a node
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
    assert len(full) == 1000, "the longest log fills a page"
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
    """Fill a store, and start a node on it."""
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
    """What making 4 KiB durable takes here, at best."""
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
        bench_many(pool, nodes["fresh"], size)
        stop(list(nodes.values()))


def main(quick: bool = False) -> None:
    with tempfile.TemporaryDirectory() as folder, Pool() as pool:
        bench(Path(folder), pool, quick)


if __name__ == "__main__":
    main(quick="--quick" in sys.argv[1:])
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")
