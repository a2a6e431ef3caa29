"""The clock of the protocol's timestamps."""

import time
from datetime import UTC, datetime


def now_ms() -> int:
    """Return the time in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def boot_s() -> float:
    """Return the seconds since the machine started, including those in which it slept: nobody can set
    this clock.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def utc_time(milliseconds: int) -> str:
    """Format a time in Unix milliseconds, as 2026-01-31T12:00:00Z."""
    return datetime.fromtimestamp(milliseconds // 1000, UTC).isoformat().replace("+00:00", "Z")
