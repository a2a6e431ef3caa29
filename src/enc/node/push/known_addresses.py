"""Remembers which address each host led to last."""

from collections import OrderedDict


class KnownAddresses:
    def __init__(self, most: int) -> None:
        """`most`: how many hosts are remembered; the one noted longest ago is forgotten first."""
        self._most = most
        self._addresses: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._addresses)

    def of(self, host: str) -> str:
        """Return the address; empty if none is known."""
        return self._addresses.get(host, "")

    def note(self, host: str, address: str) -> None:
        self._addresses[host] = address
        self._addresses.move_to_end(host)
        while len(self._addresses) > self._most:
            self._addresses.popitem(last=False)
