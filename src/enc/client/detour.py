"""A way round a node that does not answer: what its pushes were to bring of enclaves that have moved, others have.

Whoever goes on with an enclave has its whole log. So it is asked by Query for what is missing between the events that
came from the node before, page by page, and with each page those wait no more.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from enc.client.clerk import DeliveryWorker, error_text
from enc.client.client import Client
from enc.client.errors import Distrust
from enc.client.history import Move
from enc.client.identity import Identity
from enc.client.inbox import Inbox
from enc.client.pins import Pins
from enc.core.errors import PeerError, WorldError
from enc.core.types import Event

PAGE, PAGE_SIZE = 500, 1 << 20
"""Events that are filed at once, and characters of their contents."""


class Asking(Protocol):
    """What is needed of the receiver."""

    identity: Identity
    pins: Pins
    inbox: Inbox
    worker: DeliveryWorker
    timeout: float

    def log_throttled(self, level: int, kind: str, text: str) -> None: ...

    def url_of(self, seq_pub: bytes) -> str | None: ...


class SuccessorBackfill:
    """Round the node with this key."""

    def __init__(self, context: Asking, seq_pub: bytes, is_closed: Callable[[], bool]) -> None:
        self._context, self._seq_pub, self._is_closed = context, seq_pub, is_closed

    def take(self) -> tuple[bytes, ...]:
        """Get what is missing. The enclaves that have moved and of which it is not to be had."""
        stuck_enclaves = self._context.worker.submit(lambda: self._context.inbox.stuck_enclaves(self._seq_pub)).result()
        left = [
            (enclave, departure) for enclave in stuck_enclaves if (departure := self._departure(enclave)) is not None
        ]
        return tuple(enclave for enclave, departure in left if not self._had(enclave, departure))

    def _departure(self, enclave: bytes) -> Move | None:
        pin = self._context.pins.load(enclave)
        return None if pin is None else pin.history.departure(self._seq_pub)

    def _had(self, enclave: bytes, departure: Move) -> bool:
        for seq_pub, url in self._later(enclave, departure):
            context = self._context
            try:
                with Client(
                    url, context.identity, seq_pub=seq_pub, pins=context.pins, timeout=context.timeout, patience=0.0
                ) as client:
                    self._ask(client, enclave, departure.from_seq)
            except Distrust:
                raise
            except (PeerError, WorldError) as e:
                text = f"{url} does not bring what is missing of {enclave.hex()} since it moved there: {error_text(e)}"
                context.log_throttled(logging.WARNING, f"{url} {enclave.hex()} {e.code}", text)
            else:
                return True
        return False

    def _later(self, enclave: bytes, departure: Move) -> Iterator[tuple[bytes, str]]:
        """Who has had the enclave since, the present one first; of those that may push here."""
        pin = self._context.pins.load(enclave)
        moves = pin.history.moves if pin is not None else ()
        later = [move.new_sequencer for move in reversed(moves) if move.event.seq >= departure.event.seq]
        for seq_pub in dict.fromkeys(later):
            if (url := self._context.url_of(seq_pub)) is not None:
                yield seq_pub, url

    def _ask(self, client: Client, enclave: bytes, end: int) -> None:
        """All events from where the hole begins to the end of the node's term: there may be more holes than one."""
        inbox, submit = self._context.inbox, self._context.worker.submit
        after, _ = submit(lambda: inbox.missing_range(enclave, self._seq_pub)).result()
        seq = {"end_before": end, **({"start_after": after} if after >= 0 else {})}
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
