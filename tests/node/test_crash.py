"""A process that is killed while it writes: what it acknowledged is there once, and what is there is a whole log."""

import random
import subprocess
import sys
from pathlib import Path

from enc.core.replay import Replay
from enc.node.store.sqlite import SqliteStore

from .test_store import Host

ROOT = Path(__file__).parents[2]
KILLS = 15


def test_killed_at_random_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    path, rng = tmp_path / "enc.db", random.Random(1)
    store = SqliteStore(path)
    enclave = Host(store).found()
    store.close()
    acknowledged: dict[str, tuple[int, str]] = {}
    for _ in range(KILLS):
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
    assert len(acknowledged) > KILLS


def check(path: Path, enclave: bytes, acknowledged: dict[str, tuple[int, str]]) -> None:
    """Every acknowledged commit stands in the log once, and the log replays to the state that is stored."""
    store = SqliteStore(path)
    replay, found = Replay(enclave), dict[str, tuple[int, str]]()
    for event in store.events(enclave, 0, 1 << 30):
        replay.take(event)
        found[event.hash.hex()] = (event.seq, event.id.hex())
    state = store.load(enclave)
    assert state is not None
    assert (state.seq, state.log, state.root) == (replay.state.seq, replay.state.log, replay.state.root)
    assert dict(state.pending) == dict(replay.state.pending)
    assert acknowledged.items() <= found.items()
    head = store.head(enclave)
    assert (head.ts, head.r) == (state.log.size, state.log.root()) if head else state.log.size == 0
    store.close()
