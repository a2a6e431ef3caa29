"""Registrations that are due: kept over a restart, as empty files beside the pins."""

from contextlib import suppress
from pathlib import Path

from enc.core.errors import EncError
from enc.runtime import private_file

FOLDER = "unregistered"


class DueRegistrations:
    """`directory`: of the pins; None keeps nothing. `identity`: whose registrations."""

    def __init__(self, directory: Path | None, identity: bytes) -> None:
        self._folder = None if directory is None else directory / FOLDER
        self._identity = identity

    def has(self, enclave: bytes) -> bool:
        path = self._path(enclave)
        return path is not None and path.exists()

    def add(self, enclave: bytes) -> None:
        """Keep that it is due. If that fails, this process still tries again."""
        path = self._path(enclave)
        if path is None or path.exists():
            return
        with suppress(EncError, OSError):
            private_file.make_directory(path.parent)
            private_file.create(path)

    def remove(self, enclave: bytes) -> None:
        path = self._path(enclave)
        if path is not None:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _path(self, enclave: bytes) -> Path | None:
        return None if self._folder is None else self._folder / f"{self._identity.hex()}-{enclave.hex()}"
