"""How a running job shares the machine among its tasks. Without Spark."""

from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from msgspec import Struct, field

from enc.dataview.lake.lake import CHECKPOINT_AFTER, SPECS
from enc.dataview.pipeline import periodic_tasks
from enc.dataview.pipeline.periodic_tasks import MAX_REST_S, REST_FACTOR, DueTimer, Intervals, Maintenance, are_idle


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(periodic_tasks, "monotonic", found)
    return found


LENGTHS = pytest.mark.parametrize(
    ("took", "rests"), [(1.0, 10.0), (5.0, REST_FACTOR * 5.0), (90.0, MAX_REST_S)], ids=["short", "long", "very long"]
)


@LENGTHS
def test_views_rest_the_longer_the_longer_they_took(time: Time, took: float, rests: float) -> None:
    clock = _after_one_run(time, took)
    time.now += rests - 0.1
    assert not clock.is_due(is_idle=False)
    time.now += 0.1
    assert clock.is_due(is_idle=False)


@LENGTHS
def test_views_do_not_rest_while_streams_have_nothing_to_do(time: Time, took: float, rests: float) -> None:
    clock = _after_one_run(time, took)
    time.now += 9.9
    assert not clock.is_due(is_idle=True)
    time.now += 0.1
    assert clock.is_due(is_idle=True)


def test_the_first_views_wait_for_the_first_data(time: Time) -> None:
    clock = DueTimer(10.0)
    time.now = 29.9
    assert not clock.is_due(is_idle=False)
    time.now = 30.0
    assert clock.is_due(is_idle=False)


def _after_one_run(time: Time, took: float) -> DueTimer:
    clock = DueTimer(10.0)
    assert not clock.is_due()
    time.now = 10.0
    assert clock.is_due()
    time.now += took
    clock.done_after(took)
    return clock


class Done:
    """The tasks of a job: records whether each upkeep vacuumed."""

    def __init__(self) -> None:
        self.vacuumed = list[bool]()

    def run_upkeep(self, *, vacuum: bool = True) -> None:
        self.vacuumed.append(vacuum)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def test_the_first_upkeep_vacuums_and_then_one_a_day(time: Time) -> None:
    """A job that is started again every day vacuums as well."""
    done: Any = Done()
    maintenance = Maintenance(done, Intervals(views=10.0, upkeep=900.0, vacuum=86_400.0), [], Event())
    for _ in range(98):
        maintenance.run_due()
        time.now += 900.0
    assert done.vacuumed == [True, *[False] * 95, True]


class Query(Struct):
    """What the job reads of a stream."""

    has_data: bool = False
    is_active: bool = False
    lastProgress: dict[str, Any] | None = field(default_factory=dict)  # noqa: N815  # Spark's name

    @property
    def status(self) -> dict[str, Any]:
        return {"isDataAvailable": self.has_data, "isTriggerActive": self.is_active}


@pytest.mark.parametrize(
    ("other", "idle"),
    [
        (Query(), True),
        (Query(lastProgress=None), False),
        (Query(has_data=True), False),
        (Query(is_active=True), False),
    ],
    ids=["idle", "has not begun", "has data", "runs"],
)
def test_streams_are_idle_if_each_has_processed_what_it_found(other: Query, idle: bool) -> None:
    queries: Any = [Query(), other]
    assert are_idle(queries) == idle


@pytest.mark.parametrize("together", [("raw_events", "events", "heads"), ("content_status", "fold")])
def test_tables_that_a_batch_writes_do_not_write_down_their_logs_at_once(together: tuple[str, ...]) -> None:
    numbers = [SPECS[name].checkpoint_every for name in together]
    for n in range(1, 50_000):
        assert sum(n % number == 0 for number in numbers) <= 1, n


def test_batches_seldom_write_down_what_a_job_does_beside_them() -> None:
    assert all(spec.checkpoint_every > 20 * CHECKPOINT_AFTER for spec in SPECS.values())
