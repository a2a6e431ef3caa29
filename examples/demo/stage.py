"""The demo's environment: a folder with a home for each person, `enc` commands that are shown as they run, and
background processes."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from enc.cli.up.process import end_with_parent

ENC = Path(sys.executable).with_name("enc")
PATIENCE_S = 900.0
"""Time limit of a command. Spark's takes the longest."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the demo; the last one is sent when its terminal is closed."""
PEOPLE = ("operator", "ada", "bob", "cleo")


class Failed(Exception):
    """A step of the demo did not work."""


class Stage:
    def __init__(self, folder: Path, console: Console) -> None:
        self.folder, self.console = folder, console
        self.known = dict[str, str]()
        """Results for later steps: ids, keys, addresses."""
        self._started = dict[str, subprocess.Popen[str]]()
        for person in PEOPLE:
            (folder / person).mkdir()
            (folder / f"{person}.sh").write_text(self._shell(person))

    # Output

    def heading(self, title: str) -> None:
        self.console.print()
        self.console.print(Rule(Text(title, style="bold"), align="left"))

    def explain(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=not self.console.is_terminal)

    def warn(self, text: str) -> None:
        self.console.print(Text(text, style="yellow"), soft_wrap=not self.console.is_terminal)

    def output(self, text: str) -> None:
        """Print a command's output; on a terminal, long lines are cut."""
        is_cut = self.console.is_terminal
        for line in text.splitlines():
            shown = Text(f"    {line}", style="dim")
            self.console.print(shown, no_wrap=is_cut, overflow="ellipsis" if is_cut else None, soft_wrap=not is_cut)

    def holds(self, what: str, is_true: object) -> None:
        """Print a fact, or raise Failed if it is not true."""
        if not is_true:
            raise Failed(f"this should hold: {what}")
        self.console.print(Text(f"  ✓ {what}", style="green"), soft_wrap=not self.console.is_terminal)

    def show(self, who: str, command: str, *, beside: bool = False) -> None:
        line = Text.assemble((f"  {who} $ ", "cyan"), (command + (" &" if beside else ""), "bold"))
        self.console.print(line, soft_wrap=True)

    # Commands

    def enc(self, who: str, *args: str, code: int = 0, quiet: bool = False) -> str:
        """Show and run an `enc` command as a person, and show its output unless `quiet`. Returns the output."""
        return self._run(who, ["enc", *args], code, quiet)

    def shell(self, who: str, *command: str, code: int = 0) -> str:
        """Show and run any other command. Returns its output."""
        return self._run(who, list(command), code, quiet=False)

    def ask(self, who: str, *args: str) -> Any:
        """Return the JSON output of an `enc` command; of several lines, the last."""
        return json.loads(self._run(who, ["enc", *args, "--json"], 0, quiet=True).splitlines()[-1])

    def _run(self, who: str, command: list[str], code: int, quiet: bool) -> str:
        """Return stdout and stderr, in order."""
        self.show(who, shlex.join(command))
        with ExitStack() as stack:
            with unbroken():
                process = stack.enter_context(
                    subprocess.Popen(  # noqa: S603
                        command,
                        cwd=self.folder,
                        env=self._environment(who),
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        text=True,
                    )
                )
                stack.callback(_end, process)
            try:
                said, _ = process.communicate(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                raise Failed(f"`{shlex.join(command)}` has not ended after {PATIENCE_S:.0f} seconds") from None
        if process.returncode != code:
            raise Failed(f"`{shlex.join(command)}` ended with code {process.returncode}: {said.strip()}")
        if not quiet:
            self.output(said)
        return said

    def _environment(self, who: str) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("ENC_", "XDG_"))}
        jars = {"ENC_JARS": os.environ["ENC_JARS"]} if "ENC_JARS" in os.environ else {}
        path = f"{ENC.parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**plain, **jars, "PATH": path, "HOME": str(self.folder / who), "COLUMNS": "110", "NO_COLOR": "1"}

    def _shell(self, person: str) -> str:
        """Return a script that makes your shell that person's."""
        lines = [
            f"export HOME={shlex.quote(str(self.folder / person))}",
            f'export PATH={shlex.quote(str(ENC.parent))}:"$PATH"',
            'unset $(env | sed -n "s/^\\(\\(ENC\\|XDG\\)_[A-Za-z_]*\\)=.*/\\1/p")',
            f"cd {shlex.quote(str(self.folder))}",
            f"PS1='{person} $ '",
        ]
        return "\n".join([f"# To be {person}: . {self.folder / person}.sh", *lines, ""])

    # Processes

    def start(self, who: str, name: str, *args: str) -> dict[str, Any]:
        """Start an `enc` command in the background as `name`, with a log of its stderr. Returns its first line."""
        process = self.start_mute(who, name, *args, stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            return json.loads(process.stdout.readline())
        except ValueError:
            raise Failed(f"the {name} did not start: {self._last_words(name)}") from None

    def start_mute(self, who: str, name: str, *args: str, stdout: int | None = None) -> subprocess.Popen[str]:
        """Start a background command that prints nothing when it is ready."""
        self.show(who, shlex.join(["enc", *args]), beside=True)
        with (self.folder / f"{name}.log").open("ab") as log, unbroken():
            self._started[name] = subprocess.Popen(  # noqa: S603
                ["enc", *args],  # noqa: S607
                cwd=self.folder,
                env=self._environment(who),
                stdin=subprocess.DEVNULL,
                stdout=log if stdout is None else stdout,
                stderr=log,
                text=True,
                start_new_session=True,
                preexec_fn=end_with_parent(),
            )
        return self._started[name]

    def _last_words(self, name: str) -> str:
        """Return the last lines of `enc` in a log, without Spark's; if there are none, the last lines."""
        lines = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
        return " ".join([line for line in lines if line.startswith("enc")][-2:] or lines[-5:])

    def stop(self, name: str) -> None:
        process = self._started.pop(name)
        process.terminate()
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(40)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def stop_all(self) -> None:
        """Stop all, the last one first, even if stopping one is interrupted."""
        with ExitStack() as stack:
            for name in list(self._started):
                stack.callback(self.stop, name)

    def check_alive(self) -> None:
        for name, process in self._started.items():
            if process.poll() is not None:
                raise Failed(f"the {name} has ended with code {process.returncode}: {self._last_words(name)}")


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


@contextmanager
def unbroken() -> Iterator[None]:
    """Delay signals until the block ends: an interrupted start would leave a process that is never stopped."""
    came = list[int]()
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])
