"""Runs `enc node` in this process."""

import re
from pathlib import Path

from typer.testing import CliRunner, Result

from enc.cli import app


def enc(*args: str | Path) -> Result:
    return CliRunner().invoke(app, ["node", *map(str, args)], catch_exceptions=False)


def failure(result: Result, code: int = 2) -> str:
    """Return the one line on stderr of a command that failed with this code."""
    assert (result.exit_code, result.stdout) == (code, "")
    assert re.fullmatch(r"enc node: [^\n]+\n", result.stderr), result.stderr
    return result.stderr.removeprefix("enc node: ").rstrip("\n")
