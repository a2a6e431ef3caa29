"""Backfills the pushes of a node that does not answer, from the nodes to which its enclaves moved.

A successor has the enclave's whole log. It is queried for the events missing between those that
came from the old node, page by page, and after each page the waiting events are released.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from enc.client.clients.client import Client
from enc.client.enclave.search import Between
from enc.client.errors import Distrust
from enc.client.keys.identity import Identity
from enc.client.receive.delivery_worker import DeliveryWorker, error_text
from enc.client.receive.inbox import PushInbox
from enc.client.verify.pins import Pins
from enc.client.verify.sequencer_history import Migration
from enc.core.errors import PeerError, WorldError
from enc.core.primitives.types import Event

PAGE, PAGE_SIZE = 500, 1 << 20
"""Events that are stored at once, and characters of their contents."""


class BackfillContext(Protocol):
    """What the backfill needs from the receiver."""

    identity: Identity
    pins: Pins
    inbox: PushInbox
    worker: DeliveryWorker
    timeout: float

    def log_throttled(self, level: int, kind: str, text: str) -> None: ...

    def url_of(self, seq_pub: bytes) -> str | None: ...


class SuccessorBackfill:
    """Backfills for the node with this key."""

    def __init__(self, context: BackfillContext, seq_pub: bytes, is_closed: Callable[[], bool]) -> None:
        self._context, self._seq_pub, self._is_closed = context, seq_pub, is_closed

    def run(self) -> tuple[bytes, ...]:
        """Fetch the missing events; return the moved enclaves for which no successor provided them."""
        stuck_enclaves = self._context.worker.submit(lambda: self._context.inbox.stuck_enclaves(self._seq_pub)).result()
        left = [
            (enclave, departure) for enclave in stuck_enclaves if (departure := self._departure(enclave)) is not None
        ]
        return tuple(enclave for enclave, departure in left if not self._backfill(enclave, departure))

    def _departure(self, enclave: bytes) -> Migration | None:
        pin = self._context.pins.load(enclave)
        return None if pin is None else pin.history.departure(self._seq_pub)

    def _backfill(self, enclave: bytes, departure: Migration) -> bool:
        for seq_pub, url in self._successors(enclave, departure):
            context = self._context
            try:
                with Client(
                    url, context.identity, seq_pub=seq_pub, pins=context.pins, timeout=context.timeout, patience=0.0
                ) as client:
                    self._query(client, enclave, departure.from_seq)
            except Distrust:
                raise
            except (PeerError, WorldError) as e:
                text = (
                    f"{url} does not provide the missing events of {enclave.hex()}, which moved there: {error_text(e)}"
                )
                context.log_throttled(logging.WARNING, f"{url} {enclave.hex()} {e.code}", text)
            else:
                return True
        return False

    def _successors(self, enclave: bytes, departure: Migration) -> Iterator[tuple[bytes, str]]:
        """Yield the later nodes of the enclave that may push here, the current one first."""
        pin = self._context.pins.load(enclave)
        moves = pin.history.moves if pin is not None else ()
        later = [move.new_sequencer for move in reversed(moves) if move.event.seq >= departure.event.seq]
        for seq_pub in dict.fromkeys(later):
            if (url := self._context.url_of(seq_pub)) is not None:
                yield seq_pub, url

    def _query(self, client: Client, enclave: bytes, end: int) -> None:
        """Fetch all events from the first gap to the end of the node's term: there may be several
        gaps.
        """
        inbox, submit = self._context.inbox, self._context.worker.submit
        after, _ = submit(lambda: inbox.missing_range(enclave, self._seq_pub)).result()
        seq = Between(end_before=end)
        if after >= 0:
            seq["start_after"] = after
        page, size = list[Event](), 0
        for item in client.enclave(enclave).query(seq=seq):
            page.append(item.event)
            size += len(item.event.content or "")
            if len(page) == PAGE or size >= PAGE_SIZE:
                self._fill(enclave, page, item.event.seq)
                page, size = [], 0
            if self._is_closed():
                return
        self._fill(enclave, page, end - 1)

    def _fill(self, enclave: bytes, page: list[Event], until: int) -> None:
        self._context.worker.submit(lambda: self._context.inbox.fill(self._seq_pub, enclave, page, until)).result()
