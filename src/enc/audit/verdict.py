"""What all tasks found of one enclave, put together: each fault told once, each head held against each log.

A head is on a log if the log had its root at its size. What follows from another fault is not told as one more: roots
after an event whose effects nobody knows are not judged, and two heads that contradict each other are told together.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from enc.audit.court import Checked, Tried
from enc.audit.finding import Finding
from enc.audit.heads import MAX_SIGNERS, HeldHead, signer_of
from enc.core.fault import FaultKind
from enc.core.hashing import EMPTY_HASH
from enc.core.types import TreeHead

Held = tuple[HeldHead, bytes | None]


class Verdict(Struct, kw_only=True):
    """Of one enclave."""

    enclave: bytes
    findings: list[Finding] = field(default_factory=list)
    counts: dict[FaultKind, int] = field(default_factory=dict)
    """Of each kind, also those that are not told one by one."""
    problems: list[str] = field(default_factory=list)
    """What could not be looked at."""
    events: int = 0
    """Of the longest log."""
    checked: int = 0
    """Events whose signatures were checked, of all archives."""
    bundles: int = 0
    archives: int = 0
    heads: int = 0
    on_log: int = 0
    beyond: int = 0
    """Heads of more than the archives hold, or after a fault that hides what they should be."""
    unsigned: int = 0
    """Heads that none of the log's sequencers signed: nobody's word."""
    sequencers: list[bytes] = field(default_factory=list)
    days: dict[int, int] = field(default_factory=dict)

    def add_read(self, read: "Verdict") -> None:
        """What was read of an enclave of which heads are known too, the one under which it was read among them."""
        self.events, self.bundles = max(self.events, read.events), max(self.bundles, read.bundles)
        self.checked += read.checked
        shown = min(read.on_log, self.beyond)
        self.on_log, self.beyond = self.on_log + shown, self.beyond - shown


def judge_enclave(enclave: bytes, checked: Sequence[Checked], tried: Sequence[Tried]) -> Verdict:
    verdict = Verdict(enclave=enclave, archives=len(tried), checked=sum(part.events for part in checked))
    parts: list[Checked | Tried] = [*checked, *tried]
    for each in parts:
        if each.problem:
            verdict.problems.append(f"{each.path}: {each.problem}")
        for kind, count in each.tally.counts.items():
            verdict.counts[kind] = verdict.counts.get(kind, 0) + count
    logs = sorted((log for log in tried if log.header is not None), key=lambda log: (-log.last_seq, log.path))
    found = _events(checked, logs) + [finding for log in logs for finding in _ending(log)]
    if logs:
        main = logs[0]
        verdict.events, verdict.bundles, verdict.days = main.events, main.size, main.days
        verdict.sequencers = [key for key, _ in main.sequencers]
        logs = [_doubted(log, checked) for log in logs]
        heads = _Heads(verdict, logs)
        found += heads.judge()
        found = [heads.witnessed(finding) for finding in found]
    verdict.problems = sorted(set(verdict.problems))
    verdict.findings = _once(found)
    for kind in {finding.kind for finding in verdict.findings}:
        told = sum(finding.kind == kind for finding in verdict.findings)
        verdict.counts[kind] = max(told, verdict.counts.get(kind, 0) if told >= 100 else 0)
    verdict.counts = {kind: n for kind, n in verdict.counts.items() if any(f.kind == kind for f in verdict.findings)}
    return verdict


_STRANGER = "no archive here says whether that is a sequencer of this enclave, and anybody can make a key"


def judge_heads(enclave: bytes, held: Iterable[HeldHead]) -> Verdict:
    """An enclave of which there are heads alone: two of one size, by a key that one of them names, are a finding."""
    held, verdict, groups = list(held), Verdict(enclave=enclave), dict[tuple[bytes, int], dict[bytes, HeldHead]]()
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
            what = f"{pair}, by whoever holds the key {signer.hex()}: {_STRANGER}"
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


def _events(checked: Iterable[Checked], logs: Sequence[Tried]) -> list[Finding]:
    """Faults of events. What does not check by itself is not also refused by the rules for what it says."""
    alone = [finding for part in checked for finding in part.tally.findings]
    wrong = {(finding.path, finding.seq) for finding in alone}
    follows = ("unauthorised_event", "erasure_without_cause", "sequencer_change")
    tried = [finding for log in logs for finding in log.tally.findings]
    return alone + [f for f in tried if f.kind not in follows or (f.path, f.seq) not in wrong]


def _ending(log: Tried) -> list[Finding]:
    """An archive holds as many events as it says."""
    if log.header is None or log.problem or log.events >= log.header.events:
        return []
    what = f"the archive says that it holds {log.header.events} events, and it ends after {log.events}"
    key = log.sequencers[-1][0] if log.sequencers else b""
    return [Finding(kind="gap", enclave=log.enclave, seq=log.last_seq + 1, what=what, path=log.path, sequencer=key)]


def _doubted(log: Tried, checked: Iterable[Checked]) -> Tried:
    """The log with the first event whose effects nobody knows."""
    doubts = [part.tally.doubt for part in checked if part.path == log.path and part.tally.doubt is not None]
    if log.doubt is not None:
        doubts.append(log.doubt)
    return replace(log, doubt=min(doubts, default=None))


def _once(found: Iterable[Finding]) -> list[Finding]:
    """Two archives of one log show one fault twice. Two sizes beyond the log have one seq, and are two."""
    told: dict[tuple[str, int, int], Finding] = {}
    for finding in found:
        size = finding.heads[0].head.ts if finding.kind == "equivocation" else 0
        told.setdefault((finding.kind, finding.seq, size), finding)
    return sorted(told.values(), key=lambda finding: (finding.seq, finding.kind))


class _Heads:
    """All heads of one enclave; `logs` by falling length."""

    def __init__(self, verdict: Verdict, logs: Sequence[Tried]) -> None:
        self._verdict, self._logs = verdict, logs
        self._found: list[Finding] = []
        self._rewritten: set[str] = set()
        self._standing: list[tuple[int, str, HeldHead, bytes]] = []
        """Heads that are on a log: the last event that they cover, the log, and the signer."""

    def judge(self) -> list[Finding]:
        held = self._collected()
        contradicting = self._equivocations(held)
        for each, signer in held:
            if (each.head.ts, each.head.r) not in contradicting:
                self._against_logs(each, signer)
        self._checkpoints()
        return self._found

    def witnessed(self, finding: Finding) -> Finding:
        """An order that is wrong, with a head that its sequencer signed over it."""
        if finding.kind not in ("gap", "reordering"):
            return finding
        over = [each for each in self._standing if each[0] > finding.seq and each[1] == finding.path]
        if not over:
            return finding
        _, _, head, signer = min(over, key=lambda each: each[0])
        return replace(finding, heads=(replace(head, claim=None),), sequencer=signer)

    def _collected(self) -> list[tuple[HeldHead, bytes]]:
        """Each head once, if somebody who had a part in the log signed it."""
        signers: dict[TreeHead, bytes | None] = {}
        first: dict[TreeHead, HeldHead] = {}
        for log in self._logs:
            for each, signer in log.held:
                signers[each.head] = signers.get(each.head) or signer
                if each.is_own or each.head not in first:
                    first[each.head] = each
        self._verdict.heads = len(signers)
        self._verdict.unsigned = sum(signer is None for signer in signers.values())
        found = [(each, signer) for head, each in first.items() if (signer := signers[head])]
        return sorted(found, key=lambda pair: (pair[0].head.ts, not pair[0].is_own))

    def _equivocations(self, held: Sequence[tuple[HeldHead, bytes]]) -> set[tuple[int, bytes]]:
        """Two bound heads by one sequencer of one size with different roots: no log has both."""
        groups: dict[tuple[bytes, int], dict[bytes, HeldHead]] = {}
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
            self._tell("equivocation", what, self._logs[0], (one, other), signer)
        return contradicting

    def _against_logs(self, each: HeldHead, signer: bytes) -> None:
        fits = {log.path: self._fit(each, log) for log in self._logs}
        if all(fit is not False for fit in fits.values()):
            known = any(fits.values())
            self._verdict.on_log += known
            self._verdict.beyond += not known
            for log in self._logs:
                mark = log.marks.get(each.head.ts)
                if fits[log.path] and mark is not None and each.head.bound_sig is not None:
                    self._standing.append((mark.seq, log.path, each, signer))
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
            self._tell("wrong_log_root", what, bad, (each,), signer)
        else:
            what = f"a head of {size} bundles, from {each.source}, has another root than the log at that size"
            self._tell("head_not_on_log", what, bad, (each,), signer)

    def _fit(self, each: HeldHead, log: Tried) -> bool | None:
        """Whether a head is on a log; None: the log cannot tell."""
        mark, size = log.marks.get(each.head.ts), each.head.ts
        is_own = each.is_own and log.header is not None and log.header.sth == each.head
        if size == 0:
            return each.head.r == EMPTY_HASH
        if log.problem or (mark and log.doubt is not None and mark.seq >= log.doubt):
            return None
        if mark is None:
            return False if is_own and log.doubt is None else None
        if not mark.is_closed and not is_own and each.head.r != mark.root:
            return None  # the bundle that is open here may have taken more events
        return each.head.r == mark.root

    def _term(self, each: HeldHead, signer: bytes) -> None:
        """A former sequencer signs no head of what came after its term."""
        log = self._logs[0]
        mark = log.marks.get(each.head.ts)
        if mark is None or mark.sequencer == signer:
            return
        ends = [*(first for _, first in log.sequencers[1:]), None]
        terms = [end for (key, _), end in zip(log.sequencers, ends, strict=True) if key == signer]
        if terms and all(end is not None and end <= mark.seq for end in terms):
            what = f"{signer.hex()} signed a head of {each.head.ts} bundles, after its term had ended"
            self._tell("old_sequencer", what, log, (each,), signer)

    def _checkpoints(self) -> None:
        """Every shorter log is the beginning of the longest."""
        main, *others = self._logs
        for log in others:
            root = main.end if log.last_seq == main.last_seq else main.checkpoints.get(log.last_seq)
            doubts = [seq for seq in (main.doubt, log.doubt) if seq is not None and seq <= log.last_seq]
            if root is not None and not doubts and not (log.problem or main.problem) and root != log.end:
                self._broken(log, main, (), log.sequencers[-1][0])
        for log in self._logs:
            self._own_checkpoint(log)

    def _own_checkpoint(self, log: Tried) -> None:
        header = log.header
        told = any(finding.kind == "wrong_log_root" and finding.path == log.path for finding in self._found)
        if header is None or log.problem or log.doubt is not None or told or not log.sequencers:
            return
        if log.events == header.events and (header.checkpoint_seq, header.checkpoint_root) != (log.last_seq, log.end):
            what = "the archive's own checkpoint is not that of its log"
            self._tell("wrong_log_root", what, log, (), log.sequencers[-1][0])

    def _broken(self, good: Tried, bad: Tried, heads: tuple[HeldHead, ...], signer: bytes) -> None:
        """Two logs of one enclave, neither the beginning of the other. Where they part is seen when it is proved."""
        pair = "\n".join(sorted((good.path, bad.path)))
        if pair in self._rewritten:
            return
        self._rewritten.add(pair)
        what = f"{good.path} is not the beginning of {bad.path}: the log was rewritten after it had been signed"
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

    def _tell(self, kind: FaultKind, what: str, log: Tried, heads: tuple[HeldHead, ...], signer: bytes) -> None:
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
