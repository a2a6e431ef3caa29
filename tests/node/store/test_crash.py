"""A process that is killed while it writes: each acknowledged commit is stored once, and the log is complete.

Every event is queued once for each of its recipients.
"""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from enc.core.machine.replay import Replay
from enc.node.fsck import check_store
from enc.node.store.sqlite.store import SqliteStore
from tests.core.world import person
from tests.node.push_audit import check_queues
from tests.node.push_host import PUSHED
from tests.node.small_v1 import SMALL_V1
from tests.node.store_host import Host
from tests.tiers import rounds

ROOT = Path(__file__).parents[3]
KILLS = rounds(15)


@pytest.mark.sweep
@pytest.mark.parametrize(("kills", "manifest"), [(KILLS, PUSHED), (5, SMALL_V1)], ids=["version 2", "version 1"])
def test_killed_at_random_nothing_acknowledged_is_lost(tmp_path: Path, kills: int, manifest: dict[str, Any]) -> None:
    path, rng = tmp_path / "enc.db", random.Random(1)
    store = SqliteStore(path)
    enclave = Host(store).create(**manifest)
    store.close()
    acknowledged: dict[str, tuple[int, str]] = {}
    for _ in range(kills):
        command = [sys.executable, "-m", "tests.node.crash_writer", str(path), enclave.hex()]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(rng.randrange(1, 40))]
            writer.kill()
            lines += writer.stdout.read().split("\n")
        for line in lines:
            if line.count(" ") == 2 and len(line.strip().split(" ")[2]) == 64:
                commit_hash, seq, event_id = line.split()
                assert commit_hash not in acknowledged
                acknowledged[commit_hash] = (int(seq), event_id)
        check(path, enclave, acknowledged)
    assert len(acknowledged) > kills
    store = SqliteStore(path)
    assert check_queues(store) > kills
    assert not check_store(store, person("node").public, None, lambda more: None).differences
    store.close()


def check(path: Path, enclave: bytes, acknowledged: dict[str, tuple[int, str]]) -> None:
    """Check that every acknowledged commit is in the log once, and that the log replays to the stored state."""
    store = SqliteStore(path)
    replay, log = Replay(enclave), dict[str, tuple[int, str]]()
    for event in store.events(enclave, 0, 1 << 30):
        replay.add(event)
        log[event.hash.hex()] = (event.seq, event.id.hex())
    state = store.load(enclave)
    assert state is not None
    assert (state.seq, state.log, state.root) == (replay.state.seq, replay.state.log, replay.state.root)
    assert dict(state.pending) == dict(replay.state.pending)
    assert acknowledged.items() <= log.items()
    check_queues(store)
    head = store.head(enclave)
    assert (head.ts, head.r) == (state.log.size, state.log.root()) if head else state.log.size == 0
    store.close()
