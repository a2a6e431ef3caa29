"""Renders the body of a batch, for pushes and for answers to a Pull.

The form (docs/protocol.md, section 22.3):

    {"push_seq",
     "push": {"enclaves": [{"enclave", "events": [event, …]}, …]},
     "notify": {"enclaves": [notice, …]}}

A batch refers to events. The body is concatenated from their stored JSON, which is never decoded:
contents erased meanwhile are sent erased, and a purged enclave is left out.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Protocol

from msgspec import Struct
from msgspec.json import Decoder, encode

from enc.node.store.events import RawEvent
from enc.node.store.push_interface import BatchNotice, EventRange, PushBatch


class EventSource(Protocol):
    """A source of stored events."""

    def items(self, enclave: bytes, first_seq: int, count: int) -> list[RawEvent]: ...


class BatchFilter:
    """Decides what of a batch is shown. This one shows everything, for the batch's recipient."""

    def shows_event(self, enclave: bytes, item: RawEvent) -> bool:
        """Return whether the event is shown."""
        return True

    def shown_counts(self, enclave: bytes, item: RawEvent, type_seq: Mapping[str, int]) -> Mapping[str, int]:
        """Return the counters that a notice about `item` shows; without any, the notice is left
        out.
        """
        return type_seq


class _Named(Struct):
    id: str
    type: str
    timestamp: int


_named = Decoder(_Named).decode
SHOW_ALL = BatchFilter()


def render(items: EventSource, batch: PushBatch, admits: BatchFilter = SHOW_ALL) -> bytes:
    """Return a batch's JSON. It may be megabytes: its parts are joined once."""
    parts = [b'{"push_seq":%d' % batch.push_seq]
    parts += _section(b"push", _pushes(items, batch.runs, admits))
    parts += _section(b"notify", _notices(items, batch.notices, admits))
    parts.append(b"}")
    return b"".join(parts)


def _section(name: bytes, enclaves: Iterable[list[bytes]]) -> list[bytes]:
    """Return a section of the body, or nothing if it would be empty."""
    parts, before = list[bytes](), b',"%b":{"enclaves":[' % name
    for each in enclaves:
        parts.append(before)
        parts += each
        before = b","
    return [*parts, b"]}"] if parts else []


def _pushes(items: EventSource, runs: Iterable[EventRange], admits: BatchFilter) -> Iterator[list[bytes]]:
    for enclave, of_one in groupby(runs, lambda run: run.enclave):
        parts, before = list[bytes](), b'{"enclave":"%b","events":[' % enclave.hex().encode()
        for run in of_one:
            for item in items.items(enclave, run.first_seq, run.count):
                if admits.shows_event(enclave, item):
                    parts += (before, item.head, item.rest, b"}")
                    before = b","
        if parts:
            yield [*parts, b"]}"]


def _notices(items: EventSource, notices: Iterable[BatchNotice], admits: BatchFilter) -> Iterator[list[bytes]]:
    for notice in notices:
        for item in items.items(notice.enclave, notice.seq, 1):
            counts = admits.shown_counts(notice.enclave, item, notice.type_seq)
            if counts:
                yield [_notice(notice, item, counts)]


def _notice(notice: BatchNotice, item: RawEvent, counts: Mapping[str, int]) -> bytes:
    named = _named(item.event)
    return encode(
        {
            "enclave": notice.enclave.hex(),
            "seq": notice.seq,
            "event_id": named.id,
            "type": named.type,
            "timestamp": named.timestamp,
            "type_seq": dict(counts),
        }
    )
