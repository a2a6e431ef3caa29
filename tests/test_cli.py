"""The installed `enc` command."""

import subprocess
import sys
from pathlib import Path

from enc import __version__
from enc.cli import app

ENC = Path(sys.executable).parent / "enc"


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ENC, *args], capture_output=True, text=True, check=False)


def test_version() -> None:
    assert run("--version").stdout == f"enc {__version__}\n"


def test_help_says_what_it_is() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "verifiable, sovereign, access-controlled logs" in done.stdout


def test_unknown_command_is_refused() -> None:
    done = run("nonsense")
    assert done.returncode == 2
    assert "nonsense" in done.stderr


def test_help_lists_the_command_groups() -> None:
    assert "node" in run("--help").stdout


def test_a_crash_does_not_print_the_values_of_variables() -> None:
    assert app.pretty_exceptions_show_locals is False
