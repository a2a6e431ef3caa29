"""Catches up with a node: pulls missed pushes, and queries what the node no longer keeps.

A thread that waits for the node's key if only its URL is known, for a gap, and, from time to time,
for batches that the node gave up on. Everything goes through the delivery worker, as pushes do.
While the node does not answer, the nodes to which its enclaves have moved are asked for those.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from msgspec import Struct

from enc.client.clients.client import Client, Enclave
from enc.client.clients.wiring import ClientSettings
from enc.client.enclave.search import Between
from enc.client.errors import Distrust
from enc.client.keys.identity import Identity
from enc.client.receive.claims import MAX_CLAIMS, Claim, Claims
from enc.client.receive.delivery_worker import Clock, DeliveryWorker, error_text
from enc.client.receive.inbox import PushInbox, QueuePosition
from enc.client.receive.move_finder import MoveFinder
from enc.client.receive.successor_backfill import SuccessorBackfill
from enc.client.verify.pins import Pins
from enc.core.errors import PeerError, RateLimited, WorldError
from enc.core.primitives.types import Event
from enc.runtime.backoff import RetryPauses

PAGE = 500
"""Events of a Query that are stored at once."""
ROUND_S = 3600.0
"""How long without a push until the node is asked for missed batches, in seconds."""

STRANGERS_S = 10.0
"""Shortest time between two searches for enclaves that may have moved to an unknown node, in seconds:
anybody can send what looks like a push.
"""

UNKNOWN = (
    "no enclave on that node is known, so earlier batches are requested only after its first push; "
    "name an enclave of that node to ask at once"
)
NEVER = float("inf")

logger = logging.getLogger("enc.client.receiver")


class Gap(Struct, frozen=True):
    """Batches that the node no longer keeps.

    Their events were queried, except for enclaves `refused`. Or batches of a node that does not
    answer, where the nodes to which the enclaves `refused` have moved do not provide their events
    either.
    """

    seq_pub: bytes
    url: str
    first: int
    last: int
    refused: tuple[bytes, ...] = ()


OnGap = Callable[[Gap], bool | None]
"""Called with a gap. If enclaves were refused, the receiver continues only if it returns true."""
OnDistrust = Callable[[Distrust], object]


class ReceiverContext(Protocol):
    """What catching up needs from its receiver."""

    identity: Identity
    url: str
    pins: Pins
    inbox: PushInbox
    worker: DeliveryWorker
    moves: MoveFinder
    timeout: float
    on_gap: OnGap | None
    enclaves: tuple[bytes, ...]
    """The enclaves that the user named to ask by."""

    def log_throttled(self, level: int, kind: str, text: str) -> None: ...

    def key_found(self, node: str, seq_pub: bytes) -> None: ...

    def url_of(self, seq_pub: bytes) -> str | None: ...

    def node_found(self, url: str, seq_pub: bytes) -> None: ...

    def report_distrust(self, error: Distrust) -> None: ...


class CatchUp:
    """Catches up with one node. `seq_pub`: its key, if known."""

    def __init__(
        self, context: ReceiverContext, node: str, seq_pub: bytes | None, retries: RetryPauses, clock: Clock
    ) -> None:
        self._context, self.node, self._seq_pub = context, node, seq_pub
        self._retries, self._clock = retries, clock
        self._wake, self._is_closed = threading.Condition(), False
        self._due, self._pause, self._reported_gap = 0.0, 0.0, Gap(b"", "", 0, 0)
        self._claims: dict[bytes, Claim] = {}
        """By enclave: the claim that it has moved from this node."""
        self._claims_due, self._claims_pause = 0.0, 0.0
        self._strangers_due, self._is_stranger_here = 0.0, False
        self._is_down = False
        """Whether the last round failed without an answer of the node."""
        self._client: Client | None = None
        self._thread = threading.Thread(target=self._run, name="enc-catch-up", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Ask for missing batches now, or at the next retry if that has just failed."""
        with self._wake:
            self._due = min(self._due, self._clock() + self._pause)
            self._wake.notify()

    def push_received(self, *, is_missing: bool) -> None:
        """Note that the node is up, since it has pushed; retry at once if it was down."""
        with self._wake:
            was_down, self._is_down = self._is_down, False
            if was_down:
                self._pause = 0.0
        if was_down or is_missing:
            self.wake()

    def check_move(self, enclave: bytes, claim: Claim) -> None:
        """Find out whether an enclave has moved, before more of this node's events are awaited."""
        with self._wake:
            if self._clock() < self._claims_due or len(self._claims) >= MAX_CLAIMS:
                return
            self._claims[enclave] = claim
        self.wake()

    def check_moves(self) -> bool:
        """Search for enclaves that have moved from this node, because an unknown node pushes something;
        return False if the last search is too recent.
        """
        with self._wake:
            if self._clock() < self._strangers_due:
                return False
            self._is_stranger_here, self._strangers_due = True, self._clock() + STRANGERS_S
        self.wake()
        return True

    def close(self) -> None:
        with self._wake:
            self._is_closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(self._context.timeout)  # after this it touches nothing here, whatever the node does

    # The thread

    def _run(self) -> None:
        try:
            while self._wait():
                self._try()
        finally:
            if self._client is not None:
                self._client.close()

    def _wait(self) -> bool:
        with self._wake:
            while not self._is_closed and self._clock() < self._due:
                self._wake.wait(None if self._due == NEVER else self._due - self._clock())
            self._due = NEVER
            return not self._is_closed

    def _try(self) -> None:
        """Run a round.

        Schedule a retry after a failure, except after a lie, which a person must examine.
        """
        is_down, claims = False, Claims(self._context, {})
        try:
            claims = self._take_claims()
            claims.look_up()
            is_whole = self.run_round()
        except Distrust as e:
            self._context.report_distrust(e)
            return
        except Exception as e:
            self._log_failure(e)
            is_whole, is_down = False, isinstance(e, WorldError)
        if not is_whole and self._seq_pub is not None:
            self._backfill(self._seq_pub)
        if claims.by_enclave:
            self._settle(claims, is_late=is_whole or self._pause >= self._retries.max_s)
        with self._wake:
            self._is_down = is_down
            self._pause = 0.0 if is_whole else self._retries.after(self._pause)
            self._due = min(self._due, self._clock() + (ROUND_S if is_whole else self._pause))

    def _take_claims(self) -> Claims:
        with self._wake:
            claims, self._claims = self._claims, {}
            is_stranger_here, self._is_stranger_here = self._is_stranger_here, False
        if is_stranger_here:
            inbox, url_of = self._context.inbox, self._context.url_of
            known = self._context.worker.submit(lambda: inbox.sequencers(MAX_CLAIMS)).result()
            mine = {each: Claim(key) for each, key in known.items() if url_of(key) in (None, self.node)}
            claims = {**mine, **claims}
        return Claims(self._context, claims)

    def _settle(self, claims: Claims, *, is_late: bool) -> None:
        """Settle the claims, or keep them while the node may still have earlier events."""
        if not is_late:
            with self._wake:
                self._claims = {**claims.by_enclave, **self._claims}
            return
        try:
            is_settled = claims.settle()
        except Distrust as e:
            self._context.report_distrust(e)
            is_settled = False
        except Exception as e:
            self._log_failure(e)
            is_settled = False
        with self._wake:
            self._claims_pause = 0.0 if is_settled else self._retries.after(self._claims_pause)
            self._claims_due = self._clock() + self._claims_pause

    def _log_failure(self, error: Exception) -> None:
        if isinstance(error, WorldError | RateLimited):
            text = f"{self.node} cannot be asked for missing batches; retrying: {error_text(error)}"
            self._context.log_throttled(logging.WARNING, f"{self.node} {error.code}", text)
        else:
            logger.error("catching up with %s failed: %s", self.node, error_text(error))

    def _backfill(self, seq_pub: bytes) -> None:
        """Get missing events of moved enclaves from the nodes that have them now."""
        try:
            missing = SuccessorBackfill(self._context, seq_pub, lambda: self._is_closed).run()
            if missing and self._pause >= self._retries.max_s:  # retried often enough
                self._give_up(seq_pub, missing)
        except Distrust as e:
            self._context.report_distrust(e)
        except Exception as e:
            self._log_failure(e)

    def _give_up(self, seq_pub: bytes, missing: tuple[bytes, ...]) -> None:
        position, inbox, submit = self._position(seq_pub), self._context.inbox, self._context.worker.submit
        if position.until is None:
            return
        gap = Gap(seq_pub, self._context.url, position.next, position.until, missing)
        if self._may_continue(gap, "does not provide"):
            for enclave in missing:
                submit(lambda enclave=enclave: inbox.release(seq_pub, enclave)).result()  # type: ignore[misc]

    def run_round(self) -> bool:
        """Pull everything the node has beyond the position.

        Returns False if something is still missing.
        """
        seq_pub = self._key()
        position, refusals = self._position(seq_pub), dict[bytes, str]()
        for enclave in self._enclaves_to_ask(seq_pub, position):
            try:
                self._pull(seq_pub, self._at(seq_pub).enclave(enclave), position)
            except (Distrust, RateLimited):
                raise
            except PeerError as e:  # another enclave may work
                refusals[enclave] = f"{self.node} refuses a Pull by {enclave.hex()}: {error_text(e)}"
            else:
                return self._settle_gap(seq_pub, position)
        for enclave, refusal in refusals.items():
            self._context.log_throttled(logging.WARNING, f"{self.node} {enclave.hex()}", refusal)
        if not refusals:
            self._context.log_throttled(logging.INFO, f"{self.node} unknown", f"{self.node}: {UNKNOWN}")
        return position.until is None

    def _enclaves_to_ask(self, seq_pub: bytes, position: QueuePosition) -> Iterator[bytes]:
        """Yield enclaves to ask by: those on the node, then those named, unless pinned to another
        node.
        """
        yield from position.enclaves
        for enclave in self._context.enclaves:
            pin = self._context.pins.load(enclave)
            if enclave not in position.enclaves and (pin is None or pin.sequencer == seq_pub):
                yield enclave

    def _key(self) -> bytes:
        if self._seq_pub is None:
            seq_pub = self._at(None).seq_pub()
            self._context.key_found(self.node, seq_pub)
            self._seq_pub = seq_pub
        return self._seq_pub

    def _at(self, seq_pub: bytes | None) -> Client:
        if self._client is None:
            context = self._context
            self._client = Client(
                self.node,
                context.identity,
                seq_pub=seq_pub,
                pins=context.pins,
                timeout=context.timeout,
                patience=0.0,
                settings=ClientSettings(uses_recorded=False),  # other nodes have other queues
            )
        return self._client

    def _position(self, seq_pub: bytes) -> QueuePosition:
        return self._context.worker.submit(lambda: self._context.inbox.position(seq_pub)).result()

    def _pull(self, seq_pub: bytes, by: Enclave, position: QueuePosition) -> None:
        for batch in by.pull(self._context.url, after=position.next - 1, until=position.until):
            if self._is_closed:
                return
            self._context.worker.submit(lambda batch=batch: self._context.inbox.file(seq_pub, batch)).result()  # type: ignore[misc]

    # Lost batches

    def _settle_gap(self, seq_pub: bytes, asked: QueuePosition) -> bool:
        """Handle batches that are still missing after the node was asked: it no longer keeps them."""
        position = self._position(seq_pub)
        if self._is_closed or position.until is None:
            return True
        if asked.until is None or position.next > asked.until:
            self.wake()  # this gap is newer than the request
            return True
        refused = tuple(enclave for enclave in self._known(seq_pub) if not self._query_lost(seq_pub, enclave))
        gap = Gap(seq_pub, self._context.url, position.next, min(position.until, asked.until), refused)
        if not self._may_continue(gap, "no longer keeps"):
            return False
        self._context.worker.submit(lambda: self._context.inbox.skip(seq_pub, gap.last)).result()
        self.wake()  # there may be another gap after it
        return True

    def _known(self, seq_pub: bytes) -> Iterable[bytes]:
        return self._context.worker.submit(lambda: self._context.inbox.position(seq_pub, -1)).result().enclaves

    def _may_continue(self, gap: Gap, why: str) -> bool:
        if gap == self._reported_gap:
            return False
        logger.error("%s %s batches %d to %d of this queue", self.node, why, gap.first, gap.last)
        continues = None if self._context.on_gap is None else self._context.on_gap(gap)
        if gap.refused and not continues:
            logger.error("the lost events of %d enclaves may not be read: delivery stops", len(gap.refused))
            self._reported_gap = gap
            return False
        return True

    def _query_lost(self, seq_pub: bytes, enclave: bytes) -> bool:
        """Query what the lost batches may have held of an enclave.

        Returns False if it may not be read.
        """
        inbox, submit = self._context.inbox, self._context.worker.submit
        after, before = submit(lambda: inbox.missing_range(enclave, seq_pub)).result()
        seq = Between()
        if after >= 0:
            seq["start_after"] = after
        if before is not None:
            seq["end_before"] = before
        part = list[Event]()
        try:
            for item in self._at(seq_pub).enclave(enclave).query(seq=seq or None):
                part.append(item.event)
                if len(part) == PAGE:
                    submit(lambda: inbox.fill(seq_pub, enclave, part)).result()
                    part.clear()
        except (Distrust, RateLimited):
            raise
        except PeerError as e:
            logger.warning("%s refuses a Query of %s: %s", self.node, enclave.hex(), error_text(e))
            return False
        submit(lambda: inbox.fill(seq_pub, enclave, part)).result()
        return True
