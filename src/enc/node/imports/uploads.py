"""Archives that are being uploaded: limits on their number, their size and their speed.

Anyone can start an upload. So an unfinished upload does not occupy an import's place, and a slow
upload, or one of an address with more uploads than others, is displaced by new ones. A complete
archive is never displaced; therefore one address may hold only some of the places.
"""

import threading
from collections.abc import Callable
from typing import IO

from msgspec import Struct

from enc.core.errors import EncError, Unavailable

RETRY_MS = 5000


class UploadLimits(Struct, frozen=True, kw_only=True):
    """What an operator allows uploads to use."""

    max_count: int
    """Most archives at one time, with those that are queued or being replayed."""
    per_address: int
    """Most of them from one address."""
    total_bytes: int
    """Most bytes of all of them."""
    min_bytes_per_s: int
    """Average speed that an upload must reach after its grace period."""
    grace_s: float


class Upload:
    """One archive, in a file that exists until `close`.

    `drop` stops the upload. `close` may be called from any thread.
    """

    rejection: EncError | None = None
    """Why the upload was stopped."""

    def __init__(
        self, uploads: "Uploads", address: str, began: float, file: IO[bytes], drop: Callable[[], object]
    ) -> None:
        self._uploads, self.address, self.began, self.file, self._drop = uploads, address, began, file, drop
        self.size = 0
        self.is_receiving = True

    def add_bytes(self, size: int) -> None:
        """Count `size` more received bytes."""
        self._uploads.add_bytes(self, size)

    def reject(self, why: str) -> None:
        self.rejection = Unavailable(why, retry_after_ms=RETRY_MS)
        self.is_receiving = False
        self._drop()

    def rewind(self) -> None:
        """Mark the archive as complete, so that it is not displaced, and go to its start."""
        self.is_receiving = False
        self.file.seek(0)

    def read(self, size: int) -> bytes:
        return self.file.read(size)

    def close(self) -> None:
        self.file.close()
        self._uploads.remove(self)


class Uploads:
    """All archives of a node. For the event loop's thread, except `remove`."""

    def __init__(self, limits: UploadLimits, clock: Callable[[], float]) -> None:
        """`clock` returns seconds."""
        self._limits, self._clock = limits, clock
        self._lock = threading.Lock()
        self._all: set[Upload] = set()

    def __len__(self) -> int:
        return len(self._all)

    def add(self, address: str, file: IO[bytes], drop: Callable[[], object]) -> Upload:
        """Start an upload, displacing another if all places are taken; raise Unavailable if none
        can be.
        """
        if sum(each.address == address for each in self._snapshot()) >= self._limits.per_address:
            message = "too many archives from this address"
            raise Unavailable(message, retry_after_ms=RETRY_MS)
        if len(self._all) >= self._limits.max_count:
            victim = self._slowest_of_busiest_address(address) or self._slowest()
            if victim is None:
                raise Unavailable("too many archives are being uploaded to this node", retry_after_ms=RETRY_MS)
            victim.reject("the upload was displaced by another")
            self.remove(victim)
        upload = Upload(self, address, self._clock(), file, drop)
        with self._lock:
            self._all.add(upload)
        return upload

    def remove(self, upload: Upload) -> None:
        with self._lock:
            self._all.discard(upload)

    def add_bytes(self, upload: Upload, size: int) -> None:
        """Count received bytes. Over the total limit, stop the largest upload of the address with
        most bytes.

        That may be this upload itself.
        """
        upload.size += size
        while sum(each.size for each in self._snapshot()) > self._limits.total_bytes:
            held = self._by_address()
            heaviest = max(held, key=lambda address: sum(each.size for each in held[address]), default=None)
            victim = upload if heaviest is None else max(held[heaviest], key=lambda each: each.size)
            self.remove(victim)
            victim.reject("uploads exceed the bytes that this node holds at one time")
            if victim is upload:
                return

    def drop_slow(self) -> None:
        """Stop the uploads that are too slow. Call this periodically."""
        for upload in self._receiving():
            if self._lag(upload) > 0:
                upload.reject(f"the upload is too slow: expected {self._limits.min_bytes_per_s} bytes per second")

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
        return self._clock() - upload.began - self._limits.grace_s - upload.size / self._limits.min_bytes_per_s

    def _pace(self, upload: Upload) -> float:
        return upload.size / max(self._clock() - upload.began, 0.001)

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
