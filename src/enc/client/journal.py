"""What a move of an enclave has come to, on disk: whoever is interrupted goes on from there."""

import fcntl
import os
from pathlib import Path
from typing import Self

import msgspec

from enc.client import private_file
from enc.core.commit import parse_commit, wire_commit
from enc.core.errors import MisuseError
from enc.core.event import parse_event, wire_event
from enc.core.types import Commit, Event

MAX_JOURNAL = 8 << 20


class Journal:
    """What a move has come to, in a folder: the Migrate as a commit, then as an event, and the copy of the log."""

    def __init__(self, folder: Path, enclave: bytes, to: bytes) -> None:
        self._folder = folder / f"{enclave.hex()}-{to.hex()[:16]}"
        self._commit, self._event = self._folder / "migrate.json", self._folder / "event.json"
        self.copy = self._folder / "log.enc"
        self.part = self._folder / "log.enc.part"

    def __enter__(self) -> Self:
        """Opens it for this move alone; MisuseError where another one runs."""
        self._lock = self._locked()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def _locked(self) -> int:
        """The folder, locked; one that went away in between, with the end of another move, is made anew."""
        while True:
            private_file.make_directory(self._folder)
            try:
                lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), os.stat(self._folder)):
                    return lock
            except BlockingIOError:
                os.close(lock)
                raise MisuseError(f"{self._folder}: another move of this enclave runs; wait for its end") from None
            except FileNotFoundError:
                pass
            os.close(lock)

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
        """Nothing of it counts any more."""
        for path in (self._event, self._commit, self.copy, self.part):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """All is done."""
        self.clear()
        self._folder.rmdir()
