"""Chains of Migrate events: how an enclave moved from one sequencer to another (docs/protocol.md,
section 23.5).

Each link is a full event. Checked in this order, each step with a message of its own:

 1. it is a Migrate, of this enclave
 2. commit hash, author's signature, sequencer's signature, id; `seq` is the one after `prev_seq`; the timestamp is in
    the window of its `exp`, and not in the registry's future
 3. if it has an owner proof, that is valid for its author, who becomes the holder
 4. it was finalised by the sequencer before it (peaceful), or by its own `new_sequencer` (forced)
 5. it is later than every proof and every Migrate that was submitted before: an old one, of an enclave that came back,
    has no effect
 6. its author is the holder
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from enc.core.errors import EncError, InvalidCommit, InvalidProof
from enc.core.log.event import WireEvent, check_event, check_time, event_from_wire, wire_event
from enc.core.primitives.encoding import convert_json
from enc.core.primitives.types import Event
from enc.core.registry.owner_proof import OwnerProof, check_owner_proof, parse_owner_proof, wire_owner_proof
from enc.core.registry.ownership import KnownOwnership
from enc.core.rules.content import Migrate, parse_migrate

MAX_LINKS = 16
"""Maximum number of Migrate events in one registration. After more moves, register the first of
them first.

The node checks them while it sequences commits, so the cost of one registration is kept small: some
100 signatures."""


class Link(Struct, frozen=True):
    """One Migrate and, if its author is not the holder, a proof that the author owns the
    enclave."""

    event: Event
    owner_proof: OwnerProof | None = None


def parse_chain(value: Any, path: str) -> tuple[Link, ...]:
    """Parse links from decoded JSON; raise InvalidCommit with the path if malformed."""
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_LINKS:
        raise InvalidCommit(f"{path}: expected a list of 1 to {MAX_LINKS}")
    return tuple(parse_link(each, f"{path}[{i}]") for i, each in enumerate(value))


def parse_link(value: Any, path: str) -> Link:
    """Parse a Migrate's event, which has `owner_proof` beside its own fields."""
    try:
        event = event_from_wire(convert_json(value, WireEvent, InvalidCommit))
    except EncError as e:
        raise InvalidCommit(f"{path}: {e.message}") from None
    proof = value.get("owner_proof")
    return Link(event, None if proof is None else parse_owner_proof(proof, f"{path}.owner_proof"))


def wire_link(link: Link) -> dict[str, Any]:
    wire = wire_event(link.event)
    if link.owner_proof is not None:
        wire["owner_proof"] = wire_owner_proof(link.owner_proof)
    return wire


def check_chain(links: Sequence[Link], known: KnownOwnership) -> KnownOwnership:
    """Return holder and sequencer after the last link; InvalidProof names the link and the failed
    step."""
    for i, link in enumerate(links):
        try:
            known = _check_link(link, known)
        except EncError as e:
            raise InvalidProof(f"[{i}]{'' if e.message.startswith('.') else ': '}{e.message}") from None
    return known


def _check_link(link: Link, known: KnownOwnership) -> KnownOwnership:
    event, migrate = link.event, _check_event(link.event, known)
    if link.owner_proof is not None:  # 3
        try:
            known = check_owner_proof(link.owner_proof, event.from_, known)
        except InvalidProof as e:
            raise InvalidProof(f".owner_proof.{e.message}") from None
    if event.sequencer not in (known.sequencer, migrate.new_sequencer):  # 4
        raise InvalidProof("finalised by neither the sequencer before it nor its own new_sequencer")
    if (event.timestamp, event.seq) <= (known.moved_time, known.moved_at) or event.timestamp < known.proved_at:  # 5
        raise InvalidProof("not later than what was submitted before")
    if event.from_ != known.holder:  # 6
        raise InvalidProof("neither by the holder nor with an owner proof of its author")
    return known.moved(event, migrate)


def _check_event(event: Event, known: KnownOwnership) -> Migrate:
    if event.type != "Migrate":  # 1
        raise InvalidProof("expected a Migrate")
    if event.enclave != known.manifest.enclave:
        raise InvalidProof("of another enclave")
    check_event(event, known.policy.enc_v)  # 2
    migrate = parse_migrate(event)
    if event.seq != migrate.prev_seq + 1:
        raise InvalidProof("seq: not the one after prev_seq")
    check_time(event, InvalidProof)
    known.check_time(event.timestamp, "timestamp")
    return migrate
