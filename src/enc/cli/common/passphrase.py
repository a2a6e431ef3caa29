"""Passphrases and private keys: read from a terminal or the environment, never from an argument."""

import getpass
import os
import sys
from pathlib import Path

from enc.core.errors import MisuseError

VARIABLE = "ENC_PASSPHRASE"


def for_key_file(path: Path | str) -> str:
    """Return the passphrase that opens a key file."""
    return given() or ask(f"Passphrase of {path}: ", f"{path}: needs a passphrase: set {VARIABLE}, or use a terminal")


def given() -> str | None:
    found = os.environ.get(VARIABLE)
    if found == "":
        raise MisuseError(f"{VARIABLE} is empty: set a passphrase, or unset the variable to use none")
    return found


def new() -> str:
    """Return the passphrase for a new key file; on a terminal it is typed twice."""
    found = given()
    if found is not None:
        return found
    found = ask("New passphrase: ", f"to seal a key with a passphrase, set {VARIABLE} or use a terminal")
    if getpass.getpass("Repeat the passphrase: ") != found:
        raise MisuseError("the two passphrases differ")
    return found


def ask(prompt: str, otherwise: str) -> str:
    """Read a line from the terminal without echo. Raises MisuseError if there is no terminal."""
    if not (sys.stdin.isatty() or sys.stderr.isatty()):
        raise MisuseError(otherwise)
    return getpass.getpass(prompt)
