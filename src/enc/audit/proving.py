"""Evidence for a finding: as little of the log as it takes, in a file that `enc verify` checks by itself."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from enc.audit.finding import Finding
from enc.audit.piece import JUDGED
from enc.audit.reading import read_header, read_lines
from enc.audit.spill import Spill
from enc.client.evidence import MAX_EVIDENCE, Evidence, Kind, split_event, split_head, two_events, two_heads
from enc.client.log_evidence import log_parts, order_parts, single_parts
from enc.core.commit import manifest_version
from enc.core.errors import EncError, MisuseError
from enc.core.event import erase, parse_event
from enc.core.trial import Trial
from enc.core.types import Event

MAX_EVENTS = 1_000_000
"""Of a log in one piece of evidence; nobody could pass on more."""

_CLAIMED = ("wrong_bundle_boundary", "wrong_state_root")


class Proved(Struct, frozen=True):
    """A finding, its evidence, or why there is none."""

    finding: Finding
    evidence: bytes = b""
    missing: str = ""


def prove(finding: Finding) -> Proved:
    """The evidence; the finding may have become more exact on the way. Nothing raises for what a log says."""
    try:
        finding, evidence = _proved(finding)
        data = evidence.json()
        if len(data) > MAX_EVIDENCE:
            raise MisuseError(f"it would take over {MAX_EVIDENCE} bytes; the archive itself is the evidence")
    except EncError as e:
        return Proved(finding, missing=e.message)
    return Proved(finding, data)


def _proved(finding: Finding) -> tuple[Finding, Evidence]:
    if finding.kind in ("invalid_signature", "altered_content"):
        return finding, _single(finding)
    if finding.kind == "falling_timestamp":
        first, then = _pair(finding.path, finding.before, finding.seq)
        return finding, _evidence("order", finding, order_parts(first, then))
    if finding.kind == "equivocation":
        heads = [held.head for held in finding.heads]
        words = "fork", finding.enclave, finding.sequencer, finding.what
        return finding, two_heads(words[0], *words[1:], heads[0], heads[1])  # type: ignore[arg-type]
    if finding.kind == "old_sequencer":
        return finding, _split(finding)
    if finding.kind == "broken_consistency":
        return _parted(finding)
    return finding, _log(finding)


def _evidence(kind: Kind, finding: Finding, parts: "dict[str, object]") -> Evidence:
    message = f"{finding.kind} at {finding.seq}: {finding.what}"
    return Evidence(
        kind=kind, enclave=finding.enclave, sequencer=finding.sequencer, message=message[:2000], parts=parts
    )


def _single(finding: Finding) -> Evidence:
    header = read_header(finding.path)
    enc_v, number = header.enc_v, 0
    for lines in read_lines(finding.path):
        for line in lines:
            if number == 0:
                enc_v = _version(line, enc_v)
            if _seq(line, number) == finding.seq:
                return _evidence("event", finding, single_parts(finding.kind, line, enc_v))
            number += 1
    raise MisuseError(f"{finding.path}: event {finding.seq} is not there any more")


def _version(line: bytes, told: int) -> int:
    try:
        return manifest_version(parse_event(line))
    except EncError:
        return told


class _Place(Struct):
    seq: int


_place = msgspec.json.Decoder(_Place)


def _seq(line: bytes, number: int) -> int:
    try:
        return _place.decode(line).seq
    except (msgspec.DecodeError, ValueError, RecursionError):
        return number


def _events(path: str) -> Iterator[Event]:
    for lines in read_lines(path):
        yield from map(parse_event, lines)


def _pair(path: str, first: int, then: int) -> tuple[Event, Event]:
    found: dict[int, Event] = {}
    for lines in read_lines(path):
        for line in lines:
            seq = _seq(line, -1)
            if seq in (first, then) and seq not in found:
                found[seq] = parse_event(line)
        if len(found) == 2:
            return found[first], found[then]
    raise MisuseError(f"{path}: events {first} and {then} are not both there")


def _split(finding: Finding) -> Evidence:
    if not finding.heads:
        migrate, event = _pair(finding.path, finding.before, finding.seq)
        return split_event(migrate, event, finding.what)
    trial, last = Trial(finding.enclave, Spill(), explain=False), None
    for event in _events(finding.path):
        trial.take(event)
        if event.type == "Migrate" and event.sequencer == finding.sequencer and trial.state is not None:
            last = event, trial.state.log.size
    if last is None:
        raise MisuseError("no Migrate ended the sequencer's term")
    return split_head(last[0], last[1], finding.heads[0].head, finding.sequencer, finding.what)


def _parted(finding: Finding) -> tuple[Finding, Evidence]:
    """Where two logs of one enclave part: two events that were signed for one place."""
    for first, then in zip(_events(finding.other), _events(finding.path), strict=False):
        if first.id != then.id or first.seq != then.seq:
            break
    else:
        raise MisuseError("one of the archives is the beginning of the other, event by event")
    finding = replace(finding, seq=first.seq, timestamp=first.timestamp)
    if first.seq == then.seq and first.sequencer == then.sequencer:
        return finding, two_events(_stripped(first), _stripped(then), f"{finding.kind} at {first.seq}: {finding.what}")
    if not finding.heads:
        raise MisuseError("different sequencers signed them, and no head is at hand")
    return finding, _log(finding)


def _log(finding: Finding) -> Evidence:
    """The log from its Manifest to where the fault is seen, and the head that it is seen by."""
    header = read_header(finding.path)
    held = finding.heads[0] if finding.heads else None
    checkpoint = (header.checkpoint_seq, header.checkpoint_root) if finding.kind == "wrong_log_root" else None
    parts = log_parts(
        finding.kind,
        finding.seq,
        _prefix(finding),
        None if held is None else held.head,
        held.claim if held is not None and finding.kind in _CLAIMED else None,
        checkpoint if held is None else None,
    )
    return _evidence("log", finding, parts)


def _prefix(finding: Finding) -> Iterator[Event]:
    trial = Trial(finding.enclave, Spill(), explain=False)
    whole = finding.kind == "erasure_without_cause" or (finding.kind == "wrong_log_root" and not finding.heads)
    size = finding.heads[0].head.ts if finding.heads else 0
    claim = finding.heads[0].claim if finding.heads else None
    if claim is not None and finding.kind in _CLAIMED:
        size = claim.index + 2  # with the bundle after it, so that nobody can say that it was still open
    seen = False
    for number, event in enumerate(_events(finding.path)):
        if number >= MAX_EVENTS:
            raise MisuseError(f"it would take over {MAX_EVENTS} events; the archive itself is the evidence")
        yield event if whole else _stripped(event)
        if whole:
            continue
        trial.take(event)
        reached = trial.state is not None and trial.state.log.size >= size
        seen = seen or (event.seq == finding.seq if finding.kind == "reordering" else event.seq >= finding.seq)
        if seen and reached:
            return


def _stripped(event: Event) -> Event:
    """Without a content that no rule looks into: its hash is there, and everything can be checked by that."""
    return event if event.type in JUDGED else erase(event)
