"""Bounds the reads that were put back: each holds what it found until then, a page at most.

When too many are kept, the address that has most of them loses its newest. So the reads of an
address with many identities do not keep those of other addresses out.
"""

from threading import Lock
from typing import Generic, TypeVar

R = TypeVar("R")


class LongReads(Generic[R]):
    """For any thread. A read that runs is never ended: another thread may not close its steps."""

    def __init__(self) -> None:
        self._by_address: dict[str, dict[R, bool]] = {}
        """For each read, whether it runs."""
        self._ended = set[R]()
        """Reads that were ended and have not had their turn since."""
        self._count, self._lock = 0, Lock()

    def __len__(self) -> int:
        return self._count

    def resume(self, address: str, read: R) -> bool:
        """Note that a read is about to run. Return whether it may: not if it was ended."""
        with self._lock:
            if read in self._ended:
                self._ended.remove(read)
                return False
            if read in (kept := self._by_address.get(address, {})):
                kept[read] = True
            return True

    def keep(self, address: str, read: R, most: int) -> R | None:
        """Keep a read that is put back. Return the one that must end, if there are over `most`:
        perhaps this one.
        """
        with self._lock:
            kept = self._by_address.setdefault(address, {})
            self._count += read not in kept
            kept[read] = False
            if self._count <= most:
                return None
            ended_at, ended = self._newest_of_most(len(kept)) or (address, read)
            self._remove(ended_at, ended)
            if ended is not read:
                self._ended.add(ended)
            return ended

    def _newest_of_most(self, least: int) -> tuple[str, R] | None:
        """Return the newest read that does not run of the address with most, if it has over `least`."""
        address, kept = max(self._by_address.items(), key=lambda item: len(item[1]))
        if len(kept) <= least:
            return None
        return next(((address, read) for read in reversed(kept) if not kept[read]), None)

    def discard(self, address: str, read: R) -> None:
        """Forget a read that is over."""
        with self._lock:
            if read in self._by_address.get(address, {}):
                self._remove(address, read)

    def _remove(self, address: str, read: R) -> None:
        kept = self._by_address[address]
        del kept[read]
        self._count -= 1
        if not kept:
            del self._by_address[address]
