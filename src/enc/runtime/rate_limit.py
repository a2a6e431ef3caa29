"""Token buckets: limit the rate of each sender's requests."""

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
"""Tolerance for rounding: without it the last token of a burst would sometimes be refused."""


class RateLimiter:
    """One bucket of `burst` tokens for each key, refilled by `per_s` a second. For any thread.

    A bucket stores how many tokens were missing, and when; a key without a bucket has a full one.
    So a bucket that has filled up can be dropped without loss, and the least recently used one has
    filled up first.

    Memory is bounded: beyond `max_keys` the least recently used bucket is dropped, full or not.
    That only gives tokens back, so a flood of unknown keys locks nobody out. It could free a sender
    from its limit, but only one with more than `max_keys` keys of its own (a /64 each, see
    `address_key`), which had `max_keys` times the rate anyway: against that many addresses only
    limits on connections and on waiting commits help. A refused request counts as a use, so that
    the bucket of a sender that does not stop is not dropped.

    A key must be proved before a token is taken from it: an identity by its signature or session,
    an address by its connection or a trusted proxy. Otherwise anyone could empty another's bucket.
    """

    def __init__(
        self,
        per_s: float,
        burst: float,
        clock: Callable[[], float],
        max_keys: int = 65_536,
        message: str = "too many requests",
    ) -> None:
        """`per_s` 0: no limit. `clock`: seconds that never go back, like time.monotonic.

        `message`: text of the RateLimited error.
        """
        self.set_rate(per_s, burst)
        if max_keys < 1:
            raise MisuseError("the number of keys must be 1 or more")
        self._clock, self._max_keys = clock, max_keys
        self._message = message
        self._buckets: OrderedDict[bytes | str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def set_rate(self, per_s: float, burst: float) -> None:
        """Change the rate of all keys. What they have used so far stays used."""
        if not (0 <= per_s < inf and 1 <= burst < inf):
            raise MisuseError("a rate must be 0 or more, a burst 1 or more")
        self._per_s, self._burst = per_s, burst

    def __len__(self) -> int:
        """Number of keys that have a bucket."""
        return len(self._buckets)

    def take(self, key: bytes | str, cost: float = 1) -> None:
        """Take `cost` tokens from the key's bucket, or raise RateLimited and take none.

        A cost above the burst needs a full bucket and leaves it in debt: the rate holds in the long
        run. O(1).
        """
        if not self._per_s:
            return
        if not 0 <= cost < inf:
            raise MisuseError("a cost must be 0 or more")
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

    def check(self, key: bytes | str, count: int) -> None:
        """Raise RateLimited unless `count` tokens could be taken now, one by one. Takes none, so the
        key need not be proved. O(1).
        """
        if not self._per_s:
            return
        with self._lock:
            bucket = self._buckets.get(key)
            used = 0.0 if bucket is None else max(bucket[0] - (self._clock() - bucket[1]) * self._per_s, 0.0)
        over = used + count - self._burst
        if over > _SLACK:
            raise RateLimited(self._message, retry_after_ms=ceil(over / self._per_s * 1000))

    def charge(self, key: bytes | str, cost: float) -> None:
        """Take `cost` tokens for work that is done already, into debt if too few are left: its cost
        was not known when the request was accepted. O(1).
        """
        if not self._per_s:
            return
        if not 0 <= cost < inf:
            raise MisuseError("a cost must be 0 or more")
        with self._lock:
            now, bucket, used = self._clock(), self._buckets.get(key), 0.0
            if bucket is not None:
                used = max(bucket[0] - (now - bucket[1]) * self._per_s, 0.0)
                self._buckets.move_to_end(key)
            self._buckets[key] = used + cost, now
            if bucket is None and len(self._buckets) > self._max_keys:
                self._buckets.popitem(last=False)


@lru_cache(maxsize=8192)
def address_key(text: str) -> str:
    """Return the key of an address: itself, or its /64 for IPv6, since a subscriber has at least one.

    An IPv4 address has the same key in every notation: plain, mapped into IPv6 or translated. All
    texts that are not addresses share one key, so that they cannot create many buckets.
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
