"""The node's signer: its key file, or the process that holds its key."""

import os
from pathlib import Path

import structlog

from enc.core.errors import MisuseError
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import PrivateKey
from enc.node.config import NodeConfig
from enc.node.ops import key_file
from enc.node.ops.key_file import AskPassphrase
from enc.runtime.keys.socket_signer import SocketSigner

_log = structlog.get_logger("enc.node.signer")


def open_signer(config: NodeConfig, ask: AskPassphrase | None = None) -> Signer:
    """Return what signs for the node; create a key file if the node has neither one nor a store.

    `ask`: asks a person for the passphrase if the settings name no place that has it.
    """
    if config.key.signer:
        return _socket_signer(config)
    if config.store_path.exists() and not os.path.lexists(config.key_path):
        raise MisuseError(f"key file {config.key_path}: is missing, but {config.store_path} exists and needs its key")
    return key_file.load_or_create(config.key_path, passphrase_of(config, ask))


def load_key(config: NodeConfig, ask: AskPassphrase | None = None) -> PrivateKey:
    """Return the key in the node's key file; raise MisuseError if there is none."""
    return key_file.load(config.key_path, passphrase_of(config, ask))


def public_key(config: NodeConfig) -> bytes:
    """Return the node's public key, without a passphrase."""
    if not config.key.signer:
        return key_file.public(config.key_path)
    signer = _socket_signer(config)
    signer.close()
    return signer.public


def passphrase_of(config: NodeConfig, ask: AskPassphrase | None = None) -> AskPassphrase:
    """Return how a sealed key file gets its passphrase: from the place that is set, or by `ask`."""

    def read(path: Path) -> str:
        found = config.key.passphrase().read()
        if found is not None:
            return found
        if ask is None:
            raise MisuseError(f"key file {path}: is sealed; {HINT}")
        return ask(path)

    return read


HINT = (
    "give its passphrase with --passphrase-fd N or --passphrase-command CMD, as systemd's credential node-passphrase, "
    "or in ENC_PASSPHRASE"
)


def _socket_signer(config: NodeConfig) -> SocketSigner:
    if config.key_file:
        raise MisuseError("key.signer and key_file: set one of them: either the signer holds the key, or the file")
    return SocketSigner(config.key.signer, timeout_s=config.key.signer_timeout_s, report=_report)


def _report(failure: str | None) -> None:
    if failure is None:
        _log.info("signer_available")
    else:
        _log.error("signer_unavailable", reason=failure)
