"""Logs that arrive for an import: limits on their number, their size and their speed.

An owner uploads an archive, or the node fetches the log from its old node. Anyone can start either.
So a log that has not arrived whole does not occupy an import's slot, and a slow one, or one of an
address with more of them than others, is displaced by new ones. A whole log is never displaced;
therefore one address may hold only some of the places.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from msgspec import Struct

from enc.core.errors import EncError, Unavailable
from enc.node.limits.disk_space import DiskSpace

RETRY_MS = 5000


def unnamed_file(folder: Path) -> IO[bytes]:
    """Open a file that the system removes when the process ends for any reason."""
    return TemporaryFile(dir=folder if folder.is_dir() else None)


class UploadLimits(Struct, frozen=True, kw_only=True):
    """What an operator allows uploads to use."""

    max_count: int
    """Most logs at one time, with those that are queued or being replayed."""
    per_address: int
    """Most of them from one address."""
    total_bytes: int
    """Most bytes of all of them, as stored."""
    min_bytes_per_s: int
    """Average speed that an upload must reach after its grace period."""
    grace_s: float


class Upload:
    """One log, in a file that exists until `close`.

    `drop` stops the upload. `write`, `read` and `close` may be called from any thread.
    """

    rejection: EncError | None = None
    """Why the upload was stopped."""

    def __init__(
        self, uploads: "Uploads", address: str, began: float, file: IO[bytes], drop: Callable[[], object]
    ) -> None:
        self._uploads, self.address, self.began, self.file, self._drop = uploads, address, began, file, drop
        self.received = self.size = 0
        """Bytes that have arrived, and bytes that are stored."""
        self.is_receiving = True

    def add_bytes(self, received: int, stored: int | None = None) -> None:
        """Count more bytes. `stored`: how many of them are stored, by default all."""
        self._uploads.add_bytes(self, received, received if stored is None else stored)

    def reject(self, error: EncError) -> None:
        self.rejection = error
        self.is_receiving = False
        self._drop()

    def write(self, data: bytes) -> None:
        self.file.write(data)

    def wait(self) -> None:
        """Mark the log as one that need not arrive yet, so that it is not slow; until `go_on`."""
        self.is_receiving = False

    def go_on(self) -> None:
        """Count the log's speed from now on."""
        self.began, self.is_receiving = self._uploads.now(), True

    def rewind(self) -> None:
        """Mark the log as complete, so that it is not displaced, and go to its start."""
        self.is_receiving = False
        self.file.seek(0)

    def read(self, size: int) -> bytes:
        return self.file.read(size)

    def close(self) -> None:
        self.file.close()
        self._uploads.remove(self)


class Uploads:
    """All uploads of a node. For the event loop's thread, except `remove`."""

    def __init__(
        self, limits: UploadLimits, disk: DiskSpace, clock: Callable[[], float], open_file: Callable[[], IO[bytes]]
    ) -> None:
        """`clock` returns seconds; `open_file` opens a file for an upload."""
        self._limits, self._disk, self._clock, self._open_file = limits, disk, clock, open_file
        self._lock = threading.Lock()
        self._all: set[Upload] = set()

    def __len__(self) -> int:
        return len(self._all)

    def add(self, address: str, drop: Callable[[], object]) -> Upload:
        """Start an upload, displacing another if all places are taken; raise Unavailable if none
        can be displaced, or if the disk is short of space.
        """
        self._disk.check()
        if sum(each.address == address for each in self._snapshot()) >= self._limits.per_address:
            raise _unavailable("too many imports from this address are under way")
        if len(self._all) >= self._limits.max_count:
            victim = self._slowest_of_busiest_address(address) or self._slowest()
            if victim is None:
                raise _unavailable("too many imports are under way on this node")
            self._stop(victim, _unavailable("another import took the place of this one, whose log had not arrived yet"))
        upload = Upload(self, address, self._clock(), self._open_file(), drop)
        with self._lock:
            self._all.add(upload)
        return upload

    def now(self) -> float:
        return self._clock()

    def remove(self, upload: Upload) -> None:
        with self._lock:
            self._all.discard(upload)

    def _stop(self, upload: Upload, error: EncError) -> None:
        self.remove(upload)
        upload.reject(error)

    def add_bytes(self, upload: Upload, received: int, stored: int) -> None:
        """Count bytes. Over the total limit, stop the largest upload of the address with most bytes;
        that may be this upload itself. Stop this one if the disk is short of space.
        """
        upload.received += received
        upload.size += stored
        if upload.rejection is not None:
            return  # it ends
        try:
            self._disk.check()
        except Unavailable as e:
            self._stop(upload, e)
            return
        while sum(each.size for each in self._snapshot()) > self._limits.total_bytes:
            held = self._by_address()
            heaviest = max(held, key=lambda address: sum(each.size for each in held[address]), default=None)
            victim = upload if heaviest is None else max(held[heaviest], key=lambda each: each.size)
            self._stop(victim, _unavailable("imports under way exceed the bytes that this node holds for them"))
            if victim is upload:
                return

    def drop_slow(self) -> None:
        """Stop the uploads that are too slow. Call this periodically."""
        for upload in self._receiving():
            if self._lag(upload) > 0:
                speed = self._limits.min_bytes_per_s
                upload.reject(_unavailable(f"the log arrives too slowly: expected {speed} bytes per second"))

    def _snapshot(self) -> list[Upload]:
        with self._lock:
            return list(self._all)

    def _receiving(self) -> list[Upload]:
        return [upload for upload in self._snapshot() if upload.is_receiving]

    def _by_address(self) -> dict[str, list[Upload]]:
        held: dict[str, list[Upload]] = {}
        for upload in self._receiving():
            held.setdefault(upload.address, []).append(upload)
        return held

    def _lag(self, upload: Upload) -> float:
        """Return by how many seconds the upload is late; negative if it is not."""
        return self._clock() - upload.began - self._limits.grace_s - upload.received / self._limits.min_bytes_per_s

    def _pace(self, upload: Upload) -> float:
        return upload.received / max(self._clock() - upload.began, 0.001)

    def _slowest_of_busiest_address(self, address: str) -> Upload | None:
        """Return the slowest upload of the address with most, if that has at least two more than
        `address`.
        """
        held = self._by_address()
        crowd = max(held.values(), key=len, default=[])
        return min(crowd, key=self._pace) if len(crowd) > len(held.get(address, ())) + 1 else None

    def _slowest(self) -> Upload | None:
        """Return the slowest upload once any grace period is over.

        An upload inside its own grace period is not spared if a faster one exists.
        """
        receiving, grace_s = self._receiving(), self._limits.grace_s
        is_any_tried = any(self._clock() - each.began > grace_s for each in receiving)
        return min(receiving, key=self._pace) if is_any_tried else None


def _unavailable(message: str) -> Unavailable:
    return Unavailable(message, retry_after_ms=RETRY_MS)
