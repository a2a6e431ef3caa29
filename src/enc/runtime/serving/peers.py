"""Connected peers and the bytes that wait for them, with limits for one address and for the node."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from enc.core.errors import Unavailable


class PeerConnection:
    """One connection, with the bytes that the node holds for it until the peer reads them."""

    def __init__(self, peers: "Peers", address: str, drop: Callable[[], None]) -> None:
        """`drop` closes the connection at once and discards what waits for it."""
        self._peers, self.address, self.drop = peers, address, drop
        self.unsent = 0
        """Bytes that wait for this peer."""
        self.progress = 0
        """Logical time at which it last read something, or at which bytes began to wait; it only
        grows.
        """

    def add_unsent(self, size: int) -> None:
        """Add `size` bytes to what waits; zero or less means that the peer has read some of it."""
        self._peers.add_unsent(self, size)

    @contextmanager
    def counting_unsent(self, size: int) -> Iterator[None]:
        """Count these bytes as waiting inside the block."""
        self.add_unsent(size)
        try:
            yield
        finally:
            self.add_unsent(-size)

    def set_drop(self, drop: Callable[[], None]) -> None:
        """Replace `drop`, for a protocol that takes the connection over or is gone."""
        self.drop = drop

    def remove(self) -> None:
        self._peers.remove(self)

    @property
    def is_crowded(self) -> bool:
        """Whether over half of the node's limit waits: what can be read again later should not be
        queued.
        """
        return self._peers.is_crowded


class Peers:
    """All connections of a node. Not thread-safe: for one event loop.

    Past the limit on waiting bytes, peers are dropped: of the address with most bytes waiting, the
    peer that has read nothing for the longest time. So a peer that asks for much and reads nothing
    displaces only itself, and an attacker needs many addresses to displace a peer that reads.
    """

    def __init__(self, max_connections: int, max_per_address: int, max_unsent: int) -> None:
        """`max_per_address` of 0 means no limit; `max_unsent` is in bytes."""
        self._max_connections, self._max_per_address, self._max_unsent = max_connections, max_per_address, max_unsent
        self._by_address: dict[str, set[PeerConnection]] = {}
        self._progress = 0
        self.count = self.unsent = 0
        self.dropped = 0
        """Number of peers dropped so far."""

    @property
    def is_crowded(self) -> bool:
        return self.unsent > self._max_unsent // 2

    def add(self, peer: PeerConnection) -> None:
        """Add a connection, or raise Unavailable."""
        if self.count >= self._max_connections:
            raise Unavailable("too many connections", retry_after_ms=1000)
        if self._max_per_address and len(self._by_address.get(peer.address, ())) >= self._max_per_address:
            raise Unavailable("too many connections from this address", retry_after_ms=1000)
        self._by_address.setdefault(peer.address, set()).add(peer)
        self.count += 1

    def remove(self, peer: PeerConnection) -> None:
        """Remove a connection and its waiting bytes; do nothing if it was rejected, dropped or
        removed.
        """
        others = self._by_address.get(peer.address, set())
        if peer in others:
            others.remove(peer)
            self.count -= 1
            self.unsent -= peer.unsent
            if not others:
                del self._by_address[peer.address]

    def add_unsent(self, peer: PeerConnection, size: int) -> None:
        if peer not in self._by_address.get(peer.address, ()):
            return
        if size <= 0 or not peer.unsent:
            self._progress += 1
            peer.progress = self._progress
        peer.unsent += size
        self.unsent += size
        while self.unsent > self._max_unsent:
            self._drop(self._pick_victim())

    def _pick_victim(self) -> PeerConnection:
        heaviest = max(self._by_address.values(), key=lambda peers: sum(peer.unsent for peer in peers))
        return min((peer for peer in heaviest if peer.unsent), key=lambda peer: peer.progress)

    def _drop(self, peer: PeerConnection) -> None:
        self.remove(peer)
        self.dropped += 1
        peer.drop()
