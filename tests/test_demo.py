"""`make demo`: all of it as a user runs it, and the effects of a step that fails."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.processes import descendants, is_there, until, without_java

DEMO = Path(__file__).parents[1] / "examples/demo.py"
PATIENCE_S = 600
TITLES = (
    "A registry and two nodes",
    "Three people",
    "Personal stores and mailboxes",
    "Direct messages, end-to-end encrypted",
    "A group, end-to-end encrypted",
    "Write, edit, delete",
    "A proof, checked offline",
    "A node that lies is caught",
    "An enclave moves to the other node",
    "Everything through Spark",
    "The tables, over HTTP",
    "The page",
)


PATHS = f"{DEMO.parent}:{os.environ.get('PYTHONPATH', '')}"


@contextmanager
def playing(*command: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run the demo, or a program that runs a part of it, without a terminal."""
    with subprocess.Popen(
        [sys.executable, *(command or [str(DEMO)])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": PATHS, **environment},
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def run(*command: str, **environment: str) -> tuple[int, str]:
    """Return its exit code and its output."""
    with playing(*command, **environment) as process:
        out, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out


def folder_of(said: str) -> Path:
    (found,) = re.findall(r"Everything\s+happens\s+in\s+(\S+)\.$", said, re.MULTILINE)
    return Path(found)


def test_it_runs_to_its_end_and_every_step_holds(java: None) -> None:
    code, said = run()
    assert code == 0, said[-4000:]
    for number, title in enumerate(TITLES, 1):
        assert f"{number} of {len(TITLES)}: {title}" in said
    assert "Every step succeeded." in said
    assert "\x1b" not in said
    assert not folder_of(said).exists()


def test_it_can_end_before_the_steps_that_need_java(tmp_path: Path) -> None:
    code, said = run(str(DEMO), "--steps", "1", **without_java(tmp_path / "bin"))
    assert code == 0, said[-4000:]
    assert f"1 of 1: {TITLES[0]}" in said
    assert "Every step succeeded." in said
    assert "Java" not in said


def test_it_keeps_nothing_that_was_not_completed() -> None:
    code, said = run(str(DEMO), "--steps", "1", "--keep")
    assert code == 2
    assert "--keep: needs all steps" in said


def acted(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        env={**os.environ, "PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


STUBBORN = """
import subprocess, sys
from pathlib import Path
from demo.stage import Stage
from rich.console import Console
stage = Stage(Path(sys.argv[1]), Console())
each = "trap 'kill -INT $PPID' TERM; echo ready; while :; do sleep 0.1; done"
for name in "ab":
    stage._started[name] = subprocess.Popen(
        ["sh", "-c", each], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    stage._started[name].stdout.readline()
started = list(stage._started.values())
try:
    stage.stop_all()
except KeyboardInterrupt:
    print(*(process.poll() for process in started))
finally:
    for process in started:
        process.kill()
"""


def test_who_presses_ctrl_c_again_leaves_nothing_running(tmp_path: Path) -> None:
    """The stop of each process is interrupted, and both processes end."""
    done = acted(STUBBORN, tmp_path)
    assert done.stdout.split() == ["-9", "-9"], done.stderr


HASTY = """
import os, signal, subprocess, sys
from pathlib import Path
from demo import stage
from rich.console import Console
started = []
class Hasty(subprocess.Popen):
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        started.append(self)
        os.kill(os.getpid(), signal.SIGTERM)
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGTERM, interrupt)
stage.subprocess.Popen = Hasty
scene = stage.Stage(Path(sys.argv[1]), Console())
for act in (lambda: scene.shell("ada", "cat", "/dev/zero"), lambda: scene.start_mute("ada", "name", "key", "show")):
    try:
        act()
    except KeyboardInterrupt:
        scene.stop_all()
print(*(process.returncode for process in started))
"""


def test_who_ends_it_while_a_process_starts_leaves_nothing_running(tmp_path: Path) -> None:
    done = acted(HASTY, tmp_path)
    command, beside = done.stdout.split()[-2:]
    assert command == "-9", done.stderr
    assert beside != "None", done.stderr


CUT = f"""
import importlib.util, signal, sys
from demo import places, tables
spec = importlib.util.spec_from_file_location("cut", {str(DEMO)!r})
cut = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cut)
def processes(stage):
    "Two processes"
    for name in ("north", "south"):
        places._start(stage, name, places.free_port())
def waiting(stage):
    "A wait"
    while True:
        signal.pause()
def names(stage):
    "A registry that is not there"
    stage.known["registry"] = "http://127.0.0.1:1#" + "00" * 32 + ":" + "00" * 32
"""


def cut_to(*steps: str) -> tuple[str, str]:
    """Return the command that runs the demo with these steps."""
    return "-c", f"{CUT}\ncut.STEPS = ({', '.join(steps)})\nsys.exit(cut.main())"


def test_a_step_that_fails_is_named_and_the_exit_code_is_1(tmp_path: Path) -> None:
    """Here Java is missing; the step states how to install it."""
    code, said = run(*cut_to("names", "tables.pipeline", "tables.tables"), **without_java(tmp_path / "bin"))
    assert code == 1, said[-4000:]
    assert f"This step failed: 2 of 3: {TITLES[9]}" in said
    assert "openjdk-17-jre-headless" in said.partition("This step failed")[2]
    assert TITLES[10] not in said
    assert "will fail here: Spark needs Java" in said.partition("1 of 3")[0]
    assert not folder_of(said).exists()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL])
def test_nothing_goes_on_when_its_terminal_is_closed_or_it_is_told_to_end_or_killed(number: signal.Signals) -> None:
    with playing(*cut_to("processes", "waiting")) as process:
        said = "".join(iter(lambda: _line_before(process, "A wait"), ""))
        children = descendants(process.pid)
        assert len(children) >= 2, said
        process.send_signal(number)
        process.communicate(timeout=PATIENCE_S)
        until(lambda: not [pid for pid in children if is_there(pid)])
    folder = folder_of(said)
    if number == signal.SIGKILL:  # a killed demo cannot remove it
        shutil.rmtree(folder)
    else:
        assert process.returncode == 130
    assert not folder.exists()


def _line_before(process: subprocess.Popen[str], title: str) -> str:
    """Return the next line; an empty one if it contains the title."""
    assert process.stdout is not None
    line = process.stdout.readline()
    return "" if title in line else line
