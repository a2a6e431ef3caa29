"""Combines the results of all tasks for one enclave: each fault once, each head against each log.

A head is on a log if the log had its root at its size. Consequences of another fault are not
reported again: roots after an event with unknown effects are not judged, and two heads that
contradict each other are one finding.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from enc.audit.finding import Finding
from enc.audit.heads import MAX_SIGNERS, CollectedHead, signer_of
from enc.audit.replay_task import MAX_FAULTS, CheckResult, ReplayResult
from enc.core.primitives.fault import FaultKind
from enc.core.primitives.hashing import EMPTY_HASH
from enc.core.primitives.types import TreeHead

Held = tuple[CollectedHead, bytes | None]


class EnclaveVerdict(Struct, kw_only=True):
    """The verdict on one enclave."""

    enclave: bytes
    findings: list[Finding] = field(default_factory=list)
    counts: dict[FaultKind, int] = field(default_factory=dict)
    """Findings by kind, including unlisted ones."""
    problems: list[str] = field(default_factory=list)
    """What could not be checked."""
    events: int = 0
    """Events of the longest log."""
    checked: int = 0
    """Events of all archives whose signatures were checked."""
    bundles: int = 0
    archives: int = 0
    heads: int = 0
    on_log: int = 0
    beyond: int = 0
    """Heads larger than the archives, or after a fault that makes their roots unknown."""
    unsigned: int = 0
    """Heads that none of the log's sequencers signed."""
    sequencers: list[bytes] = field(default_factory=list)
    days: dict[int, int] = field(default_factory=dict)

    def add_read(self, read: "EnclaveVerdict") -> None:
        """Add what was read of an enclave. Its heads, including the one it was read under, are
        known.
        """
        self.events, self.bundles = max(self.events, read.events), max(self.bundles, read.bundles)
        self.checked += read.checked
        shown = min(read.on_log, self.beyond)
        self.on_log, self.beyond = self.on_log + shown, self.beyond - shown


def judge_enclave(enclave: bytes, checked: Sequence[CheckResult], replayed: Sequence[ReplayResult]) -> EnclaveVerdict:
    verdict = EnclaveVerdict(enclave=enclave, archives=len(replayed), checked=sum(part.events for part in checked))
    parts: list[CheckResult | ReplayResult] = [*checked, *replayed]
    for each in parts:
        if each.problem:
            verdict.problems.append(f"{each.path}: {each.problem}")
        for kind, count in each.tally.counts.items():
            verdict.counts[kind] = verdict.counts.get(kind, 0) + count
    logs = sorted((log for log in replayed if log.header is not None), key=lambda log: (-log.last_seq, log.path))
    found = _events(checked, logs) + [finding for log in logs for finding in _ending(log)]
    if logs:
        main = logs[0]
        verdict.events, verdict.bundles, verdict.days = main.events, main.size, main.days
        verdict.sequencers = [key for key, _ in main.sequencers]
        logs = [_with_unknown(log, checked) for log in logs]
        heads = _HeadJudge(verdict, logs)
        found += heads.judge()
        found = [heads.witnessed(finding) for finding in found]
    verdict.problems = sorted(set(verdict.problems))
    verdict.findings = _once(found)
    for kind in {finding.kind for finding in verdict.findings}:
        listed = sum(finding.kind == kind for finding in verdict.findings)
        verdict.counts[kind] = max(listed, verdict.counts.get(kind, 0) if listed >= MAX_FAULTS else 0)
    verdict.counts = {kind: n for kind, n in verdict.counts.items() if any(f.kind == kind for f in verdict.findings)}
    return verdict


_UNKNOWN_SIGNER = "no archive shows whether this is a sequencer of the enclave, and anyone can make a key"


def judge_heads(enclave: bytes, held: Iterable[CollectedHead]) -> EnclaveVerdict:
    """Judge an enclave without an archive: two heads of one size by a key that one of them names
    are a finding.
    """
    held, verdict = list(held), EnclaveVerdict(enclave=enclave)
    groups = dict[tuple[bytes, int], dict[bytes, CollectedHead]]()
    named = dict.fromkeys(each.sequencer for each in held if each.sequencer is not None)
    keys = list(named)[:MAX_SIGNERS]
    for each in held:
        signer = signer_of(each, enclave, keys if each.sequencer is None else [each.sequencer])
        verdict.heads += 1
        verdict.beyond += signer is not None
        verdict.unsigned += signer is None
        if signer is not None and each.head.bound_sig is not None:
            groups.setdefault((signer, each.head.ts), {}).setdefault(each.head.r, each)
    for (signer, size), roots in groups.items():
        if len(roots) > 1:
            one, other, *_ = roots.values()
            pair = f"two heads of {size} bundles with different roots, from {one.source} and from {other.source}"
            what = f"{pair}, signed by the key {signer.hex()}: {_UNKNOWN_SIGNER}"
            found = Finding(
                kind="equivocation",
                enclave=enclave,
                seq=-1,
                what=what,
                sequencer=signer,
                heads=(one, other),
                timestamp=one.head.t,
            )
            verdict.findings.append(found)
    if verdict.findings:
        verdict.counts["equivocation"] = len(verdict.findings)
    return verdict


def _events(checked: Iterable[CheckResult], logs: Sequence[ReplayResult]) -> list[Finding]:
    """Return the faults of events. An event that fails its own check is not also reported for its
    content."""
    alone = [finding for part in checked for finding in part.tally.findings]
    wrong = {(finding.path, finding.seq) for finding in alone}
    follows = ("unauthorised_event", "erasure_without_cause", "sequencer_change")
    replayed = [finding for log in logs for finding in log.tally.findings]
    return alone + [f for f in replayed if f.kind not in follows or (f.path, f.seq) not in wrong]


def _ending(log: ReplayResult) -> list[Finding]:
    """Return a finding if an archive has fewer events than its header states."""
    if log.header is None or log.problem or log.events >= log.header.events:
        return []
    what = f"the archive's header states {log.header.events} events, but it ends after {log.events}"
    key = log.sequencers[-1][0] if log.sequencers else b""
    return [Finding(kind="gap", enclave=log.enclave, seq=log.last_seq + 1, what=what, path=log.path, sequencer=key)]


def _with_unknown(log: ReplayResult, checked: Iterable[CheckResult]) -> ReplayResult:
    """Return the log with the first event whose effects are unknown, also by the checks of
    events.
    """
    seqs = [part.tally.unknown_from for part in checked if part.path == log.path]
    known = [seq for seq in (*seqs, log.unknown_from) if seq is not None]
    return replace(log, unknown_from=min(known, default=None))


def _once(found: Iterable[Finding]) -> list[Finding]:
    """Return each fault once, although two archives of one log show it twice.

    Equivocations at two sizes beyond the log have the same seq and are two findings.
    """
    unique: dict[tuple[str, int, int], Finding] = {}
    for finding in found:
        size = finding.heads[0].head.ts if finding.kind == "equivocation" else 0
        unique.setdefault((finding.kind, finding.seq, size), finding)
    return sorted(unique.values(), key=lambda finding: (finding.seq, finding.kind))


class _HeadJudge:
    """Judges all heads of one enclave against its logs, the longest first."""

    def __init__(self, verdict: EnclaveVerdict, logs: Sequence[ReplayResult]) -> None:
        self._verdict, self._logs = verdict, logs
        self._found: list[Finding] = []
        self._rewritten: set[str] = set()
        self._on_log: list[tuple[int, str, CollectedHead, bytes]] = []
        """Heads on a log: the last event they cover, the log, the head and its signer."""

    def judge(self) -> list[Finding]:
        held = self._collected()
        contradicting = self._equivocations(held)
        for each, signer in held:
            if (each.head.ts, each.head.r) not in contradicting:
                self._against_logs(each, signer)
        self._checkpoints()
        return self._found

    def witnessed(self, finding: Finding) -> Finding:
        """Add to a finding about order a head that its sequencer signed over it."""
        if finding.kind not in ("gap", "reordering"):
            return finding
        over = [each for each in self._on_log if each[0] > finding.seq and each[1] == finding.path]
        if not over:
            return finding
        _, _, head, signer = min(over, key=lambda each: each[0])
        return replace(finding, heads=(replace(head, claim=None),), sequencer=signer)

    def _collected(self) -> list[tuple[CollectedHead, bytes]]:
        """Return each head once, if a sequencer of the log signed it."""
        signers: dict[TreeHead, bytes | None] = {}
        first: dict[TreeHead, CollectedHead] = {}
        for log in self._logs:
            for each, signer in log.held:
                signers[each.head] = signers.get(each.head) or signer
                if each.is_own or each.head not in first:
                    first[each.head] = each
        self._verdict.heads = len(signers)
        self._verdict.unsigned = sum(signer is None for signer in signers.values())
        found = [(each, signer) for head, each in first.items() if (signer := signers[head])]
        return sorted(found, key=lambda pair: (pair[0].head.ts, not pair[0].is_own))

    def _equivocations(self, held: Sequence[tuple[CollectedHead, bytes]]) -> set[tuple[int, bytes]]:
        """Find two bound heads of one sequencer and size with different roots: no log has both."""
        groups: dict[tuple[bytes, int], dict[bytes, CollectedHead]] = {}
        for each, signer in held:
            if each.head.bound_sig is not None:
                groups.setdefault((signer, each.head.ts), {}).setdefault(each.head.r, each)
        contradicting: set[tuple[int, bytes]] = set()
        for (signer, size), roots in groups.items():
            if len(roots) < 2:
                continue
            contradicting |= {(size, root) for root in roots}
            one, other, *_ = sorted(roots.values(), key=lambda each: self._fit(each, self._logs[0]) is not True)
            what = f"two heads of {size} bundles with different roots, from {one.source} and from {other.source}"
            self._report("equivocation", what, self._logs[0], (one, other), signer)
        return contradicting

    def _against_logs(self, each: CollectedHead, signer: bytes) -> None:
        fits = {log.path: self._fit(each, log) for log in self._logs}
        if all(fit is not False for fit in fits.values()):
            known = any(fits.values())
            self._verdict.on_log += known
            self._verdict.beyond += not known
            for log in self._logs:
                mark = log.marks.get(each.head.ts)
                if fits[log.path] and mark is not None and each.head.bound_sig is not None:
                    self._on_log.append((mark.seq, log.path, each, signer))
            if known:
                self._term(each, signer)
            return
        bad = next(log for log in self._logs if fits[log.path] is False)
        size = each.head.ts
        good = next((log for log in self._logs if fits[log.path]), None)
        if good is not None:
            self._broken(good, bad, (each,), signer)
        elif each.is_own:
            what = f"the archive's own head of {size} bundles has another root than its log"
            self._report("wrong_log_root", what, bad, (each,), signer)
        else:
            what = f"a head of {size} bundles, from {each.source}, has another root than the log at that size"
            self._report("head_not_on_log", what, bad, (each,), signer)

    def _fit(self, each: CollectedHead, log: ReplayResult) -> bool | None:
        """Return whether a head is on a log; None if the log does not show it."""
        mark, size = log.marks.get(each.head.ts), each.head.ts
        is_own = each.is_own and log.header is not None and log.header.sth == each.head
        if size == 0:
            return each.head.r == EMPTY_HASH
        if log.problem or (mark and log.unknown_from is not None and mark.seq >= log.unknown_from):
            return None
        if mark is None:
            return False if is_own and log.unknown_from is None else None
        if not mark.is_closed and not is_own and each.head.r != mark.root:
            return None  # the bundle that is open at the archive's end may have grown
        return each.head.r == mark.root

    def _term(self, each: CollectedHead, signer: bytes) -> None:
        """Find a head that a former sequencer signed over events after its term."""
        log = self._logs[0]
        mark = log.marks.get(each.head.ts)
        if mark is None or mark.sequencer == signer:
            return
        ends = [*(first for _, first in log.sequencers[1:]), None]
        terms = [end for (key, _), end in zip(log.sequencers, ends, strict=True) if key == signer]
        if terms and all(end is not None and end <= mark.seq for end in terms):
            what = f"{signer.hex()} signed a head of {each.head.ts} bundles after its term had ended"
            self._report("old_sequencer", what, log, (each,), signer)

    def _checkpoints(self) -> None:
        """Check that every shorter log is a prefix of the longest."""
        main, *others = self._logs
        for log in others:
            root = main.end if log.last_seq == main.last_seq else main.checkpoints.get(log.last_seq)
            unknown = [seq for seq in (main.unknown_from, log.unknown_from) if seq is not None and seq <= log.last_seq]
            if root is not None and not unknown and not (log.problem or main.problem) and root != log.end:
                self._broken(log, main, (), log.sequencers[-1][0])
        for log in self._logs:
            self._own_checkpoint(log)

    def _own_checkpoint(self, log: ReplayResult) -> None:
        header = log.header
        found = any(finding.kind == "wrong_log_root" and finding.path == log.path for finding in self._found)
        if header is None or log.problem or log.unknown_from is not None or found or not log.sequencers:
            return
        if log.events == header.events and (header.checkpoint_seq, header.checkpoint_root) != (log.last_seq, log.end):
            what = "the archive's checkpoint is not that of its log"
            self._report("wrong_log_root", what, log, (), log.sequencers[-1][0])

    def _broken(self, good: ReplayResult, bad: ReplayResult, heads: tuple[CollectedHead, ...], signer: bytes) -> None:
        """Report two logs that are not prefixes of each other. `prove` finds where they diverge."""
        pair = "\n".join(sorted((good.path, bad.path)))
        if pair in self._rewritten:
            return
        self._rewritten.add(pair)
        what = f"{good.path} is not a prefix of {bad.path}: the log was rewritten after it had been signed"
        seq = min(good.last_seq, bad.last_seq)
        found = Finding(
            kind="broken_consistency",
            enclave=self._verdict.enclave,
            seq=seq,
            what=what,
            path=bad.path,
            other=good.path,
            sequencer=signer,
            heads=heads,
            timestamp=heads[0].head.t if heads else 0,
        )
        self._found.append(found)

    def _report(
        self, kind: FaultKind, what: str, log: ReplayResult, heads: tuple[CollectedHead, ...], signer: bytes
    ) -> None:
        mark = log.marks.get(heads[0].head.ts) if heads else None
        found = Finding(
            kind=kind,
            enclave=self._verdict.enclave,
            seq=log.last_seq if mark is None else mark.seq,
            what=what,
            path=log.path,
            sequencer=signer,
            heads=heads,
            timestamp=heads[0].head.t if heads else 0,
        )
        self._found.append(found)
