"""Checks many events on all cores; libsecp256k1 releases the GIL while it checks."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from enc.core.log.event import check_event
from enc.core.primitives.types import Event

MIN_PART = 32
"""Fewest events for which a thread pays off."""


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="enc-check")


def check_events(events: Sequence[Event], enc_v: int) -> None:
    """Check every event with `check_event`; raise the error of the first that fails."""
    parts = min(os.cpu_count() or 1, len(events) // MIN_PART)
    if parts < 2:
        _check_part(events, enc_v)
        return
    size = -(-len(events) // parts)
    checks = [_pool().submit(_check_part, events[i : i + size], enc_v) for i in range(0, len(events), size)]
    for check in checks:
        check.result()


def _check_part(events: Sequence[Event], enc_v: int) -> None:
    for event in events:
        check_event(event, enc_v)
