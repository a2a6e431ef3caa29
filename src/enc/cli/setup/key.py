"""`enc key`: identities, each in a private key file."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.common import passphrase
from enc.cli.common.command import PROFILE, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import fields
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.client import Identity

app = typer.Typer(name="key", help="Create, show and import your signing keys.", no_args_is_help=True)

KEY_SIZE = 1024
"""Maximum size of a file with 64 hex digits and white space."""

KeyFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="The key file. Default: a file with the name of --name in your data directory."
    ),
]
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the key file if no path is given.")]
Seal = Annotated[
    bool,
    typer.Option("--passphrase", help="Encrypt the file with a passphrase: typed, or from ENC_PASSPHRASE."),
]


@command(app, "enc key new", "enc key new ./work.key --passphrase", flags=PROFILE)
def new(ctx: CommandContext, file: KeyFile = None, name: Name = "default", seal: Seal = False) -> None:
    """Create an identity. The profile uses it from now on if it had none.

    If ENC_PASSPHRASE is set, the file is encrypted with it.
    """
    from enc.client import Identity

    _save(ctx, Identity.new(), file, name, seal)


@command(app, "enc key show", flags=("identity", *PROFILE))
def show(ctx: CommandContext) -> None:
    """Print your public key: the identity that others grant rights to and look up."""
    identity, path = ctx.identity(), ctx.settings.get("identity")
    ctx.emit({"public": identity.hex, "file": path}, identity.hex)


@command(
    app, "enc key import ./secret.hex --name work", "pass enc-key | enc key import -", name="import", flags=PROFILE
)
def import_(
    ctx: CommandContext,
    source: Annotated[
        Path | None,
        typer.Argument(metavar="SOURCE", help="File with the private key in hex; - reads stdin. Default: type it."),
    ] = None,
    file: KeyFile = None,
    name: Name = "default",
    seal: Seal = False,
) -> None:
    """Import a private key, 64 hex digits, into a key file.

    The key is never an argument: other users can see those.
    """
    from enc.client import Identity

    _save(ctx, Identity.from_secret(_secret(source)), file, name, seal)


def _secret(source: Path | None) -> str:
    if source is None:
        return passphrase.ask("Private key, 64 hex digits: ", "give the file with the private key, or - for stdin")
    if str(source) == "-":
        return sys.stdin.read(KEY_SIZE).strip()
    if re.fullmatch("[0-9A-Fa-f]{64}", str(source)):
        raise MisuseError(
            "give a file, not the key itself: other users can see arguments, so this key is no longer secret"
        )
    from enc.runtime import private_file

    raw = private_file.read(source, KEY_SIZE)
    if raw is None:
        raise MisuseError(f"{source}: there is no such file")
    return raw.decode(errors="replace").strip()


def _save(ctx: CommandContext, identity: "Identity", file: Path | None, name: str, seal: bool) -> None:
    settings = ctx.settings  # so that a faulty configuration is reported before a key is created
    path = _path(name) if file is None else file.absolute()
    is_sealed = seal or passphrase.given() is not None
    identity.save(path, passphrase.new() if is_sealed else None)
    is_used = "identity" not in (settings.stored or {})
    if is_used:
        settings.store("identity", str(path))
    wire = {"public": identity.hex, "file": str(path), "sealed": is_sealed}
    ctx.emit({**wire, "profile": settings.profile if is_used else None}, fields(**wire))
    if not is_used:
        ctx.note(f"profile {settings.profile} has another key; to use this one: enc config set identity {path}")


def _path(name: str) -> Path:
    from enc.client.verify import pins
    from enc.runtime import private_file

    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name):
        raise MisuseError(f"--name {name!r}: expected letters, digits, dots, _ and -")
    directory = pins.default_directory().parent / "keys"
    private_file.make_directory(directory)
    return directory / f"{name}.key"
