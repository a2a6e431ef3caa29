"""A signer in a process of its own, as `enc node signer` starts it."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from msgspec.json import decode

from enc.core.primitives.signing import PrivateKey
from enc.node.ops import key_file
from tests.forked import Forked

PATIENCE_S = 60


class RunningSigner:
    """Holds `key` behind the socket `path` in a short-lived folder. Leaving the block stops it.

    `kill`, `pause` and `resume` do to it what can happen to a process; `start` starts another one.
    """

    def __init__(self, folder: Path, key: PrivateKey, *flags: str) -> None:
        self.folder, self.path, self._flags = folder, folder / "s.sock", flags
        folder.mkdir(parents=True, exist_ok=True)
        self.stderr = folder / "stderr"
        self.put(key)
        self.start()

    def put(self, key: PrivateKey) -> None:
        """Give the next process another key."""
        key_file.save(self.folder / "node.key", key, None)

    def start(self) -> None:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("ENC_NODE_")}
        command = [sys.executable, "-c", "from enc.cli import main; main()", "node", "signer"]
        command += ["--data", str(self.folder), "--socket", str(self.path), *self._flags]
        with self.stderr.open("ab") as stderr:
            self._process = Forked(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, env=plain)
        guard = threading.Timer(PATIENCE_S, self._process.kill)
        guard.start()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        guard.cancel()
        assert line, self.log()
        self.ready = decode(line)

    @property
    def pid(self) -> int:
        return self._process.pid

    def log(self) -> str:
        return self.stderr.read_text(errors="replace")

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """Stop it as an operator does, with SIGTERM."""
        self._process.terminate()
        assert self._end() == 0, self.log()

    def _end(self) -> int:
        code = self._process.wait(PATIENCE_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self.resume()
            self.kill()
