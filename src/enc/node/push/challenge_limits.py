"""Limits challenges: nobody may use them to send requests to a host that did not ask for any.

Only challenges that fail count. A challenge takes from three allowances, and a right answer gives it
back: of the host's name, of the address that it reached, and of the enclave that registered the
endpoint. Challenges of one enclave to one host also go out one at a time; each right answer allows
one more, up to a limit. After a failed one, the next waits for a pause that grows with each failure
in a row. So a host that never answers gets a few small requests, whatever the number of its
endpoints, and enclaves do not delay each other's.
"""

from collections import OrderedDict

from msgspec import Struct

from enc.node.push.known_addresses import KnownAddresses
from enc.node.push.rate_clocks import RateClocks

FAILURE_MS, FAILURES = 60_000, 10
"""A host's name, and an address, get one failing challenge per FAILURE_MS, and up to FAILURES at
once.
"""
ENCLAVE_FAILURE_MS, ENCLAVE_FAILURES = 10_000, 30
"""The same for all hosts together that one enclave names."""
MAX_AT_A_TIME = 16
"""Challenges of one enclave to one host at a time."""
MAX_PAUSE_MS = 3_600_000
"""Longest pause between failing challenges of one enclave to one host."""
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


class ChallengeReservation(Struct):
    """What one challenge takes."""

    host: str
    registrar: int
    address: str = ""


class ChallengeLimits:
    def __init__(self, first_pause_ms: int, known: KnownAddresses, most: int) -> None:
        """`most`: how many hosts, addresses, enclaves and pairs are remembered, of each."""
        self._first_pause_ms, self._known, self._most = first_pause_ms, known, most
        self._hosts = RateClocks((FAILURES - 1) * FAILURE_MS, most)
        self._addresses = RateClocks((FAILURES - 1) * FAILURE_MS, most)
        self._enclaves = RateClocks((ENCLAVE_FAILURES - 1) * ENCLAVE_FAILURE_MS, most)
        self._pairs: OrderedDict[tuple[str, int], _Pair] = OrderedDict()

    def __len__(self) -> int:
        return max(len(self._hosts), len(self._addresses), len(self._enclaves), len(self._pairs))

    def ready_at(self, host: str, registrar: int) -> float | None:
        """Return when the endpoint may be challenged; None while enough other challenges run."""
        pair = self._pairs.get((host, registrar))
        if pair is not None and pair.sent >= pair.at_a_time:
            return None
        return max(
            pair.ready_at if pair else 0.0,
            self._hosts.ready_at(host),
            self._addresses.ready_at(self._known.of(host)),
            self._enclaves.ready_at(str(registrar)),
        )

    def reserve(self, host: str, registrar: int, now: float) -> ChallengeReservation:
        """Charge a challenge. Call `fail`, `succeed` or `cancel` when it is over."""
        self._pair(host, registrar).sent += 1
        self._hosts.charge(host, now, FAILURE_MS)
        self._enclaves.charge(str(registrar), now, ENCLAVE_FAILURE_MS)
        return ChallengeReservation(host, registrar)

    def reached(self, reservation: ChallengeReservation, address: str, now: float) -> bool:
        """Charge the address that was reached. Return whether the challenge may be sent to it."""
        if self._addresses.ready_at(address) > now:
            return False
        self._addresses.charge(address, now, FAILURE_MS)
        reservation.address = address
        return True

    def fail(self, reservation: ChallengeReservation, now: float) -> None:
        pair = self._ended(reservation)
        pair.failures, pair.at_a_time = pair.failures + 1, 1
        pair.ready_at = now + pause_ms(pair.failures, self._first_pause_ms, MAX_PAUSE_MS)

    def succeed(self, reservation: ChallengeReservation) -> None:
        pair = self._ended(reservation)
        pair.failures = max(pair.failures - 1, 0)
        pair.at_a_time = 1 if pair.failures else min(pair.at_a_time + 1, MAX_AT_A_TIME)
        self._refund(reservation)

    def cancel(self, reservation: ChallengeReservation) -> None:
        """End a challenge that was not sent."""
        self._ended(reservation)
        self._refund(reservation)

    def _refund(self, reservation: ChallengeReservation) -> None:
        self._hosts.refund(reservation.host, FAILURE_MS)
        self._enclaves.refund(str(reservation.registrar), ENCLAVE_FAILURE_MS)
        if reservation.address:
            self._addresses.refund(reservation.address, FAILURE_MS)

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
