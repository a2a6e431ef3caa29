"""Exit codes, and the one line on stderr of a command that fails."""

import os
import re
import sqlite3
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from enc.core.errors import EncError, MisuseError

DONE = 0
FAILED = 1
"""A check found damage, or the work could not be done."""
MISUSE = 2
"""Wrong use, or a wrong setting: the same command would fail again."""
HELP = (
    "Exit codes: 0 done; 1 the check found damage, or the work failed; 2 wrong use or configuration. "
    "Ended by a signal: 128 plus its number; 130 for Ctrl-C."
)

_SECRET = re.compile("[0-9A-Fa-f]{64,}")
"""Matches keys, signatures and sessions in a text."""


@contextmanager
def exit_on_error(program: str) -> Iterator[None]:
    """Report expected errors as one line on stderr and end the program; others are left to `report_unexpected`."""
    try:
        yield
    except (EncError, OSError, sqlite3.Error) as e:
        message = e.message if isinstance(e, EncError) else str(e)
        typer.echo(f"{program}: {one_line(message)}", err=True)
        raise typer.Exit(MISUSE if isinstance(e, MisuseError) else FAILED) from None


def report_unexpected(error: Exception) -> int:
    """Report an unexpected error without the values of variables; with ENC_DEBUG=1, with its traceback."""
    if os.environ.get("ENC_DEBUG") == "1":
        sys.stderr.write(_clean("".join(traceback.format_exception(error))))
    name, message = type(error).__name__, str(error)
    typer.echo(f"error: {one_line(_clean(f'{name}: {message}' if message else name))}", err=True)
    return FAILED


def _clean(text: str) -> str:
    return _SECRET.sub("[redacted]", text)


def one_line(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode()
