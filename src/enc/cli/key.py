"""`enc key`: identities, each in a key file that only its owner can read."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli import passphrase
from enc.cli.command import PROFILE, command
from enc.cli.output import fields
from enc.cli.terminal import Terminal
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.client import Identity

app = typer.Typer(name="key", help="Make, show and import the keys that you sign with.", no_args_is_help=True)

KEY_SIZE = 1024
"""Bytes of a file that holds 64 hex digits, with room for white space."""

KeyFile = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="Where the key is kept. Default: one with the name, among your data."),
]
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the key file where no path is given.")]
Seal = Annotated[
    bool,
    typer.Option("--passphrase", help="Seal the file with a passphrase: asked for, or that of ENC_PASSPHRASE."),
]


@command(app, "enc key new", "enc key new ./work.key --passphrase", flags=PROFILE)
def new(at: Terminal, file: KeyFile = None, name: Name = "default", seal: Seal = False) -> None:
    """Make a new identity. The profile uses it from now on if it had none.

    Where ENC_PASSPHRASE is set, the file is sealed with it.
    """
    from enc.client import Identity

    _keep(at, Identity.new(), file, name, seal)


@command(app, "enc key show", flags=("identity", *PROFILE))
def show(at: Terminal) -> None:
    """Print your public key: the name that others grant, move and find you by."""
    identity, path = at.identity(), at.settings.get("identity")
    at.say({"public": identity.hex, "file": path}, identity.hex)


@command(
    app, "enc key import ./secret.hex --name work", "pass enc-key | enc key import -", name="import", flags=PROFILE
)
def import_(
    at: Terminal,
    source: Annotated[
        Path | None,
        typer.Argument(metavar="SOURCE", help="File with the private key in hex, - for stdin. Default: it is asked."),
    ] = None,
    file: KeyFile = None,
    name: Name = "default",
    seal: Seal = False,
) -> None:
    """Keep a private key from elsewhere, 64 hex digits, in a key file. It is never an argument: others see those."""
    from enc.client import Identity

    _keep(at, Identity.from_secret(_secret(source)), file, name, seal)


def _secret(source: Path | None) -> str:
    if source is None:
        return passphrase.ask("Private key, 64 hex digits: ", "give the file with the private key, or - for stdin")
    if str(source) == "-":
        return sys.stdin.read(KEY_SIZE).strip()
    if re.fullmatch("[0-9A-Fa-f]{64}", str(source)):
        raise MisuseError("give a file, and not the key itself: others can see arguments, so take a new key")
    from enc.runtime import private_file

    raw = private_file.read(source, KEY_SIZE)
    if raw is None:
        raise MisuseError(f"{source}: there is no such file")
    return raw.decode(errors="replace").strip()


def _keep(at: Terminal, identity: "Identity", file: Path | None, name: str, seal: bool) -> None:
    settings = at.settings  # a faulty configuration is told before a key is made
    path = _path(name) if file is None else file.absolute()
    is_sealed = seal or passphrase.given() is not None
    identity.save(path, passphrase.new() if is_sealed else None)
    is_used = "identity" not in (settings.stored or {})
    if is_used:
        settings.store("identity", str(path))
    wire = {"public": identity.hex, "file": str(path), "sealed": is_sealed}
    at.say({**wire, "profile": settings.profile if is_used else None}, fields(**wire))
    if not is_used:
        at.note(f"profile {settings.profile} has another key; to use this one: enc config set identity {path}")


def _path(name: str) -> Path:
    from enc.client import pins
    from enc.runtime import private_file

    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name):
        raise MisuseError(f"--name {name!r}: expected letters, digits, dots, _ and -")
    directory = pins.default_directory().parent / "keys"
    private_file.make_directory(directory)
    return directory / f"{name}.key"
