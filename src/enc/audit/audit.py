"""One audit, from archives and heads to findings with evidence. Who runs the tasks is a Runner's business."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct, field

from enc.audit.collecting import Pulled
from enc.audit.court import Checked, Tried
from enc.audit.finding import Finding
from enc.audit.heads import MAX_HEADS, HeldHead
from enc.audit.plan import PART, Item, Known, Survey, plan, survey
from enc.audit.proving import Proved, prove
from enc.audit.verdict import Verdict, judge_enclave, judge_heads

MAX_STRANGE = 1000
"""Heads of one enclave that are kept for the next audit, and that nobody is known to have signed."""

Told = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

In = TypeVar("In")
Out = TypeVar("Out")


class Runner(Protocol):
    """Does many things at once, whatever it runs on."""

    @property
    def name(self) -> str: ...

    @property
    def cores(self) -> int: ...

    def map(
        self, work: Callable[[In], Out], each: Sequence[In], weights: Sequence[int], told: Callable[[int], None]
    ) -> Iterator[Out]:
        """What `work` makes of each, in any order; `told` hears how much weight is done."""
        ...


class InProcess:
    """One thing after the other, here: for few small archives, and for tests."""

    name, cores = "one process", 1

    def map(
        self, work: Callable[[In], Out], each: Sequence[In], weights: Sequence[int], told: Callable[[int], None]
    ) -> Iterator[Out]:
        done = 0
        for one, weight in zip(each, weights, strict=True):
            yield work(one)
            done += weight
            told(done)


class Request(Struct, kw_only=True):
    """What is to be audited."""

    paths: list[str]
    heads: Mapping[bytes, Sequence[HeldHead]] = field(default_factory=dict)
    known: Mapping[bytes, Known] = field(default_factory=dict)
    part: int = PART


class Audit(Struct, kw_only=True):
    """What was found."""

    verdicts: list[Verdict]
    proved: list[Proved] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    kept: list[tuple[bytes, Known, list[HeldHead]]] = field(default_factory=list)
    """For the next audit."""
    caught: list[Proved] = field(default_factory=list)
    """What nodes did while they were asked for their logs."""
    notes: list[str] = field(default_factory=list)
    skipped: int = 0
    """Events whose signatures an earlier audit has checked."""

    @property
    def findings(self) -> list[Finding]:
        return [each.finding for each in (*self.proved, *self.caught)]

    def add(self, pulled: Pulled) -> None:
        """What came from nodes besides archives."""
        self.caught += pulled.proved
        known = {each.enclave: each for each in self.verdicts}
        for each in pulled.verdicts:
            if each.enclave in known:
                known[each.enclave].add_read(each)
            else:
                self.verdicts.append(each)
        self.problems += pulled.problems
        self.notes += pulled.notes


def run_audit(request: Request, runner: Runner, told: Told = lambda what, done, total: None) -> Audit:
    """Survey, check and try, judge, prove."""
    surveys = list(_survey(request, runner, told))
    audit = Audit(verdicts=[], problems=[f"{each.path}: {each.problem}" for each in surveys if each.problem])
    audit.skipped = sum(each.known for each in surveys)
    heads = {enclave: _newest(held) for enclave, held in request.heads.items()}
    audit.problems += [f"{each.hex()}: of {n} heads only the {MAX_HEADS} largest" for each, n in _too_many(request)]
    parts: dict[bytes, tuple[list[Checked], list[Tried]]] = {}
    for enclave, found in _run(plan(surveys, heads, request.part, runner.cores), runner, told):
        checked, tried = parts.setdefault(enclave, ([], []))
        checked += [each for each in found if isinstance(each, Checked)]
        tried += [each for each in found if isinstance(each, Tried)]
    for enclave, (checked, tried) in sorted(parts.items()):
        verdict = judge_enclave(enclave, checked, tried)
        audit.verdicts.append(verdict)
        audit.problems += verdict.problems
        audit.kept.append((enclave, _known(verdict, tried), _kept(tried, heads.get(enclave, ()))))
    strays = 0
    for enclave in sorted(heads.keys() - parts.keys()):
        audit.verdicts.append(judge_heads(enclave, heads[enclave]))
        strays += audit.verdicts[-1].unsigned
        audit.kept.append((enclave, request.known.get(enclave, Known(0, "")), heads[enclave]))
    if strays:
        audit.notes.append(f"{strays} heads say nothing: there is no archive of their enclave, and no signer is named")
    audit.proved = _prove([finding for each in audit.verdicts for finding in each.findings], runner, told)
    return audit


def _newest(held: Iterable[HeldHead]) -> list[HeldHead]:
    """Each head once; of very many, the newest."""
    once = {(each.head, each.claim): each for each in held}
    return sorted(once.values(), key=lambda each: each.head.ts)[-MAX_HEADS:]


def _too_many(request: Request) -> Iterator[tuple[bytes, int]]:
    for enclave, held in request.heads.items():
        if len(held) > MAX_HEADS and (n := len({(each.head, each.claim) for each in held})) > MAX_HEADS:
            yield enclave, n


def _survey(request: Request, runner: Runner, told: Told) -> Iterable[Survey]:
    paths, known = request.paths, dict(request.known)
    sizes = [max(_size(path), 1) for path in paths]
    return runner.map(lambda path: survey(path, known), paths, sizes, lambda n: told("reading", n, sum(sizes)))


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _run(items: Sequence[Item], runner: Runner, told: Told) -> Iterator[tuple[bytes, list[Checked | Tried]]]:
    weights = [item.weight for item in items]
    total = sum(weights)
    return runner.map(lambda item: (item.enclave, item.run()), items, weights, lambda n: told("verifying", n, total))


def _prove(findings: Sequence[Finding], runner: Runner, told: Told) -> list[Proved]:
    if not findings:
        return []
    ones = [1] * len(findings)
    found = list(runner.map(prove, findings, ones, lambda n: told("proving", n, len(findings))))
    return sorted(found, key=lambda each: (each.finding.enclave, each.finding.seq, each.finding.kind))


def _known(verdict: Verdict, tried: Sequence[Tried]) -> Known:
    """The longest log, if nothing is wrong with it."""
    if verdict.findings or verdict.problems or not tried:
        return Known(0, "")
    longest = max(tried, key=lambda log: log.events)
    return Known(longest.events, longest.digest)


def _kept(tried: Iterable[Tried], known: Iterable[HeldHead]) -> list[HeldHead]:
    """Every head, those that somebody signed first: whose the others are, a log may tell that is more than this one."""
    signed = _newest(_held(tried))
    there = {each.head for each in signed}
    others = [each for each in known if each.head not in there]
    return [*others[-MAX_STRANGE:], *signed][-MAX_HEADS:]


def _held(tried: Iterable[Tried]) -> Iterator[HeldHead]:
    """Every head that somebody signed, with its signer, who must be known where the archive is not at hand any more.

    An archive's own is a head like any other from now on.
    """
    for log in tried:
        for held, signer in log.held:
            if signer is not None:
                yield HeldHead(head=held.head, source=held.source, sequencer=signer, claim=held.claim)
