"""The progress of a move of an enclave, on disk, to resume after an interruption."""

from pathlib import Path
from typing import Self

import msgspec

from enc.core.errors import MisuseError
from enc.core.log.commit import parse_commit, wire_commit
from enc.core.log.event import parse_event, wire_event
from enc.core.primitives.types import Commit, Event
from enc.runtime import private_file
from enc.runtime.locks import FileLock, LockHeld

MAX_JOURNAL = 8 << 20


class Journal:
    """A folder with a move's progress: the Migrate as a commit, then as an event, and the copied
    log.
    """

    def __init__(self, folder: Path, enclave: bytes, to: bytes) -> None:
        self._folder = folder / f"{enclave.hex()}-{to.hex()[:16]}"
        self._commit, self._event = self._folder / "migrate.json", self._folder / "event.json"
        self.copy = self._folder / "log.enc"
        self.part = self._folder / "log.enc.part"

    def __enter__(self) -> Self:
        """Open it for this move alone; raise MisuseError if another move runs."""
        self._lock = self._locked()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def _locked(self) -> FileLock:
        """Create and lock the folder; again if another move that ended has removed it in between."""
        while True:
            private_file.make_directory(self._folder)
            try:
                lock = FileLock.on_directory(self._folder)
            except FileNotFoundError:
                continue
            except LockHeld:
                raise MisuseError(f"{self._folder}: another move of this enclave runs; wait for its end") from None
            if lock.is_at_path():
                return lock
            lock.close()

    def commit(self) -> Commit | None:
        found = private_file.read(self._commit, MAX_JOURNAL)
        return None if found is None else parse_commit(found)

    def event(self) -> Event | None:
        found = private_file.read(self._event, MAX_JOURNAL)
        return None if found is None else parse_event(found)

    def keep(self, commit: Commit) -> None:
        if isinstance(commit, Event):
            private_file.write(self._event, msgspec.json.encode(wire_event(commit)), overwrite=True)
        else:
            private_file.write(self._commit, msgspec.json.encode(wire_commit(commit)), overwrite=True)

    def drop_commit(self) -> None:
        self._commit.unlink(missing_ok=True)

    def clear(self) -> None:
        """Delete everything in it."""
        for path in (self._event, self._commit, self.copy, self.part):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Delete the journal after the move is done."""
        self.clear()
        self._folder.rmdir()
