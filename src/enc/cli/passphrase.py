"""Passphrases and private keys: asked for on a terminal or taken from the environment, never from an argument."""

import getpass
import os
import sys
from pathlib import Path

from enc.core.errors import MisuseError

VARIABLE = "ENC_PASSPHRASE"


def of(path: Path | str) -> str:
    """The passphrase that opens a key file."""
    return given() or ask(f"Passphrase of {path}: ", f"{path}: is sealed; set {VARIABLE}, or use a terminal")


def given() -> str | None:
    found = os.environ.get(VARIABLE)
    if found == "":
        raise MisuseError(f"{VARIABLE} is set and empty: a passphrase is not; unset it to do without one")
    return found


def new() -> str:
    """The passphrase of a key file to be written; on a terminal it is typed twice."""
    found = given()
    if found is not None:
        return found
    found = ask("New passphrase: ", f"set {VARIABLE}, or use a terminal, to seal a key with a passphrase")
    if getpass.getpass("The same again: ") != found:
        raise MisuseError("these are two different passphrases")
    return found


def ask(prompt: str, otherwise: str) -> str:
    """What a person types unseen; MisuseError where there is no terminal."""
    if not (sys.stdin.isatty() or sys.stderr.isatty()):
        raise MisuseError(otherwise)
    return getpass.getpass(prompt)
