"""`enc node key` and `enc node signer`: the node's private key, sealed or in a process of its own."""

from pathlib import Path
from typing import Annotated

import typer

from enc.cli.common import exits, passphrase
from enc.cli.ops import node
from enc.cli.ops.node import (
    NAME,
    ConfigFile,
    Data,
    LogFormatFlag,
    LogLevel,
    PassphraseCommand,
    PassphraseFd,
    ask_passphrase,
    epilog_with,
    load,
)
from enc.core.errors import MisuseError
from enc.node.config import NodeConfig

app = node.app

ACTIONS = ("show", "seal", "unseal")

Socket = Annotated[
    Path | None, typer.Option("--socket", metavar="PATH", help="Default: signer.sock in the data directory.")
]
User = Annotated[
    str | None, typer.Option("--user", metavar="USER", help="The node's user, by name or number. Default: your own.")
]


@app.command(
    epilog=epilog_with("Example: enc node key --data /var/lib/enc\n\nExample: enc node key seal --data /var/lib/enc")
)
def key(
    action: Annotated[str, typer.Argument(metavar="[show|seal|unseal]", help="What to do with the key.")] = "show",
    config: ConfigFile = None,
    data: Data = None,
    passphrase_fd: PassphraseFd = None,
    passphrase_command: PassphraseCommand = None,
) -> None:
    """Print the node's public key (seq_pub), or seal or unseal the file with its private key.

    The first `enc node run` creates the key, unsealed. A passphrase is typed, or comes from ENC_PASSPHRASE or from the
    place that the settings name. A running node does not need the file. Copies of it stay as they were.
    """
    with exits.exit_on_error(NAME):
        if action not in ACTIONS:
            raise MisuseError(f"{action}: expected one of {', '.join(ACTIONS)}")
        flags = {"key.passphrase_fd": passphrase_fd, "key.passphrase_command": passphrase_command}
        settings, _ = load(config, data, more=flags)
        if action != "show":
            _reseal(settings, is_sealed=action == "seal")
        from enc.node.ops.signer import public_key

        typer.echo(public_key(settings).hex())


@app.command(epilog=epilog_with("Example: enc node signer --data /var/lib/enc-key --socket /run/enc/signer.sock"))
def signer(
    config: ConfigFile = None,
    data: Data = None,
    socket: Socket = None,
    user: User = None,
    passphrase_fd: PassphraseFd = None,
    passphrase_command: PassphraseCommand = None,
    log_level: LogLevel = None,
    log_format: LogFormatFlag = None,
) -> None:
    """Hold the node's private key and sign for the node behind a Unix socket, until a signal.

    The node connects to it with the setting `key.signer`. The first line on stdout holds the socket's path and the
    public key. Only the one user may connect; systemd may pass the socket (socket activation).
    """
    from enc.node.ops.signer import load_key
    from enc.runtime.keys import signer_server
    from enc.runtime.logs import setup_logs

    with exits.exit_on_error(NAME):
        flags = {"key.passphrase_fd": passphrase_fd, "key.passphrase_command": passphrase_command}
        settings, _ = load(config, data, log_level=log_level, log_format=log_format, more=flags)
        setup_logs(settings.log_level, settings.log_format)
        path = settings.data_path / "signer.sock" if socket is None else socket
        signer_server.run(path, user, lambda: load_key(settings, ask_passphrase))


def _reseal(settings: NodeConfig, *, is_sealed: bool) -> None:
    """Write the key file again, sealed or not."""
    from enc.node.ops import key_file
    from enc.node.ops.signer import load_key

    if settings.key.signer:
        raise MisuseError("key.signer: is set; run this with the settings of the signer, which has the key file")
    path = settings.key_path
    if key_file.is_sealed(path) == is_sealed:
        raise MisuseError(f"key file {path}: is {'sealed already' if is_sealed else 'not sealed'}")
    chosen = (settings.key.passphrase().read() or passphrase.new()) if is_sealed else None
    key_file.save(path, load_key(settings, ask_passphrase), chosen)
