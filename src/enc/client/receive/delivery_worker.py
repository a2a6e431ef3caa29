"""The delivery worker: the one thread that uses an inbox. Stores arrivals and calls the handler.

The handler's call and the update of its enclave's position are one transaction. Several events may
share one, each in its own savepoint, so that a failed call undoes only itself.
"""

import asyncio
import inspect
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar

from msgspec import Struct

from enc.client.enclave.push_body import Notice
from enc.client.receive.inbox import PushInbox
from enc.client.receive.inbox_file import Db
from enc.core.errors import EncError, MisuseError, Unavailable
from enc.core.primitives.types import Event
from enc.runtime.backoff import RetryPauses

T = TypeVar("T")
Handle = Callable[[Event, Db], Any]
"""Called with each event and the database of its transaction; may return an awaitable."""
OnNotice = Callable[[Notice], Any]
Clock = Callable[[], float]

logger = logging.getLogger("enc.client.receiver")


MIN_INTERVAL_S = 60.0
"""Minimum interval between two log lines of one kind, in seconds."""


class LogThrottle:
    """Logs each kind of line at most once per interval, with the number of suppressed ones.

    Kinds are defined by the program, so there are few.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._last_logged: dict[str, tuple[float, int]] = {}

    def log(self, level: int, kind: str, text: str) -> None:
        with self._lock:
            now = self._clock()
            last, suppressed = self._last_logged.get(kind, (now - MIN_INTERVAL_S, 0))
            is_due = now - last >= MIN_INTERVAL_S
            self._last_logged[kind] = (now, 0) if is_due else (last, suppressed + 1)
        if is_due:
            logger.log(level, "%s%s", text, f" ({suppressed} more times since the last report)" if suppressed else "")


class _Wait(Struct, frozen=True):
    until: float
    pause: float


class DeliveryWorker:
    """`group`: most events in one transaction; an arrival ends a group early."""

    loop: asyncio.AbstractEventLoop | None = None
    """The loop for handlers that await; None: a loop of this thread."""
    error: BaseException | None = None
    """The error that has stopped the thread."""

    def __init__(
        self,
        inbox: PushInbox,
        handle: Handle,
        on_notice: OnNotice | None,
        group: int,
        retries: RetryPauses,
        clock: Clock,
    ) -> None:
        self._inbox, self._handle, self._on_notice = inbox, handle, on_notice
        self._group, self._retries, self._clock = group, retries, clock
        self._work: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._wake, self._is_closed = threading.Condition(), False
        self._waits: dict[bytes, _Wait] = {}
        """Enclaves whose handler failed, and when to retry."""
        self._after = b""
        """The enclave whose events were delivered last."""
        self._runner: asyncio.Runner | None = None
        self._thread = threading.Thread(target=self._run, name="enc-delivery", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop after the current handler call; waiting events stay in the inbox."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run work on the inbox in this thread, before the next delivery."""
        done: Future[T] = Future()
        with self._wake:
            if self._is_closed:
                raise Unavailable("the receiver is stopping", retry_after_ms=1000)
            self._work.append((work, done))
            self._wake.notify()
        return done

    # The thread

    def _run(self) -> None:
        try:
            while not self._is_closed:
                if self._work:
                    self._run_task(*self._work.popleft())
                if not self._deliver_next():
                    self._sleep()
        except BaseException as e:  # whatever it is, delivery stops: log it
            logger.critical("the receiver stops: %s", error_text(e))
            self.error = e
        finally:
            self._end()

    def _end(self) -> None:
        with self._wake:
            self._is_closed = True
            left = list(self._work)
            self._work.clear()
        for _, done in left:
            done.set_exception(Unavailable("the receiver is stopping", retry_after_ms=1000))
        if self._runner is not None:
            self._runner.close()

    def _run_task(self, work: Callable[[], Any], done: Future[Any]) -> None:
        try:
            done.set_result(work())
        except Exception as e:
            done.set_exception(e)

    def _sleep(self) -> None:
        """Sleep until there is work, or a retry is due."""
        now = self._clock()
        until = min((wait.until for wait in self._waits.values()), default=None)
        with self._wake:
            if not self._work and not self._is_closed:
                self._wake.wait(None if until is None else max(until - now, 0.0))

    # Delivery

    def _deliver_next(self) -> bool:
        """Deliver a group of events, and notices. Returns False if there is nothing to do now."""
        try:
            handed = self._events()
            noticed = self._notices()
        except (Unavailable, sqlite3.Error) as e:
            logger.error("delivery failed: %s", e)
            self._waits[b""] = self._next_wait(b"")
            return False
        self._waits.pop(b"", None)
        return noticed or handed

    def _events(self) -> bool:
        if self._is_waiting(b""):  # the disk failed
            return False
        enclaves, left = self._turns(), self._group
        first = next(enclaves, None)
        if first is None:
            return False
        with self._inbox.transaction():
            for enclave in chain([first], enclaves):
                left -= self._deliver_events(enclave, left)
                if left <= 0 or self._is_interrupted:
                    break
        return True

    def _turns(self) -> Iterator[bytes]:
        """Yield the enclaves with deliverable events, each once, beginning after the last one
        served.
        """
        start, after, is_round = self._after, self._after, False
        while True:
            enclave = self._inbox.waiting(after)
            if enclave is None and not is_round:
                after, is_round = b"", True
                continue
            if enclave is None or (is_round and enclave > start):
                return
            after = enclave
            if not self._is_waiting(enclave) and self._inbox.ready(enclave, 1):
                self._after = enclave
                yield enclave

    def _deliver_events(self, enclave: bytes, most: int) -> int:
        """Return how many events of an enclave were tried; after a failure the enclave waits."""
        events = self._inbox.ready(enclave, most)
        for n, event in enumerate(events, 1):
            if not self._deliver(event) or self._is_interrupted:
                return n
        return len(events)

    def _deliver(self, event: Event) -> bool:
        db = self._inbox.db
        db.execute("SAVEPOINT enc_event")
        try:
            self._call(self._handle, event, db)
            if not db.in_transaction:
                raise MisuseError("the handler has ended the receiver's transaction")
            self._inbox.mark_delivered(event)
        except Exception:
            if not db.in_transaction:
                raise
            db.execute("ROLLBACK TO enc_event")
            db.execute("RELEASE enc_event")
            wait = self._waits[event.enclave] = self._next_wait(event.enclave)
            place = f"event {event.seq} of {event.enclave.hex()}"
            logger.exception("the handler failed on %s; retrying in %g s", place, wait.pause)
            return False
        db.execute("RELEASE enc_event")
        self._waits.pop(event.enclave, None)
        return True

    def _notices(self) -> bool:
        if self._on_notice is None or self._is_waiting(b"notices"):
            return False
        found = self._inbox.notices()
        for notice in found:
            try:
                self._call(self._on_notice, notice)
                self._inbox.mark_noticed(notice)
            except Exception:
                self._waits[b"notices"] = self._next_wait(b"notices")
                logger.exception("the handler failed on a notice of %s", notice.enclave.hex())
                return False
        self._waits.pop(b"notices", None)
        return bool(found)

    def _call(self, handler: Callable[..., Any], *given: Any) -> None:
        with _no_exit():
            result = handler(*given)
        if not inspect.isawaitable(result):
            return
        if self.loop is not None and not self.loop.is_closed():
            asyncio.run_coroutine_threadsafe(_awaited(result), self.loop).result()
            return
        self._runner = self._runner or asyncio.Runner()
        self._runner.run(_awaited(result))

    @property
    def _is_interrupted(self) -> bool:
        """Whether to stop delivery for other work."""
        return self._is_closed or bool(self._work)

    def _is_waiting(self, key: bytes) -> bool:
        wait = self._waits.get(key)
        return wait is not None and wait.until > self._clock()

    def _next_wait(self, key: bytes) -> _Wait:
        known = self._waits.get(key)
        pause = self._retries.after(known.pause if known else 0.0)
        return _Wait(self._clock() + pause, pause)


async def _awaited(result: Any) -> None:
    with _no_exit():
        await result


@contextmanager
def _no_exit() -> Iterator[None]:
    """Turn a handler's SystemExit into an error: it must not end the program, thread or loop."""
    try:
        yield
    except SystemExit as e:
        raise RuntimeError(f"the handler tried to exit the program: SystemExit({e.code!r})") from e


def error_text(error: BaseException) -> str:
    """Return a description of an error for the log, without private content."""
    return f"{error.code}: {error.message}" if isinstance(error, EncError) else type(error).__name__
