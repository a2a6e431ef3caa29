"""Combines the results of all tasks for one enclave: each fault once, each head against each log.

Consequences of another fault are not reported again: roots after an event with unknown effects are
not judged, and two heads that contradict each other are one finding.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from enc.audit.collected_heads import MAX_SIGNERS, CollectedHead, signer_of
from enc.audit.enclave_verdict import EnclaveVerdict
from enc.audit.finding import Finding
from enc.audit.head_judge import HeadJudge
from enc.audit.replay_task import MAX_FAULTS, CheckResult, ReplayResult


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
        verdict.withheld = sorted({seq: each for log in reversed(logs) for seq, each in log.withheld}.items())
        logs = [_with_unknown(log, checked) for log in logs]
        heads = HeadJudge(verdict, logs)
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
