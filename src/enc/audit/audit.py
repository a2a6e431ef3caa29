"""One audit, from archives and heads to findings with evidence. A Runner runs the tasks."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct, field

from enc.audit.collect import CollectedLogs
from enc.audit.collected_heads import MAX_HEADS, CollectedHead
from enc.audit.enclave_judge import judge_enclave, judge_heads
from enc.audit.enclave_verdict import EnclaveVerdict
from enc.audit.evidence_builder import ProvedFinding, prove
from enc.audit.finding import Finding
from enc.audit.plan import PART, AuditTask, Survey, VerifiedPrefix, plan, survey
from enc.audit.replay_task import CheckResult, ReplayResult

MAX_UNSIGNED = 1000
"""Heads of one enclave without a known signer that are saved for the next audit."""

ProgressCallback = Callable[[str, int, int], None]
"""Called with the current step, how much of it is done, and how much there is."""

In = TypeVar("In")
Out = TypeVar("Out")


class Runner(Protocol):
    """Runs tasks in parallel, on any platform."""

    @property
    def name(self) -> str: ...

    @property
    def cores(self) -> int: ...

    def map(
        self, work: Callable[[In], Out], each: Sequence[In], weights: Sequence[int], report: Callable[[int], None]
    ) -> Iterator[Out]:
        """Yield the result of `work` for each, in any order; call `report` with the weight done so
        far.
        """
        ...


class InProcess:
    """Runs tasks one after another in this process: for few small archives, and for tests."""

    name, cores = "one process", 1

    def map(
        self, work: Callable[[In], Out], each: Sequence[In], weights: Sequence[int], report: Callable[[int], None]
    ) -> Iterator[Out]:
        done = 0
        for one, weight in zip(each, weights, strict=True):
            yield work(one)
            done += weight
            report(done)


class AuditRequest(Struct, kw_only=True):
    """The input of an audit."""

    paths: list[str]
    heads: Mapping[bytes, Sequence[CollectedHead]] = field(default_factory=dict)
    known: Mapping[bytes, VerifiedPrefix] = field(default_factory=dict)
    part: int = PART


class Audit(Struct, kw_only=True):
    """The results of an audit."""

    verdicts: list[EnclaveVerdict]
    proved: list[ProvedFinding] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    kept: list[tuple[bytes, VerifiedPrefix, list[CollectedHead]]] = field(default_factory=list)
    """For the next audit."""
    caught: list[ProvedFinding] = field(default_factory=list)
    """Findings from nodes' answers while their logs were collected."""
    notes: list[str] = field(default_factory=list)
    skipped: int = 0
    """Events whose signatures an earlier audit has checked."""

    @property
    def findings(self) -> list[Finding]:
        return [each.finding for each in (*self.proved, *self.caught)]

    def add(self, pulled: CollectedLogs) -> None:
        """Add what nodes gave besides archives."""
        self.caught += pulled.proved
        known = {each.enclave: each for each in self.verdicts}
        for each in pulled.verdicts:
            if each.enclave in known:
                known[each.enclave].add_read(each)
            else:
                self.verdicts.append(each)
        self.problems += pulled.problems
        self.notes += pulled.notes


def run_audit(
    request: AuditRequest, runner: Runner, progress: ProgressCallback = lambda step, done, total: None
) -> Audit:
    """Run an audit: survey, check and replay, judge, prove."""
    surveys = list(_survey(request, runner, progress))
    audit = Audit(verdicts=[], problems=[f"{each.path}: {each.problem}" for each in surveys if each.problem])
    audit.skipped = sum(each.known for each in surveys)
    heads = {enclave: _newest(held) for enclave, held in request.heads.items()}
    audit.problems += [
        f"{each.hex()}: only the {MAX_HEADS} largest of {n} heads were used" for each, n in _too_many(request)
    ]
    parts: dict[bytes, tuple[list[CheckResult], list[ReplayResult]]] = {}
    for enclave, found in _run(plan(surveys, heads, request.part, runner.cores), runner, progress):
        checked, replayed = parts.setdefault(enclave, ([], []))
        checked += [each for each in found if isinstance(each, CheckResult)]
        replayed += [each for each in found if isinstance(each, ReplayResult)]
    for enclave, (checked, replayed) in sorted(parts.items()):
        verdict = judge_enclave(enclave, checked, replayed)
        audit.verdicts.append(verdict)
        audit.problems += verdict.problems
        audit.kept.append((enclave, _verified(verdict, replayed), _kept(replayed, heads.get(enclave, ()))))
    strays = 0
    for enclave in sorted(heads.keys() - parts.keys()):
        audit.verdicts.append(judge_heads(enclave, heads[enclave]))
        strays += audit.verdicts[-1].unsigned
        audit.kept.append((enclave, request.known.get(enclave, VerifiedPrefix(0, "")), heads[enclave]))
    if strays:
        audit.notes.append(f"{strays} heads were ignored: they have neither an archive of their enclave nor a signer")
    audit.proved = _prove([finding for each in audit.verdicts for finding in each.findings], runner, progress)
    return audit


def _newest(held: Iterable[CollectedHead]) -> list[CollectedHead]:
    """Return each head once; of more than MAX_HEADS, the newest."""
    once = {(each.head, each.claim): each for each in held}
    return sorted(once.values(), key=lambda each: each.head.ts)[-MAX_HEADS:]


def _too_many(request: AuditRequest) -> Iterator[tuple[bytes, int]]:
    for enclave, held in request.heads.items():
        if len(held) > MAX_HEADS and (n := len({(each.head, each.claim) for each in held})) > MAX_HEADS:
            yield enclave, n


def _survey(request: AuditRequest, runner: Runner, progress: ProgressCallback) -> Iterable[Survey]:
    paths, known = request.paths, dict(request.known)
    sizes = [max(_size(path), 1) for path in paths]
    return runner.map(lambda path: survey(path, known), paths, sizes, lambda n: progress("reading", n, sum(sizes)))


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _run(
    tasks: Sequence[AuditTask], runner: Runner, progress: ProgressCallback
) -> Iterator[tuple[bytes, list[CheckResult | ReplayResult]]]:
    weights = [task.weight for task in tasks]

    def report(done: int) -> None:
        progress("verifying", done, sum(weights))

    return runner.map(lambda task: (task.enclave, task.run()), tasks, weights, report)


def _prove(findings: Sequence[Finding], runner: Runner, progress: ProgressCallback) -> list[ProvedFinding]:
    if not findings:
        return []
    ones = [1] * len(findings)
    found = list(runner.map(prove, findings, ones, lambda n: progress("proving", n, len(findings))))
    return sorted(found, key=lambda each: (each.finding.enclave, each.finding.seq, each.finding.kind))


def _verified(verdict: EnclaveVerdict, replayed: Sequence[ReplayResult]) -> VerifiedPrefix:
    """Return the longest log if nothing is wrong with it; else an empty one."""
    if verdict.findings or verdict.problems or not replayed:
        return VerifiedPrefix(0, "")
    longest = max(replayed, key=lambda log: log.events)
    return VerifiedPrefix(longest.events, longest.digest)


def _kept(replayed: Iterable[ReplayResult], known: Iterable[CollectedHead]) -> list[CollectedHead]:
    """Return the heads to save. Those without a known signer are saved too: a longer log may name
    it.
    """
    signed = _newest(_held(replayed))
    there = {each.head for each in signed}
    others = [each for each in known if each.head not in there]
    return [*others[-MAX_UNSIGNED:], *signed][-MAX_HEADS:]


def _held(replayed: Iterable[ReplayResult]) -> Iterator[CollectedHead]:
    """Yield every head with a known signer, and the signer, for audits that lack the archive.

    An archive's own head is a head like any other from now on.
    """
    for log in replayed:
        for held, signer in log.held:
            if signer is not None:
                yield CollectedHead(head=held.head, source=held.source, sequencer=signer, claim=held.claim)
