"""One enclave that a witness follows: polls its node, and compares heads that others submit.

A poll asks for the newest head, as a client does. The client code checks the sequencer's signature,
the Migrates if the enclave has moved, and the proof that the head extends the one before; the
ledger co-signs what passes. A failure of one enclave does not affect others.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

import structlog
from msgspec import Struct

from enc.client.enclave import combined_reads
from enc.client.errors import Distrust, Fork, LostRange, Rollback, SplitBrain, TimedOut, TooManyMoves
from enc.client.evidence.evidence import split_head, two_heads, unconnected
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.sequencer_lookup import fetch_history
from enc.client.verify.log_verifier import LogVerifier
from enc.client.wire.flow import Flow
from enc.core.errors import EncError, EnclaveMigrated, InvalidSignature, PeerError, Unavailable, WorldError
from enc.core.primitives.types import TreeHead
from enc.core.trees.tree_head import check_bound_head
from enc.witness.evidence_store import StoredEvidence
from enc.witness.ledger import HeadLedger

T = TypeVar("T")
Run = Callable[[Flow[Any]], Awaitable[Any]]
WatchState = Literal["new", "ok", "silent", "stuck", "disputed"]
"""Not polled yet; fine; its node does not answer; it cannot be followed; its node lied."""

WHOLE_S = 60.0
"""Seconds for all requests of one poll or one comparison."""
MAX_WAITING = 4
"""Heads of one enclave that may wait for comparison: each may wait for a node without an answer."""
INQUIRE = 6
"""Polls without news after which the log is searched for Migrates again."""

_log = structlog.get_logger("enc.witness")


class Comparison(Struct, frozen=True):
    """The result for a submitted head: evidence if it contradicts; `filed` None: limit reached."""

    contradicts: bool
    message: str = ""
    filed: StoredEvidence | None = None


class Watch:
    """`now`: Unix milliseconds. `run` drives a flow."""

    state: WatchState = "new"
    why: str = ""
    checked: int | None = None
    """When its node last passed a poll, in Unix milliseconds."""

    def __init__(self, reader: EnclaveReader, ledger: HeadLedger, run: Run, now: Callable[[], int]) -> None:
        self.enclave, self._reader, self._ledger, self._run, self._now = reader.enclave, reader, ledger, run, now
        self._lock, self._quiet, self._waiting = asyncio.Lock(), 0, 0

    @property
    def url(self) -> str | None:
        """The URL of its node, if one was found."""
        return self._reader.node.url

    # Polling

    async def poll(self) -> None:
        """Ask for the newest head. Never raises: errors are logged, shown in `state`, and
        retried.
        """
        async with self._lock:
            try:
                await self._in_time(self._newest())
            except Distrust as e:
                self._set_state("disputed", e)
                self._store(e)
            except WorldError as e:
                self._set_state("silent", e)
            except EncError as e:
                self._set_state("stuck", e)
            else:
                self._set_ok()

    async def _in_time(self, flow: Flow[Any]) -> None:
        """Run a flow within WHOLE_S, however many requests it takes."""
        try:
            async with asyncio.timeout(WHOLE_S):
                await self._run(flow)
        except TimeoutError:
            raise TimedOut(f"the node took more than {WHOLE_S:g} s to answer") from None

    def _set_ok(self) -> None:
        if self.state not in ("new", "ok"):
            _log.info("recovered", enclave=self.enclave.hex())
        self.state, self.why, self.checked = "ok", "", self._now()

    def _set_state(self, state: WatchState, error: EncError) -> None:
        """Set the state, and log it if it has changed."""
        why = f"{error.code}: {error.message}" if error.code else error.message
        if (state, why) != (self.state, self.why):
            log = _log.error if state == "disputed" else _log.warning
            log(state, enclave=self.enclave.hex(), node=self.url, why=why)
        self.state, self.why = state, why

    def _store(self, error: Distrust) -> StoredEvidence | None:
        filed = self._ledger.add_evidence(error.evidence)
        if filed is not None and filed.is_new:
            _log.error("evidence", enclave=self.enclave.hex(), id=filed.id, kind=filed.kind, convicts=filed.convicts)
        return filed

    def _newest(self) -> Flow[TreeHead]:
        """Return the newest head, from the node that has the enclave. It is pinned, and so
        co-signed, before this returns.
        """
        before = self._ledger.load(self.enclave)
        head = yield from self._reader.session.head()
        self._quiet = self._quiet + 1 if before and before.head == head else 0
        if self._quiet % INQUIRE != 1:
            return head
        # After a move, the old node still shows its log: only the Migrate in it shows the move.
        yield from _inquire(self._reader)
        yield from combined_reads.follow(self._reader)
        return (yield from self._reader.session.head())

    # Comparing

    async def compare(self, signer: bytes | None, head: TreeHead) -> Comparison:
        """Compare a head that someone else was shown with the log shown here; raise if that
        fails.
        """
        if self._waiting >= MAX_WAITING:
            raise Unavailable("other heads of this enclave are being compared", retry_after_ms=1000)
        self._waiting += 1
        try:
            async with self._lock:
                await self._in_time(self._compare(signer, head))
        except Distrust as e:
            self._set_state("disputed", e)
            return Comparison(True, e.message, self._store(e))
        finally:
            self._waiting -= 1
        return Comparison(False)

    def _compare(self, signer: bytes | None, head: TreeHead) -> Flow[None]:
        pin = self._ledger.load(self.enclave)
        if signer is None and pin is not None:
            signer = pin.sequencer
        if signer is not None:
            check_bound_head(head, signer, self.enclave)  # before any request to a node
            known = self._ledger.at(self.enclave, head.ts)
            seen = known and known.cosigned
            if seen and seen.sequencer == signer:
                if seen.head.r != head.r:
                    raise _fork(self.enclave, signer, seen.head, head)
                return
        latest = yield from self._reader.session.head()
        verifier = self._reader.session.known_verifier()
        signer = signer or verifier.sequencer
        check_bound_head(head, signer, self.enclave)
        if signer != verifier.sequencer:
            yield from self._check_former(verifier, signer, head, latest)
        yield from self._check_place(verifier, signer, head, latest)

    def _check_former(self, verifier: LogVerifier, signer: bytes, head: TreeHead, latest: TreeHead) -> Flow[None]:
        """Check a head that a former sequencer signed, or one that never was the sequencer."""
        if not verifier.history.knows(signer):
            yield from _inquire(self._reader)
        move = verifier.history.departure(signer)
        if move is None:
            raise InvalidSignature("sequencer: not a known sequencer of this enclave")
        if move.size is not None and head.ts > move.size:
            message = f"{signer.hex()} signed a head of {head.ts} bundles, but its term ended at {move.size}"
            raise SplitBrain(message, split_head(move.event, move.size, head, signer, message))
        if head.ts > latest.ts:
            message = f"{signer.hex()} signed a head of {head.ts} bundles, but the continued log has {latest.ts}"
            shown = unconnected(self.enclave, signer, message, latest, head, None, verifier.sequencer)
            raise Fork(message, shown)

    def _check_place(self, verifier: LogVerifier, signer: bytes, head: TreeHead, latest: TreeHead) -> Flow[None]:
        other = None if signer == verifier.sequencer else signer
        if head.ts > latest.ts:
            message = f"a head of {head.ts} bundles was submitted, but the node later shows {latest.ts}"
            raise Rollback(message, two_heads("rollback", self.enclave, signer, message, head, latest))
        if head.ts == latest.ts:
            if head.r != latest.r:
                raise (
                    verifier.root_mismatch(other, head, latest) if other else _fork(self.enclave, signer, latest, head)
                )
        elif head.ts:
            verifier.connect(head, latest, (yield from self._reader.session.consistency(head, latest, other)), other)


def _inquire(reader: EnclaveReader) -> Flow[None]:
    """Read the Migrates, if the witness may."""
    try:
        yield from fetch_history(reader.session)
    except (Distrust, EnclaveMigrated, LostRange, TooManyMoves):
        raise
    except PeerError:
        pass


def _fork(enclave: bytes, signer: bytes, first: TreeHead, then: TreeHead) -> Fork:
    message = f"the sequencer signed two logs of {first.ts} bundles, and showed the other one to someone else"
    return Fork(message, two_heads("fork", enclave, signer, message, first, then))
