"""How often one address may bring heads: each asks a node, which is not the witness's to wear out."""

from collections import OrderedDict
from collections.abc import Callable

from enc.core.errors import RateLimited

MAX_ADDRESSES = 4096
"""Addresses that are remembered; the one that was quiet longest is forgotten first."""


class Rates:
    """`burst` at once, then `per_s`. `clock`: seconds."""

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_s, self._burst, self._clock = per_s, burst, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> None:
        now = self._clock()
        left, since = self._left.pop(address, (float(self._burst), now))
        left = min(self._burst, left + (now - since) * self._per_s)
        self._left[address] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > MAX_ADDRESSES:
            self._left.popitem(last=False)
        if left < 1:
            wait = round((1 - left) / self._per_s * 1000) + 1
            raise RateLimited("too many heads were brought from this address", retry_after_ms=wait)
