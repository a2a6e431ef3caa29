"""`make demo`: the whole of it as a user runs it, and what a step that fails comes to."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.cli.test_first_errors import without_java
from tests.cli.test_up import descendants, is_there

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


def run(*flags: str, **environment: str) -> tuple[int, str]:
    """Without a terminal; its exit code and all that it said."""
    with subprocess.Popen(
        [sys.executable, DEMO, *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **environment},
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, _ = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, out


def folder_of(said: str) -> Path:
    (found,) = re.findall(r"All of it happens in (\S+)\.$", said, re.MULTILINE)
    return Path(found)


def test_it_runs_to_its_end_and_every_step_holds(java: None) -> None:
    code, said = run()
    assert code == 0, said[-4000:]
    for number, title in enumerate(TITLES, 1):
        assert f"{number} of {len(TITLES)}: {title}" in said
    assert "Every step held." in said
    assert "\x1b" not in said
    assert not folder_of(said).exists()


def test_nothing_is_left_running_where_its_window_is_closed() -> None:
    with subprocess.Popen([sys.executable, DEMO], stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if f"2 of {len(TITLES)}" in line)
        children = descendants(process.pid)
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert len(children) >= 2
    assert not [pid for pid in children if is_there(pid)]


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
    """Each process has its stop interrupted, and both are gone."""
    done = subprocess.run(
        [sys.executable, "-c", STUBBORN, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{DEMO.parent}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout.split() == ["-9", "-9"], done.stderr


def test_a_step_that_fails_is_named_and_the_exit_code_is_1(tmp_path: Path) -> None:
    """Here for want of Java, which the step says how to get."""
    code, said = run(**without_java(tmp_path / "bin"))
    assert code == 1, said[-4000:]
    assert "This step failed: 10 of 12: Everything through Spark" in said
    assert "openjdk-17-jre-headless" in said
    assert TITLES[10] not in said
    assert not folder_of(said).exists()
