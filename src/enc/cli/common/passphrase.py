"""Passphrases and private keys: read from a terminal, the environment, or a place that it names;
never from an argument.
"""

import getpass
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.client import Identity

VARIABLE, NEW_VARIABLE = "ENC_PASSPHRASE", "ENC_NEW_PASSPHRASE"


def load_identity(path: Path | str) -> "Identity":
    """Return the identity in a key file, opened with its passphrase if it has one."""
    from enc.client import Identity, PassphraseNeeded

    try:
        return Identity.load(path)
    except PassphraseNeeded:
        return Identity.load(path, for_key_file(path))


def for_key_file(path: Path | str) -> str:
    """Return the passphrase that opens a key file."""
    return given() or ask(
        f"Passphrase of {path}: ",
        f"{path}: needs a passphrase: set {VARIABLE} or {VARIABLE}_COMMAND, or use a terminal",
    )


def given(variable: str = VARIABLE) -> str | None:
    """Return the passphrase in the variable, or from the file descriptor, command or credential that
    the same variable with the suffix _FD, _COMMAND or _CREDENTIAL names.
    """
    from enc.runtime.keys.passphrase_source import from_environment

    return from_environment(variable)


def new(variable: str = VARIABLE) -> str:
    """Return the passphrase for a key file that is written; on a terminal it is typed twice."""
    found = given(variable)
    if found is None:
        found = ask("New passphrase: ", f"to seal a key with a passphrase, set {variable} or use a terminal")
        _repeat(found)
    return found


def optional() -> str | None:
    """Return the passphrase for a new key file, or None for an unsealed one.

    The person at a terminal may type an empty passphrase; without a terminal, only the variable counts.
    """
    found = given()
    if found is None and is_interactive():
        found = getpass.getpass("New passphrase for the key (empty: store it unsealed): ") or None
        if found is not None:
            _repeat(found)
    return found


def share(passphrase: str | None) -> None:
    """Put a passphrase into the environment of the processes that this one starts."""
    if passphrase is not None:
        for suffix in ("_FD", "_COMMAND", "_CREDENTIAL"):
            os.environ.pop(VARIABLE + suffix, None)
        os.environ[VARIABLE] = passphrase


def _repeat(passphrase: str) -> None:
    if getpass.getpass("Repeat the passphrase: ") != passphrase:
        raise MisuseError("the two passphrases differ")


def ask(prompt: str, otherwise: str) -> str:
    """Read a line from the terminal without echo. Raises MisuseError if there is no terminal."""
    if not (is_interactive() or sys.stderr.isatty()):
        raise MisuseError(otherwise)
    return getpass.getpass(prompt)


def is_interactive() -> bool:
    """Return whether a person can be asked something that a script would not expect."""
    return sys.stdin.isatty()
