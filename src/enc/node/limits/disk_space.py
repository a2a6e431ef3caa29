"""The free disk space that a node keeps: with less, it stops storing what grows.

Without this bound a full disk stops everything: also the Delete that would erase a content, and the
transaction that purges an enclave.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir

import structlog
from msgspec import Struct

from enc.core.errors import Unavailable
from enc.node.config import AUTO

LEAST, MOST = 256 << 20, 1 << 30
SHARE, LARGEST_SHARE = 100, 10
"""The default bound: one part of the disk in SHARE, from LEAST to MOST bytes, but at most one part in LARGEST_SHARE."""
MARGIN = 8
"""Growth resumes when the free space exceeds the bound by one part in this many."""
FLOOR = 4
"""One part in this many of the bound must be free on the disk itself: the write-ahead log needs it."""
INTERVAL_S = 1.0
RETRY_MS = 60_000

_log = structlog.get_logger("enc.disk")


class DiskReading(Struct, frozen=True):
    """Free bytes, and the size, of the disk with the node's data."""

    free: int
    total: int


def read_disk(folder: Path) -> DiskReading:
    """Return the reading of the disk of this folder, or of temporary files if it does not exist."""
    found = os.statvfs(folder if folder.is_dir() else gettempdir())
    return DiskReading(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def file_size(path: Path) -> int:
    """Return the size of a file; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def bound_of(setting: int, total: int) -> int:
    """Return how many bytes stay free on a disk of this size."""
    return setting if setting >= 0 else min(max(total // SHARE, LEAST), MOST, total // LARGEST_SHARE)


class DiskSpace:
    """Whether the disk has room for what grows. For any thread."""

    is_low = False
    """Whether what grows is rejected."""
    bound = 0
    """Bytes that stay free, by the last reading."""

    def __init__(
        self,
        read: Callable[[], DiskReading] = lambda: DiskReading(0, 0),
        clock: Callable[[], float] = time.monotonic,
        reusable: Callable[[], int] = lambda: 0,
        setting: int = AUTO,
    ) -> None:
        """`clock` returns seconds. `reusable`: bytes that the database has free in its file; it is called
        only by `run_if_due`.
        """
        self._read, self._clock, self._reusable, self.setting = read, clock, reusable, setting
        self._lock = threading.Lock()
        self._until, self._inside = 0.0, 0

    def run_if_due(self) -> None:
        """Take a reading, at most once in INTERVAL_S."""
        now = self._clock()
        if now < self._until:
            return
        self._until = now + INTERVAL_S
        try:
            self._inside = self._reusable()
        except Exception:  # it must not end the sequencer's thread
            self._inside = 0
        self.update()

    def update(self) -> None:
        """Take a reading of the disk; without one, the last remains."""
        try:
            found = self._read()
        except OSError:
            return
        with self._lock:
            self.bound = bound_of(self.setting, found.total)
            wanted = self.bound + (self.bound // MARGIN if self.is_low else 0)
            is_low = found.free + self._inside < wanted or found.free < wanted // FLOOR
            if is_low != self.is_low:
                self.is_low = is_low
                self._log_change(found)

    def _log_change(self, found: DiskReading) -> None:
        log = _log.error if self.is_low else _log.info
        log("disk_low" if self.is_low else "disk_has_room", free=found.free, reusable=self._inside, keeps=self.bound)

    def check(self) -> None:
        """Take a reading and raise Unavailable if the disk is low: imports may fill it within a second."""
        self.update()
        if self.is_low:
            raise self.error()

    def error(self) -> Unavailable:
        """Return the answer to what grows while the disk is low."""
        return Unavailable(f"{self.reason}; try again later", retry_after_ms=RETRY_MS)

    @property
    def reason(self) -> str:
        return (
            f"the node's disk has fewer bytes free than limits.disk_keep_free_bytes keeps ({self.bound}): the node "
            "accepts no new enclaves, imports or contents"
        )
