"""How long to wait between tries: twice as long each time, up to a maximum."""

from collections.abc import Callable

from msgspec import Struct

from enc.core.errors import EncError


class RetryPauses(Struct, frozen=True):
    """The pauses between tries, in seconds."""

    first_s: float = 1.0
    max_s: float = 60.0

    def after(self, pause: float) -> float:
        """Return the pause that follows this one; the first one after 0."""
        return min(max(pause * 2, self.first_s), self.max_s)


class Backoff:
    """The wait before each next try, until `patience` seconds have passed since the first failure."""

    def __init__(self, patience: float, clock: Callable[[], float], pauses: RetryPauses) -> None:
        self._patience, self._clock, self._pauses = patience, clock, pauses
        self.reset()

    def reset(self) -> None:
        """Start again after a success: patience counts from the next failure."""
        self._pause = 0.0
        self._give_up: float | None = None

    def wait(self, error: EncError) -> float:
        """Return the seconds to wait, at least the error's retry_after_ms.

        Raises the error once patience is over.
        """
        pause, now = self._pauses.after(self._pause), self._clock()
        wait = max(pause, self._retry_after(error))
        if self._give_up is None:
            self._give_up = now + self._patience
        if now + wait >= self._give_up:
            raise error
        self._pause = pause
        return wait

    def _retry_after(self, error: EncError) -> float:
        after = error.context.get("retry_after_ms", 0)
        return min(after, self._pauses.max_s * 1000) / 1000 if isinstance(after, int | float) else 0.0
