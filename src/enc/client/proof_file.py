"""A proof in a file: a fact with everything that proves it, so that anyone can check it, offline and at any time."""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from enc.client.answers import (
    WireAnchor,
    anchor_of,
    head_of,
)
from enc.client.facts import (
    Anchor,
    EventFact,
    StateFact,
    check_event_fact,
    check_state_fact,
    status_of,
    wire_anchor,
)
from enc.client.history import Move, history_of
from enc.core.encoding import decode_json, unhex
from enc.core.errors import InvalidProof, PeerError
from enc.core.event import WireEvent, event_from_wire, wire_event
from enc.core.proof import (
    WireBundleProof,
    WireStateProof,
    bundle_proof_from_wire,
    state_proof_from_wire,
    wire_bundle_proof,
    wire_state_proof,
)
from enc.core.state_key import Namespace

MAX_PROOF = 64 << 20

Fact = EventFact | StateFact


class Statement(Struct, frozen=True):
    """What a file proves, and what it cannot."""

    proved: tuple[str, ...]
    not_proved: tuple[str, ...]


class _State(Struct, kw_only=True):
    namespace: Namespace
    key: str
    proof: WireStateProof
    anchor: WireAnchor


class _Event(Struct, kw_only=True):
    event: WireEvent
    membership: WireBundleProof
    anchor: WireAnchor
    status: _State | None = None


class _File(Struct, kw_only=True):
    format: Literal["enc-proof"]
    version: Literal[1]
    enclave: str
    sequencer: str
    event: _Event | None = None
    state: _State | None = None
    migrates: list[WireEvent] = []


_decoder = msgspec.json.Decoder(_File)


class Proof(Struct, frozen=True):
    """A fact about an enclave, by the word of its sequencer."""

    enclave: bytes
    sequencer: bytes
    fact: Fact
    moves: tuple[Move, ...] = ()
    """The Migrates by which the sequencer came to be it; none if it was from the first, or if they are not told."""

    def json(self) -> bytes:
        fact = self.fact
        part = {"event": _wire_event(fact)} if isinstance(fact, EventFact) else {"state": _wire_state(fact)}
        wire = {
            "format": "enc-proof",
            "version": 1,
            "enclave": self.enclave.hex(),
            "sequencer": self.sequencer.hex(),
            **part,
        }
        if self.moves:
            wire["migrates"] = [wire_event(move.event) for move in self.moves]
        return msgspec.json.format(msgspec.json.encode(wire)) + b"\n"


def _wire_event(fact: EventFact) -> dict[str, Any]:
    return {
        "event": wire_event(fact.event),
        "membership": wire_bundle_proof(fact.membership),
        "anchor": wire_anchor(fact.anchor),
        "status": None if fact.status_fact is None else _wire_state(fact.status_fact),
    }


def _wire_state(fact: StateFact) -> dict[str, Any]:
    return {
        "namespace": fact.namespace,
        "key": fact.key.hex(),
        "proof": wire_state_proof(fact.proof),
        "anchor": wire_anchor(fact.anchor),
    }


def load_proof(data: bytes) -> Proof:
    """A proof from a file's bytes; nothing is checked yet."""
    if len(data) > MAX_PROOF:
        raise InvalidProof(f"proof: over {MAX_PROOF} bytes")
    wire = decode_json(data, _decoder, InvalidProof)
    if (wire.event is None) == (wire.state is None):
        raise InvalidProof("proof: expected one of event and state")
    fact = _event(wire.event) if wire.event else _state(wire.state)
    enclave = unhex(wire.enclave, 32, "enclave", InvalidProof)
    return Proof(enclave, unhex(wire.sequencer, 32, "sequencer", InvalidProof), fact, _moves(wire.migrates, enclave))


def _moves(wires: list[WireEvent], enclave: bytes) -> tuple[Move, ...]:
    try:
        return history_of(None, [event_from_wire(wire) for wire in wires], enclave).moves
    except PeerError as e:
        raise InvalidProof(f"migrates: {e.message}") from None


def _event(wire: _Event) -> EventFact:
    try:
        event = event_from_wire(wire.event)
    except PeerError as e:
        raise InvalidProof(f"event: {e.message}") from None
    status = None if wire.status is None else _state(wire.status)
    return EventFact(event, bundle_proof_from_wire(wire.membership), _anchor(wire.anchor), status)


def _state(wire: _State | None) -> StateFact:
    if wire is None:
        raise InvalidProof("state: missing")
    key = unhex(wire.key, 32, "key", InvalidProof)
    return StateFact(wire.namespace, key, state_proof_from_wire(wire.proof), _anchor(wire.anchor))


def _anchor(wire: WireAnchor) -> Anchor:
    return anchor_of(wire, head_of(wire.sth))


# Checking


def check_proof(proof: Proof) -> Statement:
    """What the proof shows. Raises InvalidProof where it shows nothing."""
    try:
        if isinstance(proof.fact, EventFact):
            check_event_fact(proof.fact, proof.enclave, proof.sequencer)
            proved = _event_says(proof.fact)
        else:
            check_state_fact(proof.fact, proof.enclave, proof.sequencer)
            proved = [_state_says(proof.fact)]
    except InvalidProof:
        raise
    except PeerError as e:
        raise InvalidProof(e.message) from None
    proved = [*proved, *_check_line(proof)]
    head = proof.fact.anchor.head
    signed = f"all of it stands under a head of {head.ts} bundles that {proof.sequencer.hex()} signed for this enclave"
    return Statement(
        (*proved, signed),
        (
            "that this key is the enclave's sequencer: compare it with what you know",
            "that nothing has changed since: a proof is of its time",
            "that everybody sees this log: compare heads with others",
        ),
    )


def _check_line(proof: Proof) -> list[str]:
    """The Migrates lead to the sequencer, and say who it was in the event's place."""
    if not proof.moves:
        return []
    history = history_of(None, [move.event for move in proof.moves], proof.enclave)
    if history.sequencer != proof.sequencer:
        raise InvalidProof("migrates: they lead to another sequencer")
    if isinstance(proof.fact, EventFact) and history.at(proof.fact.event.seq) not in (None, proof.fact.event.sequencer):
        raise InvalidProof("event: by another than the Migrates make the sequencer in its place")
    return [
        f"Migrate {move.event.seq}, signed by {move.event.from_.hex()}, hands over to {move.new_sequencer.hex()}"
        for move in history.moves
    ]


def _event_says(fact: EventFact) -> list[str]:
    event = fact.event
    says = [
        f"{event.from_.hex()} signed an event of type {event.type} for enclave {event.enclave.hex()}",
        f"{event.sequencer.hex()} put it in place {event.seq} at {event.timestamp} (Unix milliseconds)",
        f"it is in bundle {fact.anchor.index} of the log",
    ]
    if event.content is None:
        says.append("its content was erased; what it was can be checked against content_hash")
    if fact.status_fact is not None:
        says.append(f"after bundle {fact.status_fact.anchor.index} it is {status_of(fact.status_fact)}")
    return says


def _state_says(fact: StateFact) -> str:
    value = "nothing" if fact.value is None else fact.value.hex()
    return f"after bundle {fact.anchor.index} there stands at {fact.namespace} {fact.key.hex()}: {value}"
