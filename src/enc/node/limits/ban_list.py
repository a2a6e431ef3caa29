"""The bans in force, by identity and by network. Safe to use from any thread; one changes it.

A request looks its address up once for each length of the banned networks' prefixes, at most 98
times, and not at all if no network is banned.
"""

import ipaddress
from collections.abc import Callable
from functools import lru_cache
from typing import NoReturn

from enc.core.errors import Banned
from enc.node.limits.ban_target import Network, parse_target
from enc.node.store.restrictions import Restriction

_Prefix = tuple[int, int]
"""The IP version and the length of a prefix."""


class BanList:
    """`now` returns Unix milliseconds. A ban that has ended has no effect, though it is listed until
    `ended` has returned it and it was removed.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._all: dict[str, Restriction] = {}
        self._identities: dict[bytes, Restriction] = {}
        self._networks: dict[_Prefix, dict[int, Restriction]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def get(self, target: str) -> Restriction | None:
        return self._all.get(target)

    def all(self) -> list[Restriction]:
        return list(self._all.values())

    def add(self, ban: Restriction) -> None:
        """Add a ban, in place of one of the same target."""
        target = parse_target(ban.target)
        self._all[ban.target] = ban
        if isinstance(target, bytes):
            self._identities[target] = ban
            return
        prefix, number = _place(target)
        if prefix not in self._networks:
            self._networks = {**self._networks, prefix: {}}  # another one: other threads iterate over it
        self._networks[prefix][number] = ban

    def remove(self, text: str) -> None:
        if self._all.pop(text, None) is None:
            return
        target = parse_target(text)
        if isinstance(target, bytes):
            del self._identities[target]
            return
        prefix, number = _place(target)
        del self._networks[prefix][number]
        if not self._networks[prefix]:
            self._networks = {each: bans for each, bans in self._networks.items() if bans}

    def ended(self) -> list[Restriction]:
        """Return the bans that have ended."""
        return [ban for ban in self._all.values() if not self._holds(ban)]

    @property
    def has_networks(self) -> bool:
        return bool(self._networks)

    # Checks

    def check_identity(self, identity: bytes) -> None:
        """Raise Banned if the identity is banned."""
        if self.is_identity_banned(identity):
            _refuse("identity")

    def is_identity_banned(self, identity: bytes) -> bool:
        ban = self._identities.get(identity)
        return ban is not None and self._holds(ban)

    def check_address(self, key: str) -> None:
        """Raise Banned if an address is banned, given by its key (enc.runtime.rate_limit.address_key)."""
        if self._networks and self.is_address_banned(key):
            _refuse("address")

    def is_address_banned(self, key: str) -> bool:
        if not self._networks:
            return False
        own, bits, number = _number(key)
        for (version, length), bans in self._networks.items():
            if version == own:
                ban = bans.get(number >> (bits - length))
                if ban is not None and self._holds(ban):
                    return True
        return False

    def _holds(self, ban: Restriction) -> bool:
        return ban.until is None or ban.until > self._now()


@lru_cache(maxsize=8192)
def _number(key: str) -> tuple[int, int, int]:
    """Return the IP version of an address, its size in bits, and the address as a number; version 0 for
    the key of all texts that are not addresses.
    """
    try:
        address = ipaddress.ip_address(key.partition("/")[0])
    except ValueError:
        return 0, 0, 0
    return address.version, address.max_prefixlen, int(address)


def _place(network: Network) -> tuple[_Prefix, int]:
    length = network.prefixlen
    return (network.version, length), int(network.network_address) >> (network.max_prefixlen - length)


def _refuse(what: str) -> NoReturn:
    raise Banned(f"the operator of this node has banned this {what}")
