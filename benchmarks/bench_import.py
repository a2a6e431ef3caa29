"""Importing an enclave from an archive: events per second, beside two raw verifications per event on all cores.

Both run in turns, and the shortest time of each counts, as in all benchmarks: other programs only slow them down.
`python benchmarks/bench_import.py --quick` takes 10,000 events in place of 100,000.
"""

import gc
import io
import multiprocessing
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from floors import raw_verify, verdict

from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import finalize
from enc.core.machine import enclave as machine
from enc.core.machine.archive import write_archive
from enc.core.machine.archive_check import header_of
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.replay import Replay
from enc.core.machine.state import EnclaveState
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import event_hash, sha256
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Commit, CommitLimits, Event
from enc.node.imports.context import ImportContext, ImportPolicy
from enc.node.imports.jobs import Importer
from enc.node.imports.log_import import ImportJob
from enc.node.imports.orders import ImportOrder
from enc.node.limits.quota import StorageRules
from enc.node.main import GC_THRESHOLD
from enc.node.sequence.sequencer import Sequencer
from enc.node.sequence.state_cache import StateCache
from enc.node.store.sqlite.store import SqliteStore
from enc.runtime.rate_limit import RateLimiter

EVENTS, FEW = 100_000, 10_000
AT_LEAST = 0.7
ROUNDS, TURNS = 6, 5
LIFE_MS = 3_000_000
OLD, NEW = PrivateKey(sha256(b"old node")), PrivateKey(sha256(b"new node"))
AUTHORS = [PrivateKey(sha256(b"author %d" % i)) for i in range(16)]
MANIFEST = {
    "enc_v": 2,
    "states": ["MEMBER"],
    "traits": ["owner(0)"],
    "readers": [{"type": "MEMBER", "reads": "*"}],
    "customs": [{"event": "message", "operator": "MEMBER", "ops": ["C"]}],
    "init": [
        {"identity": author.public.hex(), "state": "MEMBER", "traits": [] if i else ["owner"]}
        for i, author in enumerate(AUTHORS)
    ],
    "bundle": {"size": 256, "timeout": 3_600_000},
}


class _Known(Replay):
    """A replay with a known state: the generator of the log need not verify it."""

    def __init__(self, state: EnclaveState, memory: EnclaveMemory) -> None:
        super().__init__(state.enclave, memory)
        self._state, self.sequencers = state, [(OLD.public, 0)]


def make(events: int, start: int) -> tuple[bytes, Commit, list[tuple[bytes, bytes, bytes]]]:
    """Return an archive, its Migrate, and some of its signatures."""
    memory, log, checks = EnclaveMemory(), list[Event](), list[tuple[bytes, bytes, bytes]]()
    commit = build_manifest(AUTHORS[0], compact_json(MANIFEST), start + LIFE_MS)
    policy, effects = machine.judge_manifest(commit)
    event = finalize(commit, OLD, start, 0)
    step = machine.apply_manifest(event, policy, effects)
    memory.put(event, step)
    log.append(event)
    for seq in range(1, events):
        author = AUTHORS[seq % len(AUTHORS)]
        commit = build_commit(author, event.enclave, "message", f"{seq:>200}", start + LIFE_MS + seq)
        effects = machine.judge(step.state, commit, memory, sequencer=OLD.public)
        event = finalize(commit, OLD, start + seq, seq)
        step = machine.apply(step.state, event, effects, memory)
        memory.put(event, step)
        log.append(event)
        if len(checks) < 8000:
            digest = event_hash(event.timestamp, seq, OLD.public, event.sig)
            checks += [(author.public, event.hash, event.sig), (OLD.public, digest, event.seq_sig)]
    replay = _Known(step.state, memory)
    content = {
        "new_sequencer": NEW.public.hex(),
        "prev_seq": step.state.seq,
        "ct_root": replay.checkpoint_root().hex(),
    }
    migrate = build_commit(AUTHORS[0], event.enclave, "Migrate", compact_json(content), start + LIFE_MS)
    return b"".join(write_archive(header_of(replay, None), log)), migrate, checks


def _timed(checks: list[tuple[bytes, bytes, bytes]], together: "multiprocessing.synchronize.Barrier") -> float:
    """Return the seconds of one verification, measured for about as long as an import: other programs slow both."""
    work = raw_verify(checks)
    together.wait()
    began = time.perf_counter()
    for _ in range(ROUNDS):
        work()
    return (time.perf_counter() - began) / ROUNDS / len(checks)


_together: "multiprocessing.synchronize.Barrier"


def _child(checks: list[tuple[bytes, bytes, bytes]]) -> float:
    return _timed(checks, _together)


def floor(checks: list[tuple[bytes, bytes, bytes]]) -> float:
    """Return the seconds for two raw verifications, with all cores busy."""
    global _together
    cores, context = len(os.sched_getaffinity(0)), multiprocessing.get_context("fork")
    _together = context.Barrier(cores)
    with context.Pool(cores) as pool:
        times = pool.map(_child, [checks] * cores, chunksize=1)
    return 2 * (sum(times) / cores) / cores


class ArchiveBytes(io.BytesIO):
    """An archive that has arrived."""

    @property
    def size(self) -> int:
        return len(self.getbuffer())


def take_in(folder: Path, archive: bytes, migrate: Commit, events: int, now: int) -> float:
    """Return the seconds of an import, from the archive's first byte until the node serves the enclave."""
    store = SqliteStore(folder / "enc.db")
    states = StateCache(store)
    sequencer = Sequencer(store, NEW, lambda: now, deliver=lambda outcomes: None, states=states)
    sequencer.start()
    policy = ImportPolicy(
        may_create=lambda identity: True,
        rates=RateLimiter(0, 1, time.monotonic),
        rules=StorageRules(),
        at_once=1,
        total_bytes=1 << 40,
        max_ratio=100,
        limits=CommitLimits(),
        max_manifest=1 << 20,
        private_endpoints=False,
    )
    context = ImportContext(
        store=store,
        states=states,
        sequencer=sequencer,
        key=NEW,
        clock=lambda: now,
        policy=policy,
        cores=frozenset(os.sched_getaffinity(0)),
    )
    importer = Importer(context)
    began = time.perf_counter()
    importer.start(ImportJob(ImportOrder(migrate, events - 1), None), ArchiveBytes(archive), "")
    for thread in list(importer._threads):
        thread.join()
    took = time.perf_counter() - began
    status = importer.status(migrate.hash)
    assert status is not None
    assert status.status == "done", status
    state = states.get(migrate.enclave)
    assert state is not None
    assert state.seq == events
    sequencer.stop()
    store.close()
    return took


def main(events: int = EVENTS) -> None:
    now = time.time_ns() // 1_000_000
    archive, migrate, checks = make(events, now - events)  # a millisecond apart
    gc.freeze()  # like a node
    gc.set_threshold(*GC_THRESHOLD)
    least, took = [], []
    for _ in range(TURNS):
        least.append(floor(checks))
        with TemporaryDirectory() as folder:
            took.append(take_in(Path(folder), archive, migrate, events, now) / events)
    each = ", ".join(f"{raw / whole:.2f}" for raw, whole in zip(least, took, strict=True))
    ratio = min(least) / min(took)
    print(
        f"import: {events:,} events, {1 / min(took):,.0f} a second = {ratio:.2f} of the floor "
        f"(two raw verifications on all cores: {1 / min(least):,.0f} a second), at least {AT_LEAST}: "
        f"{verdict('import', ratio >= AT_LEAST)}; turn by turn {each}"
    )


if __name__ == "__main__":
    main(FEW if "--quick" in sys.argv else EVENTS)
