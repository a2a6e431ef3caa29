"""A proof in a file: a fact with its complete proof, which anyone can check offline at any time."""

import re
from datetime import UTC, datetime
from pathlib import Path
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
from enc.core.errors import InvalidProof, MisuseError, PeerError
from enc.core.log.event import WireEvent, event_from_wire, wire_event, withheld_by
from enc.core.primitives.encoding import decode_json, unhex
from enc.core.primitives.types import Event
from enc.core.trees.proof import (
    WireBundleProof,
    WireStateProof,
    bundle_proof_from_wire,
    state_proof_from_wire,
    wire_bundle_proof,
    wire_state_proof,
)
from enc.core.trees.state_key import Namespace
from enc.runtime.files import write_atomic

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
    update: WireEvent | None = None


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

    def __post_init__(self) -> None:
        fact = self.fact
        if isinstance(fact, EventFact) and type(fact) is not EventFact:  # an EventProof, for example
            plain = EventFact(fact.event, fact.membership, fact.anchor, fact.status_fact, fact.update)
            msgspec.structs.force_setattr(self, "fact", plain)

    def save(self, path: Path | str) -> "Statement":
        """Write the proof to a file for `enc verify`, and return what it proves.

        Checks the file's bytes first: if they are invalid, raises InvalidProof and writes nothing.
        """
        data = self.json()
        statement = check_proof(load_proof(data))
        try:
            write_atomic(Path(path), data)
        except OSError as e:
            raise MisuseError(f"{path}: cannot write the proof: {e.strerror}") from None
        return statement

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
        **({} if fact.update is None else {"update": wire_event(fact.update)}),
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
    event = _signed(wire.event, "event")
    status = None if wire.status is None else _state(wire.status)
    update = None if wire.update is None else _signed(wire.update, "update")
    return EventFact(event, bundle_proof_from_wire(wire.membership), _anchor(wire.anchor), status, update)


def _signed(wire: WireEvent, name: str) -> Event:
    try:
        return event_from_wire(wire)
    except PeerError as e:
        raise InvalidProof(f"{name}: {e.message}") from None


def _state(wire: _State | None) -> StateFact:
    if wire is None:
        raise InvalidProof("state: missing")
    key = unhex(wire.key, 32, "key", InvalidProof)
    return StateFact(wire.namespace, key, state_proof_from_wire(wire.proof), _anchor(wire.anchor))


def _anchor(wire: WireAnchor) -> Anchor:
    return anchor_of(wire, head_of(wire.sth))


# Checking


KEY_UNKNOWN = "that this key is the enclave's sequencer: compare it with what you know"


def check_proof(proof: Proof, sequencer: bytes | None = None) -> Statement:
    """Return what the proof shows. Raises InvalidProof if it is invalid.

    `sequencer`: the enclave's, if known from another source; proofs by others are then invalid.
    """
    if sequencer not in (None, proof.sequencer):
        raise InvalidProof(f"signed by {proof.sequencer.hex()}, not by {(sequencer or b'').hex()}")
    try:
        if isinstance(proof.fact, EventFact):
            check_event_fact(proof.fact, proof.enclave, proof.sequencer)
            proved = _event_says(proof.fact, _nodes(proof))
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
        (*proved, f"{signed} at {time_text(head.t)}"),
        (
            *((KEY_UNKNOWN,) if sequencer is None else ()),
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
    fact = proof.fact
    shown = {"event": fact.event, "update": fact.update} if isinstance(fact, EventFact) else {}
    for name, event in shown.items():
        if event is not None and history.at(event.seq) not in (None, event.sequencer):
            raise InvalidProof(f"{name}: not signed by the sequencer that the Migrates give for its seq")
    return [
        f"Migrate {move.event.seq}, signed by {move.event.from_.hex()}, hands over to {move.new_sequencer.hex()}"
        for move in history.moves
    ]


def _nodes(proof: Proof) -> frozenset[bytes]:
    """Return the keys that may withhold contents of this log, as far as the proof names them."""
    fact = proof.fact
    signers = (event.sequencer for event in (fact.event, fact.update) if event) if isinstance(fact, EventFact) else ()
    return frozenset((proof.sequencer, *signers, *(move.new_sequencer for move in proof.moves)))


def _event_says(fact: EventFact, nodes: frozenset[bytes]) -> list[str]:
    event = fact.event
    says = [
        f"{event.from_.hex()} signed an event of type {event.type} for enclave {event.enclave.hex()}",
        f"{event.sequencer.hex()} made it event {event.seq} at {time_text(event.timestamp)}",
        f"it is in bundle {fact.anchor.index} of the log",
    ]
    if event.content is None:
        says.append(f"its content {_missing(event, nodes)}; a copy can be checked against content_hash")
    else:
        says.append(f"its content is: {_line(event.content)}")
    if fact.status_fact is not None:
        says.append(f"after bundle {fact.status_fact.anchor.index} it is {status_of(fact.status_fact)}")
    if fact.update is not None:
        says.append(_update_says(fact.update, nodes))
    return says


def _missing(event: Event, nodes: frozenset[bytes]) -> str:
    statement = withheld_by(event, nodes)
    if statement is None:
        return "was erased"
    return f"is withheld by {statement.node.hex()} since {time_text(statement.ts)} ({statement.reason})"


def _update_says(update: Event, nodes: frozenset[bytes]) -> str:
    content = _missing(update, nodes) if update.content is None else f"is: {_line(update.content)}"
    replaced = f"{update.from_.hex()} replaced it with Update {update.seq}"
    return f"{replaced} at {time_text(update.timestamp)}, whose content {content}"


def _state_says(fact: StateFact) -> str:
    value = "nothing" if fact.value is None else fact.value.hex()
    return f"after bundle {fact.anchor.index} the value at {fact.namespace} {fact.key.hex()} is {value}"


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_LAST_TIME = 253_402_300_799_999
"""The end of the year 9999, in Unix milliseconds."""


def _line(content: str) -> str:
    """Return a content on one line: as a JSON string if it has control characters or line ends."""
    return msgspec.json.encode(content).decode() if _CONTROL.search(content) else content


def time_text(timestamp: int) -> str:
    """Return a time in ISO 8601, in UTC, to the millisecond."""
    if timestamp > _LAST_TIME:
        return f"{timestamp} (Unix milliseconds)"
    whole = datetime.fromtimestamp(timestamp // 1000, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{timestamp % 1000:03}Z"
