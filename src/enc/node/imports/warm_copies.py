"""Warm copies of enclaves on other nodes, which this node's operator allows to order them.

An order names enclaves and how far they are now. The node fetches what it lacks, one enclave after
the other, and repeats nothing. A copy that nobody orders any more is dropped, as is one that an
import takes over; after a restart there are none, and the next order begins again.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog
from msgspec import Struct

from enc.core.errors import EncError, EnclaveNotFound, ReplayFailed, Unauthorized
from enc.core.primitives.types import Event
from enc.core.registry.warm_copy_order import OrderedCopy, WarmCopyOrder
from enc.node.imports.context import ImportContext
from enc.node.imports.source_calls import SourceCalls
from enc.node.imports.source_node import ImportCancelled, RemoteLog
from enc.node.imports.uploads import Uploads
from enc.node.imports.warm_copy import WarmCopy, WarmCopyBytes
from enc.node.ops.internal_errors import internal_error
from enc.node.sequence.sequencer import signs_nothing
from enc.runtime.endpoints import HttpEndpoint, parse_endpoint

KEEP_S = 3600.0
"""Seconds without an order after which a copy is dropped."""
ERASE_S = 300.0
"""Seconds after which an order has a copy without new events erase contents whose time has passed."""
REST_S = 60.0
"""Seconds before a copy that failed is begun again."""
CONFIRM_S = 5.0
"""Seconds for which a request for a confirmation waits until the copy has caught up."""
THREADS = 2
"""Threads that replay: one for orders, and one for owners who are about to move."""

_log = structlog.get_logger("enc.warm_copies")


class WarmCopyLimits(Struct, frozen=True, kw_only=True):
    """What this node's operator allows."""

    nodes: frozenset[bytes]
    """Keys of the nodes that may order copies."""
    enclaves: int
    bytes: int
    log_bytes: int
    """Most bytes of one log, as JSON lines."""


class _Place:
    """An enclave that was ordered, with its copy once that is begun."""

    copy: WarmCopy | None = None
    ordered: asyncio.Task[None] | None = None
    asked: asyncio.Task[None] | None = None
    """The last tasks that caught up, for an order and for a confirmation."""
    problem = ""
    """Why the last attempt failed."""
    failed_at: float | None = None

    def __init__(self, enclave: bytes, node: bytes, source: HttpEndpoint) -> None:
        self.enclave, self.node, self.source = enclave, node, source
        self.wanted, self.ordered_at, self.erased_at = -1, 0.0, 0.0
        self.lock = asyncio.Lock()
        """Held while the copy is used."""

    @property
    def events(self) -> int:
        return 0 if self.copy is None else self.copy.events

    @property
    def status(self) -> str:
        if self.problem:
            return "failed"
        return "warm" if self.events > self.wanted else "copying"


class WarmCopies:
    """All warm copies of this node. For one event loop."""

    def __init__(
        self,
        context: ImportContext,
        uploads: Uploads,
        calls: SourceCalls,
        limits: Callable[[], WarmCopyLimits],
        clock: Callable[[], float],
    ) -> None:
        """`limits` returns those now in force; `clock` returns seconds."""
        self._context, self._uploads, self._calls, self._limits, self._clock = context, uploads, calls, limits, clock
        self._places: dict[bytes, _Place] = {}
        self._stored = WarmCopyBytes(limits().bytes)
        self._stopped = threading.Event()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="warm copies")
        self._orders, self._questions = asyncio.Lock(), asyncio.Lock()
        """Held while a copy catches up, for an order or for a confirmation: one of each at a time."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of copies by status."""
        found = dict.fromkeys(("warm", "copying", "failed"), 0)
        for place in self._places.values():
            found[place.status] += 1
        return found

    @property
    def stored_bytes(self) -> int:
        return self._stored.total

    # Orders

    def check_order(self, order: WarmCopyOrder) -> HttpEndpoint:
        """Raise Unauthorized unless the operator allows the order's node; return its source."""
        if order.node not in self._limits().nodes:
            raise Unauthorized("node: this node makes no copies for it; its operator can set imports.ahead_from")
        if self._context.policy.at_once == 0:
            raise Unauthorized("this node accepts no imports")
        if self._context.sequencer.is_read_only:
            raise signs_nothing()
        return parse_endpoint(order.source, allow_private=self._context.policy.private_endpoints)

    def accept(self, order: WarmCopyOrder) -> list[dict[str, Any]]:
        """Begin what the order asks for, and return the status of each copy."""
        source = self.check_order(order)
        if order.ends:
            ended = {copy.enclave for copy in order.enclaves}
            for place in list(self._places.values()):
                if place.node == order.node and (not ended or place.enclave in ended):
                    self._drop(place)
            return []
        self._stored.most = self._limits().bytes
        return [self._accept(order.node, source, each) for each in order.enclaves]

    def _accept(self, node: bytes, source: HttpEndpoint, asked: OrderedCopy) -> dict[str, Any]:
        if (reason := self._refusal(node, asked.enclave)) is not None:
            return {"enclave": asked.enclave.hex(), "status": "refused", "events": 0, "reason": reason}
        place = self._places.setdefault(asked.enclave, _Place(asked.enclave, node, source))
        if place.source.url != source.url:
            place.failed_at = None  # it was the source that failed
        place.source, place.ordered_at = source, self._clock()
        place.wanted = max(place.wanted, asked.seq)
        is_due = place.events <= place.wanted or self._clock() - place.erased_at > ERASE_S
        if is_due and not self._is_resting(place):
            place.ordered = self._catching_up(place, place.ordered, self._orders)
        found = {"enclave": asked.enclave.hex(), "status": place.status, "events": place.events}
        return {**found, "reason": place.problem} if place.problem else found

    def _is_resting(self, place: _Place) -> bool:
        return place.failed_at is not None and self._clock() - place.failed_at < REST_S

    def _refusal(self, node: bytes, enclave: bytes) -> str | None:
        place = self._places.get(enclave)
        if place is not None and place.node != node:
            return "another node has ordered a copy of this enclave"
        if (conflict := self._conflict(enclave)) is not None:
            if place is not None:
                self._drop(place)
            return conflict
        if place is None and len(self._places) >= self._limits().enclaves:
            return f"this node has {self._limits().enclaves} warm copies (imports.ahead_enclaves)"
        return None

    def _conflict(self, enclave: bytes) -> str | None:
        """Return why there must be no copy of the enclave, whoever orders it."""
        if self._context.policy.restrictions.is_purged(enclave):
            return "the operator of this node has deleted this enclave"
        if self._context.store.has(enclave):  # without loading its state, on the event loop
            return "this node holds a log of the enclave already"
        return None

    # Copying

    def _catching_up(
        self, place: _Place, running: "asyncio.Task[None] | None", turns: asyncio.Lock
    ) -> "asyncio.Task[None]":
        """Return the running task, or else a new one that catches up when it is its turn."""
        if running is not None and not running.done():
            return running
        return asyncio.get_running_loop().create_task(self._catch_up_in_turn(place, turns))

    async def _catch_up_in_turn(self, place: _Place, turns: asyncio.Lock) -> None:
        async with turns:
            await self._catch_up(place)

    async def _catch_up(self, place: _Place) -> None:
        """Fetch and replay what the copy lacks. A failure is noted."""
        async with place.lock:
            if self._places.get(place.enclave) is not place or self._is_resting(place):
                return
            try:
                await self._extend(place)
                place.problem, place.failed_at = "", None
            except ImportCancelled:
                return
            except EncError as e:
                self._note_failure(place, e)
            except Exception as e:
                self._note_failure(place, internal_error(e, "warm copy"))
            finally:
                if self._places.get(place.enclave) is not place and place.copy is not None:  # dropped meanwhile
                    place.copy.close()
                    place.copy = None

    async def _extend(self, place: _Place) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        # The label of the node takes the place of an address: its logs share the limits of one.
        upload = self._uploads.add(f"node {place.node.hex()}", lambda: task and task.cancel())
        try:
            log = self._log(place)
            await log.fetch(upload, self._calls, self._threads)
            if log.fetched:
                if place.copy is None:
                    place.copy = await loop.run_in_executor(self._threads, self._begun, place.enclave)
                await self._replay(place, place.copy, upload, log.fetched)
            elif place.copy is not None:
                await loop.run_in_executor(self._threads, place.copy.rest)
            place.erased_at = self._clock()
        except asyncio.CancelledError:
            if upload.rejection is None or task is None:
                raise
            task.uncancel()
            raise upload.rejection from None
        finally:
            upload.close()

    def _log(self, place: _Place) -> RemoteLog:
        context, most = self._context, self._limits().log_bytes
        return RemoteLog(
            place.source,
            context.key,
            place.node,
            place.enclave,
            None,
            context.clock,
            max_bytes=most,
            first=place.events,
        )

    def _begun(self, enclave: bytes) -> WarmCopy:
        return WarmCopy(self._context, enclave, self._stored, self._stopped)

    async def _replay(self, place: _Place, copy: WarmCopy, upload: Any, count: int) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, copy.extend, upload, count)
        except BaseException:  # a replay that stopped in the middle cannot go on
            place.copy = None
            copy.close()
            raise

    def _note_failure(self, place: _Place, error: EncError) -> None:
        at = f"seq {error.seq}: " if isinstance(error, ReplayFailed) else ""
        place.problem, place.failed_at = f"{at}{error.message}", self._clock()
        _log.warning("warm_copy_failed", enclave=place.enclave.hex(), code=error.code, reason=place.problem)

    # What owners and imports do with them

    async def confirm(self, enclave: bytes, seq: int, root: bytes) -> bool:
        """Return whether the copy ends with event `seq` and this checkpoint root, after catching up."""
        place = self._places.get(enclave)
        if place is None:
            raise EnclaveNotFound("this node has no warm copy of this enclave")
        if place.events <= seq and not self._is_resting(place):
            place.asked = self._catching_up(place, place.asked, self._questions)
            await asyncio.wait([place.asked], timeout=CONFIRM_S)
        copy = place.copy
        return copy is not None and not place.lock.locked() and (copy.events, copy.root) == (seq + 1, root)

    async def take(self, enclave: bytes, migrate: Event) -> WarmCopy | None:
        """Return the copy for an import, which has to close it; None if there is no usable one."""
        place = self._places.get(enclave)
        if place is None or place.node != migrate.sequencer:
            return None
        async with place.lock:
            copy, place.copy = place.copy, None
            if self._places.get(enclave) is place:
                self._drop(place)
        if copy is None:
            return None
        copy.hand_over()
        if copy.events > migrate.seq + 1:
            copy.close()
            return None
        return copy

    # Ends

    def sweep(self) -> None:
        """Drop copies that nobody orders any more, and those of purged enclaves. Call this periodically."""
        nodes, is_purged = self._limits().nodes, self._context.policy.restrictions.is_purged
        for place in list(self._places.values()):
            is_old = self._clock() - place.ordered_at > KEEP_S
            if is_old or place.node not in nodes or is_purged(place.enclave):
                self._drop(place)

    def _drop(self, place: _Place) -> None:
        if self._places.get(place.enclave) is place:
            del self._places[place.enclave]
        copy, place.copy = place.copy, None
        if not place.lock.locked():
            _cancel(place)
        if copy is not None and place.lock.locked():
            asyncio.get_running_loop().create_task(self._close_later(place, copy))
        elif copy is not None:
            copy.close()

    async def _close_later(self, place: _Place, copy: WarmCopy) -> None:
        async with place.lock:
            copy.close()

    def stop(self) -> None:
        """Stop all replays and discard the copies. The sequencer must still run."""
        self._stopped.set()
        for place in list(self._places.values()):
            _cancel(place)
        self._threads.shutdown(cancel_futures=True)
        for place in self._places.values():
            if place.copy is not None:
                place.copy.close()


def _cancel(place: _Place) -> None:
    for task in (place.ordered, place.asked):
        if task is not None:
            task.cancel()
