"""All faults at once, and the handler still has each event once, in order, with none missing.

A node that is killed repeatedly pushes 4,000 events of 50 enclaves, or 20,000 under `make soak`, to a receiver that
fails, hangs, answers an error for events that it has stored, and is killed while it delivers and before it answers. A
seed determines the faults and their times, which are counts, not seconds.
"""

import asyncio
import random
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from msgspec import Struct
from msgspec.json import encode

from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Commit
from enc.node.store.sqlite.store import SqliteStore
from tests.client.running_receiver import PATIENCE_S, RunningReceiver
from tests.core.world import person, pub
from tests.node.chaos_load import Load
from tests.node.running import RunningNode, free_port
from tests.plain_http import NO_TLS
from tests.tiers import rounds

SEED = 20_000
ENCLAVES, EACH = 50, min(rounds(80), 400)
PARTS = 4
"""The number of parts; the node and the receiver die once in each."""
MAX_EVENTS, MAX_PUSHES = 300, 8
"""The most events, or pushes, in one life of the receiver."""
LIFE_MS = 50 * 60_000
SETTINGS = {
    "ENC_NODE_PUSH_INTERVAL_S": "0.1",
    "ENC_NODE_PUSH_BATCH_EVENTS": "50",
    "ENC_NODE_PUSH_TIMEOUT_S": "0.5",
    "ENC_NODE_PUSH_FIRST_RETRY_S": "0.05",
    "ENC_NODE_PUSH_MAX_RETRY_S": "0.5",
    "ENC_NODE_PUSH_TRIES": "1",
}
TROUBLES = {"fail_every": 5, "lose_every": 4, "hang_every": 7}
MANIFEST = {
    "enc_v": 2,
    "states": ["MEMBER"],
    "traits": ["owner(0)", "dataview(1)"],
    "grants": [{"event": "Grant", "operator": "owner", "scope": "OUTSIDER", "trait": "dataview"}],
    "customs": [
        {"event": "message", "operator": "MEMBER", "ops": ["C"]},
        {"event": "message", "operator": "dataview", "ops": ["P"]},
    ],
    "init": [{"identity": pub("alice"), "state": "MEMBER", "traits": ["owner"]}],
}


def commits(hook: str) -> tuple[list[Commit], list[Commit], list[Commit]]:
    """Return the commits that create the enclaves, that register the endpoint in each, and that are pushed."""
    exp, alice = time.time_ns() // 1_000_000 + LIFE_MS, person("alice")
    creation = [build_manifest(alice, compact_json({**MANIFEST, "meta": {"n": n}}), exp) for n in range(ENCLAVES)]
    ids = [commit.enclave for commit in creation]
    grant = compact_json({"target": pub("vera"), "trait": "dataview", "endpoint": hook})
    grants = [build_commit(alice, id_, "Grant", grant, exp) for id_ in ids]
    messages = [build_commit(alice, id_, "message", f"number {n}", exp) for n in range(EACH) for id_ in ids]
    return creation, grants, messages


def bodies(commits: Sequence[Commit]) -> list[bytes]:
    return [encode(wire_commit(commit)) for commit in commits]


class Node:
    """A node on one port, which is restarted after each death."""

    def __init__(self, data: Path) -> None:
        self._data, self._port = data, free_port()
        self._start()

    def _start(self) -> None:
        self.running = RunningNode(self._data, "--port", str(self._port), env=SETTINGS)

    def die(self) -> None:
        self.running.kill()
        self._start()


class Receiver:
    """A receiver on one port, which is restarted after each death."""

    def __init__(self, node: RunningNode, state: Path) -> None:
        port = free_port()
        self.hook, self.state = f"http://127.0.0.1:{port}/hook", state
        self._orders = {
            "secret": person("vera").secret.hex(),
            "url": self.hook,
            "nodes": {node.seq_pub.hex(): node.url},
            "port": port,
            "group": 100,
        }

    def live(self, **orders: int) -> RunningReceiver:
        return RunningReceiver(self.state, **self._orders, **orders)


class Part(Struct):
    """One part of the test: while these commits are accepted, the node dies once, and so does the receiver."""

    messages: list[Commit]
    node_dies: int
    """The number of accepted commits after which the node dies."""
    receiver_dies: dict[str, int]
    """Orders for the receiver's death; if empty, it ends when the node has all commits of the part."""


def story(messages: Sequence[Commit]) -> Iterator[Part]:
    """Yield the parts; in each, the deaths come before all of its events have arrived."""
    dice, size = random.Random(SEED), len(messages) // PARTS
    for n in range(PARTS):
        way = ("die_in_event", "die_before_answer", "die_after_event", "")[n]
        most = MAX_PUSHES if way == "die_before_answer" else MAX_EVENTS
        orders = {way: dice.randint(2, most)} if way else {}
        yield Part(list(messages[n * size : (n + 1) * size]), dice.randint(1, size), orders)


async def send(node: Node, part: Part) -> None:
    load = Load(node.running.url, bodies(part.messages), part.node_dies)

    async def kill() -> None:
        await load.mark.wait()
        load.up.clear()
        await asyncio.to_thread(node.die)
        load.up.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(load.run())
        group.create_task(kill())


def live_through(part: Part, node: Node, receiver: Receiver) -> None:
    with receiver.live(**TROUBLES, **part.receiver_dies) as life:
        asyncio.run(send(node, part))
        if part.receiver_dies:
            life.await_death()


@pytest.mark.sweep
def test_each_event_is_handed_over_once_in_order_and_none_is_missing(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    receiver = Receiver(node.running, tmp_path / "inbox.db")
    creation, grants, messages = commits(receiver.hook)
    with httpx.Client(base_url=node.running.url, trust_env=False, timeout=PATIENCE_S, verify=NO_TLS) as http:
        for body in bodies([*creation, *grants]):
            assert http.post("/", content=body).status_code == 200
    for part in story(messages):
        live_through(part, node, receiver)
    with receiver.live(tell_at=len(messages)) as calm:
        calm.wait_for(len(messages))
        seen = calm.seen()
    node.running.stop()

    check_seen(seen, tmp_path / "node", creation)
    troubles = Counter(Path(f"{receiver.state}.troubles").read_text().split())
    assert set(troubles) == {"fail", "lose", "hang"}
    with closing(sqlite3.connect(tmp_path / "node" / "enc.db")) as db:
        assert db.execute("SELECT count(*) FROM batches WHERE state = 2").fetchone()[0], "no batch became a dead letter"


def check_seen(seen: Sequence[tuple[str, int, str]], data: Path, creation: Sequence[Commit]) -> None:
    """Check the handler's table against the logs: all events but the first two of each enclave, each once, in order."""
    handed = defaultdict[str, list[tuple[int, str]]](list)
    for enclave, seq, id_ in seen:
        handed[enclave].append((seq, id_))
    with closing(SqliteStore(data / "enc.db")) as store:
        for commit in creation:
            ids = [id_.hex() for id_ in store.ids(commit.enclave, 0, EACH + 3)]
            assert len(ids) == EACH + 2
            assert handed.pop(commit.enclave.hex()) == list(enumerate(ids))[2:]
    assert not handed
