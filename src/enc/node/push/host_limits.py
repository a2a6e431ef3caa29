"""Limits what one destination gets, whatever the number of its endpoints: requests and bytes a
second, and requests at a time.

A destination is a host's name, and for bytes also the address that a connection has reached: many
names may lead to one address. Which address a name leads to is known only once it was reached; it
is remembered, so that the next request is charged to it in advance.
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
    """To which `size` was charged; empty: to none yet."""


class HostLimits:
    def __init__(self, rates: HostRates, known: KnownAddresses, most: int) -> None:
        """`most`: how many hosts and addresses are remembered."""
        self._rates, self._known = rates, known
        self._hosts, self._addresses = RateClocks(HOST_BURST_MS, most), RateClocks(HOST_BURST_MS, most)
        self._count: Counter[str] = Counter()

    def __len__(self) -> int:
        return max(len(self._hosts), len(self._addresses), len(self._count))

    def ready_at(self, host: str) -> float | None:
        """Return when a request may be sent to the host; None while it has too many."""
        if self._rates.at_a_time and self._count[host] >= self._rates.at_a_time:
            return None
        return max(self._hosts.ready_at(host), self._addresses.ready_at(self._known.of(host)))

    def reserve(self, host: str, size: int, now: float) -> Reservation:
        """Charge a request. Call `release` when it is over."""
        address = self._known.of(host)
        per_request = 1000 / self._rates.requests_per_s if self._rates.requests_per_s else 0.0
        self._hosts.charge(host, now, max(per_request, self._cost(size)))
        if address:
            self._addresses.charge(address, now, self._cost(size))
        self._count[host] += 1
        return Reservation(host, size, address)

    def reached(self, reservation: Reservation, address: str, now: float) -> bool:
        """Charge the address that was reached. Return whether the request may be sent to it."""
        if reservation.address == address:
            return True
        if self._addresses.ready_at(address) > now:
            return False
        self._addresses.charge(address, now, self._cost(reservation.size))
        reservation.address = address
        return True

    def release(self, reservation: Reservation) -> None:
        self._count[reservation.host] -= 1
        if not self._count[reservation.host]:
            del self._count[reservation.host]

    def _cost(self, size: int) -> float:
        return size * 1000 / self._rates.bytes_per_s if self._rates.bytes_per_s else 0.0
