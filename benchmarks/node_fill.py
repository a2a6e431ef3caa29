"""Fills a store with more events than a node accepts in minutes. The logs look real to the store, but are unsigned."""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
from node_commits import AUTHORS, LIFE_MS, manifest, now_ms, text

from enc.core.machine import enclave as machine
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.state import Transition
from enc.core.primitives.hashing import content_hash
from enc.core.primitives.types import Commit, Event, TreeHead
from enc.core.rules.policy_types import Effects
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.steps import Step

ENCLAVES, EVENTS, LONGEST = 10_000, 1_000_000, 100_000
"""The number of events in the filled store, and how many of them belong to one enclave."""


def garbage(commit: Commit, seq_pub: bytes, timestamp: int, seq: int) -> Event:
    """Return an event that looks real to a store, but is unsigned."""
    noise = os.urandom(96)
    return Event(
        **msgspec.structs.asdict(commit),
        id=noise[:32],
        timestamp=timestamp,
        sequencer=seq_pub,
        seq=seq,
        seq_sig=noise[32:],
    )


def step(transition: Transition, event: Event | None, effects: Effects) -> Step:
    heads = [TreeHead(transition.state.min_timestamp, b.index + 1, bytes(32), bytes(64)) for b in transition.closed]
    subject = event.type if event else ""
    return Step(transition=transition, event=event, effects=effects, subject=subject, heads=tuple(heads))


def history(n: int, seq_pub: bytes, size: int, start: int) -> Iterator[Step]:
    """Build the history of enclave `n` until it is idle: `size` events, a millisecond apart, the last bundle sealed."""
    creation, nothing = manifest(n), EnclaveMemory()
    policy, effects = machine.judge_manifest(creation)
    event = garbage(creation, seq_pub, start, 0)
    transition = machine.apply_manifest(event, policy, effects)
    yield step(transition, event, effects)
    for seq in range(1, size):
        content, noise = text(seq), os.urandom(96)
        commit = Commit(
            hash=noise[:32],
            enclave=creation.enclave,
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
