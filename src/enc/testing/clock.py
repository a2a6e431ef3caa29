"""A clock that only the test advances."""

from enc.core.errors import MisuseError

START = 1_790_000_000_000
"""The time at which it begins, in Unix milliseconds."""


class Clock:
    """Time as nodes and clients see it. `now`: Unix milliseconds; `monotonic`: seconds."""

    def __init__(self, now: int = START) -> None:
        self.now, self.monotonic = now, 1000.0

    def tick(self, ms: int) -> None:
        """Advance the time by whole milliseconds."""
        if not isinstance(ms, int) or ms < 0:
            raise MisuseError(f"tick: expected milliseconds as an integer of at least 0, not {ms!r}")
        self.now += ms
        self.monotonic += ms / 1000
