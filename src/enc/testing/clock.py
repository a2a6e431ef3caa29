"""A clock that only the test advances."""

START = 1_790_000_000_000
"""The time at which it begins, in Unix milliseconds."""


class Clock:
    """Time as nodes and clients see it. `now`: Unix milliseconds; `monotonic`: seconds."""

    def __init__(self, now: int = START) -> None:
        self.now, self.monotonic = now, 1000.0

    def tick(self, ms: int) -> None:
        """Advance the time."""
        self.now += ms
        self.monotonic += ms / 1000
