"""The notice board: for each enclave, the latest event that a notification announced.

A notice only announces an event; the stream fetches it from the node.

It is a directory with one small file per enclave, replaced atomically, so that any process on this
machine may read it.
"""

import os
from pathlib import Path

from enc.client import Notice
from enc.core.primitives.encoding import MAX_INT
from enc.runtime.files import atomic_file

MAX_FILE = 32


class NoticeBoard:
    def __init__(self, directory: Path | str) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)

    def put(self, notice: Notice) -> None:
        """Record the newest seq of an enclave; an older one is ignored."""
        path = self._directory / notice.enclave.hex()
        if notice.seq <= (_seq(path) or -1):
            return
        with atomic_file(path, prefix=".", durable=False) as file:
            file.write(b"%d" % notice.seq)

    def seqs(self) -> dict[str, int]:
        """Return the latest announced seq of each enclave."""
        names = [entry.name for entry in os.scandir(self._directory) if not entry.name.startswith(".")]
        found = {name: _seq(self._directory / name) for name in names}
        return {name: seq for name, seq in found.items() if seq is not None}


def _seq(path: Path) -> int | None:
    """Read a seq; None if there is no file, or it is not a number."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE)
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) <= MAX_INT else None
