"""Admission: what of a commit can be judged without its place in the log, checked before it stands in line.

The order of checks is docs/protocol.md's, cheapest first: form, enclave known, hash, duplicate and expiry, enclave
exists, signature; then what this node's operator decides: rates, who may create an enclave, and what may be called.

Commits come in groups, in the order in which they were received, and leave in that order. The signatures of a group are
checked together, by processes beside this one, while the sequencer orders the group before.
"""

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import structlog

from enc.core.commit import check_author, check_expiry, check_hash, manifest_version, parse_commit
from enc.core.enclave import judge_manifest
from enc.core.errors import (
    EncError,
    EnclaveExists,
    EnclaveNotFound,
    Expired,
    InvalidCommit,
    InvalidSignature,
    Unauthorized,
)
from enc.core.types import Commit, Limits
from enc.node.directory import StateCache
from enc.node.endpoints import check_endpoints
from enc.node.sequencer import AdmittedCommit, Sequencer, duplicate, internal_error
from enc.node.store.base import Store
from enc.node.verifiers import SignaturePool
from enc.runtime.rate_limit import RateLimiter

MAX_GROUP = 32
"""From this many on, commits are checked without waiting for more."""

REGISTERING = frozenset(["Grant", "Grant_Push", "AC_Bundle"])
"""Types that may name an endpoint, in one version or the other."""

_log = structlog.get_logger("enc.admission")

Arrival = tuple[bytes, Any]
"""A commit as it came, and whatever its sender is known by."""
Rejection = tuple[Any, EncError, bytes | None]
"""The sender, why not, and the commit's hash if it could be read."""


class CommitValidator:
    """Judges one commit at a time; safe to use from any thread."""

    def __init__(
        self,
        states: StateCache,
        store: Store,
        clock: Callable[[], int],
        rates: RateLimiter,
        *,
        limits: Limits,
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
        return parse_commit(body, self._limits)

    def check_before_signature(self, commit: Commit) -> None:
        """What comes before the signature."""
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
            raise EnclaveExists("the enclave is there already")

    def check_after_signature(self, commit: Commit) -> None:
        """What comes after it: only now is the author known."""
        self._rates.take(commit.from_)
        if commit.type == "Manifest" and not self._may_create(commit.from_):
            raise Unauthorized("this node does not create enclaves for this identity")
        check_endpoints(self._registered(commit), allow_private=self._private_endpoints)

    def _registered(self, commit: Commit) -> Sequence[str]:
        """The endpoints that a commit would register. Any other fault in it is the sequencer's to judge."""
        if commit.type == "Manifest":
            try:
                return [change.url for change in judge_manifest(commit)[1].endpoints if change.url is not None]
            except InvalidCommit:
                return ()
        state = self._states.get(commit.enclave) if commit.type in REGISTERING else None
        return state.policy.dialect.endpoints(commit) if state is not None else ()

    def _manifest_version(self, commit: Commit) -> int:
        if len((commit.content or "").encode()) > self._max_manifest:
            raise InvalidCommit(f"content: this node takes Manifests of at most {self._max_manifest} bytes")
        return manifest_version(commit)

    def _check_time(self, commit: Commit) -> None:
        """A commit that was accepted in time is a duplicate, not late: its sender may have lost the answer."""
        now = self._clock()
        if self._is_behind(now):
            return  # the sequencer refuses for that; a wrong clock does not judge times
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
        """Its sender's clock may be off. At most one line a second, whatever strangers send."""
        if not self._logged <= now < self._logged + 1000:
            self._logged = now
            _log.warning("client_clock", identity=commit.from_.hex(), exp_minus_now_ms=commit.exp - now)

    def _check_new(self, commit: Commit) -> None:
        first = self._store.committed(commit.enclave, commit.hash, commit.exp)
        if first is not None:
            if first.sig != commit.sig:
                check_author(commit)
            raise duplicate(first, commit)


class Admission:
    """A line of commits, checked group by group, and passed on to the sequencer."""

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
            except Exception as e:  # a fault of ours must not end the thread
                error = internal_error(e, "admission")
                self._reject([(sender, error, None) for _, sender in group])

    def _take(self) -> tuple[list[Arrival], bool]:
        """Everything that waits: the larger a group, the larger the transaction it becomes. And whether to go on."""
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
        checked = [self._check(body, sender) for body, sender in arrivals]
        signed = iter(self._signatures.check([found.commit for found in checked if isinstance(found, AdmittedCommit)]))
        checked = [
            self._finish(found, next(signed)) if isinstance(found, AdmittedCommit) else found for found in checked
        ]
        tickets = [found for found in checked if isinstance(found, AdmittedCommit)]
        if tickets:
            self._sequencer.submit(tickets)
        if len(tickets) < len(checked):
            self._reject([found for found in checked if not isinstance(found, AdmittedCommit)])

    def _check(self, body: bytes, sender: Any) -> AdmittedCommit | Rejection:
        """Everything before the signature."""
        commit: Commit | None = None
        try:
            commit = self._validator.parse(body)
            self._validator.check_before_signature(commit)
            return AdmittedCommit(commit, sender)
        except EncError as e:
            return (sender, e, commit.hash if commit else None)
        except Exception as e:  # a fault of ours must not stop the others
            return (sender, internal_error(e, "admission"), commit.hash if commit else None)

    def _finish(self, admitted: AdmittedCommit, is_signed: bool) -> AdmittedCommit | Rejection:
        """The signature's verdict, and everything after it."""
        try:
            if not is_signed:
                raise InvalidSignature("sig: not the author's signature over this commit")
            self._validator.check_after_signature(admitted.commit)
            return admitted
        except EncError as e:
            return (admitted.sender, e, admitted.commit.hash)
