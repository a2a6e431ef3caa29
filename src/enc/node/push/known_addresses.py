"""Remembers which address each host led to last, and at which addresses it has answered."""

from collections import OrderedDict


class KnownAddresses:
    def __init__(self, most: int) -> None:
        """`most`: how many hosts are remembered, and how many proven addresses; those noted longest
        ago are forgotten first.
        """
        self._most = most
        self._addresses: OrderedDict[str, str] = OrderedDict()
        self._proven: OrderedDict[tuple[str, str], None] = OrderedDict()

    def __len__(self) -> int:
        return max(len(self._addresses), len(self._proven))

    def of(self, host: str) -> str:
        """Return the address; empty if none is known."""
        return self._addresses.get(host, "")

    def note(self, host: str, address: str) -> None:
        self._addresses[host] = address
        self._addresses.move_to_end(host)
        while len(self._addresses) > self._most:
            self._addresses.popitem(last=False)

    def prove(self, host: str, address: str) -> None:
        """Record that a server at the address has shown that it is the host's: it answered a
        challenge, or has a certificate of the name.
        """
        self._proven[host, address] = None
        self._proven.move_to_end((host, address))
        while len(self._proven) > self._most:
            self._proven.popitem(last=False)

    def is_proven(self, host: str, address: str) -> bool:
        return (host, address) in self._proven
