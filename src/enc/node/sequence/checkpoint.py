"""Checkpoints: the end of a log, and the hold that keeps it there until a Migrate arrives."""

from msgspec import Struct

from enc.core.errors import Unavailable
from enc.core.primitives.types import Commit

MAX_HOLD_MS = 30_000


class Checkpoint(Struct, frozen=True):
    """The end of a log, as a Migrate must state it."""

    seq: int
    ct_root: bytes


class MigrateHolds:
    """Enclaves that accept only a Migrate for a while. For the sequencer's thread."""

    def __init__(self) -> None:
        self._until: dict[bytes, int] = {}

    def add(self, enclave: bytes, now: int, hold_ms: int) -> None:
        self._until = {held: until for held, until in self._until.items() if until > now}
        self._until[enclave] = now + min(hold_ms, MAX_HOLD_MS)

    def end(self, enclave: bytes) -> None:
        self._until.pop(enclave, None)

    def check(self, commit: Commit, now: int) -> None:
        """Raise Unavailable if the enclave is held and the commit is not a Migrate."""
        until = self._until.get(commit.enclave, 0)
        if until > now and commit.type != "Migrate":
            raise Unavailable("the enclave is held for a Migrate", retry_after_ms=until - now)
