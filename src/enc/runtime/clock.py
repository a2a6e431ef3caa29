"""The clock of the protocol's timestamps."""

import time


def now_ms() -> int:
    """Return the time in Unix milliseconds."""
    return time.time_ns() // 1_000_000
