"""SIGINT and SIGTERM: the first stops a program in order, the second ends it at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # worker processes that only ignore signals start without asyncio
    from asyncio import AbstractEventLoop

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def ignore_stop_signals() -> None:
    """Leave it to the parent process to end this one: a terminal sends Ctrl-C to both."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def end_on_next_signal() -> None:
    """Restore the default action: the next signal ends the process at once."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def end_by_signal(number: int) -> None:
    """End this process by the signal's default action, so that its exit status names the signal."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


@contextmanager
def stop_signals_to(handle: Callable[[int, None], None], loop: "AbstractEventLoop") -> Iterator[None]:
    """Call `handle(number, None)` on the event loop for each signal, while the block runs."""
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, handle, number, None)
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


def stop_event() -> threading.Event:
    """Return an event that the first signal sets; the next signal ends the process at once."""
    stop = threading.Event()

    def handle(*_: object) -> None:
        stop.set()
        end_on_next_signal()

    for number in STOP_SIGNALS:
        signal.signal(number, handle)
    return stop
