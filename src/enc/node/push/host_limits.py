"""Limits what one destination gets, whatever the number of its endpoints: requests and bytes a
second, and requests at a time.

A destination is a host's name, and also the address that a connection goes to: many names may lead
to one address. Which address a name leads to is known only once it was resolved; it is remembered,
so that the next request is charged to it in advance.
"""

from collections import Counter

from msgspec import Struct

from enc.node.push.known_addresses import KnownAddresses
from enc.node.push.rate_clocks import RateClocks

HOST_BURST_MS = 1000
"""An idle destination may get at once what this time allows."""


class HostRates(Struct, frozen=True, kw_only=True):
    """0: no limit."""

    requests_per_s: float = 0.0
    bytes_per_s: float = 0.0
    at_a_time: int = 0


class Reservation(Struct):
    """What one request takes of its destination."""

    host: str
    size: int
    address: str
    """To which it is charged; empty: to none yet."""
    may_connect: bool = False
    """Whether a connection to the address was allowed; before, it is only expected."""


class _Destinations:
    """The requests to names, or to addresses. The empty key has no limits."""

    def __init__(self, rates: HostRates, most: int) -> None:
        self._rates = rates
        self._clocks = RateClocks(HOST_BURST_MS, most)
        self._count: Counter[str] = Counter()

    def __len__(self) -> int:
        return max(len(self._clocks), len(self._count))

    def ready_at(self, key: str) -> float | None:
        """Return when a request may be sent; None while there are too many."""
        is_full = self._rates.at_a_time and self._count[key] >= self._rates.at_a_time
        return None if is_full else self._clocks.ready_at(key)

    def begin(self, key: str, size: int, now: float) -> None:
        if key:
            self._clocks.charge(key, now, self._cost(size))
            self._count[key] += 1

    def end(self, key: str) -> None:
        self._count[key] -= 1
        if self._count[key] <= 0:
            del self._count[key]

    def cancel(self, key: str, size: int) -> None:
        """End a request that was not sent."""
        self._clocks.refund(key, self._cost(size))
        self.end(key)

    def _cost(self, size: int) -> float:
        per_request = 1000 / self._rates.requests_per_s if self._rates.requests_per_s else 0.0
        return max(per_request, size * 1000 / self._rates.bytes_per_s if self._rates.bytes_per_s else 0.0)


class HostLimits:
    def __init__(self, rates: HostRates, known: KnownAddresses, most: int) -> None:
        """`most`: how many hosts and addresses are remembered."""
        self._known = known
        self._names, self._addresses = _Destinations(rates, most), _Destinations(rates, most)

    def __len__(self) -> int:
        return max(len(self._names), len(self._addresses))

    def ready_at(self, host: str) -> float | None:
        """Return when a request may be sent to the host; None while it, or its address, has too
        many.
        """
        name, address = self._names.ready_at(host), self._addresses.ready_at(self._known.of(host))
        return None if name is None or address is None else max(name, address)

    def reserve(self, host: str, size: int, now: float) -> Reservation:
        """Charge a request. Call `release` when it is over."""
        address = self._known.of(host)
        self._names.begin(host, size, now)
        self._addresses.begin(address, size, now)
        return Reservation(host, size, address)

    def may_connect(self, reservation: Reservation, address: str, now: float) -> bool:
        """Charge a connection to an address. Return whether it may be made."""
        if reservation.may_connect or reservation.address != address:
            at = self._addresses.ready_at(address)
            if at is None or at > now:
                return False
            self._end_address(reservation)
            self._addresses.begin(address, reservation.size, now)
            reservation.address = address
        reservation.may_connect = True
        return True

    def release(self, reservation: Reservation) -> None:
        self._names.end(reservation.host)
        self._end_address(reservation)

    def _end_address(self, reservation: Reservation) -> None:
        if reservation.may_connect:
            self._addresses.end(reservation.address)
        else:
            self._addresses.cancel(reservation.address, reservation.size)
