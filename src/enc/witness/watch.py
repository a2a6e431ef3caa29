"""One enclave, as a witness follows it: a look at its node now and then, and heads that others bring to be compared.

A look is what a client does that asks for the newest head: the sequencer's signature, the Migrates where the enclave
has moved, and the proof that the head extends the one before are checked there, and the ledger co-signs what passes.
Nothing that goes wrong with one enclave reaches another.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

import structlog
from msgspec import Struct

from enc.client import reads
from enc.client.errors import Distrust, Fork, LostRange, Rollback, SplitBrain, TimedOut, TooManyMoves
from enc.client.evidence import split_head, two_heads, unconnected
from enc.client.flow import Flow
from enc.client.lineage import fetch_history
from enc.client.link import EnclaveReader
from enc.client.sceptic import LogVerifier
from enc.core.errors import EncError, EnclaveMigrated, InvalidSignature, PeerError, Unavailable, WorldError
from enc.core.tree_head import check_bound_head
from enc.core.types import TreeHead
from enc.witness.docket import Filed
from enc.witness.ledger import Ledger

T = TypeVar("T")
Run = Callable[[Flow[Any]], Awaitable[Any]]
State = Literal["new", "ok", "silent", "stuck", "disputed"]
"""Not looked at yet; well; its node does not answer; it cannot be followed; its node said what cannot be true."""

WHOLE_S = 60.0
"""For all that is asked of a node in one look, or to compare one head."""
MAX_WAITING = 4
"""Heads of one enclave that may wait to be compared: each may wait for a node that does not answer."""
INQUIRE = 6
"""Looks that found nothing new, after which the log is asked for Migrates again."""

_log = structlog.get_logger("enc.witness")


class Verdict(Struct, frozen=True):
    """What came of a head that was brought: evidence, if it contradicts; `filed` None: there is enough of its kind."""

    contradicts: bool
    message: str = ""
    filed: Filed | None = None


class Watch:
    """`now`: Unix milliseconds. `run` drives a flow."""

    state: State = "new"
    why: str = ""
    checked: int | None = None
    """When its node was last found well."""

    def __init__(self, reader: EnclaveReader, ledger: Ledger, run: Run, now: Callable[[], int]) -> None:
        self.enclave, self._reader, self._ledger, self._run, self._now = reader.enclave, reader, ledger, run, now
        self._lock, self._quiet, self._waiting = asyncio.Lock(), 0, 0

    @property
    def url(self) -> str | None:
        """Of the node that is asked, if one was found."""
        return self._reader.node.url

    # Looking

    async def look(self) -> None:
        """Never raises: what goes wrong is said, kept, and tried again."""
        async with self._lock:
            try:
                await self._in_time(self._newest())
            except Distrust as e:
                self._note("disputed", e)
                self._keep(e)
            except WorldError as e:
                self._note("silent", e)
            except EncError as e:
                self._note("stuck", e)
            else:
                self._well()

    async def _in_time(self, flow: Flow[Any]) -> None:
        """However many requests it takes, and however slowly each is answered."""
        try:
            async with asyncio.timeout(WHOLE_S):
                await self._run(flow)
        except TimeoutError:
            raise TimedOut(f"the node takes more than {WHOLE_S:g} seconds over its answers") from None

    def _well(self) -> None:
        if self.state not in ("new", "ok"):
            _log.info("well_again", enclave=self.enclave.hex())
        self.state, self.why, self.checked = "ok", "", self._now()

    def _note(self, state: State, error: EncError) -> None:
        """Say it once for as long as it is the same."""
        why = f"{error.code}: {error.message}" if error.code else error.message
        if (state, why) != (self.state, self.why):
            say = _log.error if state == "disputed" else _log.warning
            say(state, enclave=self.enclave.hex(), node=self.url, why=why)
        self.state, self.why = state, why

    def _keep(self, error: Distrust) -> Filed | None:
        filed = self._ledger.file(error.evidence)
        if filed is not None and filed.is_new:
            _log.error("evidence", enclave=self.enclave.hex(), id=filed.id, kind=filed.kind, convicts=filed.convicts)
        return filed

    def _newest(self) -> Flow[TreeHead]:
        """The newest head, at whichever node has the enclave: it is believed, and so co-signed, before this returns."""
        before = self._ledger.load(self.enclave)
        head = yield from self._reader.session.head()
        self._quiet = self._quiet + 1 if before and before.head == head else 0
        if self._quiet % INQUIRE != 1:
            return head
        # A node that the enclave has left shows the log as it was: only the Migrate in it tells.
        yield from _inquire(self._reader)
        yield from reads.follow(self._reader)
        return (yield from self._reader.session.head())

    # Comparing

    async def compare(self, signer: bytes | None, head: TreeHead) -> Verdict:
        """A head that somebody else was shown, beside what is shown here. Raises where it cannot be compared."""
        if self._waiting >= MAX_WAITING:
            raise Unavailable("other heads of this enclave are being compared", retry_after_ms=1000)
        self._waiting += 1
        try:
            async with self._lock:
                await self._in_time(self._compare(signer, head))
        except Distrust as e:
            self._note("disputed", e)
            return Verdict(True, e.message, self._keep(e))
        finally:
            self._waiting -= 1
        return Verdict(False)

    def _compare(self, signer: bytes | None, head: TreeHead) -> Flow[None]:
        pin = self._ledger.load(self.enclave)
        if signer is None and pin is not None:
            signer = pin.sequencer
        if signer is not None:
            check_bound_head(head, signer, self.enclave)  # before anybody is asked anything
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
        """Somebody signed it who is not the sequencer any more, or never was."""
        if not verifier.history.knows(signer):
            yield from _inquire(self._reader)
        move = verifier.history.departure(signer)
        if move is None:
            raise InvalidSignature("sequencer: not one of this enclave's, as far as the witness knows")
        if move.size is not None and head.ts > move.size:
            message = f"{signer.hex()} signed a head of {head.ts} bundles: it left the log when it had {move.size}"
            raise SplitBrain(message, split_head(move.event, move.size, head, signer, message))
        if head.ts > latest.ts:
            message = f"{signer.hex()} signed a head of {head.ts} bundles, and the log that went on has {latest.ts}"
            shown = unconnected(self.enclave, signer, message, latest, head, None, verifier.sequencer)
            raise Fork(message, shown)

    def _check_place(self, verifier: LogVerifier, signer: bytes, head: TreeHead, latest: TreeHead) -> Flow[None]:
        other = None if signer == verifier.sequencer else signer
        if head.ts > latest.ts:
            message = f"a head of {head.ts} bundles was brought, and the node shows {latest.ts} after that"
            raise Rollback(message, two_heads("rollback", self.enclave, signer, message, head, latest))
        if head.ts == latest.ts:
            if head.r != latest.r:
                raise (
                    verifier.root_mismatch(other, head, latest) if other else _fork(self.enclave, signer, latest, head)
                )
        elif head.ts:
            verifier.connect(head, latest, (yield from self._reader.session.consistency(head, latest, other)), other)


def _inquire(reader: EnclaveReader) -> Flow[None]:
    """Learn of Migrates, if they may be read."""
    try:
        yield from fetch_history(reader.session)
    except (Distrust, EnclaveMigrated, LostRange, TooManyMoves):
        raise
    except PeerError:
        pass


def _fork(enclave: bytes, signer: bytes, first: TreeHead, then: TreeHead) -> Fork:
    message = f"the sequencer signed two logs of {first.ts} bundles, and somebody else was shown the other"
    return Fork(message, two_heads("fork", enclave, signer, message, first, then))
