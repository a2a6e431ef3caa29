"""The settings of a witness: from a TOML file, or from flags, which take precedence.

enclaves = ["ID@URL", "ID@URL#KEY", "ID"]      # KEY: the sequencer's, if known; without URL, ask the registry
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from enc.client.enclave.writes import as_bytes
from enc.client.registry.registry_client import Registry, parse_registry
from enc.client.wire.transport import base_url
from enc.core.errors import MisuseError
from enc.runtime.log_options import Level, LogFormat
from enc.runtime.serving.limits import ServingLimits
from enc.runtime.settings import SettingsReader

MAX_ENCLAVES, MAX_NODES = 1000, 64
MAX_FILE = 1 << 20
"""Bytes of a configuration file."""


class FollowedEnclave(Struct, frozen=True):
    """An enclave to follow. `node`: its URL, unless a registry has it; `sequencer`: initially
    trusted.
    """

    enclave: bytes
    node: str | None = None
    sequencer: bytes | None = None


class WitnessConfig(Struct, frozen=True, kw_only=True):
    """All settings, with defaults and bounds."""

    enclaves: Annotated[tuple[str, ...], Meta(max_length=MAX_ENCLAVES)] = ()
    key: str = ""
    """Path of the key file; by default `witness.key` in the data directory, created at first
    start.
    """
    data: str = "./witness-data"
    listen: str = "127.0.0.1:7800"
    hosts: tuple[str, ...] = ()
    """Names under which clients reach the witness. If set, or on loopback, other values of Host get
    421.
    """
    connections: Annotated[int, Meta(ge=1, le=1_048_576)] = 512
    connections_per_address: Annotated[int, Meta(ge=0, le=1_048_576)] = 128
    """Most open connections of one address; 0: no limit, as behind a proxy."""
    request_timeout_s: Annotated[float, Meta(ge=0.1, le=3600)] = 30.0
    """Seconds to send a whole request."""
    registry: str = ""
    """URL#ID:KEY, as for clients."""
    nodes: Annotated[tuple[str, ...], Meta(max_length=MAX_NODES)] = ()
    """Further nodes to which an enclave may move."""
    interval_s: Annotated[float, Meta(ge=0.05, le=86_400)] = 10.0
    """Seconds between two polls of an enclave, varied at random by a fifth."""
    timeout_s: Annotated[float, Meta(ge=0.1, le=300)] = 5.0
    """Seconds to wait for a node's answer."""
    keep_heads: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """Co-signed heads stored for one enclave: the latest."""
    log_level: Level = "info"
    log_format: LogFormat = "json"

    @property
    def folder(self) -> Path:
        return Path(self.data)

    @property
    def key_path(self) -> Path:
        return Path(self.key) if self.key else self.folder / "witness.key"

    @property
    def limits(self) -> ServingLimits:
        return ServingLimits(
            connections=self.connections,
            connections_per_address=self.connections_per_address,
            request_timeout_s=self.request_timeout_s,
        )

    def known_registry(self) -> Registry | None:
        return parse_registry(self.registry) if self.registry else None

    def followed(self) -> list[FollowedEnclave]:
        found = [_followed(text) for text in self.enclaves]
        if not found:
            raise MisuseError("enclaves: none given: use --enclave ID@NODE, or `enclaves` in the file")
        if len({each.enclave for each in found}) < len(found):
            raise MisuseError("enclaves: one is given twice")
        if not self.registry and not all(each.node for each in found):
            raise MisuseError("enclaves: give ID@NODE, or set a registry that knows their nodes")
        return found


_READER = SettingsReader(
    WitnessConfig,
    flags={"enclaves": "--enclave", "nodes": "--node", "interval_s": "--interval"},
    max_bytes=MAX_FILE,
    strict=False,
)


def load_config(path: Path | None, flags: Mapping[str, Any]) -> WitnessConfig:
    """Return the file's values, overridden by flags that are not empty; raise MisuseError.

    Paths in the file are relative to its folder.
    """
    flags = {name: value for name, value in flags.items() if value not in (None, [], ())}
    config, given = _READER.load(path, {}, flags)
    paths = {name: getattr(config, name) for name in ("key", "data") if name in given and name not in flags}
    if path is not None:
        placed = {name: str(path.parent / Path(value).expanduser()) for name, value in paths.items() if value}
        config = replace(config, **placed)
    config.followed()
    config.known_registry()
    for node in config.nodes:
        base_url(node)
    return config


def _followed(text: str) -> FollowedEnclave:
    id_, _, place = text.partition("@")
    url, has_key, key = place.partition("#")
    sequencer = as_bytes(key, f"enclaves: {text!r}: key") if has_key else None
    return FollowedEnclave(as_bytes(id_, f"enclaves: {text!r}: id"), base_url(url) if url else None, sequencer)
