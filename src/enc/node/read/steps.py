"""Reads in steps: a generator yields wherever it may pause, so that no read keeps a thread long."""

from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[bytes | None, None, T]
"""Yields the asker's identity once it is proved, None at every other place, and returns the result."""


def finish(steps: Steps[T]) -> T:
    """Run all steps at once and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as e:
            result: T = e.value
            return result


def one_step(work: Callable[[], T]) -> Steps[T]:
    """Return a short read as steps: it never pauses."""
    return work()
    yield  # makes this a generator
