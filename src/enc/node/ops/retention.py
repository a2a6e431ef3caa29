"""Deletes what expires by the clock: contents with an `auto-delete` time, the data of terminated
enclaves, and the rows of abandoned imports and replaced logs.

Runs on the sequencer's thread, the only one that writes. The store knows what is due, not a timer
in memory, so nothing is lost in a restart.
"""

from collections.abc import Sequence

import structlog

from enc.core.errors import EncError
from enc.node.store.damage import DamagedData
from enc.node.store.store_interface import Store

MAX_ERASED, MAX_PURGED = 500, 10_000
"""Contents, and rows of a terminated enclave, that one call deletes: it bounds how long commits
wait.
"""
REST_MS = 60_000
"""How long a replaced log is kept, so that running reads can finish."""

_log = structlog.get_logger("enc.retention")


class RetentionSweeper:
    """Call `run_if_due` between batches; it works once an interval, or at once while there is more
    to do.
    """

    def __init__(self, store: Store, purge_after_ms: int, interval_ms: int) -> None:
        self._store, self._purge_after_ms, self._interval_ms = store, purge_after_ms, interval_ms
        self._next = 0
        self._damaged: set[bytes] = set()
        """Enclaves that could not be purged since the start."""
        self._unerasable: set[tuple[bytes, bytes]] = set()
        """Events, each with its enclave, whose contents could not be erased since the start."""

    def run_if_due(self, now: int) -> None:
        if self._next - self._interval_ms <= now < self._next:
            return
        try:
            has_more = self._erase(now) | self._purge(now) | self._sweep(now)
        except EncError as e:
            _log.error("sweep_failed", reason=e.message)
            has_more = False
        except Exception as e:  # a damaged row must not end the sequencer's thread
            _log.error("sweep_failed", reason=type(e).__name__, exc_info=e)
            has_more = False
        self._next = now if has_more else now + self._interval_ms

    def hurry(self) -> None:
        """Work at the next call, not once the interval is over."""
        self._next = 0

    def _erase(self, now: int) -> bool:
        found = self._store.expired(now, MAX_ERASED + len(self._unerasable))
        due = [each for each in found if each not in self._unerasable][:MAX_ERASED]
        if due:
            _log.info("auto_deleted", events=self._erase_sound(due))
        return len(due) == MAX_ERASED

    def _erase_sound(self, due: Sequence[tuple[bytes, bytes]]) -> int:
        """Erase the contents in enclaves whose data is sound; return their number."""
        try:
            self._store.erase(due)
        except DamagedData as e:
            if len(due) == 1:
                self._unerasable.add(due[0])
                _log.error("erase_failed", enclave=due[0][0].hex(), event_id=due[0][1].hex(), reason=e.message)
                return 0
            return self._erase_sound(due[: len(due) // 2]) + self._erase_sound(due[len(due) // 2 :])
        return len(due)

    def _purge(self, now: int) -> bool:
        for enclave in self._store.terminated(now - self._purge_after_ms, 1 + len(self._damaged)):
            if enclave not in self._damaged:
                self._purge_one(enclave)
                return True
        return False

    def _purge_one(self, enclave: bytes) -> None:
        try:
            if self._store.purge(enclave, MAX_PURGED):
                _log.info("purged", enclave=enclave.hex())
        except DamagedData as e:
            _log.error("purge_failed", enclave=enclave.hex(), reason=e.message)
            self._damaged.add(enclave)

    def _sweep(self, now: int) -> bool:
        return not self._store.delete_orphans(now - REST_MS, MAX_PURGED)
