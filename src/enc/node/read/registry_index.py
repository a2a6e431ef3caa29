"""Index of the one registry that this node serves lookups from."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from enc.core.errors import EnclaveMigrated, EnclaveNotFound, InternalError, NoSuchPath, Unauthorized, Unavailable
from enc.core.machine.state import EnclaveState
from enc.core.primitives.types import Event, KeyRecord, Ownership, RecordKind
from enc.core.registry.reg_entry import parse_identity, parse_node
from enc.core.rules.policy_types import ReadScope
from enc.node.read.request_handlers import SealedHandlers
from enc.node.store.store_interface import Store

MAX_CACHED = 1024
"""Entries whose rendered form is cached; each takes 40 KB at most."""

Wire = dict[str, Any]


class _Manifest(Struct):
    from_: str = field(name="from")
    timestamp: int


class _Enclave(Struct):
    """Fields of a Reg_Enclave that an answer repeats. The kernel has checked the content already."""

    manifest_event: _Manifest
    app: str = ""
    desc: str = ""
    meta: Raw = Raw(b"{}")


_decode_enclave = Decoder(_Enclave).decode


def _wire_node(record: KeyRecord, event: Event) -> Wire:
    node = parse_node(event)
    return {
        "seq_pub": record.key.hex(),
        "endpoints": [{"uri": endpoint.uri, "priority": endpoint.priority} for endpoint in node.endpoints],
        "protocols": node.protocols,
        "enc_v": node.enc_v,
    }


def _wire_enclave(record: KeyRecord, event: Event) -> Wire:
    entry = _decode_enclave(event.content or "")
    return {
        "enclave_id": record.key.hex(),
        "sequencer": record.sequencer.hex(),
        "creator": entry.manifest_event.from_,
        "created_at": entry.manifest_event.timestamp,
        "app": entry.app,
        "desc": entry.desc,
        "meta": entry.meta,
        "holder": record.holder.hex(),
        "proved_size": record.proved_size,
        "evidence": {**_wire_evidence(record), "forced_from": [_wire_left(left) for left in record.forced_from]},
    }


def _wire_evidence(known: KeyRecord | Ownership) -> Wire:
    return {
        "proved_at": known.proved_at,
        "proved_root": known.proved_root.hex(),
        "moved_at": known.moved_at,
        "moved_time": known.moved_time,
    }


def _wire_left(left: Ownership) -> Wire:
    keys = {"sequencer": left.sequencer.hex(), "holder": left.holder.hex()}
    return {**keys, "proved_size": left.proved_size, **_wire_evidence(left)}


def _wire_identity(record: KeyRecord, event: Event) -> Wire:
    identity = parse_identity(event)
    enclaves = {label: enclave.hex() for label, enclave in identity.enclaves.items()}
    wire: Wire = {"id_pub": record.key.hex(), "enclaves": enclaves}
    return wire if identity.sub_pub is None else {**wire, "sub_pub": identity.sub_pub.hex()}


_KINDS: Mapping[RecordKind, tuple[str, Callable[[KeyRecord, Event], Wire]]] = {
    "node": ("Reg_Node", _wire_node),
    "enclave": ("Reg_Enclave", _wire_enclave),
    "identity": ("Reg_Identity", _wire_identity),
}
"""For each kind: the type of its entries, and the function that renders one."""


class RegistryIndex:
    """Looks up and renders the registry's active entries. Safe to use from any thread."""

    def __init__(self, store: Store, handlers: SealedHandlers, seq_pub: bytes, registry: bytes | None) -> None:
        self._store, self._handlers, self._seq_pub, self._registry = store, handlers, seq_pub, registry
        self._cache: dict[bytes, tuple[Wire, int]] = {}
        self._scope: tuple[int, ReadScope] = -1, ReadScope({}, "none")

    def state(self) -> EnclaveState:
        """Return the registry's durable state; raise if this node does not serve it."""
        if self._registry is None:
            raise NoSuchPath("this node does not serve a registry")
        self._handlers.restrictions.check_enclave(self._registry)
        try:
            state = self._handlers.state(self._registry)
        except EnclaveNotFound:
            raise Unavailable(f"the registry {self._registry.hex()} is not on this node yet") from None
        if not state.policy.registry:
            raise Unavailable(f"the enclave {self._registry.hex()} is not a registry")
        if state.sequencer != self._seq_pub:
            raise EnclaveMigrated("the registry has moved to another node", new_sequencer=state.sequencer.hex())
        return state

    def _check_readable(self, state: EnclaveState, type_: str) -> None:
        """Raise Unauthorized unless everyone may read this type. Evaluated again after each event."""
        seq, scope = self._scope
        if seq != state.seq:
            scope = state.policy.read_scope(0, state.closed_gates)
            self._scope = state.seq, scope
        if scope.of(type_) != "all":
            raise Unauthorized(f"the registry's manifest does not let everyone read a {type_}")

    def lookup(self, state: EnclaveState, kind: RecordKind, key: bytes) -> Wire | None:
        """Return the rendered entry of a key, or None if it has no active entry."""
        record = self._store.record(state.enclave, kind, key)
        return None if record is None or record.entry is None else self.render(state, record)[0]

    def render(self, state: EnclaveState, record: KeyRecord) -> tuple[Wire, int]:
        """Return a record's rendered active entry, and its size.

        Rendered entries can be cached: a record changes only with its entry, and entries never
        change.
        """
        type_, wire = _KINDS[record.kind]
        self._check_readable(state, type_)
        rendered = self._cache.get(record.entry or b"")
        if rendered is None:
            event = self.event(state, record.entry or b"")
            entry = {
                "enclave": state.enclave.hex(),
                "id": event.id.hex(),
                "seq": event.seq,
                "timestamp": event.timestamp,
            }
            rendered = {**wire(record, event), "entry": entry}, len(event.content or "")
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[event.id] = rendered
        return rendered

    def event(self, state: EnclaveState, event_id: bytes) -> Event:
        found = self._store.event(state.enclave, event_id)
        if found is None or found.event.content is None:
            raise InternalError("an entry of the registry is missing")
        return found.event
