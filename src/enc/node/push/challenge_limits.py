"""Limits challenges: nobody may use them to send requests to a host that did not ask for any.

Only challenges that fail count. A challenge takes from three allowances, and a right answer gives it
back: of the host's name, of the address that it goes to, and of the enclave that registered the
endpoint. Challenges of one enclave to one host also go out one at a time; each right answer allows
one more, up to a limit. After a failed one, the next waits for a pause that grows with each failure
in a row. So a host that never answers gets a few small requests, whatever the number of its
endpoints.

Enclaves share the allowances of a host and an address. Those that failed less at the host go first.
An enclave with an endpoint that has answered there takes nothing from these two allowances, and
does not wait for them: strangers cannot delay it.
"""

from collections import OrderedDict

from msgspec import Struct

from enc.node.push.known_addresses import KnownAddresses
from enc.node.push.rate_clocks import RateClocks

FAILURE_MS, FAILURES = 60_000, 10
"""A host's name, and an address, get one failing challenge per FAILURE_MS, and up to FAILURES at
once; from an enclave whose last challenges there failed, one less at once for each of them, down to
half.
"""
ENCLAVE_FAILURE_MS, ENCLAVE_FAILURES = 10_000, 30
"""The same for all hosts together that one enclave names."""
MAX_AT_A_TIME = 16
"""Challenges of one enclave to one host at a time."""
MAX_PAUSE_MS = 3_600_000
"""Longest pause between failing challenges of one enclave to one host. Once in this time, an
endpoint without a failed challenge does not wait for the pause.
"""
GROWTH = 4
"""Each pause is this many times as long as the last."""


def pause_ms(failures: int, first_ms: int, max_ms: int) -> int:
    """Return the pause after this many failures in a row."""
    exponent = min(max(failures - 1, 0), 32)
    return int(min(first_ms * GROWTH**exponent, max_ms))


class _Pair(Struct):
    """The challenges of one enclave to one host."""

    sent: int = 0
    """Not answered yet, or waiting in line."""
    at_a_time: int = 1
    failures: int = 0
    """In a row."""
    ready_at: float = 0.0
    new_at: float = 0.0
    """When an endpoint without a failed challenge need not wait until `ready_at`."""
    has_answered: bool = False


class ChallengeReservation(Struct):
    """What one challenge takes."""

    host: str
    registrar: int
    is_shared: bool
    """Whether it takes from the allowances that enclaves share."""
    expected: str = ""
    """The address that was charged before the host was resolved."""
    addresses: tuple[str, ...] = ()
    """Charged addresses to which connections were allowed."""


class ChallengeLimits:
    def __init__(self, first_pause_ms: int, known: KnownAddresses, most: int, only_pause_ms: int | None = None) -> None:
        """`most`: how many hosts, addresses, enclaves and pairs are remembered, of each.

        `only_pause_ms`: for development: no limits but a pause of at most this time.
        """
        self._first_pause_ms, self._known, self._most = first_pause_ms, known, most
        self._only_pause_ms = only_pause_ms
        self._hosts = RateClocks((FAILURES - 1) * FAILURE_MS, most)
        self._addresses = RateClocks((FAILURES - 1) * FAILURE_MS, most)
        self._enclaves = RateClocks((ENCLAVE_FAILURES - 1) * ENCLAVE_FAILURE_MS, most)
        self._pairs: OrderedDict[tuple[str, int], _Pair] = OrderedDict()

    def __len__(self) -> int:
        return max(len(self._hosts), len(self._addresses), len(self._enclaves), len(self._pairs))

    def ready_at(self, host: str, registrar: int, *, is_new: bool = False) -> float | None:
        """Return when the endpoint may be challenged; None while enough other challenges run.

        `is_new`: whether none of its challenges has failed since it was registered.
        """
        pair, address = self._pairs.get((host, registrar)) or _Pair(), self._known.of(host)
        if pair.sent >= pair.at_a_time:
            return None
        times = [min(pair.ready_at, pair.new_at) if is_new else pair.ready_at]
        if self._only_pause_ms is None:
            times.append(self._enclaves.ready_at(str(registrar)))
        if self._is_shared(pair, host, address):
            times += self._hosts.ready_at(host, _burst_ms(pair)), self._addresses.ready_at(address, _burst_ms(pair))
        return max(times)

    def reserve(self, host: str, registrar: int, now: float, *, is_new: bool = False) -> ChallengeReservation:
        """Charge a challenge. Call `fail`, `succeed` or `cancel` when it is over."""
        pair, address = self._pair(host, registrar), self._known.of(host)
        pair.sent += 1
        if is_new and pair.ready_at > now:
            pair.new_at = now + MAX_PAUSE_MS
        self._enclaves.charge(str(registrar), now, ENCLAVE_FAILURE_MS)
        if not self._is_shared(pair, host, address):
            return ChallengeReservation(host, registrar, is_shared=False)
        self._hosts.charge(host, now, FAILURE_MS)
        if address:
            self._addresses.charge(address, now, FAILURE_MS)
        return ChallengeReservation(host, registrar, is_shared=True, expected=address)

    def may_connect(self, reservation: ChallengeReservation, address: str, now: float) -> bool:
        """Charge a connection to an address. Return whether it may be made."""
        host, pair = reservation.host, self._pair(reservation.host, reservation.registrar)
        if not self._is_shared(pair, host, address) or address in reservation.addresses:
            return True
        burst_ms = _burst_ms(pair)
        if not reservation.is_shared:
            if self._hosts.ready_at(host, burst_ms) > now:
                return False
            self._hosts.charge(host, now, FAILURE_MS)
            reservation.is_shared = True
        if reservation.expected != address:
            if self._addresses.ready_at(address, burst_ms) > now:
                return False
            self._addresses.charge(address, now, FAILURE_MS)
            self._refund_expected(reservation)
        reservation.expected, reservation.addresses = "", (*reservation.addresses, address)
        return True

    def fail(self, reservation: ChallengeReservation, now: float) -> None:
        pair = self._ended(reservation)
        pair.failures, pair.at_a_time = pair.failures + 1, 1
        max_ms = MAX_PAUSE_MS if self._only_pause_ms is None else self._only_pause_ms
        pair.ready_at = now + pause_ms(pair.failures, self._first_pause_ms, max_ms)
        self._refund_expected(reservation)

    def succeed(self, reservation: ChallengeReservation) -> None:
        pair = self._ended(reservation)
        pair.failures = max(pair.failures - 1, 0)
        pair.at_a_time = 1 if pair.failures else min(pair.at_a_time + 1, MAX_AT_A_TIME)
        pair.has_answered = True
        self._refund(reservation)

    def cancel(self, reservation: ChallengeReservation) -> None:
        """End a challenge that was not sent."""
        self._ended(reservation)
        self._refund(reservation)

    def note_answer(self, host: str, registrar: int) -> None:
        """Record that a confirmed endpoint of the enclave works."""
        self._pair(host, registrar).has_answered = True

    def _is_shared(self, pair: _Pair, host: str, address: str) -> bool:
        """Return whether challenges at this address take from the allowances that enclaves share."""
        return self._only_pause_ms is None and not (pair.has_answered and self._known.is_proven(host, address))

    def _refund(self, reservation: ChallengeReservation) -> None:
        self._enclaves.refund(str(reservation.registrar), ENCLAVE_FAILURE_MS)
        if reservation.is_shared:
            self._hosts.refund(reservation.host, FAILURE_MS)
        for address in reservation.addresses:
            self._addresses.refund(address, FAILURE_MS)
        self._refund_expected(reservation)

    def _refund_expected(self, reservation: ChallengeReservation) -> None:
        self._addresses.refund(reservation.expected, FAILURE_MS)
        reservation.expected = ""

    def _ended(self, reservation: ChallengeReservation) -> _Pair:
        pair = self._pair(reservation.host, reservation.registrar)
        pair.sent = max(pair.sent - 1, 0)
        return pair

    def _pair(self, host: str, registrar: int) -> _Pair:
        """Return the pair's state; if there are too many pairs, forget the one used longest ago."""
        key = host, registrar
        pair = self._pairs.setdefault(key, _Pair())
        self._pairs.move_to_end(key)
        while len(self._pairs) > self._most:
            self._pairs.popitem(last=False)
        return pair


def _burst_ms(pair: _Pair) -> float:
    """Return how far ahead the clock of a shared allowance may be for the next challenge."""
    return (FAILURES - min(pair.failures, FAILURES // 2) - 1) * FAILURE_MS
