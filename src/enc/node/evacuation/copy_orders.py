"""Orders warm copies of the node's enclaves from the destination, until all enclaves have left."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

import structlog
from msgspec import Struct
from msgspec.json import Decoder, encode

from enc.core.errors import EncError, InvalidQuery, UpstreamUnreachable
from enc.core.primitives.encoding import decode_json
from enc.core.primitives.signer import Signer
from enc.core.registry.evacuation import Evacuation
from enc.core.registry.warm_copy_order import MAX_ENCLAVES, OrderedCopy, WarmCopyOrder, wire_order
from enc.node.evacuation.statement import EvacuationStatement
from enc.node.imports.source_calls import SourceCalls
from enc.node.ops.internal_errors import internal_error
from enc.node.store.store_interface import Store
from enc.runtime.endpoints import parse_endpoint

INTERVAL_S = 2.0
"""Seconds between two rounds, at least."""
SHARE = 10
"""The pause after a round is at least this many times as long as the round read the store."""
RENEW_S = 600.0
"""Seconds after which a copy that has everything is ordered again, so that it is kept."""
MAX_ANSWER = 1 << 20

_log = structlog.get_logger("enc.evacuation")


class CopyStatus(Struct, frozen=True):
    """What the destination answered about one copy."""

    enclave: str
    status: str
    events: int
    reason: str = ""


class _Answer(Struct):
    copies: list[CopyStatus]


class _Refusal(Struct):
    code: str = ""
    message: str = ""


_answer, _refusal = Decoder(_Answer), Decoder(_Refusal)


class CopyOrders:
    """`run` on the event loop; `statuses` and `problem` may be read from any thread."""

    problem = ""
    """Why the destination made no copies in the last round; empty if it answered."""

    def __init__(
        self,
        statement: EvacuationStatement,
        store: Store,
        key: Signer,
        calls: SourceCalls,
        clock: Callable[[], int],
        *,
        allow_private: bool,
    ) -> None:
        self._statement, self._store, self._key, self._calls, self._clock = statement, store, key, calls, clock
        self._allow_private = allow_private
        self.statuses: dict[bytes, CopyStatus] = {}
        self._renewed: dict[bytes, float] = {}
        self._scan_s = 0.0
        self._ordering: Evacuation | None = None
        """The statement for which copies are ordered."""

    async def run(self) -> None:
        """Order copies until this is cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(max(INTERVAL_S, SHARE * self._scan_s))

    async def round(self) -> None:
        """Order what the destination lacks, or end the copies if the node is no longer evacuated."""
        current, before = self._statement.current, self._ordering
        if before is not None and (current is None or current.to_key != before.to_key):
            await self._attempt(before, (), ends=True)
            self.statuses, self._renewed, self.problem = {}, {}, ""
        self._ordering = current
        if current is None:
            return
        began = time.monotonic()
        behind = await asyncio.to_thread(self._behind)
        self._scan_s = time.monotonic() - began
        for first in range(0, len(behind), MAX_ENCLAVES):
            if not await self._attempt(current, behind[first : first + MAX_ENCLAVES]):
                return

    def _behind(self) -> Sequence[OrderedCopy]:
        """Return the enclaves that are still here and whose copies lack events, or must be renewed."""
        found, now = list[OrderedCopy](), time.monotonic()
        for enclave, seq in self._enclaves():
            known = self.statuses.get(enclave)
            is_new = now - self._renewed.get(enclave, -RENEW_S) < RENEW_S
            if known is None or known.events <= seq or not is_new:
                found.append(OrderedCopy(enclave, seq))
        return found

    def _enclaves(self) -> Iterator[tuple[bytes, int]]:
        for enclave in self._store.enclaves():
            state = self._store.load(enclave)
            is_here = state is not None and state.sequencer == self._key.public and state.lifecycle != "terminated"
            if state is not None and is_here:
                yield enclave, state.seq
            else:
                self.statuses.pop(enclave, None)

    async def _attempt(self, to: Evacuation, part: Sequence[OrderedCopy], *, ends: bool = False) -> bool:
        """Send an order; return whether the destination accepted it. A failure is noted."""
        try:
            copies = await self._order(to, part, ends=ends)
        except EncError as e:
            self._note_problem(f"the destination {to.to}: {e.message}")
            return False
        except Exception as e:
            self._note_problem(internal_error(e, "evacuation").message)
            return False
        self._note_problem("")
        for copy in copies:
            enclave = bytes.fromhex(copy.enclave)
            self.statuses[enclave], self._renewed[enclave] = copy, time.monotonic()
        return True

    def _note_problem(self, problem: str) -> None:
        if problem and problem != self.problem:
            _log.warning("copies_not_ordered", reason=problem)
        self.problem = problem

    async def _order(self, to: Evacuation, part: Sequence[OrderedCopy], *, ends: bool) -> list[CopyStatus]:
        order = WarmCopyOrder(
            node=self._key.public,
            to_key=to.to_key,
            at=self._clock(),
            source=self._statement.source,
            enclaves=tuple(part),
            ends=ends,
        )
        endpoint = parse_endpoint(to.to, allow_private=self._allow_private)
        body = encode(wire_order(self._key, order))
        status, answer = await self._calls.post(
            endpoint, "evacuation", "/warm-copies", body, max_bytes=MAX_ANSWER, received=lambda size: None
        )
        if status != 200:
            raise _failure(status, answer)
        asked = {copy.enclave.hex() for copy in part}
        return [copy for copy in decode_json(answer, _answer, InvalidQuery).copies if copy.enclave in asked]


def _failure(status: int, answer: bytes) -> EncError:
    """Return the error for a refusal, with its text for the operator."""
    try:
        found = _refusal.decode(answer)
    except (ValueError, RecursionError):
        return UpstreamUnreachable(f"it answered with status {status}")
    return UpstreamUnreachable(f"it refuses: {found.code[:64]}: {found.message[:500]}")
