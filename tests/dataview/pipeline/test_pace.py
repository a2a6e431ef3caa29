"""How a running job shares the machine among its tasks. Without Spark."""

import pytest

from enc.dataview.lake.lake import CHECKPOINT_AFTER, SPECS
from enc.dataview.pipeline import periodic_tasks
from enc.dataview.pipeline.periodic_tasks import MAX_REST_S, REST_FACTOR, DueTimer


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(periodic_tasks, "monotonic", found)
    return found


@pytest.mark.parametrize(
    ("took", "rests"), [(1.0, 10.0), (5.0, REST_FACTOR * 5.0), (90.0, MAX_REST_S)], ids=["short", "long", "very long"]
)
def test_views_rest_the_longer_the_longer_they_took(time: Time, took: float, rests: float) -> None:
    clock = DueTimer(10.0)
    assert not clock.is_due()
    time.now = 10.0
    assert clock.is_due()
    time.now += took
    clock.done_after(took)
    time.now += rests - 0.1
    assert not clock.is_due()
    time.now += 0.1
    assert clock.is_due()


@pytest.mark.parametrize("together", [("raw_events", "events", "heads"), ("content_status", "fold")])
def test_tables_that_a_batch_writes_do_not_write_down_their_logs_at_once(together: tuple[str, ...]) -> None:
    numbers = [SPECS[name].checkpoint_every for name in together]
    for n in range(1, 50_000):
        assert sum(n % number == 0 for number in numbers) <= 1, n


def test_batches_seldom_write_down_what_a_job_does_beside_them() -> None:
    assert all(spec.checkpoint_every > 20 * CHECKPOINT_AFTER for spec in SPECS.values())
