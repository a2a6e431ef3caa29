"""Admission: checks everything about a commit that does not depend on its place in the log, before
it is queued.

The order of the checks is that of docs/protocol.md, cheapest first: form, known enclave, hash,
duplicate and expiry, enclave exists, signature; then what this node's operator decides: rates, who
may create an enclave, and which endpoints may be called.

Commits arrive in groups, in the order in which they were received, and leave in that order. The
signatures of a group are checked together, by other processes, while the sequencer orders the group
before.

Some commits take long to check: large ones, and those of an enclave whose state must be loaded,
which parses its Manifest. They have a thread of their own, on which addresses take turns by the time
that their commits take. So an address that sends many delays only itself. The commits of an address
stay in order: while one of them waits there, the next ones wait behind it.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, Literal, overload

import structlog
from msgspec.structs import replace

from enc.core.errors import (
    EncError,
    EnclaveExists,
    EnclaveNotFound,
    Expired,
    InvalidCommit,
    InvalidSignature,
    Unauthorized,
)
from enc.core.log.commit import check_author, check_expiry, check_hash, manifest_version, parse_commit
from enc.core.machine.enclave import judge_manifest
from enc.core.primitives.types import Commit, CommitLimits
from enc.core.rules.policy_types import Policy
from enc.node.limits.restrictions import NO_RESTRICTIONS, Restrictions
from enc.node.ops.internal_errors import internal_error
from enc.node.sequence.admitted import AdmittedCommit, Judgement, duplicate, request_of
from enc.node.sequence.content_parts import check_parts
from enc.node.sequence.sequencer import Sequencer
from enc.node.sequence.state_cache import StateCache
from enc.node.signatures.pool import SignaturePool
from enc.node.store.store_interface import Store
from enc.runtime.endpoints import check_endpoints
from enc.runtime.fair_queue import FairQueue
from enc.runtime.rate_limit import RateLimiter

MAX_GROUP = 32
"""Size from which a group is checked without waiting for more commits."""
LONG_BODY = 8192
"""Length from which a commit waits for its address's turn."""
MAX_WAITING = 1 << 20
"""More commits than the intake lets in."""

REGISTERING = frozenset(["Grant", "Grant_Push", "AC_Bundle"])
"""Types that may register an endpoint, in either version."""

_log = structlog.get_logger("enc.admission")

Arrival = tuple[bytes, Any, str]
"""A commit as received, a value that identifies its sender, and the address that it came from."""
Rejection = tuple[Any, EncError, bytes | None]
"""The sender, the error, and the commit's hash if it could be parsed."""


class CommitValidator:
    """Validates one commit at a time; safe to use from any thread."""

    def __init__(
        self,
        states: StateCache,
        store: Store,
        clock: Callable[[], int],
        rates: RateLimiter,
        *,
        limits: CommitLimits,
        max_manifest: int,
        may_create: Callable[[bytes], bool],
        is_clock_wrong: Callable[[int], bool] = lambda now: False,
        private_endpoints: bool = False,
        restrictions: Restrictions = NO_RESTRICTIONS,
    ) -> None:
        self._restrictions = restrictions
        self._states, self._store, self._clock, self._rates = states, store, clock, rates
        self._limits, self._max_manifest, self._may_create = limits, max_manifest, may_create
        self._is_clock_wrong, self._private_endpoints = is_clock_wrong, private_endpoints
        self._logged = 0

    def parse(self, body: bytes) -> Commit:
        commit = parse_commit(body, self._limits)
        check_parts(commit)
        return commit

    def is_quick(self, commit: Commit) -> bool:
        """Return whether the checks need no state that must be loaded first."""
        return commit.type == "Manifest" or commit.enclave in self._states

    def check_before_signature(self, commit: Commit) -> Policy | None:
        """Run the checks before the signature; return the enclave's rules if they need not be parsed."""
        self._restrictions.check_commit_enclave(commit)
        if commit.type == "Manifest":
            self._check_manifest(commit)
            return None
        policy = self._rules(commit) if self.is_quick(commit) else None
        version = policy.enc_v if policy is not None else self._states.version(commit.enclave)
        if version is None:
            raise EnclaveNotFound("no such enclave on this node")
        check_hash(commit, version)
        self._check_time(commit)
        return policy

    def _rules(self, commit: Commit) -> Policy:
        state = self._states.get(commit.enclave)
        if state is None:
            raise EnclaveNotFound("no such enclave on this node")
        return state.policy

    def _check_manifest(self, commit: Commit) -> None:
        """Check the hash before the state is loaded: then the Manifest that is parsed for it, if the
        enclave exists, is this one, and not a larger one of another enclave.
        """
        check_hash(commit, self._manifest_version(commit))
        self._check_time(commit)
        if self._states.get(commit.enclave) is not None:
            self._check_new(commit)
            raise EnclaveExists("the enclave already exists")

    def check_after_signature(self, admitted: AdmittedCommit) -> AdmittedCommit:
        """Run the checks after the signature: only now is the author known. Return the commit, a
        Manifest with its judgement.
        """
        commit = admitted.commit
        self._restrictions.check_author(commit)
        self._rates.take(commit.from_)
        if commit.type == "Manifest":
            if not self._may_create(commit.from_):
                raise Unauthorized("this node does not create enclaves for this identity")
            policy, effects = judge_manifest(commit)
            admitted = replace(admitted, policy=policy, judgement=Judgement(None, policy, effects))
            urls: Sequence[str] = [change.url for change in effects.endpoints if change.url is not None]
        else:
            # Only now that it is signed may a commit make the node load the state.
            policy = admitted.policy or self._rules(commit)
            admitted = replace(admitted, policy=policy)
            urls = policy.dialect.endpoints(commit) if commit.type in REGISTERING else ()
        check_endpoints(urls, allow_private=self._private_endpoints)
        return admitted

    def _manifest_version(self, commit: Commit) -> int:
        if len((commit.content or "").encode()) > self._max_manifest:
            raise InvalidCommit(f"content: this node accepts Manifests of at most {self._max_manifest} bytes")
        return manifest_version(commit)

    def _check_time(self, commit: Commit) -> None:
        """Check the expiry. A commit that was accepted before is a duplicate, not late: its sender
        may have lost the answer.
        """
        now = self._clock()
        if self._is_clock_wrong(now):
            return  # the sequencer rejects the commit for that; a wrong clock must not judge times
        try:
            check_expiry(commit, now)
        except Expired:
            self._check_new(commit)
            self._log_clock(commit, now)
            raise
        except InvalidCommit:
            self._log_clock(commit, now)
            raise

    def _log_clock(self, commit: Commit, now: int) -> None:
        """Log that the sender's clock may be wrong, at most once a second."""
        if not self._logged <= now < self._logged + 1000:
            self._logged = now
            _log.warning("client_clock", identity=commit.from_.hex(), exp_minus_now_ms=commit.exp - now)

    def _check_new(self, commit: Commit) -> None:
        first = self._store.committed(commit.enclave, commit.hash, commit.exp)
        if first is None:
            return
        if first.sig != commit.sig:
            try:
                check_author(commit)
            except InvalidSignature:
                return  # another answer than to an unknown commit would confirm a guess of its content
        raise duplicate(first, commit)


class Admission:
    """Checks queued commits group by group and passes them on to the sequencer."""

    def __init__(
        self,
        validator: CommitValidator,
        sequencer: Sequencer,
        reject: Callable[[Sequence[Rejection]], None],
        signatures: SignaturePool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._validator, self._sequencer, self._reject = validator, sequencer, reject
        self._signatures, self._clock = signatures, clock
        self._queue: SimpleQueue[Sequence[Arrival] | Future[int] | None] = SimpleQueue()
        self._long: FairQueue[Arrival] = FairQueue(MAX_WAITING, MAX_WAITING, jobs="commits")
        self._long_addresses, self._lock = Counter[str](), threading.Lock()
        """Number of long commits that are not passed on yet, by address."""
        self._held = list[Arrival]()
        """Long commits of the group that is being checked."""
        self._long_probes: SimpleQueue[Future[None]] = SimpleQueue()
        self._arrived, self._is_stopping = threading.Event(), False
        self._long_thread = threading.Thread(target=self._run_long, name="admission-long", daemon=True)
        self._thread = threading.Thread(target=self._run, name="admission", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._long_thread.start()

    def submit(self, arrivals: Sequence[Arrival]) -> None:
        self._queue.put(arrivals)

    def probe(self) -> "Future[int]":
        """Have each process that checks signatures check one; return how many failed, which were
        replaced. Commits that arrived before are checked first.
        """
        future: Future[int] = Future()
        self._queue.put(future)
        return future

    def probe_long(self) -> "Future[None]":
        """Return a future that the thread for long commits completes after the one that it checks."""
        future: Future[None] = Future()
        self._long_probes.put(future)
        self._arrived.set()
        return future

    def stop(self) -> None:
        """Pass on everything that was submitted, then end."""
        self._queue.put(None)
        self._thread.join()
        self._is_stopping = True
        self._arrived.set()
        self._long_thread.join()

    def _run(self) -> None:
        running = True
        while running:
            group, probe, running = self._take()
            if group:
                self.run_once(group)
            if probe is not None:
                self._probe(probe)

    def _probe(self, future: "Future[int]") -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(self._signatures.probe())
        except BaseException as e:
            future.set_exception(e)

    def _run_long(self) -> None:
        while True:
            self._arrived.wait()
            self._arrived.clear()
            is_last = self._is_stopping  # before the last look: a commit may arrive after it
            while self.run_long():
                self._answer_long_probes()
            self._answer_long_probes()
            if is_last:
                return

    def _answer_long_probes(self) -> None:
        while not self._long_probes.empty():
            future = self._long_probes.get()
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def _take(self) -> tuple[list[Arrival], "Future[int] | None", bool]:
        """Return all waiting commits, a probe to answer after them, and whether to continue. A larger
        group makes a larger transaction.
        """
        group: list[Arrival] = []
        arrivals = self._queue.get()
        try:
            while arrivals is not None and not isinstance(arrivals, Future):
                group += arrivals
                if len(group) >= MAX_GROUP:
                    return group, None, True
                arrivals = self._queue.get_nowait()
        except Empty:
            return group, None, True
        return group, arrivals, arrivals is not None

    def run_once(self, arrivals: Sequence[Arrival]) -> None:
        """Check the commits that take no turns. The others begin after them, so that none passes an
        earlier one of its address.
        """
        asked = (self._check(each, True) for each in arrivals if not self._waits(each))
        checked = [found for found in asked if found is not None]
        passed = [found for found in checked if isinstance(found, AdmittedCommit)]
        try:
            signed = iter(self._signatures.check([found.commit for found in passed]))
            checked = [
                self._finish(found, next(signed)) if isinstance(found, AdmittedCommit) else found for found in checked
            ]
        except Exception as e:  # an internal error must not end the thread
            error = internal_error(e, "admission")
            checked = [(found.sender, error, None) if isinstance(found, AdmittedCommit) else found for found in checked]
        self._pass_on(checked)
        self._release_held()

    def run_long(self) -> bool:
        """Check the commit whose turn it is; return whether there was one."""
        turn = self._long.take()
        if turn is None:
            return False
        began, address = self._clock(), turn.item[2]
        found = self._check(turn.item, False)
        if isinstance(found, AdmittedCommit):
            found = self._finish(found, None)
        self._pass_on([found])
        with self._lock:
            self._long_addresses[address] -= 1
            if not self._long_addresses[address]:
                del self._long_addresses[address]
        self._long.finish(turn, self._clock() - began)
        return True

    def _waits(self, arrival: Arrival) -> bool:
        """Return whether the commit waits for its address's turn now."""
        body, _, address = arrival
        if len(body) < LONG_BODY and address not in self._long_addresses:
            return False
        self._hold(arrival)
        return True

    def _hold(self, arrival: Arrival) -> None:
        with self._lock:
            self._long_addresses[arrival[2]] += 1
        self._held.append(arrival)

    def _release_held(self) -> None:
        held, self._held = self._held, []
        for each in held:
            self._long.put((each[2],), each)
        if held:
            self._arrived.set()

    def _pass_on(self, checked: Sequence[AdmittedCommit | Rejection]) -> None:
        """Pass on the commits that passed, and reject the others."""
        admitted = [found for found in checked if isinstance(found, AdmittedCommit)]
        if admitted:
            self._sequencer.submit(admitted)
        if len(admitted) < len(checked):
            self._reject([found for found in checked if not isinstance(found, AdmittedCommit)])

    @overload
    def _check(self, arrival: Arrival, may_wait: Literal[False]) -> AdmittedCommit | Rejection: ...
    @overload
    def _check(self, arrival: Arrival, may_wait: bool) -> AdmittedCommit | Rejection | None: ...
    def _check(self, arrival: Arrival, may_wait: bool) -> AdmittedCommit | Rejection | None:
        """Run everything before the signature; None if the commit waits for its turn first."""
        body, sender, address = arrival
        commit: Commit | None = None
        try:
            commit = self._validator.parse(body)
            if may_wait and not self._validator.is_quick(commit):
                self._hold(arrival)
                return None
            policy = self._validator.check_before_signature(commit)
            return AdmittedCommit(commit, sender, address, policy)
        except EncError as e:
            return (sender, e, commit.hash if commit else None)
        except Exception as e:  # an internal error must not affect the others
            error = internal_error(e, "admission", request_of(sender))
            return (sender, error, commit.hash if commit else None)

    def _finish(self, admitted: AdmittedCommit, verdict: bool | None) -> AdmittedCommit | Rejection:
        """Check the result of the signature check, and run everything after it. None: check the signature."""
        try:
            if not (is_signed(admitted.commit) if verdict is None else verdict):
                raise InvalidSignature("sig: not the author's signature over this commit")
            return self._validator.check_after_signature(admitted)
        except EncError as e:
            return (admitted.sender, e, admitted.commit.hash)
        except Exception as e:  # an internal error must not affect the others
            error = internal_error(e, "admission", request_of(admitted.sender))
            return (admitted.sender, error, admitted.commit.hash)


def is_signed(commit: Commit) -> bool:
    """Return whether the author has signed the commit."""
    try:
        check_author(commit)
    except InvalidSignature:
        return False
    return True
