"""What is registered: the one registry that a node serves lookups of, and what its active entries say."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from enc.core.enclave import EnclaveState, view
from enc.core.errors import EnclaveMigrated, EnclaveNotFound, InternalError, NoSuchPath, Unauthorized, Unavailable
from enc.core.policy import ReadScope
from enc.core.reg_entry import parse_identity, parse_node
from enc.core.types import Event, Record, RecordKind
from enc.node.answers import Answers
from enc.node.store.base import EnclaveReader, Store

MAX_MADE = 1024
"""Entries of which it is kept what they say: some 40 KB each at most."""

Wire = dict[str, Any]


class _Manifest(Struct):
    from_: str = field(name="from")
    timestamp: int


class _Enclave(Struct):
    """What an answer says of a Reg_Enclave. The kernel judged its content: nothing is checked again."""

    manifest_event: _Manifest
    app: str = ""
    desc: str = ""
    meta: Raw = Raw(b"{}")


_decode_enclave = Decoder(_Enclave).decode


def _wire_node(record: Record, event: Event) -> Wire:
    node = parse_node(event)
    return {
        "seq_pub": record.key.hex(),
        "endpoints": [{"uri": endpoint.uri, "priority": endpoint.priority} for endpoint in node.endpoints],
        "protocols": node.protocols,
        "enc_v": node.enc_v,
    }


def _wire_enclave(record: Record, event: Event) -> Wire:
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
    }


def _wire_identity(record: Record, event: Event) -> Wire:
    identity = parse_identity(event)
    enclaves = {label: enclave.hex() for label, enclave in identity.enclaves.items()}
    wire: Wire = {"id_pub": record.key.hex(), "enclaves": enclaves}
    return wire if identity.sub_pub is None else {**wire, "sub_pub": identity.sub_pub.hex()}


_KINDS: Mapping[RecordKind, tuple[str, Callable[[Record, Event], Wire]]] = {
    "node": ("Reg_Node", _wire_node),
    "enclave": ("Reg_Enclave", _wire_enclave),
    "identity": ("Reg_Identity", _wire_identity),
}
"""The type of each kind's entries, and what an answer says of one."""


class Registered:
    """`state`, then what it holds; safe to use from any thread."""

    def __init__(self, store: Store, answers: Answers, seq_pub: bytes, registry: bytes | None) -> None:
        self._store, self._answers, self._seq_pub, self._registry = store, answers, seq_pub, registry
        self._made: dict[bytes, tuple[Wire, int]] = {}
        self._scope: tuple[int, ReadScope] = -1, ReadScope({}, "none")

    def state(self) -> EnclaveState:
        """The registry as it stands on disk, if this node is who keeps it."""
        if self._registry is None:
            raise NoSuchPath("this node serves no registry")
        try:
            state = self._answers.state(self._registry)
        except EnclaveNotFound:
            raise Unavailable(f"the registry {self._registry.hex()} is not on this node yet") from None
        if not state.policy.registry:
            raise Unavailable(f"the enclave {self._registry.hex()} is no registry")
        if state.sequencer != self._seq_pub:
            raise EnclaveMigrated("the registry is at another node", new_sequencer=state.sequencer.hex())
        return state

    def _check_readable(self, state: EnclaveState, type_: str) -> None:
        """What is looked up, everybody must be allowed to read. Asked anew once something has happened."""
        seq, scope = self._scope
        if seq != state.seq:
            is_closed = view(state, EnclaveReader(self._store, state.enclave)).is_closed
            scope = state.policy.read_scope(0, is_closed)
            self._scope = state.seq, scope
        if scope.of(type_) != "all":
            raise Unauthorized(f"the registry's manifest does not let everybody read a {type_}")

    def entry(self, state: EnclaveState, kind: RecordKind, key: bytes) -> Wire | None:
        """What the registry says of a key; None if it has no active entry."""
        record = self._store.record(state.enclave, kind, key)
        return None if record is None or record.entry is None else self.said(state, record)[0]

    def said(self, state: EnclaveState, record: Record) -> tuple[Wire, int]:
        """What a record's active entry says, and its size. A record changes with its entry alone, and entries never."""
        type_, wire = _KINDS[record.kind]
        self._check_readable(state, type_)
        said = self._made.get(record.entry or b"")
        if said is None:
            event = self.event(state, record.entry or b"")
            entry = {
                "enclave": state.enclave.hex(),
                "id": event.id.hex(),
                "seq": event.seq,
                "timestamp": event.timestamp,
            }
            said = {**wire(record, event), "entry": entry}, len(event.content or "")
            if len(self._made) >= MAX_MADE:
                self._made.clear()
            self._made[event.id] = said
        return said

    def event(self, state: EnclaveState, event_id: bytes) -> Event:
        found = self._store.event(state.enclave, event_id)
        if found is None or found.event.content is None:
            raise InternalError("an entry of the registry is missing")
        return found.event
