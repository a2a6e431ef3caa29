"""Repeats of log entries: the first few are logged, the others are counted."""

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from enc.runtime import log_throttle
from enc.runtime.log_throttle import BURST, WINDOW_S, LogThrottle
from enc.runtime.logs import setup_logs


class Log:
    """A log with repeats dropped, and a clock that only the test advances."""

    def __init__(self) -> None:
        self.now = 100.0
        self.throttle, self._stream = LogThrottle(lambda: self.now), io.StringIO()
        setup_logs("info", "json", self._stream, self.throttle)
        self.ours = structlog.get_logger("enc.node.test")

    def many(self, write: Callable[..., Any], event: str, **fields: Any) -> int:
        """Log an entry often; return how many lines that made."""
        before = len(self.entries)
        for i in range(BURST + 3):
            write(event, steps=i, request=f"r{i}", **fields)
        return len(self.entries) - before

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]


@pytest.fixture
def log() -> Iterator[Log]:
    yield Log()
    structlog.reset_defaults()


@pytest.mark.parametrize("level", ["warning", "error"])
def test_of_many_equal_entries_the_first_are_logged(log: Log, level: str) -> None:
    write = getattr(log.ours, level)
    assert log.many(write, "store_failed", reason="SQLITE_FULL") == BURST
    log.now += WINDOW_S - 0.1
    assert log.many(write, "store_failed", reason="SQLITE_FULL") == 0
    assert not any("repeats" in entry for entry in log.entries)


def test_after_the_window_the_next_entry_says_how_many_were_dropped(log: Log) -> None:
    log.many(log.ours.error, "store_failed")
    log.now += WINDOW_S
    assert log.many(log.ours.error, "store_failed") == BURST
    assert [entry.get("repeats") for entry in log.entries[BURST:]] == [3, *[None] * (BURST - 1)]


def test_entries_that_say_something_else_are_not_dropped(log: Log) -> None:
    assert log.many(log.ours.error, "store_failed", reason="SQLITE_FULL") == BURST
    assert log.many(log.ours.error, "store_failed", reason="SQLITE_IOERR") == BURST
    assert log.many(log.ours.warning, "store_failed", reason="SQLITE_FULL") == BURST
    assert log.many(log.ours.error, "sweep_failed", reason="SQLITE_FULL") == BURST


def test_faults_of_different_kinds_are_not_dropped(log: Log) -> None:
    assert log.many(log.ours.error, "internal_error", exc_info=KeyError("a")) == BURST
    assert log.many(log.ours.error, "internal_error", exc_info=ValueError("a")) == BURST


def test_what_is_no_warning_is_never_dropped(log: Log) -> None:
    assert log.many(log.ours.info, "request") == BURST + 3


def test_what_was_dropped_is_reported_once_if_nothing_follows(log: Log) -> None:
    log.many(log.ours.error, "store_failed", reason="SQLITE_FULL")
    log.many(log.ours.error, "store_failed", reason="SQLITE_IOERR")
    log.ours.error("once")
    assert log.throttle.ended() == {}
    log.now += WINDOW_S
    assert log.throttle.ended() == {"store_failed": 6}
    assert log.throttle.ended() == {}


def test_the_number_of_different_entries_that_it_remembers_is_bounded(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_throttle, "MAX_KEYS", 2)
    for name in ("a", "b", "c"):
        assert log.many(log.ours.error, name) == BURST
    assert len(log.throttle._seen) == 2
    assert log.many(log.ours.error, "c") == 0
