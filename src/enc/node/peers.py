"""Who is connected, and how much waits to be sent to them: the bounds of one address, and those of the whole node."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from enc.core.errors import Unavailable


class Peer:
    """One connection. Whatever the node keeps until this peer takes it is counted here."""

    def __init__(self, peers: "Peers", address: str, drop: Callable[[], None]) -> None:
        """`drop` ends the connection at once, and with it what waits."""
        self._peers, self.address, self.drop = peers, address, drop
        self.unsent = 0
        """Bytes that wait for it."""
        self.turn = 0
        """When it last took something, or when something began to wait for it: a later one is greater."""

    def hold(self, size: int) -> None:
        """So many bytes more wait for it, or fewer: then it has taken something, if only a part of what waits."""
        self._peers.hold(self, size)

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """These bytes wait for it meanwhile."""
        self.hold(size)
        try:
            yield
        finally:
            self.hold(-size)

    def leave(self) -> None:
        self._peers.remove(self)

    @property
    def is_crowded(self) -> bool:
        """Half of what may wait for all peers does: what can be read again later had better not wait, too."""
        return self._peers.is_crowded


class Peers:
    """All connections of a node.

    Past the bound on what waits, peers are dropped: at the address for which most waits, the one that has taken nothing
    for the longest time. So who asks for much and reads nothing makes room for himself only, and it takes many
    addresses to get at a peer who reads. For one event loop's thread.
    """

    def __init__(self, most: int, most_of_address: int, most_unsent: int) -> None:
        """Connections, connections of one address (0: no limit), bytes."""
        self._most, self._most_of_address, self._most_unsent = most, most_of_address, most_unsent
        self._by_address: dict[str, set[Peer]] = {}
        self._turn = 0
        self.count = self.unsent = 0
        self.dropped = 0
        """How many were, ever."""

    @property
    def is_crowded(self) -> bool:
        return self.unsent > self._most_unsent // 2

    def add(self, peer: Peer) -> None:
        """Take in a new connection, or raise Unavailable."""
        if self.count >= self._most:
            raise Unavailable("too many connections", retry_after_ms=1000)
        if self._most_of_address and len(self._by_address.get(peer.address, ())) >= self._most_of_address:
            raise Unavailable("too many connections from this address", retry_after_ms=1000)
        self._by_address.setdefault(peer.address, set()).add(peer)
        self.count += 1

    def remove(self, peer: Peer) -> None:
        """It is gone, and nothing waits for it any more. One that is not here, or was dropped, is no matter."""
        others = self._by_address.get(peer.address, set())
        if peer in others:
            others.remove(peer)
            self.count -= 1
            self.unsent -= peer.unsent
            if not others:
                del self._by_address[peer.address]

    def hold(self, peer: Peer, size: int) -> None:
        if peer not in self._by_address.get(peer.address, ()):
            return
        if size <= 0 or not peer.unsent:
            self._turn += 1
            peer.turn = self._turn
        peer.unsent += size
        self.unsent += size
        while self.unsent > self._most_unsent:
            self._drop(self._worst())

    def _worst(self) -> Peer:
        heaviest = max(self._by_address.values(), key=lambda peers: sum(peer.unsent for peer in peers))
        return min((peer for peer in heaviest if peer.unsent), key=lambda peer: peer.turn)

    def _drop(self, peer: Peer) -> None:
        self.remove(peer)
        self.dropped += 1
        peer.drop()
