"""A bounded number of places that no single key can take all of.

A key takes places only while at least as many are free as it then holds. So one key gets at most
half of the places, two that take them in turn get a third each, and so on: a key that holds few
still gets a place when keys that hold many get no more. No place is taken away from a key: keys
that come one after the other, each taking all that it can, leave half as many free each time.
"""

from collections.abc import Hashable

from enc.core.errors import MisuseError


class FairShare:
    """Counts the places that each key holds. Each call is O(1). Not for several threads at once.

    A place is whatever is bounded: requests, bytes, … The key None has no share: only the capacity
    bounds it. Use it where a key would stand for many senders, such as the address of a proxy.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise MisuseError("the capacity of a fair share must be 0 or more")
        self._capacity = capacity
        self._used = 0
        self._held: dict[Hashable, int] = {}

    @property
    def used(self) -> int:
        """Number of places that are taken, by all keys."""
        return self._used

    @property
    def free(self) -> int:
        """Number of places that are not taken."""
        return self._capacity - self._used

    def held(self, key: Hashable) -> int:
        """Return the number of places that a key holds."""
        return self._held.get(key, 0)

    def take(self, key: Hashable, amount: int = 1) -> bool:
        """Take places for a key if there are as many and its share allows it; return whether it did."""
        held, free = self.held(key), self._capacity - self._used
        if amount > free or (key is not None and held + amount > free):
            return False
        self._used += amount
        self._held[key] = held + amount
        return True

    def release(self, key: Hashable, amount: int = 1) -> None:
        """Give places of a key back. A key without places is forgotten."""
        left = self.held(key) - amount
        if left < 0:
            raise MisuseError(f"a key releases {amount} places, but holds {left + amount}")
        self._used -= amount
        if left:
            self._held[key] = left
        else:
            self._held.pop(key, None)
