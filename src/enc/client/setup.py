"""What both faces of a client are made from."""

import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from enc.client.courier import Courier
from enc.client.identity import Identity
from enc.client.link import Link
from enc.client.node_link import NodeLink
from enc.client.pins import FilePins, MemoryPins, Pins, default_directory
from enc.client.templates import template
from enc.client.writes import Id, as_bytes
from enc.core.encoding import compact_json
from enc.core.errors import MisuseError, PeerError
from enc.core.manifest import parse_manifest
from enc.core.signing import Alg

Manifest = Mapping[str, Any] | Path | str
"""A manifest; the path of a file that holds one; or the name of a template."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Setup:
    def __init__(
        self,
        identity: Identity | None,
        seq_pub: Id | None,
        pins: Pins | Path | str | Literal["default"] | None,
        patience: float,
        alg: Alg,
    ) -> None:
        if not isinstance(identity, Identity | None):
            raise MisuseError("identity: expected an Identity: Identity.load(path) or Identity.new()")
        self.identity = identity or Identity.new()
        self.patience = patience
        self._process = os.getpid()
        self._pins, self._alg = open_pins(pins), alg
        known = None if seq_pub is None else as_bytes(seq_pub, "seq_pub")
        self.node = NodeLink(Courier(patience, time.monotonic), known)

    def check_process(self) -> None:
        """A connection that two processes share gives each the other's answers."""
        if self._process != os.getpid():
            raise MisuseError("this client was made by another process: make a new one after a fork")

    def link(self, enclave: bytes) -> Link:
        return Link(self.node, self.identity, enclave, self._pins, now_ms, self._alg)


def open_pins(pins: Pins | Path | str | None) -> Pins:
    if pins is None:
        return MemoryPins()
    if pins == "default":
        return FilePins(default_directory())
    return FilePins(Path(pins)) if isinstance(pins, Path | str) else pins


def manifest_content(manifest: Manifest, owner: Identity) -> str:
    """The content of the Manifest commit; what no node would take is refused here, with the path of the fault."""
    if isinstance(manifest, Path):
        try:
            content = manifest.read_text()
        except (OSError, UnicodeDecodeError) as e:
            raise MisuseError(f"manifest {manifest}: {getattr(e, 'strerror', None) or e}") from None
    else:
        content = compact_json(_from_template(manifest, owner) if isinstance(manifest, str) else manifest)
    try:
        parse_manifest(content)
    except PeerError as e:
        raise MisuseError(f"manifest: {e.message}") from None
    return content


def _from_template(name: str, owner: Identity) -> dict[str, Any]:
    """A template with a random word in it: an enclave's id is its manifest's hash, and each call founds a new one."""
    manifest = template(name, owner.public)
    return {**manifest, "meta": {**manifest.get("meta", {}), "nonce": secrets.token_hex(8)}}
