"""Batches asked for again: those that a webhook did not get.

A node answers with as many as one page holds, at least one while any is kept. So who asks for many asks again after the
last that came (`rest`), until nothing comes: what has not come by then, the node keeps no more.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from enc.client.flow import Flow, work
from enc.client.link import EnclaveReader
from enc.client.push_body import PushedBatch, check_batch, parse_batches
from enc.client.sceptic import LogVerifier
from enc.core.encoding import MAX_INT
from enc.core.errors import InvalidProof, MisuseError

MAX_NUMBERS = 100
"""Batches that one request may name one by one."""


class BatchSelection(Struct, frozen=True):
    """Which batches of a queue: those with these numbers, or all after one number and up to another."""

    numbers: tuple[int, ...] | None = None
    """By rising number."""
    after: int = 0
    until: int | None = None

    def wire(self) -> int | list[int] | dict[str, int]:
        if self.numbers is not None:
            return list(self.numbers[:MAX_NUMBERS])
        return {"start_after": self.after, **({} if self.until is None else {"end_at": self.until})}

    def holds(self, push_seq: int) -> bool:
        if self.numbers is not None:
            return push_seq in self.numbers[:MAX_NUMBERS]
        return self.after < push_seq and (self.until is None or push_seq <= self.until)

    def rest(self, batches: list[PushedBatch]) -> "BatchSelection | None":
        """What to ask for next, now that these have come; None: all of it is here, or kept no more."""
        last = batches[-1].push_seq if batches else 0
        if self.numbers is not None:
            named, later = self.numbers[:MAX_NUMBERS], self.numbers[MAX_NUMBERS:]
            left = (*(n for n in named if n > last), *later) if batches else later
            return BatchSelection(left) if left else None
        if not batches or last == self.until:
            return None
        return BatchSelection(after=last, until=self.until)


def select_batches(
    push_seq: int | Iterable[int] | None = None, after: int = 0, until: int | None = None
) -> BatchSelection:
    """What a caller says: one number, several, or a range; MisuseError where it says neither or both."""
    if push_seq is None:
        if not 0 <= after <= (MAX_INT if until is None else until) <= MAX_INT:
            raise MisuseError("after, until: expected numbers of batches, the lower first")
        return BatchSelection(after=after, until=until)
    if after or until is not None:
        raise MisuseError("give either push_seq, or after and until")
    numbers = tuple(sorted({push_seq} if isinstance(push_seq, int) else set(push_seq)))
    if not numbers or not 1 <= numbers[0] <= numbers[-1] <= MAX_INT:
        raise MisuseError("push_seq: expected numbers of batches, from 1")
    return BatchSelection(numbers)


def pull(
    reader: EnclaveReader, url: str, asked: BatchSelection, enclave: bytes | None = None
) -> Flow[list[PushedBatch]]:
    """One page of the batches that were queued for this identity at `url`: on all of the node, or of one enclave.

    Each event is checked as any other is, and signed by the node's key: what a node pushes it has sequenced. What the
    node withholds, since rights were lost, cannot be seen; but its batch is there.
    """
    verifier = yield from reader.session.verifier()
    body: dict[str, Any] = {"url": url, "push_seq": asked.wire()}
    if enclave is not None:
        body["enclave"] = enclave.hex()
    text = yield from reader.session.ask("/", "Pull", body)
    return (yield from work(lambda: _take(reader, verifier, text, asked, enclave)))


def _take(
    reader: EnclaveReader, verifier: LogVerifier, text: bytes, asked: BatchSelection, enclave: bytes | None
) -> list[PushedBatch]:
    with verifier.blame_node("pull", text):
        batches = parse_batches(text)
        for batch in batches:
            if not asked.holds(batch.push_seq):
                raise InvalidProof(f"batch {batch.push_seq}: not asked for")
            named = {*batch.events, *(notice.enclave for notice in batch.notices)}
            if enclave is not None and named - {enclave}:
                raise InvalidProof(f"batch {batch.push_seq}: of another enclave than asked")
    for batch in batches:
        check_batch(batch, reader.session.verifier_of, text)
    return batches
