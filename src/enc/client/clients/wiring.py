"""The parts that the blocking and the async client share."""

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec import Struct

from enc.client.enclave.templates import template
from enc.client.enclave.writes import Id, as_bytes
from enc.client.keys.identity import Identity
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.enclave_session import EnclaveSession
from enc.client.link.node_link import NodeLink
from enc.client.migration.node_locator import NodeLocator
from enc.client.registry.auto_registration import AutoRegistration
from enc.client.registry.due_registrations import DueRegistrations
from enc.client.registry.registry_client import Registry, RegistryClient
from enc.client.verify.pins import FilePins, MemoryPins, Pins, default_directory
from enc.client.wire.flow import Flow
from enc.client.wire.network import Network
from enc.client.wire.retrying_caller import PAUSES, RetryingCaller
from enc.client.wire.transport import base_url
from enc.client.witness.quorum import WitnessQuorum
from enc.client.witness.witnesses import Witness
from enc.core.errors import MisuseError, PeerError
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.signing import Alg
from enc.core.registry.evacuation import Evacuation
from enc.core.rules.content_schema import key_text
from enc.core.rules.manifest_schemas import read_schemas
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import Policy
from enc.runtime.backoff import Backoff
from enc.runtime.clock import now_ms

Manifest = Mapping[str, Any] | Path | str
"""A manifest; the path of a file that holds one; or the name of a template."""

T = TypeVar("T")

LAG_S = 60.0
"""How long a head is accepted that the witnesses have not seen yet, in seconds."""


class ClientSettings(Struct, frozen=True, kw_only=True):
    """The rarely used settings of a client.

    `alg`: the signature algorithm. `accept_loss`: follow an enclave to a node even if events seen
    before are lost there. `witnesses`: witnesses that follow the enclaves; `k` of them (None: all)
    must confirm a head before it is accepted, and may be `lag` seconds behind the node.
    `auto_register`: register an enclave by itself after a Transfer, if there is a registry.
    `uses_recorded`: look for an enclave's node also where it has answered before, by its pin.
    `network`: replaces connections and clocks in tests, see `enc.testing`.
    """

    alg: Alg = "schnorr"
    accept_loss: bool = False
    witnesses: Sequence[Witness] = ()
    k: int | None = None
    lag: float = LAG_S
    auto_register: bool = True
    uses_recorded: bool = True
    network: Network | None = None


class Setup:
    """What a client needs to open enclaves: identity, pins, callers, registry, locator and
    witnesses.
    """

    def __init__(
        self,
        url: str | None,
        identity: Identity | None,
        seq_pub: Id | None,
        pins: Pins | Path | str | Literal["default"] | None,
        patience: float,
        *,
        nodes: Sequence[str] = (),
        registry: Registry | None = None,
        settings: ClientSettings = ClientSettings(),  # noqa: B008
    ) -> None:
        if not isinstance(identity, Identity | None):
            raise MisuseError("identity: expected an Identity: Identity.load(path) or Identity.new()")
        if url is None and registry is None:
            raise MisuseError("give a node's URL, or a registry that knows where an enclave is")
        self.identity, self.is_temporary = identity or Identity.new(), identity is None
        self.patience = patience
        self._url, self._seq_pub, self._registry, self._settings = url, seq_pub, registry, settings
        self._nodes = tuple(nodes)
        self.network = network = settings.network
        self._now, self._monotonic = (now_ms, time.monotonic) if network is None else (network.now, network.monotonic)
        self._process = os.getpid()
        self._pins, self._alg, self.accept_loss = open_pins(pins), settings.alg, settings.accept_loss
        known = None if seq_pub is None else as_bytes(seq_pub, "seq_pub")
        self.caller = RetryingCaller(patience, self._monotonic, None if url is None else base_url(url))
        self.evacuations: dict[bytes, Evacuation] = {}
        self.node = NodeLink(self.caller, known, is_unresolved=url is None, evacuations=self.evacuations)
        self.registry_client = None if registry is None else self._open_registry(registry, patience)
        quick_registry = None if registry is None else self._open_registry(registry, 0)
        self._registration = self._open_registration(quick_registry if settings.auto_register else None)
        self._locator = NodeLocator(
            self._reach,
            [base_url(each) for each in nodes],
            self.registry_client,
            quick_registry=quick_registry,
            clock=self._monotonic,
            accept_loss=settings.accept_loss,
            uses_recorded=settings.uses_recorded,
        )
        self.quorum = self._open_quorum(settings)

    def _open_quorum(self, settings: ClientSettings) -> WitnessQuorum | None:
        """Return the quorum, or None without witnesses.

        Witness calls do not retry: the quorum does.
        """
        if not settings.witnesses and settings.k is None:
            return None
        return WitnessQuorum(
            settings.witnesses,
            settings.k,
            settings.lag,
            lambda url: self.caller.for_node(url, 0),
            self._monotonic,
            self._now,
        )

    def check_process(self) -> None:
        """Reject use after a fork: two processes on one connection would get each other's answers."""
        if self._process != os.getpid():
            raise MisuseError("this client was made by another process: make a new one after a fork")

    def reader(self, enclave: bytes, at: str | None = None) -> EnclaveReader:
        """Return a reader for an enclave, asked first at the client's node or `at` another."""
        node = self.node if at is None else self._reach(at)
        return EnclaveReader(
            EnclaveSession(
                node,
                self.identity,
                enclave,
                self._pins,
                self._now,
                self._alg,
                self._locator,
                self.quorum,
                self._registration,
            )
        )

    def with_registration(self, reader: EnclaveReader, flow: Flow[T]) -> Flow[T]:
        """Return the flow's result; then register the enclave if its ownership passed to us."""
        result = yield from flow
        if self._registration is not None:
            yield from self._registration.attempt(reader)
        return result

    def unregistered(self, enclave: bytes) -> str:
        """Return why a registration that is due has failed so far; empty if none is due."""
        return "" if self._registration is None else self._registration.reason(enclave)

    def _open_registration(self, quick: RegistryClient | None) -> AutoRegistration | None:
        """Return the automatic registration of enclaves, or None without a registry."""
        if quick is None or self.registry_client is None:
            return None
        directory = self._pins.directory if isinstance(self._pins, FilePins) else None
        due = DueRegistrations(directory, self.identity.public)
        return AutoRegistration(quick, due, self.registry_client.forget, self._monotonic)

    def reader_at(self, enclave: bytes, url: str) -> EnclaveReader:
        """Return a reader for an enclave through this node only."""
        locator = NodeLocator(self._reach, accept_loss=self.accept_loss)
        return EnclaveReader(
            EnclaveSession(self._reach(url), self.identity, enclave, self._pins, self._now, self._alg, locator)
        )

    def backoff(self, patience: float | None) -> Backoff:
        """Return a backoff with this patience, or the client's own for None."""
        return Backoff(self.patience if patience is None else patience, self._monotonic, PAUSES)

    def without_patience(self) -> "Setup":
        """Return the same setup, but with requests that are tried once."""
        return Setup(
            self._url,
            self.identity,
            self._seq_pub,
            self._pins,
            0,
            nodes=self._nodes,
            registry=self._registry,
            settings=self._settings,
        )

    def add_node(self, url: str) -> None:
        """Add a node to which an enclave has moved."""
        self._nodes = (*self._nodes, url)
        self._locator.add_node(base_url(url))

    def required_registry(self) -> RegistryClient:
        """Return the registry client; raise MisuseError if no registry was given."""
        if self.registry_client is None:
            raise MisuseError("no registry was given: Client(…, registry=Registry(url=…, enclave=…, seq_pub=…))")
        return self.registry_client

    def _reach(self, url: str) -> NodeLink:
        """Return a link to a node that may have the enclave."""
        return NodeLink(self.caller.for_node(base_url(url)), None, evacuations=self.evacuations)

    def _open_registry(self, registry: Registry, patience: float) -> RegistryClient:
        node = NodeLink(self.caller.for_node(base_url(registry.url), patience), registry.seq_pub)
        reader = EnclaveReader(EnclaveSession(node, self.identity, registry.enclave, self._pins, self._now, self._alg))
        return RegistryClient(reader, self._monotonic)


def open_pins(pins: Pins | Path | str | None) -> Pins:
    if pins is None:
        return MemoryPins()
    if pins == "default":
        return FilePins(default_directory())
    return FilePins(Path(pins)) if isinstance(pins, Path | str) else pins


def manifest_content(manifest: Manifest, owner: Identity, schemas: Mapping[str, Any] | None = None) -> str:
    """Return the content of the Manifest commit; raise MisuseError for one that nodes would reject,
    or that has a malformed schema, or one of a type that it does not declare.
    """
    if isinstance(manifest, Path):
        try:
            content = manifest.read_text()
        except (OSError, UnicodeDecodeError) as e:
            raise MisuseError(f"manifest {manifest}: {getattr(e, 'strerror', None) or e}") from None
    else:
        content = compact_json(_from_template(manifest, owner) if isinstance(manifest, str) else manifest)
    rules = _checked(content)
    if schemas is not None:
        if not isinstance(schemas, Mapping):
            raise MisuseError(f"schemas: expected schemas by event type, such as {{'message': {{…}}}}, not {schemas!r}")
        meta = rules.manifest.get("meta", {})
        content = compact_json({**rules.manifest, "meta": {**meta, "schemas": {**meta.get("schemas", {}), **schemas}}})
        rules = _checked(content)
    return content


def _checked(content: str) -> Policy:
    """Return the rules of the manifest in a content."""
    try:
        rules = parse_manifest(content)
    except PeerError as e:
        raise MisuseError(f"manifest: {e.message}") from None
    found, types = read_schemas(rules.manifest), rules.content_types
    if found.problems:
        raise MisuseError(f"manifest: {'; '.join(found.problems.values())}")
    for type_ in found.by_type:
        if not types & {type_, "*"}:
            declared = f"it declares {', '.join(sorted(types)) or 'no types'}"
            raise MisuseError(
                f"manifest: meta.schemas.{key_text(type_)}: no rule lets anybody write this type; {declared}"
            )
    return rules


def _from_template(name: str, owner: Identity) -> dict[str, Any]:
    """Return a template with a random nonce, since equal manifests would have one enclave id."""
    manifest = template(name, owner.public)
    return {**manifest, "meta": {**manifest.get("meta", {}), "nonce": secrets.token_hex(8)}}
