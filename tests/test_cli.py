"""The installed `enc` command."""

import subprocess
import sys
from pathlib import Path

from enc import __version__

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
