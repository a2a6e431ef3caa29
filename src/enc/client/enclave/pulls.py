"""Pulls batches that a webhook did not receive.

A node answers with one page of batches, at least one while it keeps any. To get many, ask again
after the last one received (`rest`) until nothing arrives: the node no longer keeps the others.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from enc.client.enclave.push_body import PushedBatch, check_batch, parse_batches
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.verify.log_verifier import LogVerifier
from enc.client.wire.flow import Flow, work
from enc.core.errors import InvalidProof, MisuseError
from enc.core.primitives.encoding import MAX_INT

MAX_NUMBERS = 100
"""Most batches that one request may name individually."""


class BatchSelection(Struct, frozen=True):
    """Batches of a queue: those with these numbers, or a range after one number up to another."""

    numbers: tuple[int, ...] | None = None
    """In ascending order."""
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
        """Return what to ask for after these batches; None if all arrived or are no longer kept."""
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
    """Return a selection for one number, several, or a range; raise MisuseError for none or both."""
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
    """Return one page of this identity's batches at `url`: of the whole node, or of one enclave.

    Each event is verified like any other, and must be signed by the node's key, since a node pushes
    only events that it sequenced. What the node omits after rights were lost cannot be seen; its
    batch can.
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
                raise InvalidProof(f"batch {batch.push_seq}: not requested")
            named = {*batch.events, *(notice.enclave for notice in batch.notices)}
            if enclave is not None and named - {enclave}:
                raise InvalidProof(f"batch {batch.push_seq}: holds another enclave than the requested one")
    return [check_batch(batch, reader.session.verifier_of, text) for batch in batches]
