"""Checks evidence: what it proves, what it does not, and whether it convicts the key's holder."""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from enc.client.evidence.check_log_evidence import check_log, check_order, check_single
from enc.client.evidence.evidence import Evidence, EvidenceKind
from enc.client.evidence.verdict import KEY_OWNER, Verdict
from enc.core.errors import EncError, InvalidProof, PeerError
from enc.core.log.event import WireEvent, check_event, event_from_wire
from enc.core.primitives.encoding import convert_json, unhex
from enc.core.primitives.types import Event, TreeHead
from enc.core.rules.content import parse_migrate
from enc.core.trees.cosigning import WireCosigned, check_cosigned, cosigned_from_wire
from enc.core.trees.merkle_log import check_consistency
from enc.core.trees.proof import WireConsistency, consistency_from_wire
from enc.core.trees.tree_head import WireHead, check_bound_head, head_from_wire


class _Heads(Struct):
    heads: tuple[WireHead, WireHead]
    proof: WireConsistency | None = None
    signer: str | None = None
    """Signer of the first head, if it is not the sequencer."""
    cosigned: WireCosigned | None = None
    """A witness's statement that it saw one of the two heads."""


class _Events(Struct):
    events: tuple[WireEvent, WireEvent]


class _Split(Struct):
    migrate: WireEvent
    event: WireEvent | None = None
    head: WireHead | None = None
    size: int = 0


class _Unsigned(Struct):
    answer: str


def check_evidence(evidence: Evidence) -> Verdict:
    """Return what the evidence shows.

    Raises InvalidProof if required signatures are missing or invalid.
    """
    try:
        verdict = _CHECKS[evidence.kind](evidence)
        if evidence.parts.get("cosigned") is None or "heads" not in evidence.parts:
            return verdict
        return replace(verdict, proved=(*verdict.proved, _attests(evidence)))
    except InvalidProof:
        raise
    except PeerError as e:
        raise InvalidProof(f"evidence: {e.message}") from None


def _heads(evidence: Evidence) -> tuple[TreeHead, TreeHead, _Heads]:
    wire = convert_json(dict(evidence.parts), _Heads, InvalidProof)
    first, then = (head_from_wire(head) for head in wire.heads)
    signer = evidence.sequencer if wire.signer is None else unhex(wire.signer, 32, "signer", InvalidProof)
    check_bound_head(first, signer, evidence.enclave)
    check_bound_head(then, evidence.sequencer, evidence.enclave)
    return first, then, wire


def _attests(evidence: Evidence) -> str:
    first, then, wire = _heads(evidence)
    if wire.cosigned is None:
        raise InvalidProof("evidence: cosigned: missing")
    cosigned = cosigned_from_wire(wire.cosigned)
    if cosigned.head not in (first, then):
        raise InvalidProof("evidence: the witness co-signed neither of the heads")
    check_cosigned(cosigned, cosigned.witness, evidence.enclave)
    who, size = cosigned.witness.hex(), cosigned.head.ts
    which = "first" if cosigned.head == first else "second"
    return f"the witness {who} co-signed the {which}, of {size} bundles, and says that it saw it at {cosigned.seen}"


def _signed(first: TreeHead, then: TreeHead, key: bytes, wire: _Heads) -> str:
    if wire.signer is not None:
        return f"{wire.signer} signed a head of {first.ts} bundles, and {key.hex()} one of {then.ts}, for this enclave"
    return f"{key.hex()} signed a head of {first.ts} bundles and one of {then.ts} for this enclave"


def _check_fork(evidence: Evidence) -> Verdict:
    first, then, wire = _heads(evidence)
    if first.ts != then.ts or first.r == then.r:
        raise InvalidProof("evidence: the heads do not contradict each other")
    if wire.signer is not None:
        both = (_signed(first, then, evidence.sequencer, wire), "their roots are different: no log has both")
        return Verdict(False, both, ("which of the two rewrote the log",))
    proved = (
        f"{evidence.sequencer.hex()} signed two heads of {first.ts} bundles with different roots for this enclave",
        "no log has both roots: the sequencer showed different logs to different clients, or rewrote one",
    )
    return Verdict(True, proved, (KEY_OWNER, "which of the two others saw"))


def _check_rollback(evidence: Evidence) -> Verdict:
    first, then, wire = _heads(evidence)
    if then.ts >= first.ts or wire.signer is not None:
        raise InvalidProof("evidence: the second head is not older, or not of the same sequencer")
    both = _signed(first, then, evidence.sequencer, wire)
    if then.t > first.t:
        return Verdict(True, (both, "the smaller one is dated later: the log was cut"), (KEY_OWNER,))
    return Verdict(False, (both,), ("that the older head was served after the newer one: only the client states this",))


def _check_inconsistent(evidence: Evidence) -> Verdict:
    first, then, wire = _heads(evidence)
    if not 0 < first.ts < then.ts:
        raise InvalidProof("evidence: the heads are not of a smaller log and a larger one")
    try:
        if wire.proof is None:
            raise InvalidProof("none came")
        proof = consistency_from_wire(wire.proof)
        if (proof.ts1, proof.ts2) != (first.ts, then.ts):
            raise InvalidProof("another range")
        check_consistency(proof, first.r, then.r)
    except InvalidProof:
        pass
    else:
        raise InvalidProof("evidence: the heads are consistent")
    proved = (_signed(first, then, evidence.sequencer, wire), "no valid consistency proof came with them")
    missing = "that no such proof exists: ask the node for one; if it has none, it has forked the log"
    return Verdict(False, proved, (missing, KEY_OWNER))


def _check_equivocation(evidence: Evidence) -> Verdict:
    wire = convert_json(dict(evidence.parts), _Events, InvalidProof)
    first, then = (event_from_wire(event) for event in wire.events)
    for event in (first, then):
        _check_signed(event)
        if (event.enclave, event.sequencer) != (evidence.enclave, evidence.sequencer):
            raise InvalidProof("evidence: event: belongs to another enclave or sequencer")
    if first.seq != then.seq or first.id == then.id:
        raise InvalidProof("evidence: the events do not have the same seq")
    proved = (
        f"{evidence.sequencer.hex()} signed two different events as event {first.seq} of this enclave",
        "a log has one event per seq: the sequencer showed different logs to different clients, or rewrote one",
    )
    return Verdict(True, proved, (KEY_OWNER,))


def _check_split(evidence: Evidence) -> Verdict:
    """Check a former sequencer's signature from after the Migrate by which the enclave left it."""
    wire = convert_json(dict(evidence.parts), _Split, InvalidProof)
    migrate, key = event_from_wire(wire.migrate), evidence.sequencer.hex()
    _check_signed(migrate)
    if migrate.type != "Migrate" or migrate.enclave != evidence.enclave:
        raise InvalidProof("evidence: not a Migrate of this enclave")
    to = parse_migrate(migrate).new_sequencer
    if to == evidence.sequencer or (wire.event is None) == (wire.head is None):
        raise InvalidProof("evidence: expected one of event and head, of another sequencer than the Migrate names")
    moved = (
        f"{migrate.from_.hex()} signed a Migrate to {to.hex()}; {migrate.sequencer.hex()} made it event {migrate.seq}"
    )
    if wire.event is not None:
        convicts, what, open_ = _split_event(evidence, migrate, event_from_wire(wire.event))
    else:
        convicts, what, open_ = _split_head(evidence, migrate, wire)
    left = "its own signature handed the enclave over" if migrate.sequencer == evidence.sequencer else ""
    proved = (moved, f"{key} {what}", *([left] if left else []))
    owner = () if left else ("that the Migrate's author was the owner", "that the old sequencer knew of it")
    return Verdict(convicts, proved, (*open_, *owner, KEY_OWNER))


def _split_event(evidence: Evidence, migrate: Event, event: Event) -> tuple[bool, str, tuple[str, ...]]:
    _check_signed(event)
    if (event.enclave, event.sequencer) != (evidence.enclave, evidence.sequencer):
        raise InvalidProof("evidence: event: belongs to another enclave or sequencer")
    is_own = migrate.sequencer == evidence.sequencer
    if event.seq < migrate.seq + is_own:
        raise InvalidProof("evidence: the event is before the Migrate")
    what = f"signed event {event.seq}, of type {event.type}, where it was not the sequencer"
    returned = event.type == "Migrate" and parse_migrate(event).new_sequencer == event.sequencer
    if is_own and event.seq == migrate.seq + 1 and not returned:
        return True, what, ()
    return False, what, ("that no later Migrate gave the enclave back to it",)


def _split_head(evidence: Evidence, migrate: Event, wire: _Split) -> tuple[bool, str, tuple[str, ...]]:
    if wire.head is None:
        raise InvalidProof("evidence: head: missing")
    head = head_from_wire(wire.head)
    check_bound_head(head, evidence.sequencer, evidence.enclave)
    if not 0 <= wire.size < head.ts:
        raise InvalidProof("evidence: the head is of the log before the Migrate")
    place = f"that the log had {wire.size} bundles when event {migrate.seq} was made: that is the client's word"
    return False, f"signed a head of {head.ts} bundles", (place, "that no later Migrate gave the enclave back to it")


def _check_signed(event: Event) -> None:
    """Check an event by the rules of either version, which differ in how a commit is hashed."""
    try:
        check_event(event, 2)
    except EncError:
        check_event(event, 1)


def _check_unsigned(evidence: Evidence) -> Verdict:
    convert_json(dict(evidence.parts), _Unsigned, InvalidProof)
    return Verdict(False, (), ("anything: a client states that it received this answer, and nothing in it is signed",))


_CHECKS: Mapping[EvidenceKind, Callable[[Evidence], Verdict]] = {
    "fork": _check_fork,
    "rollback": _check_rollback,
    "inconsistent": _check_inconsistent,
    "equivocation": _check_equivocation,
    "split": _check_split,
    "foreign": _check_unsigned,
    "answer": _check_unsigned,
    "event": lambda evidence: check_single(evidence.enclave, evidence.sequencer, evidence.parts),
    "order": lambda evidence: check_order(evidence.enclave, evidence.sequencer, evidence.parts),
    "log": lambda evidence: check_log(evidence.enclave, evidence.sequencer, evidence.parts),
}
