"""Prepares commits that take long, step by step between two batches, so that others do not wait.

An AC_Bundle has up to 1,000 operations, and a Manifest may name as many identities: judging it and
writing its leaves takes up to a tenth of a second (`long_judgement`). A commit that is prepared is
then sequenced as any other, but its effects are known.

Senders take turns by the time that their commits take: addresses among themselves, and the
identities of one address. The commits of a sender stay in order: one that needs no preparation
waits behind one that does.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from enc.core.primitives.types import Commit
from enc.node.ops.internal_errors import internal_error
from enc.node.sequence.admitted import AdmittedCommit, Judgement
from enc.node.sequence.content_parts import PARSED
from enc.node.sequence.long_judgement import Judging
from enc.node.sequence.state_cache import StateCache
from enc.runtime.fair_queue import FairQueue, Turn

PREPARED = frozenset(["AC_Bundle", "Manifest"])
MIN_SIZES = {**dict.fromkeys(PARSED, 2048), "AC_Bundle": 512, "Manifest": 2048}
"""Length of the content from which commits of a type wait for their sender's turn. Each operation of a bundle, and
each member that a Manifest names, takes about 0.2 ms, most of that after it was judged: 1,024 of
these commits in one batch would keep others waiting for a second and more.
"""
READY_SIZE = 4096
"""Length of all contents from which no further commit is made ready: some 40 operations."""
BASE_SIZE = 128
"""What a commit counts beside its content."""
MAX_RULES = 4 << 20
"""Size of the Manifests whose rules waiting commits hold: rules may take sixty times that in memory."""
SLICE_S = 0.003
"""Time for which one call of `advance` prepares."""
MAX_WAITING = 1 << 20
"""More commits than the intake lets in."""

_Sender = tuple[str, bytes]


class _Job:
    """A commit that waits, and the rest of its judgement once that has begun."""

    def __init__(self, admitted: AdmittedCommit) -> None:
        self.admitted = admitted
        self.steps: Judging | None = None


class Preparation:
    """Commits that are being prepared or wait behind one. For the sequencer's thread."""

    def __init__(
        self,
        begin: Callable[[AdmittedCommit], Judging],
        states: StateCache,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`begin` starts the judgement of a commit."""
        self._begin, self._states, self._clock = begin, states, clock
        self._queue: FairQueue[_Job] = FairQueue(MAX_WAITING, MAX_WAITING, levels=2, jobs="commits")
        self._waiting = Counter[_Sender]()
        self._open = list[tuple[Turn[_Job], float, int]]()
        """The turns of commits that are ready and not sequenced yet, each with its cost so far and its
        size.
        """
        self._ready_size, self._ready_at = 0, 0.0
        self._rules_size = 0
        """Size of the Manifests whose rules waiting commits hold, counted for each commit."""

    def __bool__(self) -> bool:
        """Return whether any commit waits."""
        return bool(self._waiting)

    def sort(self, admitted: Sequence[AdmittedCommit]) -> list[AdmittedCommit]:
        """Keep the commits that must wait, and return the others."""
        ready = list[AdmittedCommit]()
        for each in admitted:
            sender = _sender(each)
            if sender in self._waiting or _needs_turn(each.commit) or self._is_cold(each.commit):
                self._queue.put(sender, _Job(self._with_rules(each)))
                self._waiting[sender] += 1
            else:
                ready.append(each)
        return ready

    def advance(self) -> list[AdmittedCommit]:
        """Prepare for one slice, and return the commits that are ready: few, and at most one that
        takes long to sequence. Call `settle` once they are sequenced.
        """
        ready, began = list[AdmittedCommit](), self._clock()
        while self._ready_size < READY_SIZE and self._clock() - began < SLICE_S:
            turn = self._queue.take()
            if turn is None:
                break
            if (admitted := self._run(turn)) is not None:
                ready.append(admitted)
        self._ready_at = self._clock()
        return ready

    def settle(self) -> None:
        """Charge the senders of the last commits for the whole time that they took, by their size."""
        took = self._clock() - self._ready_at
        for turn, spent, size in self._open:
            self._queue.finish(turn, spent + took * size / self._ready_size)
        self._open, self._ready_size = [], 0

    def _with_rules(self, admitted: AdmittedCommit) -> AdmittedCommit:
        """Return the commit as it waits: without rules and judgement, which can be made again, if
        too much is held.
        """
        size = _rules_size(admitted)
        if self._rules_size + size > MAX_RULES:
            return replace(admitted, policy=None, judgement=None)
        self._rules_size += size
        return admitted

    def _is_cold(self, commit: Commit) -> bool:
        """Return whether the enclave's state has left memory since admission: others load many large
        Manifests, and to parse one again takes long.
        """
        return commit.type != "Manifest" and commit.enclave not in self._states

    def _run(self, turn: Turn[_Job]) -> AdmittedCommit | None:
        """Return the commit if it is ready."""
        job, began = turn.item, self._clock()
        admitted, size = job.admitted, _size(job.admitted)
        if self._is_cold(admitted.commit):
            with suppress(Exception):  # then the sequencer loads it, and answers with the error
                self._states.get(admitted.commit.enclave)
            size += READY_SIZE
        if admitted.commit.type in PREPARED:
            try:
                judgement = self._judge(job, began)
            except Exception as e:  # then the sequencer judges it, and answers with the error
                internal_error(e, "preparation")
                judgement = None
            else:
                if judgement is None:
                    self._queue.finish(turn, self._clock() - began)
                    self._queue.put_back(_sender(admitted), job)
                    return None
            admitted = replace(admitted, judgement=judgement)
        self._rules_size -= _rules_size(job.admitted)
        self._open.append((turn, self._clock() - began, size))
        self._ready_size += size
        self._forget_one(_sender(admitted))
        return admitted

    def _forget_one(self, sender: _Sender) -> None:
        self._waiting[sender] -= 1
        if not self._waiting[sender]:
            del self._waiting[sender]

    def _judge(self, job: _Job, began: float) -> Judgement | None:
        """Judge on for one slice; return None if that was not enough."""
        if job.steps is None:
            job.steps = self._begin(job.admitted)
        try:
            while self._clock() - began < SLICE_S:
                next(job.steps)
        except StopIteration as e:
            judgement: Judgement = e.value
            return judgement
        return None


def _needs_turn(commit: Commit) -> bool:
    least = MIN_SIZES.get(commit.type)
    return least is not None and len(commit.content or "") >= least


def _size(admitted: AdmittedCommit) -> int:
    return BASE_SIZE + len(admitted.commit.content or "")


def _rules_size(admitted: AdmittedCommit) -> int:
    return 0 if admitted.policy is None else admitted.policy.size


def _sender(admitted: AdmittedCommit) -> _Sender:
    return admitted.address, admitted.commit.from_
