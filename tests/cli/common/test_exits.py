"""Unforeseen errors: a command prints one line, a traceback only on request, and no secrets."""

import os
import subprocess
import sys

from enc.cli import app
from enc.cli.common.exits import DONE, FAILED, HELP, MISUSE

SECRET = "7a" * 32

# A command with an unforeseen error, whose variables and message contain secrets.
PROGRAM = """
from enc.cli import main
from enc.node.ops import key_file

def load(path):
    password = "hunter" + "2"
    raise {error}

key_file.public = load
main()
"""


def run(error: str, **environment: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ENC_")}
    command = [sys.executable, "-c", PROGRAM.format(error=error), "node", "key"]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env={**plain, **environment}
    )


def test_an_unexpected_error_is_one_line_with_its_type() -> None:
    done = run("KeyError('no such thing')")
    assert (done.returncode, done.stdout, done.stderr) == (FAILED, "", "error: KeyError: 'no such thing'\n")


def test_an_error_without_a_message() -> None:
    assert run("RuntimeError()").stderr == "error: RuntimeError\n"


def test_a_message_of_many_lines_is_one_line() -> None:
    assert run(r"RuntimeError('one\ntwo\x1b[0m')").stderr == "error: RuntimeError: one\\ntwo\\x1b[0m\n"


def test_a_traceback_is_shown_where_it_is_asked_for() -> None:
    done = run("RuntimeError('why')", ENC_DEBUG="1")
    assert (done.returncode, done.stdout) == (FAILED, "")
    first, *middle, last = done.stderr.splitlines()
    assert first == "Traceback (most recent call last):"
    assert any("in load" in line for line in middle)
    assert last == "error: RuntimeError: why"
    assert "Traceback" not in run("RuntimeError('why')", ENC_DEBUG="0").stderr


def test_neither_tells_a_secret() -> None:
    for environment in ({}, {"ENC_DEBUG": "1"}):
        shown = run(f"RuntimeError('the key ' + '7a' * 32 + {SECRET.upper()!r})", **environment).stderr
        assert SECRET not in shown.lower()
        assert "hunter2" not in shown
        assert shown.endswith("error: RuntimeError: the key [redacted]\n")


def test_the_library_prints_no_tracebacks_of_its_own() -> None:
    assert app.pretty_exceptions_enable is False


def test_the_help_says_what_the_codes_mean() -> None:
    for code, meaning in (
        (DONE, "done"),
        (FAILED, "the check found damage, or the work failed"),
        (MISUSE, "wrong use"),
    ):
        assert f" {code} {meaning}" in HELP
