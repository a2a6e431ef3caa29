"""Replays one archive: its log event by event, with the roots at the sizes that heads need.

A small archive is read once: each event is checked and replayed at once. For a large one, tasks
check parts (`check_part`) while another replays the log (`replay_log`) without signatures.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from msgspec import Struct, field

from enc.audit.archive_reader import read_header, read_lines
from enc.audit.collected_heads import MAX_SIGNERS, CollectedHead, signer_of
from enc.audit.contradictions import first_contradiction
from enc.audit.event_check import RULE_TYPES, check_line, light_event, light_events
from enc.audit.finding import Finding, finding_of
from enc.audit.spilling_store import SpilledCommits, SpillingStore
from enc.core.errors import EncError
from enc.core.machine.archive import Header
from enc.core.machine.audit_replay import AuditReplay
from enc.core.machine.fault import Fault, FaultKind
from enc.core.machine.observed_roots import ObservedRoot, ObservedRoots
from enc.core.primitives.types import Event, Withheld

MAX_FAULTS = 100
"""Faults of one kind in one part of an archive that are listed; more are only counted."""
MAX_ROUNDS = 16
"""Replays of one log: one more for each bundle whose boundary or state the node got wrong."""
DAY_MS = 86_400_000
MAX_DAYS = 4096


class FindingTally(Struct):
    """Findings of one archive: the first of each kind, and how many there are."""

    findings: list[Finding] = field(default_factory=list)
    counts: dict[FaultKind, int] = field(default_factory=dict)
    unknown_from: int | None = None
    """The first event whose effect on the state is unknown, whether listed or not."""

    def add(self, finding: Finding, is_doubtful: bool = False) -> None:
        if is_doubtful:
            self.unknown_from = finding.seq if self.unknown_from is None else min(self.unknown_from, finding.seq)
        count = self.counts.get(finding.kind, 0)
        self.counts[finding.kind] = count + 1
        if count < MAX_FAULTS:
            self.findings.append(finding)


class CheckResult(Struct, kw_only=True):
    """The result of checking the single events of a part of an archive."""

    path: str
    enclave: bytes
    first: int
    events: int = 0
    tally: FindingTally
    problem: str = ""
    """Why it could not be read to the end."""


class ReplayResult(Struct, kw_only=True):
    """The result of replaying the log of an archive."""

    path: str
    enclave: bytes
    header: Header | None
    events: int = 0
    enc_v: int = 0
    tally: FindingTally
    unknown_from: int | None = None
    sequencers: list[tuple[bytes, int]] = []
    withheld: list[tuple[int, Withheld]] = []
    """The first contents that nodes of the log withhold, by seq, with their statements."""
    marks: dict[int, ObservedRoot] = {}
    """Roots by size, at the sizes of the heads."""
    held: list[tuple[CollectedHead, bytes | None]] = []
    """All heads, with the archive's own, each with its signer; None: no sequencer of the log."""
    size: int = 0
    last_seq: int = -1
    end: bytes = b""
    """The checkpoint root after the last event."""
    is_open: bool = False
    """Whether the last bundle is still open."""
    checkpoints: dict[int, bytes] = {}
    """Checkpoint roots after the requested events."""
    days: dict[int, int] = {}
    """Events by day."""
    digest: str = ""
    """SHA-256 of all event lines."""
    problem: str = ""


def check_part(path: str, enclave: bytes, enc_v: int, first: int, last: int | None) -> CheckResult:
    """Check each single event from line `first` to before line `last`."""
    found = CheckResult(path=path, enclave=enclave, first=first, tally=FindingTally())
    try:
        for lines in read_lines(path, first, last):
            for number, line in enumerate(lines, first + found.events):
                event, fault = check_line(line, number, enc_v)
                if fault is not None:
                    _record(found, fault, event)
            found.events += len(lines)
    except EncError as e:
        found.problem = e.message
    return found


def replay_log(path: str, heads: Sequence[CollectedHead] = (), seqs: frozenset[int] = frozenset()) -> ReplayResult:
    """Replay the log by its order and rules, without the signatures of events."""
    return _replay(path, heads, seqs, lambda lines, number: light_events(lines))


def check_and_replay(
    path: str, enc_v: int, heads: Sequence[CollectedHead] = (), seqs: frozenset[int] = frozenset(), known: int = 0
) -> tuple[CheckResult, ReplayResult]:
    """Check and replay in one pass. The first `known` events were checked by an earlier audit."""
    checked = CheckResult(path=path, enclave=b"", first=0, tally=FindingTally())

    def check(lines: Sequence[bytes], number: int) -> Iterator[Event | None]:
        for at, line in enumerate(lines, number):
            event, fault = check_line(line, at, enc_v)
            if fault is not None:
                _record(checked, fault, event)
            yield event
        checked.events += len(lines)

    def read(lines: Sequence[bytes], number: int) -> Iterable[Event | None]:
        if number + len(lines) <= known:
            return light_events(lines)
        new = max(known - number, 0)
        return chain(light_events(lines[:new]), check(lines[new:], number + new))

    try:
        checked.enclave = read_header(path).enclave
    except EncError as e:
        checked.problem = e.message
    return checked, _replay(path, heads, seqs, read)


def _record(part: CheckResult, fault: Fault, event: Event | None) -> None:
    """Add a fault. If the rules depend on the event's content, its effect on the state is
    unknown.
    """
    key, time = (event.sequencer, event.timestamp) if event else (b"", 0)
    part.tally.add(finding_of(fault, part.enclave, part.path, key, time), event is None or event.type in RULE_TYPES)


EventReader = Callable[[Sequence[bytes], int], Iterable[Event | None]]
"""Takes lines and the number of the first; returns an event for each line, None if unreadable."""


def _replay(path: str, heads: Sequence[CollectedHead], seqs: frozenset[int], read: EventReader) -> ReplayResult:
    """Replay the log. If proofs of the node contradict it, replay again with the node's values."""
    try:
        header = read_header(path)
    except EncError as e:
        return ReplayResult(path=path, enclave=b"", header=None, problem=e.message, tally=FindingTally())
    own = [] if header.sth is None else [CollectedHead(head=header.sth, source=os.path.basename(path), is_own=True)]
    held, found, bundle_sizes, state_hashes = [*own, *heads], list[Finding](), dict[int, int](), dict[int, bytes]()
    for _ in range(MAX_ROUNDS):
        replay = _Replay(path, header, observed_roots(held), seqs, bundle_sizes, state_hashes)
        replay.run(read)
        read = lambda lines, number: light_events(lines)  # noqa: E731
        result = replay.finish(held)
        wrong = first_contradiction(result.held, replay.marks.bundles, replay.marks.places, partial(_ids, path))
        if wrong is None or (wrong.kind, wrong.index) in {(finding.kind, finding.before) for finding in found}:
            break
        found.append(wrong.finding(header.enclave, path))
        if wrong.kind == "wrong_bundle_boundary":
            bundle_sizes[wrong.index] = wrong.size
        else:
            state_hashes[wrong.index] = wrong.state_hash
    for finding in found:
        result.tally.add(finding)
    return result


def observed_roots(held: Iterable[CollectedHead]) -> ObservedRoots:
    held = list(held)
    return ObservedRoots([each.head.ts for each in held], [each.claim for each in held if each.claim is not None])


def _ids(path: str, first: int, count: int) -> list[bytes]:
    """Return the ids of the events in `count` lines from line `first` on, as many as there are."""
    try:
        lines = (line for block in read_lines(path, first, first + count) for line in block)
        return [event.id for event in map(light_event, lines)]
    except EncError:
        return []


class _Replay:
    """One replay of one archive."""

    def __init__(
        self,
        path: str,
        header: Header,
        marks: ObservedRoots,
        seqs: frozenset[int],
        bundle_sizes: dict[int, int],
        state_hashes: dict[int, bytes],
    ) -> None:
        self._result = ReplayResult(path=path, enclave=header.enclave, header=header, tally=FindingTally())
        self.marks, self._seqs = marks, seqs
        self._replay = AuditReplay(
            header.enclave,
            SpillingStore(),
            SpilledCommits(),
            marks.step,
            node_bundle_sizes=dict(bundle_sizes),
            node_state_hashes=dict(state_hashes),
        )
        self._days: Counter[int] = Counter()

    def run(self, read: EventReader) -> None:
        number, digest = 0, hashlib.sha256()
        try:
            for lines in read_lines(self._result.path, digest=digest):
                self._apply(read(lines, number))
                number += len(lines)
        except EncError as e:
            self._result.problem = e.message
        self._result.events, self._result.digest = number, digest.hexdigest()

    def _apply(self, events: Iterable[Event | None]) -> None:
        replay, days, seqs = self._replay, self._days, self._seqs
        for event in events:
            if event is None:  # reported by the check of single events
                replay.skip()
                continue
            replay.add(event)
            days[event.timestamp // DAY_MS] += 1
            if event.seq in seqs and (root := replay.root()) is not None:
                self._result.checkpoints[event.seq] = root
            if replay.faults:
                self._record(event)
        if len(days) > MAX_DAYS:
            self._days = Counter(dict(days.most_common(MAX_DAYS // 2)))

    def _record(self, event: Event | None) -> None:
        """Move the faults from the replay to the tally, with time and sequencer of the current
        event.
        """
        for fault in self._replay.faults:
            key, time = (event.sequencer, event.timestamp) if event is not None else (self._sequencer_at(fault.seq), 0)
            self._result.tally.add(finding_of(fault, self._result.enclave, self._result.path, key, time))
        self._replay.faults.clear()

    def _sequencer_at(self, seq: int) -> bytes:
        """Return the log's sequencer at this seq."""
        return next((key for key, first in reversed(self._replay.sequencers) if first <= seq), b"")

    def finish(self, held: Sequence[CollectedHead]) -> ReplayResult:
        result, replay = self._result, self._replay
        replay.finish(sort=False)
        self._record(None)
        result.unknown_from, result.sequencers = replay.roots_unknown_from, replay.sequencers
        result.withheld, result.days = replay.withheld, dict(self._days)
        self.marks.end(replay)
        result.marks = self.marks.roots
        state, keys = replay.state, _signers(replay)
        if state is not None:
            result.enc_v, result.size, result.last_seq = state.policy.enc_v, state.log.size, state.seq
            result.end, result.is_open = replay.root() or b"", state.bundle is not None
            keys.append(state.sequencer)
        result.held = [(each, signer_of(each, result.enclave, keys)) for each in held]
        return result


def _signers(replay: AuditReplay) -> list[bytes]:
    """Return the keys that may have signed heads of the log, the latest first.

    Of more than MAX_SIGNERS, only the first and the last count.
    """
    keys, half = list(dict.fromkeys(key for key, _ in reversed(replay.sequencers))), MAX_SIGNERS // 2
    return keys if len(keys) <= MAX_SIGNERS else [*keys[:half], *keys[-half:]]
