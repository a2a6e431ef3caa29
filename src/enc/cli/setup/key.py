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

app = typer.Typer(name="key", help="Create, show, seal, export and import your signing keys.", no_args_is_help=True)

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
    bool | None,
    typer.Option(
        "--passphrase/--no-passphrase",
        help="Encrypt the file with a passphrase: typed, or from ENC_PASSPHRASE. Default: ask on a terminal.",
        show_default=False,
    ),
]
Existing = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="The key file. Default: the one in use.", show_default=False)
]


@command(app, "enc key new", "enc key new ./work.key --passphrase", flags=PROFILE)
def new(ctx: CommandContext, file: KeyFile = None, name: Name = "default", seal: Seal = None) -> None:
    """Create an identity. The profile uses it from now on if it had none.

    If ENC_PASSPHRASE is set, the file is encrypted with it. Otherwise `enc` asks for a passphrase
    on a terminal; an empty one stores the key unsealed.
    """
    from enc.client import Identity

    _save(ctx, Identity.new(), file, name, seal)


@command(app, "enc key show", flags=("identity", *PROFILE))
def show(ctx: CommandContext) -> None:
    """Print your public key: the identity that others grant rights to and look up. Asks for no passphrase."""
    public, path = ctx.public_key().hex(), ctx.settings.get("identity")
    ctx.emit({"public": public, "file": path}, public)


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
    seal: Seal = None,
) -> None:
    """Import a private key, 64 hex digits, into a key file.

    The key is never an argument: other users can see those.
    """
    from enc.client import Identity

    _save(ctx, Identity.from_secret(_secret(source)), file, name, seal)


@command(app, "enc key seal", "enc key seal ./work.key", flags=("identity", *PROFILE))
def seal(ctx: CommandContext, file: Existing = None) -> None:
    """Encrypt a key file with a passphrase: typed, or from ENC_PASSPHRASE."""
    from enc.client import Identity, PassphraseNeeded

    path = _existing(ctx, file)
    try:
        identity = Identity.load(path)
    except PassphraseNeeded:
        raise MisuseError(f"{path}: is sealed already; `enc key passphrase` changes its passphrase") from None
    identity.save(path, passphrase.new(), overwrite=True)
    _report(ctx, identity, path, True)


@command(
    app,
    "enc key passphrase",
    "enc key passphrase ./work.key --remove",
    name="passphrase",
    flags=("identity", *PROFILE),
)
def change_passphrase(
    ctx: CommandContext,
    file: Existing = None,
    remove: Annotated[bool, typer.Option("--remove", help="Store the key unsealed.")] = False,
) -> None:
    """Change the passphrase of a key file: typed, or from ENC_PASSPHRASE to ENC_NEW_PASSPHRASE.

    Copies of the file keep the old passphrase.
    """
    path = _existing(ctx, file)
    identity = passphrase.load_identity(path)
    identity.save(path, None if remove else passphrase.new(passphrase.NEW_VARIABLE), overwrite=True)
    _report(ctx, identity, path, not remove)


@command(
    app,
    "enc key export ./secret.hex",
    "enc key export - | pass insert -m enc-key",
    flags=("identity", *PROFILE),
)
def export(
    ctx: CommandContext,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="File to create; - writes to stdout.")],
    file: Existing = None,
) -> None:
    """Write the private key as 64 hex digits, for `enc key import` on another device.

    Anyone who reads them can sign as you and open what was sealed to you.
    """
    from enc.runtime import private_file

    path = _existing(ctx, file)
    identity = passphrase.load_identity(path)
    secret = identity.private_key().secret.hex()
    if str(target) == "-":
        ctx.emit({"public": identity.hex, "secret": secret}, secret)
        return
    private_file.write(target, f"{secret}\n".encode(), overwrite=False)
    ctx.emit({"public": identity.hex, "file": str(target)}, fields(public=identity.hex, file=str(target)))


@command(
    app,
    "enc key signer --socket ./enc.sock",
    "enc key signer ./work.key --socket ./enc.sock",
    flags=("identity", *PROFILE),
)
def signer(
    ctx: CommandContext,
    socket: Annotated[Path, typer.Option("--socket", metavar="PATH", help="The Unix socket to create.")],
    file: Existing = None,
) -> None:
    """Hold your private key and sign for your programs behind a Unix socket, until a signal.

    Programs use the socket in place of the key file: `enc config set identity PATH`. Only your own user may connect.
    """
    from enc.runtime.keys import signer_server
    from enc.runtime.logs import setup_logs

    setup_logs("info", "console")
    path = _existing(ctx, file)
    if path.is_socket():
        raise MisuseError(f"{path}: is the socket of a signer; give the key file")
    signer_server.run(socket, None, lambda: passphrase.load_identity(path).private_key())


def _existing(ctx: CommandContext, file: Path | None) -> Path:
    return Path(ctx.settings.get("identity")) if file is None else file


def _report(ctx: CommandContext, identity: "Identity", path: Path, is_sealed: bool) -> None:
    wire = {"public": identity.hex, "file": str(path), "sealed": is_sealed}
    ctx.emit(wire, fields(**wire))


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


def _save(ctx: CommandContext, identity: "Identity", file: Path | None, name: str, seal: bool | None) -> None:
    settings = ctx.settings  # so that a faulty configuration is reported before a key is created
    path = _path(name) if file is None else file.absolute()
    chosen = _passphrase(ctx, seal)
    identity.save(path, chosen)
    is_sealed = chosen is not None
    is_used = "identity" not in (settings.stored or {})
    if is_used:
        settings.store("identity", str(path))
    wire = {"public": identity.hex, "file": str(path), "sealed": is_sealed}
    ctx.emit({**wire, "profile": settings.profile if is_used else None}, fields(**wire))
    if not is_used:
        ctx.note(f"profile {settings.profile} has another key; to use this one: enc config set identity {path}")


def _passphrase(ctx: CommandContext, seal: bool | None) -> str | None:
    if seal:
        return passphrase.new()
    if seal is False:
        return None
    return passphrase.given() if ctx.as_json else passphrase.optional()


def _path(name: str) -> Path:
    from enc.client.verify import pins
    from enc.runtime import private_file

    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name):
        raise MisuseError(f"--name {name!r}: expected letters, digits, dots, _ and -")
    directory = pins.default_directory().parent / "keys"
    private_file.make_directory(directory)
    return directory / f"{name}.key"
