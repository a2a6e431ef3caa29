"""Connected peers and the bytes held for them, with limits for one address and for the server."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from enc.core.errors import Unavailable
from enc.runtime.rate_limit import address_key
from enc.runtime.serving.limits import ServingLimits

MAX_SEARCHED = 64
"""Most connections of an address among which the server looks for an idle one."""


def address_of(transport: Any) -> str:
    """Return the key of the peer's address, by which its connections are counted."""
    name = transport.get_extra_info("peername")
    return address_key(name[0] if isinstance(name, tuple) and name else "")


def _admit(address: str) -> None:
    """Admit every address."""


def _always() -> bool:
    """Tell that a connection is idle: no request has arrived on it yet."""
    return True


def _never() -> bool:
    """Tell that a connection is not idle."""
    return False


class PeerConnection:
    """One connection, with the bytes that the server holds for it: those that wait until the peer
    reads them, and those of a request or message that is not complete.
    """

    def __init__(self, peers: "Peers", address: str, drop: Callable[[], object]) -> None:
        """`drop` closes the connection at once and discards what waits for it."""
        self._peers, self.address, self.drop = peers, address, drop
        self.is_idle: Callable[[], bool] = _always
        """Returns whether the connection has no open request."""
        self.unsent = 0
        """Bytes that wait for this peer."""
        self.incoming = 0
        """Bytes of a request or message that is not complete."""
        self.begun = 0
        """Logical time at which `incoming` was last zero."""
        self.progress = 0
        """Logical time at which it last read something, or at which bytes began to wait; it only
        grows.
        """

    def add_unsent(self, size: int) -> None:
        """Add `size` bytes to what waits; zero or less means that the peer has read some of it."""
        self._peers.add_unsent(self, size)

    def set_incoming(self, size: int) -> None:
        """Set the size of what has arrived of an incomplete request or message."""
        self._peers.add_incoming(self, size - self.incoming)

    @contextmanager
    def counting_unsent(self, size: int) -> Iterator[None]:
        """Count these bytes as waiting inside the block."""
        self.add_unsent(size)
        try:
            yield
        finally:
            self.add_unsent(-size)

    def set_drop(self, drop: Callable[[], object], is_idle: Callable[[], bool] = _never) -> None:
        """Replace `drop` and `is_idle`, for a protocol that takes the connection over or is gone."""
        self.drop, self.is_idle = drop, is_idle

    def remove(self) -> None:
        self._peers.remove(self)

    @property
    def is_crowded(self) -> bool:
        """Whether over half of the server's limit waits: what can be read again later should not be
        queued.
        """
        return self._peers.is_crowded


class _Address:
    """The connections of one address."""

    def __init__(self) -> None:
        self.peers = dict[PeerConnection, None]()
        """In the order in which they connected."""
        self.incoming = 0

    @property
    def unsent(self) -> int:
        return sum(peer.unsent for peer in self.peers)

    def slowest(self) -> PeerConnection:
        """Return the peer whose incomplete request or message began first."""
        return min((peer for peer in self.peers if peer.incoming), key=lambda peer: peer.begun)

    def most_idle(self) -> PeerConnection:
        """Return the oldest peer without an open request, or the oldest of all."""
        oldest = list(islice(self.peers, MAX_SEARCHED))
        return next((peer for peer in oldest if peer.is_idle()), oldest[0])


class Peers:
    """All connections of a server. Not thread-safe: for one event loop.

    Past the limit on connections, a newcomer takes the place of a connection of the address with
    most, if that has more than the newcomer's then has: of the oldest one that is idle, or else of
    the oldest. Without a limit for one address nobody is displaced: an address may stand for many.

    Past the limit on waiting bytes, peers are dropped: of the address with most bytes waiting, the
    peer that has read nothing for the longest time. So a peer that asks for much and reads nothing
    displaces only itself, and an attacker needs many addresses to displace a peer that reads. Past
    a limit on incoming bytes, likewise, the peer whose message is incomplete for the longest time.
    """

    def __init__(self, limits: ServingLimits) -> None:
        self._limits = limits
        self.admit: Callable[[str], None] = _admit
        """Raises an EncError for an address whose connections are refused."""
        self._by_address: dict[str, _Address] = {}
        self._clock = 0
        self.count = self.unsent = self.incoming = 0
        self.dropped = 0
        """Number of peers dropped so far."""
        self.refused = {"connections": 0, "connections_per_address": 0}
        """Number of connections refused so far, by the limit."""

    def set_limits(self, limits: ServingLimits) -> None:
        """Change the limits. Peers over a limit stay until the next one arrives."""
        self._limits = limits

    @property
    def is_crowded(self) -> bool:
        return self.unsent > self._limits.unsent_bytes // 2

    def add(self, peer: PeerConnection) -> None:
        """Add a connection, or raise Unavailable, or what `admit` raises."""
        self.admit(peer.address)
        most, address = self._limits.connections_per_address, self._by_address.get(peer.address)
        own = 0 if address is None else len(address.peers)
        if most and own >= most:
            self.refused["connections_per_address"] += 1
            raise Unavailable("too many connections from this address", retry_after_ms=1000)
        if self.count >= self._limits.connections:
            self._make_room(own)
        self._by_address.setdefault(peer.address, _Address()).peers[peer] = None
        self.count += 1

    def close_where(self, is_refused: Callable[[str], bool]) -> None:
        """Close all connections of the addresses that are refused, at once."""
        for address in [each for each in self._by_address if is_refused(each)]:
            for peer in list(self._by_address[address].peers):
                self.remove(peer)
                peer.drop()

    def _make_room(self, own: int) -> None:
        """Drop a connection for a newcomer whose address has `own`, or raise Unavailable."""
        largest = max(self._by_address.values(), key=lambda address: len(address.peers))
        if not self._limits.connections_per_address or len(largest.peers) <= own + 1:
            self.refused["connections"] += 1
            raise Unavailable("too many connections", retry_after_ms=1000)
        self._drop(largest.most_idle())

    def remove(self, peer: PeerConnection) -> None:
        """Remove a connection and its bytes; do nothing if it was rejected, dropped or removed."""
        address = self._address_of(peer)
        if address is not None:
            del address.peers[peer]
            address.incoming -= peer.incoming
            self.count -= 1
            self.unsent -= peer.unsent
            self.incoming -= peer.incoming
            if not address.peers:
                del self._by_address[peer.address]

    def _address_of(self, peer: PeerConnection) -> _Address | None:
        """Return the address of a peer that was added and not removed since."""
        address = self._by_address.get(peer.address)
        return address if address is not None and peer in address.peers else None

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def add_unsent(self, peer: PeerConnection, size: int) -> None:
        if self._address_of(peer) is None:
            return
        if size <= 0 or not peer.unsent:
            peer.progress = self._tick()
        peer.unsent += size
        self.unsent += size
        while self.unsent > self._limits.unsent_bytes:
            heaviest = max(self._by_address.values(), key=lambda address: address.unsent)
            self._drop(min((one for one in heaviest.peers if one.unsent), key=lambda one: one.progress))

    def add_incoming(self, peer: PeerConnection, size: int) -> None:
        address = self._address_of(peer)
        if address is None or not size:
            return
        if not peer.incoming:
            peer.begun = self._tick()
        peer.incoming += size
        address.incoming += size
        self.incoming += size
        most = self._limits.incoming_bytes_per_address
        while most and address.incoming > most:
            self._drop(address.slowest())
        while self.incoming > self._limits.incoming_bytes:
            self._drop(max(self._by_address.values(), key=lambda each: each.incoming).slowest())

    def _drop(self, peer: PeerConnection) -> None:
        self.remove(peer)
        self.dropped += 1
        peer.drop()
