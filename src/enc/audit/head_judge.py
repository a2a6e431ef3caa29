"""Judges all heads of one enclave. A head is on a log if the log had its root at its size."""

from collections.abc import Sequence

from msgspec.structs import replace

from enc.audit.collected_heads import CollectedHead
from enc.audit.enclave_verdict import EnclaveVerdict
from enc.audit.finding import Finding
from enc.audit.replay_task import ReplayResult
from enc.core.machine.fault import FaultKind
from enc.core.primitives.hashing import EMPTY_HASH
from enc.core.primitives.types import TreeHead


class HeadJudge:
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
        """Add to a finding about order a head that its sequencer signed over it; to others, one
        that ties the sequencer to what earlier sequencers signed.
        """
        if finding.kind not in ("gap", "reordering"):
            return self._anchored(finding)
        over = [each for each in self._on_log if each[0] > finding.seq and each[1] == finding.path]
        if not over:
            return finding
        _, _, head, signer = min(over, key=lambda each: each[0])
        return replace(finding, heads=(replace(head, claim=None),), sequencer=signer)

    def _anchored(self, finding: Finding) -> Finding:
        """Add the smallest head that the sequencer signed over the log before its term."""
        log = next((log for log in self._logs if log.path == finding.path), None)
        before = [term for term in log.sequencers if term[1] <= finding.seq] if log else []
        own = next((first for key, first in reversed(before) if key == finding.sequencer), 0)
        signed = [each for each in self._on_log if each[1] == finding.path and each[3] == finding.sequencer]
        over = [each for each in signed if each[0] >= own - 1]
        if not (own and over):
            return finding
        return replace(finding, anchor=replace(min(over, key=lambda each: each[0])[2], claim=None))

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
