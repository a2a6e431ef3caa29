"""Free disk space that imports leave to the rest of the node."""

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir

from msgspec import Struct

from enc.core.errors import Unavailable

RETRY_MS = 60_000


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk of this folder, or of temporary files if it does not exist."""
    found = os.statvfs(folder if folder.is_dir() else gettempdir())
    return found.f_bavail * found.f_frsize


def file_size(path: Path) -> int:
    """Return the size of a file; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


class DiskSpace(Struct, frozen=True):
    """Imports stop when `free` returns fewer than `reserved` bytes."""

    free: Callable[[], int]
    reserved: int

    def check(self) -> None:
        """Raise Unavailable if the disk is short of space."""
        if self.free() < self.reserved:
            message = f"the node's disk has less than {self.reserved} bytes free, so imports stop; try again later"
            raise Unavailable(message, retry_after_ms=RETRY_MS)
