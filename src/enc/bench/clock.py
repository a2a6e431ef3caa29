"""The clock of a generated log."""

from enc.bench.plan import Plan

EPOCH_MS = 1_767_225_600_000
"""The earliest creation time of an enclave: 1 January 2026."""


class Clock:
    """People write for a while, then pause."""

    def __init__(self, plan: Plan) -> None:
        self._rng = plan.random("clock")
        self._rate = 1 / plan.gap_ms
        self.now = EPOCH_MS + self._rng.randrange(30 * 86_400_000)
        self._exp = 0

    def tick(self) -> int:
        rng = self._rng
        self.now += int(rng.expovariate(self._rate))
        if rng.random() < 0.003:
            self.now += rng.randrange(10_000, 3_600_000)
        return self.now

    def expiry(self) -> int:
        """Return an expiry time that rises with every commit, so that no two have the same hash."""
        self._exp = max(self._exp + 1, self.now + 30_000 + int(self._rng.random() * 240_000))
        return self._exp
