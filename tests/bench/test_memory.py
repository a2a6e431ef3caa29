"""The memory of the generator while it makes a log: bounded for any log, and correct."""

from io import BytesIO
from random import Random

import pytest

from enc.bench import state_memory as shelf_module
from enc.bench.log_maker import LogMaker
from enc.bench.node_behaviour import NodeBehaviour
from enc.bench.plan import draw_plan
from enc.bench.recent_messages import CAPACITY, RecentMessage, RecentMessages
from enc.core.log.event import parse_event
from enc.core.machine.archive_check import verify_archive
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.replay import Replay


def test_nodes_of_former_roots_are_thrown_away_and_nothing_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "MIN_NODES", 64)
    spool = BytesIO()
    maker = LogMaker(draw_plan(5, 0, 3000, 40), NodeBehaviour(), spool)
    log = maker.run()
    events = [parse_event(line) for line in spool.getvalue().splitlines()]
    header = log.header(log.head(len(log.bundles)), maker.checkpoint_root)
    replay = verify_archive(header, iter(events))
    assert isinstance(replay, Replay)
    assert isinstance(replay.store, EnclaveMemory)
    assert len(replay.store.tree_nodes) > 3 * len(maker._memory._nodes)


def test_the_latest_messages_are_remembered_and_no_others() -> None:
    recent, rng = RecentMessages(), Random(1)
    messages = [RecentMessage(bytes([i % 256, i // 256]), i, b"", "message", i) for i in range(3 * CAPACITY)]
    for message in messages:
        recent.add(message)
    kept = [message for message in messages if recent.target(message.id)]
    assert kept == messages[-CAPACITY:]
    gone = messages[-5]
    recent.remove(gone)
    assert recent.target(gone.id) is None
    picked = [recent.pick(rng) for _ in range(20 * CAPACITY)]
    assert gone not in picked
    assert {each.place for each in picked if each} <= {message.place for message in kept}
    assert len({each.place for each in picked if each}) == CAPACITY - 1


def test_nobody_speaks_of_what_was_never_said() -> None:
    assert RecentMessages().pick(Random(1)) is None
