"""One archive before the court: its log tried event by event, its roots noted where heads ask for them.

Small archives are read once: each event is checked by itself and tried at once. Of a large one, tasks check parts
(`check_part`) while another tries the log (`try_log`), which asks for no signature.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from msgspec import Struct, field

from enc.audit.finding import Finding, finding_of
from enc.audit.heads import MAX_SIGNERS, HeldHead, signer_of
from enc.audit.lies import first_lie
from enc.audit.piece import JUDGED, check_line, light_events
from enc.audit.reading import read_header, read_lines
from enc.audit.spill import Spill, SpilledCommits
from enc.core.archive import Header
from enc.core.errors import EncError
from enc.core.fault import Fault, FaultKind
from enc.core.marks import ObservedRoot, ObservedRoots
from enc.core.trial import AuditReplay
from enc.core.types import Event

MAX_FAULTS = 100
"""Of one kind in one part of an archive: more of them are counted, and not told one by one."""
MAX_ROUNDS = 16
"""Trials of one log: one more for each bundle that its node drew otherwise than the rule."""
DAY_MS = 86_400_000
MAX_DAYS = 4096


class Tally(Struct):
    """Findings of one archive: the first of each kind, and how many there are."""

    findings: list[Finding] = field(default_factory=list)
    counts: dict[FaultKind, int] = field(default_factory=dict)
    doubt: int | None = None
    """The first event of which it is not known what it did to the state, told or not."""

    def add(self, finding: Finding, is_doubtful: bool = False) -> None:
        if is_doubtful:
            self.doubt = finding.seq if self.doubt is None else min(self.doubt, finding.seq)
        count = self.counts.get(finding.kind, 0)
        self.counts[finding.kind] = count + 1
        if count < MAX_FAULTS:
            self.findings.append(finding)


class Checked(Struct, kw_only=True):
    """What a part of an archive gave by itself."""

    path: str
    enclave: bytes
    first: int
    events: int = 0
    tally: Tally
    problem: str = ""
    """Why it could not be read to its end."""


class Tried(Struct, kw_only=True):
    """What the log of an archive gave."""

    path: str
    enclave: bytes
    header: Header | None
    events: int = 0
    enc_v: int = 0
    tally: Tally
    doubt: int | None = None
    sequencers: list[tuple[bytes, int]] = []
    marks: dict[int, ObservedRoot] = {}
    """By size, those that were asked for."""
    held: list[tuple[HeldHead, bytes | None]] = []
    """All heads at hand, the archive's own among them, each with its signer; None: nobody who had a part in the log."""
    size: int = 0
    last_seq: int = -1
    end: bytes = b""
    """The checkpoint root after the last event."""
    is_open: bool = False
    """Whether the last bundle could still take an event."""
    checkpoints: dict[int, bytes] = {}
    """Checkpoint roots after these events: those that were asked for."""
    days: dict[int, int] = {}
    """Events by day."""
    digest: str = ""
    """SHA-256 of all lines of events."""
    problem: str = ""


def check_part(path: str, enclave: bytes, enc_v: int, first: int, last: int | None) -> Checked:
    """Every event from line `first` to before line `last` by itself."""
    found = Checked(path=path, enclave=enclave, first=first, tally=Tally())
    try:
        for lines in read_lines(path, first, last):
            for number, line in enumerate(lines, first + found.events):
                event, fault = check_line(line, number, enc_v)
                if fault is not None:
                    _tell(found, fault, event)
            found.events += len(lines)
    except EncError as e:
        found.problem = e.message
    return found


def try_log(path: str, heads: Sequence[HeldHead] = (), seqs: frozenset[int] = frozenset()) -> Tried:
    """The log's own order and rules, without signatures of events."""
    return _tried(path, heads, seqs, lambda lines, number: light_events(lines))


def try_whole(
    path: str, enc_v: int, heads: Sequence[HeldHead] = (), seqs: frozenset[int] = frozenset(), known: int = 0
) -> tuple[Checked, Tried]:
    """Both at once, with each event read once. The first `known` events are known to check."""
    checked = Checked(path=path, enclave=b"", first=0, tally=Tally())

    def check(lines: Sequence[bytes], number: int) -> Iterator[Event | None]:
        for at, line in enumerate(lines, number):
            event, fault = check_line(line, at, enc_v)
            if fault is not None:
                _tell(checked, fault, event)
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
    return checked, _tried(path, heads, seqs, read)


def _tell(part: Checked, fault: Fault, event: Event | None) -> None:
    """What an event that does not check did to the state is not known, if rules look into what it says."""
    key, time = (event.sequencer, event.timestamp) if event else (b"", 0)
    part.tally.add(finding_of(fault, part.enclave, part.path, key, time), event is None or event.type in JUDGED)


Reads = Callable[[Sequence[bytes], int], Iterable[Event | None]]
"""(lines, number of the first) to events, one for each line; None for one that cannot be read."""


def _tried(path: str, heads: Sequence[HeldHead], seqs: frozenset[int], read: Reads) -> Tried:
    """Try the log; where the node proved that it drew a bundle or a state of its own, once more with these."""
    try:
        header = read_header(path)
    except EncError as e:
        return Tried(path=path, enclave=b"", header=None, problem=e.message, tally=Tally())
    own = [] if header.sth is None else [HeldHead(head=header.sth, source=os.path.basename(path), is_own=True)]
    held, told, drawn, claimed = [*own, *heads], list[Finding](), dict[int, int](), dict[int, bytes]()
    for _ in range(MAX_ROUNDS):
        bench = _Bench(path, header, marks_of(held), seqs, drawn, claimed)
        bench.run(read)
        read = lambda lines, number: light_events(lines)  # noqa: E731
        tried = bench.end(held)
        lie = first_lie(tried.held, bench.marks.bundles, bench.marks.places)
        if lie is None or (lie.kind, lie.index) in {(found.kind, found.before) for found in told}:
            break
        told.append(lie.finding(header.enclave, path))
        if lie.kind == "wrong_bundle_boundary":
            drawn[lie.index] = lie.size
        else:
            claimed[lie.index] = lie.state_hash
    for finding in told:
        tried.tally.add(finding)
    return tried


def marks_of(held: Iterable[HeldHead]) -> ObservedRoots:
    held = list(held)
    return ObservedRoots([each.head.ts for each in held], [each.claim for each in held if each.claim is not None])


class _Bench:
    """One trial of one archive."""

    def __init__(
        self,
        path: str,
        header: Header,
        marks: ObservedRoots,
        seqs: frozenset[int],
        drawn: dict[int, int],
        claimed: dict[int, bytes],
    ) -> None:
        self._tried = Tried(path=path, enclave=header.enclave, header=header, tally=Tally())
        self.marks, self._seqs = marks, seqs
        self._trial = AuditReplay(
            header.enclave,
            Spill(),
            SpilledCommits(),
            marks.step,
            node_bundle_sizes=dict(drawn),
            node_state_hashes=dict(claimed),
        )
        self._days: Counter[int] = Counter()

    def run(self, read: Reads) -> None:
        number, digest = 0, hashlib.sha256()
        try:
            for lines in read_lines(self._tried.path, digest=digest):
                self._take(read(lines, number))
                number += len(lines)
        except EncError as e:
            self._tried.problem = e.message
        self._tried.events, self._tried.digest = number, digest.hexdigest()

    def _take(self, events: Iterable[Event | None]) -> None:
        trial, days, seqs = self._trial, self._days, self._seqs
        for event in events:
            if event is None:  # told by whoever checks events by themselves
                trial.skip()
                continue
            trial.add(event)
            days[event.timestamp // DAY_MS] += 1
            if event.seq in seqs and (root := trial.root()) is not None:
                self._tried.checkpoints[event.seq] = root
            if trial.faults:
                self._tell(event)
        if len(days) > MAX_DAYS:
            self._days = Counter(dict(days.most_common(MAX_DAYS // 2)))

    def _tell(self, event: Event | None) -> None:
        """Faults get the time and the sequencer of the event at which they were seen. None is kept in the trial."""
        for fault in self._trial.faults:
            key, time = (event.sequencer, event.timestamp) if event is not None else (self._office(fault.seq), 0)
            self._tried.tally.add(finding_of(fault, self._tried.enclave, self._tried.path, key, time))
        self._trial.faults.clear()

    def _office(self, seq: int) -> bytes:
        """Whose log it was there."""
        return next((key for key, first in reversed(self._trial.sequencers) if first <= seq), b"")

    def end(self, held: Sequence[HeldHead]) -> Tried:
        tried, trial = self._tried, self._trial
        trial.finish(sort=False)
        self._tell(None)
        tried.doubt, tried.sequencers, tried.days = trial.roots_unknown_from, trial.sequencers, dict(self._days)
        self.marks.end(trial)
        tried.marks = self.marks.roots
        state, keys = trial.state, _signers(trial)
        if state is not None:
            tried.enc_v, tried.size, tried.last_seq = state.policy.enc_v, state.log.size, state.seq
            tried.end, tried.is_open = trial.root() or b"", state.bundle is not None
            keys.append(state.sequencer)
        tried.held = [(each, signer_of(each, tried.enclave, keys)) for each in held]
        return tried


def _signers(trial: AuditReplay) -> list[bytes]:
    """Who may have signed heads of the log, the latest first. Of very many strangers, the first and the last count."""
    keys, half = list(dict.fromkeys(key for key, _ in reversed(trial.sequencers))), MAX_SIGNERS // 2
    return keys if len(keys) <= MAX_SIGNERS else [*keys[:half], *keys[-half:]]
