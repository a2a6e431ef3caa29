"""Token buckets: limit how many requests each sender may make in a time."""

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from math import ceil, inf
from threading import Lock

from enc.core.errors import MisuseError, RateLimited

_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv4 clients as a translator shows them to a server that has IPv6 only (RFC 6052)."""

_SLACK = 1e-6
"""Tokens that rounding may cost: without it the last of a burst would now and then be refused."""


class RateLimiter:
    """One bucket of `burst` tokens for each key, refilled by `per_s` a second. For any thread.

    Of a bucket is kept how many tokens were missing, and when; a key that is not kept has a full one. So a bucket that
    has filled up may be forgotten without any loss, and the least recently used are the first to have.

    Memory is bounded: beyond `max_keys` the least recently used is forgotten, full or not. Forgetting only ever gives
    tokens back, so a flood of strange keys cannot lock out anybody. It could free a sender from his limit, but only
    one who has more than `max_keys` keys of his own (a /64 each, see `address_key`), and `max_keys` times the rate was
    his already: against that many addresses no limit for each of them helps, only those on connections and on waiting
    commits. A refused request counts as a use, so that one who does not stop is not forgotten.

    A key must be proven before a token is taken from it: an identity by its signature or session, an address by its
    connection or a trusted proxy. Otherwise anyone could empty another's bucket.
    """

    def __init__(
        self,
        per_s: float,
        burst: float,
        clock: Callable[[], float],
        max_keys: int = 65_536,
        message: str = "too many requests",
    ) -> None:
        """`per_s` 0: no limit. `clock`: seconds that never go back, as of time.monotonic.

        `message`: of the RateLimited error.
        """
        if not (0 <= per_s < inf and 1 <= burst < inf and max_keys >= 1):
            raise MisuseError("a rate is 0 or more, a burst and the number of keys 1 or more")
        self._per_s, self._burst, self._clock, self._max_keys = per_s, burst, clock, max_keys
        self._message = message
        self._buckets: OrderedDict[bytes | str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        """Keys that are kept."""
        return len(self._buckets)

    def take(self, key: bytes | str, cost: float = 1) -> None:
        """Take `cost` tokens from the key's bucket, or raise RateLimited and take none.

        A cost above the burst needs a full bucket and leaves it in debt: the rate holds in the long run. O(1).
        """
        if not self._per_s:
            return
        if not 0 <= cost < inf:
            raise MisuseError("a cost is a number, 0 or more")
        burst, per_s, buckets = self._burst, self._per_s, self._buckets
        needed = cost if cost < burst else burst
        self._lock.acquire()  # by hand: a `with` costs twice as much
        try:
            now, bucket, used = self._clock(), buckets.get(key), 0.0
            if bucket is not None:
                used = bucket[0] - (now - bucket[1]) * per_s
                used = used if used > 0 else 0.0
                buckets.move_to_end(key)
            over = used + needed - burst
            if over <= _SLACK:
                buckets[key] = used + cost, now
                if bucket is None and len(buckets) > self._max_keys:
                    buckets.popitem(last=False)
        finally:
            self._lock.release()
        if over > _SLACK:
            raise RateLimited(self._message, retry_after_ms=ceil(over / per_s * 1000))


@lru_cache(maxsize=8192)
def address_key(text: str) -> str:
    """What an address is limited by: itself, or its /64 for IPv6, of which one subscriber has at least one.

    An IPv4 address counts as the same one in every spelling: plain, mapped into IPv6 or translated. What is no address
    has one key for all, so that nonsense gives nobody buckets.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address in _TRANSLATED:
        return str(ipaddress.IPv4Address(address.packed[12:]))
    return f"{ipaddress.IPv6Address(address.packed[:8] + bytes(8))}/64"
