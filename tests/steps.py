"""Runs what works in short steps to its end."""

from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")


def run_steps(steps: Generator[None, None, T], after_first: Callable[[], object] = lambda: None) -> T:
    """Run all steps and return the result; call `after_first` once the first is done."""
    try:
        next(steps)
        after_first()
        while True:
            next(steps)
    except StopIteration as e:
        result: T = e.value
        return result
