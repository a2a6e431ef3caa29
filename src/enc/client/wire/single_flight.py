"""Work that several flows need at the same time, done by one of them: the others wait for its result.

So 300 concurrent first commits ask a node for its key once. It works between the tasks of an event
loop as between threads.
"""

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Any

from msgspec import Struct

from enc.client.wire.flow import Flow, T, wait
from enc.core.errors import EncError


class _Outcome(Struct, frozen=True):
    value: Any = None
    error: EncError | None = None


class SingleFlight:
    """Runs each kind of work once at a time. The keys name the kinds."""

    def __init__(self) -> None:
        self._running: dict[Hashable, Future[_Outcome | None]] = {}
        self._lock = Lock()

    def run(self, key: Hashable, work: Callable[[], Flow[T]]) -> Flow[T]:
        """Return the result of the work, or that of the same work which another flow does now; raise
        its error. If the other flow is cancelled, one of those that wait does the work.
        """
        while True:
            with self._lock:
                running = self._running.get(key)
                if running is None:
                    mine = self._running[key] = Future()
                    mine.set_running_or_notify_cancel()  # no flow that waits can cancel it
            if running is None:
                return (yield from self._lead(key, mine, work()))
            outcome = yield from wait(running)
            if outcome is None:
                continue
            if outcome.error is not None:
                raise _copy(outcome.error)
            return outcome.value  # type: ignore[no-any-return]

    def forget(self, key: Hashable) -> None:
        """Let the next flow do the work again, though its result may still be on the way."""
        with self._lock:
            self._running.pop(key, None)

    def _lead(self, key: Hashable, mine: "Future[_Outcome | None]", flow: Flow[T]) -> Flow[T]:
        outcome: _Outcome | None = None
        try:
            value = yield from flow
            outcome = _Outcome(value=value)
            return value
        except EncError as e:
            outcome = _Outcome(error=_copy(e))
            raise
        finally:
            with self._lock:
                if self._running.get(key) is mine:
                    del self._running[key]
            mine.set_result(outcome)


def _copy(error: EncError) -> EncError:
    """Return an equal error. Each flow raises its own, since its callers may add to the message."""
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy
