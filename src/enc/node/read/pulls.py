"""Answers to a Pull: batches of the asker's own queue, with the events that the asker may have now.

A kept batch is always returned, even if all of it is withheld: so a recipient can tell a denial
from a loss.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from msgspec import UNSET
from msgspec.structs import replace

from enc.core.errors import EnclaveNotFound, EnclavePurged, EnclaveSuspended, EnclaveTerminated, InvalidQuery
from enc.core.log.event import parse_event
from enc.core.primitives.encoding import check_numbers, convert_json, unhex
from enc.core.rules.policy_types import Subject
from enc.core.session.envelope import OpenedBody
from enc.node.push.body import BatchFilter, render
from enc.node.read.access import Access
from enc.node.read.request_bodies import PullBody, PushSeqRange
from enc.node.read.steps import Steps
from enc.node.store.events import RawEvent
from enc.node.store.push_interface import PushBatch
from enc.node.store.store_interface import Store

MAX_NUMBERS = 100
"""Most batches that one Pull may list by number."""
MAX_BATCHES = 1000
"""Most batches of one answer."""
READ_BATCH = 16
"""Batches of a range that are read at a time."""
LOOKUP_COST = 256
"""Cost of looking for events, even if none are left, as bytes of a page."""


Span = tuple[int, int]
"""Range of batch numbers, first and last."""

AccessTo = Callable[[bytes], Access]
"""Returns the asker's rights in an enclave; raises EnclaveNotFound, EnclaveTerminated or EnclavePurged
if it is gone, and EnclaveSuspended.
"""


class Pulls:
    """Answers Pulls. Safe to use from any thread."""

    def __init__(self, store: Store, max_page: int) -> None:
        self._store, self._max_page = store, max_page

    def answer(self, opened: OpenedBody, identity: bytes, access: AccessTo) -> Steps[bytes]:
        """Return a JSON array of batches: as many as fit, and at least one if any requested batch
        is kept.
        """
        body = convert_json(opened.body, PullBody, InvalidQuery)
        only = None if body.enclave is UNSET else unhex(body.enclave, 32, "enclave", InvalidQuery)
        now, bodies, size = _CurrentRights(access, identity, self._store.is_purged), list[bytes](), 0
        for batch in self._batches(identity, body.url, _spans(body.push_seq)):
            part = _only_enclave(batch, only)
            text = render(self._store, part, now)
            size += max(len(text), now.take_bytes_read(), LOOKUP_COST * (len(part.runs) + len(part.notices)))
            if bodies and size > self._max_page:
                break
            bodies.append(text)
            yield None
        return b"[%b]" % b",".join(bodies)

    def _batches(self, identity: bytes, url: str, spans: Iterable[Span]) -> Iterator[PushBatch]:
        kept = (batch for span in spans for batch in self._span(identity, url, *span))
        return islice(kept, MAX_BATCHES)

    def _span(self, identity: bytes, url: str, first: int, last: int) -> Iterator[PushBatch]:
        while first <= last:
            found = self._store.list_batches(identity, url, first, last, READ_BATCH)
            yield from found
            first = found[-1].push_seq + 1 if len(found) == READ_BATCH else last + 1


def _spans(push_seq: int | list[int] | PushSeqRange) -> list[Span]:
    """Return the requested numbers in rising order, with consecutive numbers joined."""
    if isinstance(push_seq, PushSeqRange):
        check_numbers(InvalidQuery, start_after=push_seq.start_after, end_at=push_seq.end_at)
        return [(push_seq.start_after + 1, push_seq.end_at)]
    numbers = sorted({push_seq} if isinstance(push_seq, int) else set(push_seq))
    if not isinstance(push_seq, int) and not 1 <= len(push_seq) <= MAX_NUMBERS:
        raise InvalidQuery(f"push_seq: expected 1 to {MAX_NUMBERS} numbers")
    check_numbers(InvalidQuery, push_seq=numbers[0])
    check_numbers(InvalidQuery, push_seq=numbers[-1])
    spans = list[Span]()
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return spans


def _only_enclave(batch: PushBatch, only: bytes | None) -> PushBatch:
    """Return the part of a batch that belongs to one enclave, or all of it."""
    if only is None:
        return batch
    runs = tuple(run for run in batch.runs if run.enclave == only)
    return replace(batch, runs=runs, notices=tuple(notice for notice in batch.notices if notice.enclave == only))


class _CurrentRights(BatchFilter):
    """Current rights of an identity: what it has P on, and what P or N.

    Each kind of event of an enclave is evaluated once.
    """

    def __init__(self, access: AccessTo, identity: bytes, is_purged: Callable[[bytes], bool]) -> None:
        self._access_to, self._identity, self._is_purged = access, identity, is_purged
        self._at: tuple[bytes, Access | None] = b"", None
        """The last enclave used; only one is kept since policies may be large and a page may span
        thousands of enclaves.
        """
        self._cache: dict[tuple[bytes, Subject, bool], frozenset[str]] = {}
        self._bytes_read = 0

    def take_bytes_read(self) -> int:
        """Return the bytes of events read since the last call: withheld events cost work, too."""
        take_bytes_read, self._bytes_read = self._bytes_read, 0
        return take_bytes_read

    def shows_event(self, enclave: bytes, item: RawEvent) -> bool:
        self._bytes_read += len(item.head) + len(item.rest)
        return "P" in self._rights(enclave, item)

    def shown_counts(self, enclave: bytes, item: RawEvent, type_seq: Mapping[str, int]) -> Mapping[str, int]:
        """Return the count of the latest event's type, and of the other types that the identity may
        know by name.
        """
        self._bytes_read += len(item.head) + len(item.rest)
        if not self._rights(enclave, item) & {"P", "N"}:
            return {}
        return {
            type_: number
            for type_, number in type_seq.items()
            if type_ == item.type or self._judge(enclave, Subject(type_), False) & {"P", "N"}
        }

    def _rights(self, enclave: bytes, item: RawEvent) -> frozenset[str]:
        access = self._access(enclave)
        if access is None:
            return frozenset()
        subject = Subject(item.subject)
        if item.type == item.subject and item.type in access.state.policy.predefined:
            subject = access.state.policy.subject(parse_event(item.event), None)
        return self._judge(enclave, subject, item.author == self._identity)

    def _judge(self, enclave: bytes, subject: Subject, is_author: bool) -> frozenset[str]:
        key = (enclave, subject, is_author)
        if key not in self._cache:
            self._cache[key] = self._look_up(*key)
        return self._cache[key]

    def _look_up(self, enclave: bytes, subject: Subject, is_author: bool) -> frozenset[str]:
        access = self._access(enclave)
        try:
            return access.rights(subject, is_author=is_author) if access else frozenset()
        except Exception:  # the enclave's data may be purged while it is read
            if not self._is_purged(enclave):
                raise
            return frozenset()

    def _access(self, enclave: bytes) -> Access | None:
        if self._at[0] != enclave:
            try:
                self._at = enclave, self._access_to(enclave)
            except (EnclaveNotFound, EnclavePurged, EnclaveSuspended, EnclaveTerminated):
                self._at = enclave, None
        return self._at[1]
