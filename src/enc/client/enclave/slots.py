"""Slots: their values, and whether these are proved yet."""

from typing import Any, Literal

from msgspec import Struct

from enc.client.enclave.combined_reads import blame_for_content, policy
from enc.client.link.enclave_reader import EnclaveReader, ItemPage
from enc.client.wire.flow import Flow
from enc.core.errors import EventNotFound, InvalidProof, TreeSizeNotFound
from enc.core.primitives.types import Event
from enc.core.rules.content import content_object, text_field
from enc.core.trees.state_key import own_slot, shared_slot


class Slot(Struct, frozen=True):
    """The value of a slot, None if unset. `proved`: under a signed head; else its bundle is open."""

    value: Any
    event: Event | None
    proved: bool


def slot(reader: EnclaveReader, type_: Literal["Shared", "Own"], key: str, owner: bytes) -> Flow[Slot]:
    """Return a slot's value. The newest event that sets it matches the proved state or is newer."""
    raw, own = (shared_slot(key), None) if type_ == "Shared" else (own_slot(owner, key), (owner, key))
    try:
        fact = yield from reader.state_fact("kv", raw, own=own)
    except TreeSizeNotFound:
        fact = None
    event, value = yield from _setter(reader, type_, key, owner)
    if fact is None:
        return Slot(value, event, proved=False)
    if (None if event is None or value is None else event.content_hash) == fact.value:
        return Slot(value, event, proved=True)
    if event is not None and event.timestamp >= fact.anchor.head.t:
        return Slot(value, event, proved=False)
    if not (yield from _may_read(reader, type_, owner)):
        raise EventNotFound(f"slot {key}: you may not read the event that set it last")
    message = f"slot {key}: the event that set it last is withheld"
    raise reader.session.known_verifier().forgery(message, (fact.value or b"").hex().encode())


def _setter(reader: EnclaveReader, type_: str, key: str, owner: bytes) -> Flow[tuple[Event | None, Any]]:
    """Return the newest readable event that sets the slot, and the value."""
    wire: dict[str, Any] = {"type": type_, "limit": 100, "reverse": True}
    if type_ == "Own":
        wire["from"] = owner.hex()
    while True:
        page: ItemPage = yield from reader.page(wire)
        for event in (item.event for item in page.items):
            with blame_for_content(reader, event):
                content = content_object(event)
                if text_field(content, "key", "content") == key:
                    if "value" not in content:
                        raise InvalidProof("content.value: missing")
                    return event, content["value"]
        if not page.more:
            return None, None
        wire["seq"] = {"end_before": page.items[-1].seq}


def _may_read(reader: EnclaveReader, type_: str, owner: bytes) -> Flow[bool]:
    """Whether the Manifest and the last closed bundle let this identity read all events of the
    slot.
    """
    rules = yield from policy(reader)
    fact = yield from reader.state_fact("rbac", reader.identity.public)
    reach = rules.read_scope(int.from_bytes(fact.value or b"", "big"), frozenset(rules.gates)).of(type_)
    return reach == "all" or (reach == "own" and type_ == "Own" and owner == reader.identity.public)
