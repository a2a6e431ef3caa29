"""Queues take turns when there is not time for all: none waits for ever behind others."""

import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest

from enc.node.push import sender as module
from enc.node.push.host_limits import HostRates
from enc.node.push.schedule import Bounds, Schedule
from enc.node.store.push_interface import DueBatch

QUEUES, PER_S = 300, 100.0


class Reads:
    """Every queue always has a due batch, all at one host."""

    def __init__(self) -> None:
        self.tries: Counter[int] = Counter()

    def due(self, now: int, limit: int, after: int = 0) -> list[DueBatch]:
        queues = range(after + 1, min(QUEUES, after + limit) + 1)
        return [DueBatch(q, self.tries[q] + 1, bytes(32), f"https://hook.example/{q}", 0, 100) for q in queues]


def test_every_queue_of_a_busy_host_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    now, reads, schedule = 0, Reads(), Schedule(Bounds(host=HostRates(requests_per_s=PER_S)))
    loop = SimpleNamespace(time=lambda: now / 1000)
    names = {name: getattr(asyncio, name) for name in ("Event", "create_task")}
    monkeypatch.setattr(module, "asyncio", SimpleNamespace(get_running_loop=lambda: loop, **names))
    sender = module.PushSender(schedule, reads, None, None, bytes(32), clock=lambda: now)  # type: ignore[arg-type]
    under_way: list[tuple[int, int]] = []
    for now in range(0, 60_000, 10):
        for _, queue in (ended := [each for each in under_way if each[0] <= now]):
            schedule.finish(queue, has_failed=False, took_ms=50)
            schedule.free(queue)
            sender._freed.append(queue)
        under_way = [each for each in under_way if each not in ended]
        sender._look()
        while (one := schedule.take(now)) is not None:
            reads.tries[one.queue] += 1
            under_way.append((now + 50, one.queue))
    counts = [reads.tries[queue] for queue in range(1, QUEUES + 1)]
    assert max(counts) - min(counts) <= 2
    assert sum(counts) >= 60 * PER_S
