"""Admission: checks everything about a commit that does not depend on its place in the log, before
it is queued.

The order of the checks is that of docs/protocol.md, cheapest first: form, known enclave, hash,
duplicate and expiry, enclave exists, signature; then what this node's operator decides: rates, who
may create an enclave, and which endpoints may be called.

Commits arrive in groups, in the order in which they were received, and leave in that order. The
signatures of a group are checked together, by other processes, while the sequencer orders the group
before.
"""

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import structlog

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
from enc.node.ops.internal_errors import internal_error
from enc.node.sequence.admitted import AdmittedCommit, duplicate
from enc.node.sequence.content_parts import check_parts
from enc.node.sequence.sequencer import Sequencer
from enc.node.sequence.state_cache import StateCache
from enc.node.signatures.pool import SignaturePool
from enc.node.store.store_interface import Store
from enc.runtime.endpoints import check_endpoints
from enc.runtime.rate_limit import RateLimiter

MAX_GROUP = 32
"""Size from which a group is checked without waiting for more commits."""

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
        is_behind: Callable[[int], bool] = lambda now: False,
        private_endpoints: bool = False,
    ) -> None:
        self._states, self._store, self._clock, self._rates = states, store, clock, rates
        self._limits, self._max_manifest, self._may_create = limits, max_manifest, may_create
        self._is_behind, self._private_endpoints = is_behind, private_endpoints
        self._logged = 0

    def parse(self, body: bytes) -> Commit:
        commit = parse_commit(body, self._limits)
        check_parts(commit)
        return commit

    def check_before_signature(self, commit: Commit) -> None:
        """Run the checks before the signature."""
        state = self._states.get(commit.enclave)
        if commit.type == "Manifest":
            enc_v = self._manifest_version(commit)
        elif state is None:
            raise EnclaveNotFound("no such enclave on this node")
        else:
            enc_v = state.policy.enc_v
        check_hash(commit, enc_v)
        self._check_time(commit)
        if commit.type == "Manifest" and state is not None:
            self._check_new(commit)
            raise EnclaveExists("the enclave already exists")

    def check_after_signature(self, commit: Commit) -> None:
        """Run the checks after the signature: only now is the author known."""
        self._rates.take(commit.from_)
        if commit.type == "Manifest" and not self._may_create(commit.from_):
            raise Unauthorized("this node does not create enclaves for this identity")
        check_endpoints(self._registered(commit), allow_private=self._private_endpoints)

    def _registered(self, commit: Commit) -> Sequence[str]:
        """Return the endpoints that a commit would register. The sequencer checks everything else
        about it.
        """
        if commit.type == "Manifest":
            try:
                return [change.url for change in judge_manifest(commit)[1].endpoints if change.url is not None]
            except InvalidCommit:
                return ()
        state = self._states.get(commit.enclave) if commit.type in REGISTERING else None
        return state.policy.dialect.endpoints(commit) if state is not None else ()

    def _manifest_version(self, commit: Commit) -> int:
        if len((commit.content or "").encode()) > self._max_manifest:
            raise InvalidCommit(f"content: this node accepts Manifests of at most {self._max_manifest} bytes")
        return manifest_version(commit)

    def _check_time(self, commit: Commit) -> None:
        """Check the expiry. A commit that was accepted before is a duplicate, not late: its sender
        may have lost the answer.
        """
        now = self._clock()
        if self._is_behind(now):
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
    ) -> None:
        self._validator, self._sequencer, self._reject = validator, sequencer, reject
        self._signatures = signatures
        self._queue: SimpleQueue[Sequence[Arrival] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="admission", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, arrivals: Sequence[Arrival]) -> None:
        self._queue.put(arrivals)

    def stop(self) -> None:
        """Pass on everything that was submitted, then end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        running = True
        while running:
            group, running = self._take()
            try:
                self.run_once(group)
            except Exception as e:  # an internal error must not end the thread
                error = internal_error(e, "admission")
                self._reject([(sender, error, None) for _, sender, _ in group])

    def _take(self) -> tuple[list[Arrival], bool]:
        """Return all waiting commits, and whether to continue. A larger group makes a larger
        transaction.
        """
        group: list[Arrival] = []
        arrivals = self._queue.get()
        try:
            while arrivals is not None and len(group) < MAX_GROUP:
                group += arrivals
                arrivals = self._queue.get_nowait()
        except Empty:
            return group, True
        if arrivals is not None:
            group += arrivals
        return group, arrivals is not None

    def run_once(self, arrivals: Sequence[Arrival]) -> None:
        if not arrivals:
            return
        checked = [self._check(body, sender, address) for body, sender, address in arrivals]
        signed = iter(self._signatures.check([found.commit for found in checked if isinstance(found, AdmittedCommit)]))
        checked = [
            self._finish(found, next(signed)) if isinstance(found, AdmittedCommit) else found for found in checked
        ]
        tickets = [found for found in checked if isinstance(found, AdmittedCommit)]
        if tickets:
            self._sequencer.submit(tickets)
        if len(tickets) < len(checked):
            self._reject([found for found in checked if not isinstance(found, AdmittedCommit)])

    def _check(self, body: bytes, sender: Any, address: str) -> AdmittedCommit | Rejection:
        """Run everything before the signature."""
        commit: Commit | None = None
        try:
            commit = self._validator.parse(body)
            self._validator.check_before_signature(commit)
            return AdmittedCommit(commit, sender, address)
        except EncError as e:
            return (sender, e, commit.hash if commit else None)
        except Exception as e:  # an internal error must not affect the others
            return (sender, internal_error(e, "admission"), commit.hash if commit else None)

    def _finish(self, admitted: AdmittedCommit, is_signed: bool) -> AdmittedCommit | Rejection:
        """Check the result of the signature check, and run everything after it."""
        try:
            if not is_signed:
                raise InvalidSignature("sig: not the author's signature over this commit")
            self._validator.check_after_signature(admitted.commit)
            return admitted
        except EncError as e:
            return (admitted.sender, e, admitted.commit.hash)
