"""Catching up with a node: what its pushes did not bring is pulled, and what it keeps no more is asked for by Query.

A thread that waits: for the node's key where only its URL is known, for a gap, and, once in a while, for what the node
has given up to push. Everything that it gets goes through the clerk, as pushes do. While the node does not answer,
the nodes to which its enclaves have moved are asked for those.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from msgspec import Struct

from enc.client.clerk import Clock, DeliveryWorker, error_text
from enc.client.client import Client, Enclave
from enc.client.detour import SuccessorBackfill
from enc.client.errors import Distrust
from enc.client.identity import Identity
from enc.client.inbox import Inbox, QueuePosition
from enc.client.pins import Pins
from enc.core.errors import PeerError, RateLimited, WorldError
from enc.core.types import Event
from enc.runtime.backoff import RetryPauses

PAGE = 500
"""Events of a Query that are filed at once."""
ROUND_S = 3600.0
"""How long nothing needs to come before the node is asked whether there is anything."""

UNKNOWN = (
    "no enclave is known there to ask by, so that what came before is asked for only once it pushes; "
    "name an enclave of that node to ask at once"
)
NEVER = float("inf")

logger = logging.getLogger("enc.client.receiver")


class Gap(Struct, frozen=True):
    """Batches that the node keeps no more. What they held was asked for by Query, but for the enclaves `refused`.

    Or those of a node that does not answer: what they hold of the enclaves `refused`, which have moved, is not to be
    had from the nodes after it either.
    """

    seq_pub: bytes
    url: str
    first: int
    last: int
    refused: tuple[bytes, ...] = ()


OnGap = Callable[[Gap], bool | None]
"""Told of a gap. Where something could not be had, only a true answer lets the receiver go on without it."""
OnDistrust = Callable[[Distrust], object]


class ReceiverContext(Protocol):
    """What a node's catching up needs of its receiver."""

    identity: Identity
    url: str
    pins: Pins
    inbox: Inbox
    worker: DeliveryWorker
    timeout: float
    on_gap: OnGap | None
    enclaves: tuple[bytes, ...]
    """Those that the owner named to ask by."""

    def log_throttled(self, level: int, kind: str, text: str) -> None: ...

    def key_found(self, node: str, seq_pub: bytes) -> None: ...

    def url_of(self, seq_pub: bytes) -> str | None: ...

    def report_distrust(self, error: Distrust) -> None: ...


class CatchUp:
    """One node's. `seq_pub`: its key, where it is known."""

    def __init__(
        self, context: ReceiverContext, node: str, seq_pub: bytes | None, retries: RetryPauses, clock: Clock
    ) -> None:
        self._context, self.node, self._seq_pub = context, node, seq_pub
        self._retries, self._clock = retries, clock
        self._wake, self._is_closed = threading.Condition(), False
        self._due, self._pause, self._told = 0.0, 0.0, Gap(b"", "", 0, 0)
        self._is_down = False
        """The last round failed, and not by what the node said."""
        self._client: Client | None = None
        self._thread = threading.Thread(target=self._run, name="enc-catch-up", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Something is missing: ask for it now; or, where that has just failed, when its time comes."""
        with self._wake:
            self._due = min(self._due, self._clock() + self._pause)
            self._wake.notify()

    def heard(self, *, is_missing: bool) -> None:
        """The node has pushed: so it is up, and if it did not answer before, it may now."""
        with self._wake:
            was_down, self._is_down = self._is_down, False
            if was_down:
                self._pause = 0.0
        if was_down or is_missing:
            self.wake()

    def close(self) -> None:
        with self._wake:
            self._is_closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(self._context.timeout)  # it touches nothing here any more, whatever the node does

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
        """A round; what failed is tried again later, but for a lie: that is for people to look at."""
        is_down = False
        try:
            is_whole = self.round()
        except Distrust as e:
            self._context.report_distrust(e)
            return
        except Exception as e:
            self._log_failure(e)
            is_whole, is_down = False, isinstance(e, WorldError)
        if not is_whole and self._seq_pub is not None:
            self._go_round(self._seq_pub)
        with self._wake:
            self._is_down = is_down
            self._pause = 0.0 if is_whole else self._retries.after(self._pause)
            self._due = min(self._due, self._clock() + (ROUND_S if is_whole else self._pause))

    def _log_failure(self, error: Exception) -> None:
        if isinstance(error, WorldError | RateLimited):
            text = f"{self.node} cannot be asked for what may be missing; it is tried again: {error_text(error)}"
            self._context.log_throttled(logging.WARNING, f"{self.node} {error.code}", text)
        else:
            logger.error("catching up with %s failed: %s", self.node, error_text(error))

    def _go_round(self, seq_pub: bytes) -> None:
        """The node has not brought what is missing: of enclaves that have moved, others have it."""
        try:
            missing = SuccessorBackfill(self._context, seq_pub, lambda: self._is_closed).take()
            if missing and self._pause >= self._retries.max_s:  # it was tried often enough
                self._give_up(seq_pub, missing)
        except Distrust as e:
            self._context.report_distrust(e)
        except Exception as e:
            self._log_failure(e)

    def _give_up(self, seq_pub: bytes, missing: tuple[bytes, ...]) -> None:
        place, inbox, submit = self._place(seq_pub), self._context.inbox, self._context.worker.submit
        if place.until is None:
            return
        gap = Gap(seq_pub, self._context.url, place.next, place.until, missing)
        if self._may_go_on(gap, "does not bring"):
            for enclave in missing:
                submit(lambda enclave=enclave: inbox.release(seq_pub, enclave)).result()  # type: ignore[misc]

    def round(self) -> bool:
        """Pull whatever the node has beyond what is here. False: something is still missing."""
        seq_pub = self._key()
        place, refusals = self._place(seq_pub), dict[bytes, str]()
        for enclave in self._doors(seq_pub, place):
            try:
                self._pull(seq_pub, self._at(seq_pub).enclave(enclave), place)
            except (Distrust, RateLimited):
                raise
            except PeerError as e:  # another of the enclaves may still do to ask by
                refusals[enclave] = f"{self.node} does not answer a Pull by {enclave.hex()}: {error_text(e)}"
            else:
                return self._settle(seq_pub, place)
        for enclave, refusal in refusals.items():
            self._context.log_throttled(logging.WARNING, f"{self.node} {enclave.hex()}", refusal)
        if not refusals:
            self._context.log_throttled(logging.INFO, f"{self.node} unknown", f"{self.node}: {UNKNOWN}")
        return place.until is None

    def _doors(self, seq_pub: bytes, place: QueuePosition) -> Iterator[bytes]:
        """Enclaves to ask by: those that the node is known by, then those named, but for what is pinned to another."""
        yield from place.enclaves
        for enclave in self._context.enclaves:
            pin = self._context.pins.load(enclave)
            if enclave not in place.enclaves and (pin is None or pin.sequencer == seq_pub):
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
                self.node, context.identity, seq_pub=seq_pub, pins=context.pins, timeout=context.timeout, patience=0.0
            )
        return self._client

    def _place(self, seq_pub: bytes) -> QueuePosition:
        return self._context.worker.submit(lambda: self._context.inbox.place(seq_pub)).result()

    def _pull(self, seq_pub: bytes, by: Enclave, place: QueuePosition) -> None:
        for batch in by.pull(self._context.url, after=place.next - 1, until=place.until):
            if self._is_closed:
                return
            self._context.worker.submit(lambda batch=batch: self._context.inbox.file(seq_pub, batch)).result()  # type: ignore[misc]

    # What is lost

    def _settle(self, seq_pub: bytes, asked: QueuePosition) -> bool:
        """The node was asked for all that was missing. What of that is missing still, it keeps no more."""
        place = self._place(seq_pub)
        if self._is_closed or place.until is None:
            return True
        if asked.until is None or place.next > asked.until:
            self.wake()  # a gap that is newer than the question
            return True
        refused = tuple(enclave for enclave in self._known(seq_pub) if not self._ask(seq_pub, enclave))
        gap = Gap(seq_pub, self._context.url, place.next, min(place.until, asked.until), refused)
        if not self._may_go_on(gap, "keeps no more"):
            return False
        self._context.worker.submit(lambda: self._context.inbox.skip(seq_pub, gap.last)).result()
        self.wake()  # there may be another one behind it
        return True

    def _known(self, seq_pub: bytes) -> Iterable[bytes]:
        return self._context.worker.submit(lambda: self._context.inbox.place(seq_pub, -1)).result().enclaves

    def _may_go_on(self, gap: Gap, why: str) -> bool:
        if gap == self._told:
            return False
        logger.error("%s %s the batches %d to %d of this queue", self.node, why, gap.first, gap.last)
        goes_on = None if self._context.on_gap is None else self._context.on_gap(gap)
        if gap.refused and not goes_on:
            logger.error("what they held of %d enclaves may not be read: nothing more is handed over", len(gap.refused))
            self._told = gap
            return False
        return True

    def _ask(self, seq_pub: bytes, enclave: bytes) -> bool:
        """What the lost batches may have held of an enclave, as far as it may be read. False: it may not."""
        inbox, submit = self._context.inbox, self._context.worker.submit
        after, before = submit(lambda: inbox.missing_range(enclave, seq_pub)).result()
        seq = {
            **({"start_after": after} if after >= 0 else {}),
            **({"end_before": before} if before is not None else {}),
        }
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
            logger.warning("%s does not answer a Query of %s: %s", self.node, enclave.hex(), error_text(e))
            return False
        submit(lambda: inbox.fill(seq_pub, enclave, part)).result()
        return True
