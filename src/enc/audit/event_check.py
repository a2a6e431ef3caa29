"""Checks a single event without any state: its hash, both signatures, and its id.

Events of all enclaves are checked in this way, in any order and on all cores: this takes most of an
audit's time.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct, field
from msgspec.json import Decoder

from enc.core.errors import EncError, InvalidSignature, PeerError
from enc.core.log.commit import check_hash, manifest_version
from enc.core.log.event import check_event, parse_event
from enc.core.machine.fault import Fault, FaultKind
from enc.core.primitives.encoding import MAX_INT
from enc.core.primitives.types import PREDEFINED, PREDEFINED_V1, REGISTRY_TYPES, VERSIONS, Event, Tags

RULE_TYPES = PREDEFINED | PREDEFINED_V1 | REGISTRY_TYPES
"""Types whose content the rules read."""


def check_line(line: bytes, number: int, enc_v: int) -> tuple[Event | None, Fault | None]:
    """Return the event of a line, if readable, and its fault, if any. `number`: of the line."""
    try:
        event = parse_event(line)
    except EncError as e:
        return _unreadable(line, number, e)
    try:
        check_event(event, enc_v)
    except EncError as e:
        return event, fault_of(event, e, enc_v)
    return event, None


def fault_of(event: Event, error: EncError, enc_v: int) -> Fault:
    """Return the fault of an event that fails its check."""
    kind: FaultKind = "invalid_signature" if isinstance(error, InvalidSignature) else "altered_content"
    what = error.message
    for other in VERSIONS:
        if kind == "altered_content" and other != enc_v and _hashes(event, other):
            what = f"{what}; it would be valid in version {other}, but the enclave has version {enc_v}"
    if kind == "invalid_signature" and what.startswith("the "):
        what = f"sig: not the author's signature over this commit ({event.from_.hex()})"
    return Fault(kind=kind, seq=event.seq, what=what)


def _hashes(event: Event, enc_v: int) -> bool:
    try:
        check_hash(event, enc_v)
    except PeerError:
        return False
    return True


_Number = Annotated[int, Meta(ge=0, le=MAX_INT)]
_Hex = Annotated[str, Meta(min_length=64, max_length=64)]


class _Place(Struct):
    seq: _Number


_place = Decoder(_Place)


def seq_of(line: bytes, number: int) -> int:
    """Return the seq in a line, even if the event is unreadable otherwise; else the line's
    number.
    """
    try:
        return _place.decode(line).seq
    except (msgspec.DecodeError, ValueError, RecursionError):
        return number


def log_version(line: bytes, default: int) -> int:
    """Return the version in a log's first line; `default` if that is not a Manifest."""
    try:
        return manifest_version(parse_event(line))
    except EncError:
        return default


def _unreadable(line: bytes, number: int, error: EncError) -> tuple[None, Fault]:
    what = f"the event cannot be read: {error.message}"
    return None, Fault(kind="altered_content", seq=seq_of(line, number), what=what)


class _Light(Struct):
    """Values out of bounds here are left to `parse_event`, which rejects them, so that both
    agree.
    """

    hash: _Hex
    enclave: _Hex
    from_: _Hex = field(name="from")
    type: str
    content: Raw
    exp: _Number
    id: _Hex
    timestamp: _Number
    sequencer: _Hex
    seq: _Number
    tags: Tags = ()
    content_hash: str | None = None
    withheld: Any = None


_light = Decoder(_Light)


def light_event(line: bytes) -> Event:
    """Read as much of an event as a replay needs: no signatures, and no contents that no rule
    reads.
    """
    try:
        wire = _light.decode(line)
        content = None if wire.content == b"null" else ""
        raw = bytes.fromhex(wire.hash + wire.enclave + wire.from_ + wire.id + wire.sequencer)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return parse_event(line)
    if len(raw) != 160 or wire.type in RULE_TYPES or wire.withheld is not None:
        return parse_event(line)
    if content is None and wire.content_hash is None:
        return parse_event(line)
    return Event(
        hash=raw[:32],
        enclave=raw[32:64],
        from_=raw[64:96],
        type=wire.type,
        content=content,
        content_hash=b"",
        exp=wire.exp,
        tags=wire.tags,
        sig=b"",
        id=raw[96:128],
        timestamp=wire.timestamp,
        sequencer=raw[128:],
        seq=wire.seq,
        seq_sig=b"",
    )


def light_events(lines: Sequence[bytes]) -> list[Event | None]:
    """Return the light events of many lines; None for each unreadable one."""
    return [_light_or_none(line) for line in lines]


def _light_or_none(line: bytes) -> Event | None:
    try:
        return light_event(line)
    except EncError:
        return None
