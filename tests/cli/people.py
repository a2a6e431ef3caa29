"""People at a terminal: each has a separate home, and `enc` with a profile for one node."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from typer.testing import CliRunner, Result

from enc.cli import app
from enc.cli.common import profiles
from enc.client import Identity
from enc.client.enclave.templates import template
from tests.forked import Forked

ENC = Path(sys.executable).parent / "enc"
PATIENCE_S = 60
"""How long a command may take before it counts as stuck."""


class Person:
    """A user of `enc`. `run` runs a command in a separate process, `ask` in this one, which is faster."""

    def __init__(self, home: Path, **environment: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("ENC_", "XDG_"))}
        self.environment = {**plain, "HOME": str(home), "COLUMNS": "200", "NO_COLOR": "1", **environment}

    @property
    def config(self) -> Path:
        return self.home / ".config/enc/config.toml"

    @property
    def pins(self) -> Path:
        return self.home / ".local/share/enc/pins"

    def key(self, name: str = "default") -> Path:
        return self.home / f".local/share/enc/keys/{name}.key"

    def start(self, *args: str | Path, **environment: str) -> subprocess.Popen[str]:
        """Start `enc` without a terminal, in the person's home."""
        return Forked(
            [ENC, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            cwd=self.home,
            env={**self.environment, **environment},
            start_new_session=True,
        )

    def run(self, *args: str | Path, code: int = 0, stdin: str = "", **environment: str) -> str:
        """Return the command's output. It must end with this exit code; its stderr is stored in `stderr`."""
        with self.start(*args, **environment) as process:
            try:
                printed, self.stderr = process.communicate(stdin, PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert process.returncode == code, (args, process.returncode, printed, self.stderr)
        assert "Traceback" not in self.stderr
        return printed

    def json(self, *args: str | Path, **more: Any) -> Any:
        """Return the output of the command with --json; a list if it has several lines."""
        found = [json.loads(line) for line in self.run(*args, "--json", **more).splitlines()]
        return found[0] if len(found) == 1 else found

    def ask(self, *args: str | Path, code: int | None = 0, stdin: str | None = None, **environment: str) -> Result:
        unset = dict.fromkeys(name for name in os.environ if name.startswith(("ENC_", "XDG_")))
        env = {**unset, **self.environment, **environment}
        with chdir(self.home):
            result = CliRunner().invoke(app, list(map(str, args)), input=stdin, env=env, catch_exceptions=False)
        assert code is None or result.exit_code == code, (args, result.exit_code, result.output)
        return result

    def ask_json(self, *args: str | Path, **more: Any) -> Any:
        """Return the output of `ask` with --json, always as a list."""
        return [json.loads(line) for line in self.ask(*args, "--json", **more).stdout.splitlines()]

    def refused(self, *args: str | Path, **more: Any) -> Any:
        """Return the error that the command prints with --json."""
        result = self.ask(*args, "--json", **more)
        assert (result.stdout, result.stderr.count("\n")) == ("", 1)
        return json.loads(result.stderr)["error"]

    @contextmanager
    def watching(self, *args: str | Path) -> Iterator["Watch"]:
        """Run `enc watch --json` until the block ends."""
        with self.start("watch", "--json", *args) as process:
            watch = Watch(process)
            try:
                yield watch
            finally:
                process.kill()
                watch.reader.join(PATIENCE_S)


class Watch:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: Queue[str] = Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def next(self, patience: float = PATIENCE_S) -> Any:
        """Return the next event; fail if none arrives."""
        return json.loads(self._lines.get(timeout=patience))

    def rest(self) -> list[str]:
        """Return the remaining lines, once the process has ended."""
        return [self._lines.get_nowait() for _ in range(self._lines.qsize())]

    def peek(self, patience: float) -> Any:
        """Return the next event, or None if none arrives in a while."""
        try:
            return self.next(patience)
        except Empty:
            return None


AT_ONCE, LATE = {"size": 1}, {"timeout": 3_600_000}
"""Bundles that close with each event, so that everything is proved at once; or not before the test is over."""


def team(owner: str, **changes: Any) -> str:
    return json.dumps({**template("team", bytes.fromhex(owner)), "bundle": AT_ONCE, **changes})


def with_key(home: Path, url: str, registry: str | None = None) -> Person:
    """Return a person with a key and a node, and nothing else."""
    person = Person(home)
    person.key().parent.mkdir(parents=True)
    Identity.new().save(person.key())
    values = {"node": url, "identity": str(person.key()), **({} if registry is None else {"registry": registry})}
    for name, value in values.items():
        profiles.store(person.config, "default", name, value)
    return person
