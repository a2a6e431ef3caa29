"""A proof in a file: a fact with its complete proof, which anyone can check offline at any time."""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from enc.client.verify.decode_answers import WireAnchor, anchor_of, head_of
from enc.client.verify.facts import (
    Anchor,
    EventFact,
    StateFact,
    check_event_fact,
    check_state_fact,
    status_of,
    wire_anchor,
)
from enc.client.verify.sequencer_history import Migration, history_of
from enc.core.errors import InvalidProof, PeerError
from enc.core.log.event import WireEvent, event_from_wire, wire_event
from enc.core.primitives.encoding import decode_json, unhex
from enc.core.trees.proof import (
    WireBundleProof,
    WireStateProof,
    bundle_proof_from_wire,
    state_proof_from_wire,
    wire_bundle_proof,
    wire_state_proof,
)
from enc.core.trees.state_key import Namespace

MAX_PROOF = 64 << 20

Fact = EventFact | StateFact


class Statement(Struct, frozen=True):
    """What a file proves, and what it does not prove."""

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
    """A fact about an enclave, signed by its sequencer."""

    enclave: bytes
    sequencer: bytes
    fact: Fact
    moves: tuple[Migration, ...] = ()
    """The Migrates that lead to the sequencer; empty if there are none or they are unknown."""

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
    """Parse a proof from a file's bytes; checks nothing."""
    if len(data) > MAX_PROOF:
        raise InvalidProof(f"proof: over {MAX_PROOF} bytes")
    wire = decode_json(data, _decoder, InvalidProof)
    if (wire.event is None) == (wire.state is None):
        raise InvalidProof("proof: expected one of event and state")
    fact = _event(wire.event) if wire.event else _state(wire.state)
    enclave = unhex(wire.enclave, 32, "enclave", InvalidProof)
    return Proof(enclave, unhex(wire.sequencer, 32, "sequencer", InvalidProof), fact, _moves(wire.migrates, enclave))


def _moves(wires: list[WireEvent], enclave: bytes) -> tuple[Migration, ...]:
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
    """Return what the proof shows. Raises InvalidProof if it is invalid."""
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
    signed = f"all of it is under a head of {head.ts} bundles that {proof.sequencer.hex()} signed for this enclave"
    return Statement(
        (*proved, signed),
        (
            "that this key is the enclave's sequencer: compare it with what you know",
            "that nothing has changed since: a proof shows one point in time",
            "that everyone sees this log: compare heads with others",
        ),
    )


def _check_line(proof: Proof) -> list[str]:
    """Check that the Migrates lead to the sequencer, and to the signer of the event's seq."""
    if not proof.moves:
        return []
    history = history_of(None, [move.event for move in proof.moves], proof.enclave)
    if history.sequencer != proof.sequencer:
        raise InvalidProof("migrates: they lead to another sequencer")
    if isinstance(proof.fact, EventFact) and history.at(proof.fact.event.seq) not in (None, proof.fact.event.sequencer):
        raise InvalidProof("event: not signed by the sequencer that the Migrates give for its seq")
    return [
        f"Migrate {move.event.seq}, signed by {move.event.from_.hex()}, hands over to {move.new_sequencer.hex()}"
        for move in history.moves
    ]


def _event_says(fact: EventFact) -> list[str]:
    event = fact.event
    says = [
        f"{event.from_.hex()} signed an event of type {event.type} for enclave {event.enclave.hex()}",
        f"{event.sequencer.hex()} made it event {event.seq} at {event.timestamp} (Unix milliseconds)",
        f"it is in bundle {fact.anchor.index} of the log",
    ]
    if event.content is None:
        says.append("its content was erased; a copy can be checked against content_hash")
    if fact.status_fact is not None:
        says.append(f"after bundle {fact.status_fact.anchor.index} it is {status_of(fact.status_fact)}")
    return says


def _state_says(fact: StateFact) -> str:
    value = "nothing" if fact.value is None else fact.value.hex()
    return f"after bundle {fact.anchor.index} the value at {fact.namespace} {fact.key.hex()} is {value}"
