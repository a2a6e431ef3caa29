"""The claim of a lake's present writer, stored in the metadata of each table.

A lock (lock.py) does not stop every earlier writer. If a driver is killed, its Java process may
still finish a commit, and object stores have no locks. So a writer that cannot rely on the lock
claims the tables. Delta rejects all commits that were being prepared when a table's metadata
changed, and an earlier writer that still runs rejects its own further commits: see Table.
"""

import json
import os
import secrets
import socket
from datetime import UTC, datetime

from enc.core.errors import MisuseError

PROPERTY = "enc.writer"
"""The property of a table that names its writer."""


def holder_note(what: str) -> dict[str, str | int]:
    """Describe this process to others."""
    since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    return {"what": what, "pid": os.getpid(), "host": socket.gethostname(), "since": since}


def holder(note: str | bytes) -> str:
    """Return the process that a note describes, in words."""
    try:
        found = json.loads(note)
        return f"`{found['what']}` (process {found['pid']} on {found['host']}, since {found['since']})"
    except (ValueError, TypeError, LookupError):
        return "another process"


class WriterClaim:
    """The claim of one writer. It does nothing until `begin` is called."""

    def __init__(self) -> None:
        self.text = ""
        """The value of the property; empty without a claim."""
        self._paths = set[str]()

    def begin(self, what: str) -> None:
        """Begin a claim that no table has yet. `what` describes the writer to others."""
        self.text = json.dumps({**holder_note(what), "claim": secrets.token_hex(8)})
        self._paths.clear()

    def add(self, path: str) -> None:
        """Record that the table at this path has the claim now."""
        self._paths.add(path)

    def is_needed(self, path: str, found: str | None) -> bool:
        """Return True if the table must be claimed before it is written. `found`: its property.

        Raises MisuseError if another writer has claimed it since this one did.
        """
        if not self.text or found == self.text:
            return False
        if found is not None and path in self._paths:
            raise MisuseError(
                f"{path}: {holder(found)} writes to this lake now; a lake has one writer, so this process must end"
            )
        return True
