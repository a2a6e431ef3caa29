"""A batch, as a node pushes it or returns it for a Pull, and the checks of its events.

`parse_batch` checks the form: each enclave once, its events in ascending order of seq.
`check_batch` checks each event by itself and against what is known of its enclave: hash, both
signatures, id, sequencer, no content missing that is never erased. A statement of a key that is
not a known node of the log is dropped. Only the number of the next batch shows whether one was left
out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from enc.client.verify.items import check_order
from enc.client.verify.log_verifier import LogVerifier
from enc.core.errors import InvalidProof, PeerError
from enc.core.log.event import WireEvent, event_from_wire, keep_valid_statement, lacks_required_content
from enc.core.primitives.encoding import check_numbers, convert_json, decode_json, unhex
from enc.core.primitives.types import Event


class Notice(Struct, frozen=True):
    """There are new events: the latest of them, and the enclave's count for each notified type."""

    enclave: bytes
    seq: int
    event_id: bytes
    type: str
    timestamp: int
    type_seq: Mapping[str, int]


class PushedBatch(Struct, frozen=True):
    """One batch of a queue.

    Events that the recipient may no longer read are not in it; it may be empty.
    """

    push_seq: int
    events: Mapping[bytes, tuple[Event, ...]] = {}
    """By enclave, in ascending order of seq."""
    notices: tuple[Notice, ...] = ()


class _WirePushed(Struct):
    enclave: str
    events: list[WireEvent]


class _WireNotice(Struct):
    enclave: str
    seq: int
    event_id: str
    type: str
    timestamp: int
    type_seq: dict[str, int]


class _WirePushes(Struct, frozen=True):
    enclaves: tuple[_WirePushed, ...] = ()


class _WireNotices(Struct, frozen=True):
    enclaves: tuple[_WireNotice, ...] = ()


class WireBatch(Struct):
    push_seq: int
    push: _WirePushes = _WirePushes()
    notify: _WireNotices = _WireNotices()


VerifierOf = Callable[[bytes], LogVerifier]
"""Returns the verifier for an enclave id."""

_batch, _batches = Decoder(WireBatch), Decoder(list[WireBatch])


def parse_batch(body: bytes | str | dict[str, Any]) -> PushedBatch:
    """Parse a batch from JSON, decoded or not; raises InvalidProof. Checks no signature."""
    if isinstance(body, dict):
        return _batch_of(convert_json(body, WireBatch, InvalidProof))
    return _batch_of(decode_json(body, _batch, InvalidProof))


def parse_batches(text: bytes) -> list[PushedBatch]:
    """Return the batches of the answer to a Pull, in ascending order of push_seq."""
    batches = [_batch_of(wire) for wire in decode_json(text, _batches, InvalidProof)]
    for i, batch in enumerate(batches[1:]):
        if batch.push_seq <= batches[i].push_seq:
            raise InvalidProof(f"batch {batch.push_seq}: out of order")
    return batches


def check_batch(batch: PushedBatch, verifier_of: VerifierOf, answer: bytes) -> PushedBatch:
    """Verify every event with its enclave's verifier; raises Distrust with `answer` as evidence.

    Return the batch without the statements that do not count.
    """
    checked = dict[bytes, tuple[Event, ...]]()
    for enclave, events in batch.events.items():
        verifier = verifier_of(enclave)
        verifier.verify_events(events, answer)
        with verifier.blame_node("event", answer):
            _check_contents(events, verifier.dialect.predefined)
        checked[enclave] = tuple(keep_valid_statement(event, verifier.nodes_of(event)) for event in events)
    return replace(batch, events=checked)


def _batch_of(wire: WireBatch) -> PushedBatch:
    check_numbers(InvalidProof, push_seq=wire.push_seq)
    if not wire.push_seq:
        raise InvalidProof("push_seq: expected 1 or more")
    events = {unhex(each.enclave, 32, "enclave", InvalidProof): _events(each) for each in wire.push.enclaves}
    notices = [_notice(each) for each in wire.notify.enclaves]
    for named in ([each.enclave for each in wire.push.enclaves], [each.enclave for each in wire.notify.enclaves]):
        if len(set(named)) < len(named):
            raise InvalidProof("enclaves: one appears twice")
    return PushedBatch(wire.push_seq, events, tuple(notices))


def _events(wire: _WirePushed) -> tuple[Event, ...]:
    if not wire.events:
        raise InvalidProof("events: empty")
    try:
        events = tuple(event_from_wire(each) for each in wire.events)
    except PeerError as e:
        raise InvalidProof(f"event: {e.message}") from None
    _check_events(events, wire.enclave)
    return events


def _check_events(events: Sequence[Event], enclave: str) -> None:
    check_order(events)
    for event in events:
        if event.enclave.hex() != enclave:
            raise InvalidProof(f"event {event.seq}: belongs to another enclave")


def _check_contents(events: Sequence[Event], predefined: frozenset[str]) -> None:
    """Check that no content is missing that may be neither erased nor withheld by the rules of the
    enclave's version, known from its events.
    """
    for event in events:
        if lacks_required_content(event, predefined):
            raise InvalidProof(f"event {event.seq}: the content of a {event.type} is missing")


def _notice(wire: _WireNotice) -> Notice:
    check_numbers(InvalidProof, seq=wire.seq, timestamp=wire.timestamp)
    for type_, number in wire.type_seq.items():
        check_numbers(InvalidProof, type_seq=number)
        if not number:
            raise InvalidProof(f"type_seq: {type_}: expected 1 or more")
    return Notice(
        unhex(wire.enclave, 32, "enclave", InvalidProof),
        wire.seq,
        unhex(wire.event_id, 32, "event_id", InvalidProof),
        wire.type,
        wire.timestamp,
        wire.type_seq,
    )
