"""The clerk: one thread that alone uses an inbox. It files what comes, and between two filings hands over what is next.

A handler's call and the step that moves its enclave's place are one transaction. Several events may share one, each in
a savepoint of its own, so that one call that fails takes back nothing but itself.
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

from enc.client.inbox import Inbox
from enc.client.inbox_file import Db
from enc.client.push_body import Notice
from enc.core.errors import EncError, MisuseError, Unavailable
from enc.core.types import Event
from enc.runtime.backoff import RetryPauses

T = TypeVar("T")
Handle = Callable[[Event, Db], Any]
"""Called with each event, and the database in whose transaction it is handed over; may return an awaitable."""
OnNotice = Callable[[Notice], Any]
Clock = Callable[[], float]

logger = logging.getLogger("enc.client.receiver")


MIN_INTERVAL_S = 60.0
"""For how long what was said is not said again."""


class LogThrottle:
    """What may come with every push is said once in a while for each kind of it, with how often it came meanwhile.

    Kinds are the program's own words, and so are few.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._said: dict[str, tuple[float, int]] = {}

    def say(self, level: int, kind: str, text: str) -> None:
        with self._lock:
            now = self._clock()
            last, unsaid = self._said.get(kind, (now - MIN_INTERVAL_S, 0))
            is_due = now - last >= MIN_INTERVAL_S
            self._said[kind] = (now, 0) if is_due else (last, unsaid + 1)
        if is_due:
            logger.log(level, "%s%s", text, f" ({unsaid} more times since this was said)" if unsaid else "")


class _Wait(Struct, frozen=True):
    until: float
    pause: float


class DeliveryWorker:
    """`group`: events that share one transaction, at most; one that waits to be filed ends a group early."""

    loop: asyncio.AbstractEventLoop | None = None
    """Where a handler that awaits is run; None: on one of the clerk's own."""
    error: BaseException | None = None
    """What has ended its work for good."""

    def __init__(
        self, inbox: Inbox, handle: Handle, on_notice: OnNotice | None, group: int, retries: RetryPauses, clock: Clock
    ) -> None:
        self._inbox, self._handle, self._on_notice = inbox, handle, on_notice
        self._group, self._retries, self._clock = group, retries, clock
        self._work: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._wake, self._is_closed = threading.Condition(), False
        self._waits: dict[bytes, _Wait] = {}
        """Enclaves whose handler failed."""
        self._after = b""
        """The enclave whose turn was last."""
        self._runner: asyncio.Runner | None = None
        self._thread = threading.Thread(target=self._run, name="enc-clerk", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Returns when the call under way is over; what waits stays in the inbox."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have the clerk's thread do something with the inbox, before it hands over any more."""
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
                    self._do(*self._work.popleft())
                if not self._hand_over():
                    self._sleep()
        except BaseException as e:  # whatever it is, nothing is handed over any more: that must not go unseen
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

    def _do(self, work: Callable[[], Any], done: Future[Any]) -> None:
        try:
            done.set_result(work())
        except Exception as e:
            done.set_exception(e)

    def _sleep(self) -> None:
        """Until there is something to do, or to try again."""
        now = self._clock()
        until = min((wait.until for wait in self._waits.values()), default=None)
        with self._wake:
            if not self._work and not self._is_closed:
                self._wake.wait(None if until is None else max(until - now, 0.0))

    # Handing over

    def _hand_over(self) -> bool:
        """A group of events, and notices. False: there is nothing to do now."""
        try:
            handed = self._events()
            error_text = self._notices()
        except (Unavailable, sqlite3.Error) as e:
            logger.error("nothing can be handed over: %s", e)
            self._waits[b""] = self._next_wait(b"")
            return False
        self._waits.pop(b"", None)
        return error_text or handed

    def _events(self) -> bool:
        if self._is_waiting(b""):  # the disk would not have it
            return False
        enclaves, left = self._turns(), self._group
        first = next(enclaves, None)
        if first is None:
            return False
        with self._inbox.transaction():
            for enclave in chain([first], enclaves):
                left -= self._hand(enclave, left)
                if left <= 0 or self._is_called:
                    break
        return True

    def _turns(self) -> Iterator[bytes]:
        """Enclaves that have something to hand over now: each once, beginning after the last one's turn."""
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

    def _hand(self, enclave: bytes, most: int) -> int:
        """How many of an enclave's events were taken, or refused: then the enclave waits."""
        events = self._inbox.ready(enclave, most)
        for n, event in enumerate(events, 1):
            if not self._offer(event) or self._is_called:
                return n
        return len(events)

    def _offer(self, event: Event) -> bool:
        db = self._inbox.db
        db.execute("SAVEPOINT enc_event")
        try:
            self._call(self._handle, event, db)
            if not db.in_transaction:
                raise MisuseError("the handler has ended the receiver's transaction")
            self._inbox.moved(event)
        except Exception:
            if not db.in_transaction:
                raise
            db.execute("ROLLBACK TO enc_event")
            db.execute("RELEASE enc_event")
            wait = self._waits[event.enclave] = self._next_wait(event.enclave)
            place = f"event {event.seq} of {event.enclave.hex()}"
            logger.exception("the handler failed on %s; it is tried again in %g s", place, wait.pause)
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
    def _is_called(self) -> bool:
        """Something else is to be done first."""
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
    """A handler does not end the program, nor this thread or the server's loop: to want to is to fail."""
    try:
        yield
    except SystemExit as e:
        raise RuntimeError(f"the handler calls for an end of the program: SystemExit({e.code!r})") from e


def error_text(error: BaseException) -> str:
    """What a log may say of an error."""
    return f"{error.code}: {error.message}" if isinstance(error, EncError) else type(error).__name__
