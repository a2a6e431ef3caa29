"""Builds the evidence for a finding: a minimal part of the log, which `enc verify` checks alone."""

from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from enc.audit.archive_reader import read_header, read_lines
from enc.audit.event_check import RULE_TYPES, check_line, log_version, seq_of
from enc.audit.finding import Finding
from enc.audit.spilling_store import SpillingStore
from enc.client.evidence.check_evidence import check_evidence
from enc.client.evidence.evidence import (
    MAX_EVIDENCE,
    Evidence,
    EvidenceKind,
    load_evidence,
    split_event,
    two_events,
    two_heads,
)
from enc.client.evidence.log_evidence import MAX_EVENTS, log_parts, order_parts, single_parts
from enc.core.errors import EncError, MisuseError
from enc.core.log.event import erase, parse_event
from enc.core.machine.audit_replay import AuditReplay
from enc.core.primitives.types import Event

_CLAIMED = ("wrong_bundle_boundary", "wrong_state_root")
_BY_HEAD = (*_CLAIMED, "wrong_log_root", "head_not_on_log", "broken_consistency")
"""Kinds that a log shows only together with a head."""


class ProvedFinding(Struct, frozen=True):
    """A finding with its evidence, or why there is none."""

    finding: Finding
    evidence: bytes = b""
    missing: str = ""
    convicts: bool = False
    """Whether the evidence convicts the finding's sequencer."""


def prove(finding: Finding) -> ProvedFinding:
    """Build the evidence and check it as its recipients will; the finding may become more exact.

    No log makes it raise. Evidence that would not hold for others is not written: they need the
    archive then.
    """
    try:
        finding, evidence = _proved(finding)
        data = evidence.json()
        if len(data) > MAX_EVIDENCE:
            raise MisuseError(f"the evidence would exceed {MAX_EVIDENCE} bytes")
        verdict = check_evidence(load_evidence(data))
        if not (verdict.convicts or verdict.holds):
            raise MisuseError("an evidence file would prove nothing")
    except EncError as e:
        themselves = "the archives themselves are" if finding.other else "the archive itself is"
        return ProvedFinding(finding, missing=f"{e.message}; {themselves} the evidence")
    return ProvedFinding(finding, data, convicts=verdict.convicts)


def _proved(finding: Finding) -> tuple[Finding, Evidence]:
    if finding.kind in ("invalid_signature", "altered_content"):
        return _single(finding)
    if finding.kind == "falling_timestamp":
        return finding, _short(finding, _fallen)
    if finding.kind == "equivocation":
        heads = [held.head for held in finding.heads]
        words = "fork", finding.enclave, finding.sequencer, finding.what
        return finding, two_heads(words[0], *words[1:], heads[0], heads[1])  # type: ignore[arg-type]
    if finding.kind == "old_sequencer":
        return finding, _log(finding) if finding.heads else _short(finding, _split)
    if finding.kind == "broken_consistency":
        return _diverged(finding)
    if finding.kind == "gap" and finding.before < 0:
        raise MisuseError("nobody signs the number of events in an archive's header")
    return finding, _log(finding)


def _evidence(kind: EvidenceKind, finding: Finding, parts: "dict[str, object]") -> Evidence:
    message = f"{finding.kind} at {finding.seq}: {finding.what}"
    return Evidence(
        kind=kind, enclave=finding.enclave, sequencer=finding.sequencer, message=message[:2000], parts=parts
    )


def _single(finding: Finding) -> tuple[Finding, Evidence]:
    """Build evidence of one event: the first with this fault and seq, and its sequencer."""
    header = read_header(finding.path)
    enc_v, number = header.enc_v, 0
    for lines in read_lines(finding.path):
        for line in lines:
            if number == 0:
                enc_v = log_version(line, enc_v)
            if seq_of(line, number) == finding.seq:
                event, fault = check_line(line, number, enc_v)
                if fault is not None and fault.kind == finding.kind:  # another event may have the same seq
                    found = replace(finding, sequencer=event.sequencer if event else b"")
                    return found, _evidence("event", found, single_parts(finding.kind, line, enc_v))
            number += 1
    raise MisuseError(f"{finding.path}: event {finding.seq} is no longer there")


def _events(path: str) -> Iterator[Event]:
    """Yield the archive's events; raise MisuseError for one that cannot be read."""
    for number, line in enumerate(line for lines in read_lines(path) for line in lines):
        try:
            event = parse_event(line)
        except EncError:
            raise MisuseError(f"an earlier event, number {number} of the archive, cannot be read") from None
        yield event


def _pair(path: str, first: int, then: int) -> tuple[Event, Event]:
    found: dict[int, Event] = {}
    for lines in read_lines(path):
        for line in lines:
            seq = seq_of(line, -1)
            if seq in (first, then) and seq not in found:
                found[seq] = parse_event(line)
        if len(found) == 2:
            return found[first], found[then]
    raise MisuseError(f"{path}: event {first} or {then} is missing")


def _short(finding: Finding, make: Callable[[Finding, Event, Event], Evidence]) -> Evidence:
    """Build evidence of two events if these convict; else of the log, with what is between them."""
    try:
        evidence = make(finding, *_pair(finding.path, finding.before, finding.seq))
    except EncError:
        return _log(finding)
    return evidence if convicts(evidence) else _log(finding)


def _fallen(finding: Finding, first: Event, then: Event) -> Evidence:
    return _evidence("order", finding, order_parts(first, then))


def _split(finding: Finding, migrate: Event, event: Event) -> Evidence:
    return split_event(migrate, event, finding.what)


def convicts(evidence: Evidence) -> bool:
    """Return whether the evidence convicts the sequencer that it names."""
    try:
        return check_evidence(evidence).convicts
    except EncError:
        return False


def _diverged(finding: Finding) -> tuple[Finding, Evidence]:
    """Build evidence where two logs of one enclave diverge: two events signed for one seq."""
    for first, then in zip(_events(finding.other), _events(finding.path), strict=False):
        if first.id != then.id or first.seq != then.seq:
            break
    else:
        raise MisuseError("one archive is a prefix of the other, event by event")
    finding = replace(finding, seq=first.seq, timestamp=first.timestamp)
    if first.seq == then.seq and first.sequencer == then.sequencer:
        return finding, two_events(_stripped(first), _stripped(then), f"{finding.kind} at {first.seq}: {finding.what}")
    if not finding.heads:
        raise MisuseError("different sequencers signed the diverging events, and there is no head")
    return finding, _log(finding)


def _log(finding: Finding) -> Evidence:
    """Build evidence of the log from its Manifest to the fault, with the head that shows it."""
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
        None if finding.anchor is None else finding.anchor.head,
    )
    return _evidence("log", finding, parts)


def _prefix(finding: Finding) -> Iterator[Event]:
    replay = AuditReplay(finding.enclave, SpillingStore(), check_erasures=False)
    whole = finding.kind == "erasure_without_cause" or (finding.kind == "wrong_log_root" and not finding.heads)
    size = finding.heads[0].head.ts if finding.heads else 0
    claim = finding.heads[0].claim if finding.heads else None
    last = 0
    if claim is not None and finding.kind in _CLAIMED:
        size = claim.index + 2  # with the next bundle, which proves that this one was closed
        last = claim.seq - claim.membership.ei + claim.membership.size - 1
    if finding.anchor is not None:
        size = max(size, finding.anchor.head.ts)
    seen = False
    for number, event in enumerate(_events(finding.path)):
        if number >= MAX_EVENTS:
            raise MisuseError(f"the evidence would exceed {MAX_EVENTS} events")
        yield event if whole else _stripped(event)
        if whole:
            continue
        replay.add(event)
        reached = replay.state is not None and replay.state.log.size >= size
        seen = seen or _shows(replay, finding, event)
        replay.faults.clear()
        if seen and reached and event.seq >= last:
            return


def _shows(replay: AuditReplay, finding: Finding, event: Event) -> bool:
    """Return whether a log that ends with this event shows the fault, alone or with a head."""
    if finding.kind in _BY_HEAD or (finding.kind == "old_sequencer" and finding.heads):
        return event.seq >= finding.seq
    noted = any((fault.kind, fault.seq) == (finding.kind, finding.seq) for fault in replay.faults)
    return noted or (finding.kind == "gap" and replay.has_gap_at(finding.seq))


def _stripped(event: Event) -> Event:
    """Drop a content that no rule reads: everything can be checked by its hash."""
    return event if event.type in RULE_TYPES else erase(event)
