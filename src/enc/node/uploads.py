"""Archives on their way to this node: how many at one time, how much of them lies here, and how fast they must come.

Anybody can begin to send one. So an archive takes no import's place before all of it is here, and whoever sends slowly,
or from one address more than others do, makes room for those who come. One that is here makes room for nobody, and so
one address may hold but some of the places.
"""

import threading
from collections.abc import Callable
from typing import IO

from msgspec import Struct

from enc.core.errors import EncError, Unavailable

RETRY_MS = 5000


class Bounds(Struct, frozen=True, kw_only=True):
    """What an operator gives archives."""

    most: int
    """At one time, with those that wait for their turn or are being replayed."""
    per_address: int
    """Of those, from one address."""
    bytes: int
    """Of all of them."""
    per_s: int
    """Bytes that one must bring a second, on average, once its grace is over."""
    grace_s: float


class Upload:
    """One archive, in a file that lasts until `close`, from any thread. `drop` stops its coming."""

    refusal: EncError | None = None
    """Why it was made to stop."""

    def __init__(
        self, uploads: "Uploads", address: str, began: float, file: IO[bytes], drop: Callable[[], object]
    ) -> None:
        self._uploads, self.address, self.began, self.file, self._drop = uploads, address, began, file, drop
        self.size = 0
        self.is_coming = True

    def grow(self, size: int) -> None:
        """So many bytes more are here."""
        self._uploads.grow(self, size)

    def refuse(self, why: str) -> None:
        self.refusal = Unavailable(why, retry_after_ms=RETRY_MS)
        self.is_coming = False
        self._drop()

    def rewind(self) -> None:
        """All of it has come: it is read from its start, and nobody stops it any more."""
        self.is_coming = False
        self.file.seek(0)

    def read(self, size: int) -> bytes:
        return self.file.read(size)

    def close(self) -> None:
        self.file.close()
        self._uploads.remove(self)


class Uploads:
    """All archives of a node. For the event loop's thread, but for `remove`."""

    def __init__(self, bounds: Bounds, clock: Callable[[], float]) -> None:
        """`clock`: in seconds."""
        self._bounds, self._clock = bounds, clock
        self._lock = threading.Lock()
        self._all: set[Upload] = set()

    def __len__(self) -> int:
        return len(self._all)

    def add(self, address: str, file: IO[bytes], drop: Callable[[], object]) -> Upload:
        """A new one. If all places are taken, another makes room for it, or it is refused."""
        if sum(each.address == address for each in self._snapshot()) >= self._bounds.per_address:
            message = "as many archives as this node takes from one address are here, or on their way"
            raise Unavailable(message, retry_after_ms=RETRY_MS)
        if len(self._all) >= self._bounds.most:
            victim = self._crowding(address) or self._slowest()
            if victim is None:
                raise Unavailable("as many archives as this node takes are on their way", retry_after_ms=RETRY_MS)
            victim.refuse("the archive made room for another's")
            self.remove(victim)
        upload = Upload(self, address, self._clock(), file, drop)
        with self._lock:
            self._all.add(upload)
        return upload

    def remove(self, upload: Upload) -> None:
        with self._lock:
            self._all.discard(upload)

    def grow(self, upload: Upload, size: int) -> None:
        """Past the bound the largest of the address that has sent most is stopped; that may be this one."""
        upload.size += size
        while sum(each.size for each in self._snapshot()) > self._bounds.bytes:
            held = self._by_address()
            heaviest = max(held, key=lambda address: sum(each.size for each in held[address]), default=None)
            victim = upload if heaviest is None else max(held[heaviest], key=lambda each: each.size)
            self.remove(victim)
            victim.refuse("archives on their way are more than this node holds at one time")
            if victim is upload:
                return

    def drop_slow(self) -> None:
        """Stop those that come too slowly. Call it now and then."""
        for upload in self._coming():
            if self._lag(upload) > 0:
                upload.refuse(f"the archive comes too slowly: {self._bounds.per_s} bytes a second are expected")

    def _snapshot(self) -> list[Upload]:
        with self._lock:
            return list(self._all)

    def _coming(self) -> list[Upload]:
        return [upload for upload in self._snapshot() if upload.is_coming]

    def _by_address(self) -> dict[str, list[Upload]]:
        held: dict[str, list[Upload]] = {}
        for upload in self._coming():
            held.setdefault(upload.address, []).append(upload)
        return held

    def _lag(self, upload: Upload) -> float:
        """Seconds by which it is later than it may be."""
        return self._clock() - upload.began - self._bounds.grace_s - upload.size / self._bounds.per_s

    def _pace(self, upload: Upload) -> float:
        return upload.size / max(self._clock() - upload.began, 0.001)

    def _crowding(self, address: str) -> Upload | None:
        """The slowest of the address that sends most, if that are at least two more than this address does."""
        held = self._by_address()
        crowd = max(held.values(), key=len, default=[])
        return min(crowd, key=self._pace) if len(crowd) > len(held.get(address, ())) + 1 else None

    def _slowest(self) -> Upload | None:
        """Of all, once anybody's grace is over: who is still in theirs does not outlast one that comes faster."""
        coming, grace_s = self._coming(), self._bounds.grace_s
        is_any_tried = any(self._clock() - each.began > grace_s for each in coming)
        return min(coming, key=self._pace) if is_any_tried else None
