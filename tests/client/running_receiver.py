"""A receiver in its own process (`tests.client.receiving`), which a test starts and kills."""

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import httpx
from msgspec.json import encode

from tests.forked import Forked
from tests.plain_http import NO_TLS

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60
"""How long it may take to start, to answer or to exit."""
JSON = {"content-type": "application/json"}


class RunningReceiver:
    """Answers at `url`. `orders`: see `tests.client.receiving`."""

    def __init__(self, state: Path, **orders: Any) -> None:
        self.state = state
        command = [sys.executable, "-m", "tests.client.receiving", encode({"state": str(state), **orders}).decode()]
        self._process = Forked(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        assert self._process.stdout is not None
        port = self._process.stdout.readline()
        if not port:
            self.kill()
        assert port, "it did not start"
        self.url = f"http://127.0.0.1:{int(port)}/hook"

    def take(self, body: bytes) -> int | None:
        """Return the status of its answer; None without an answer."""
        try:
            return httpx.post(
                self.url, content=body, headers=JSON, timeout=PATIENCE_S, trust_env=False, verify=NO_TLS
            ).status_code
        except httpx.TransportError:
            return None

    def seen(self) -> list[tuple[str, int, str]]:
        """Return what its handler has written: enclave, seq and id, in order of arrival."""
        with closing(sqlite3.connect(self.state)) as db:
            return list(db.execute("SELECT enclave, seq, id FROM seen ORDER BY n"))

    def seqs(self) -> list[int]:
        return [seq for _, seq, _ in self.seen()]

    def wait_for(self, size: int) -> None:
        """Wait until this many events are delivered; needs `tell_at` in its orders."""
        assert self._process.stdout is not None
        if self._count() < size:
            guard = threading.Timer(PATIENCE_S, self._process.kill)
            guard.start()
            line = self._process.stdout.readline()
            guard.cancel()
            guard.join()
            assert line == b"there\n", f"only {self._count()} came"
        while self._count() < size:
            pass  # ends the transaction

    def _count(self) -> int:
        with closing(sqlite3.connect(self.state)) as db:
            return int(db.execute("SELECT count(*) FROM seen").fetchone()[0])

    def await_death(self) -> None:
        assert self._process.wait(PATIENCE_S) == -9
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
