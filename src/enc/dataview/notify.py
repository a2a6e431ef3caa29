"""The notice board: for each enclave, the latest event that a notification told of.

A notice says that there is something; what it is, the stream asks the node for.

A directory with one small file for each enclave, replaced whole, so that any process on this machine may read it.
"""

import os
from pathlib import Path

from enc.client import Notice
from enc.core.encoding import MAX_INT
from enc.runtime.files import atomic_file

MAX_FILE = 32


class NoticeBoard:
    def __init__(self, directory: Path | str) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)

    def put(self, notice: Notice) -> None:
        """Remember the newest seq of an enclave; an older one changes nothing."""
        path = self._directory / notice.enclave.hex()
        if notice.seq <= (_seq(path) or -1):
            return
        with atomic_file(path, prefix=".", durable=False) as file:
            file.write(b"%d" % notice.seq)

    def seqs(self) -> dict[str, int]:
        """The latest seq of each enclave that anything was told of."""
        names = [entry.name for entry in os.scandir(self._directory) if not entry.name.startswith(".")]
        found = {name: _seq(self._directory / name) for name in names}
        return {name: seq for name, seq in found.items() if seq is not None}


def _seq(path: Path) -> int | None:
    """None: nothing was told, or it is no number."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE)
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) <= MAX_INT else None
