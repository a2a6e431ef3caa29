"""The log of an address book in its owner's personal store (docs/protocol.md, section 25.8).

Each change is a sealed `private` event, so changes of several devices stand beside each other, and
the log's order decides. A snapshot replaces the events before it, which are then deleted.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from enc.apps.people.book_entries import Changes, Entries, apply_changes, parse_changes, wire_changes
from enc.apps.personal.documents import BOOK_KIND, MAX_PLAINTEXT, open_document, seal_document
from enc.apps.personal.ledger import PRIVATE, Ledger, LedgerEntry
from enc.apps.personal.store import Personal
from enc.core.errors import DecryptFailed, EventDeleted, EventNotFound, InvalidCommit
from enc.core.primitives.encoding import MAX_INT, compact_json, strict_json
from enc.core.primitives.sealing import NONCE_SIZE
from enc.core.primitives.types import Receipt

NAME = "Address book"
MAX_TEXT = MAX_PLAINTEXT // 2
"""Bytes of the changes in one event. As a JSON string inside a document they may grow."""
MAX_EVENTS = 32
"""Events after which a snapshot replaces them."""


class BookState(Struct, frozen=True):
    """The entries after the event `seq`, and the events that hold them: each seq with its id."""

    entries: Entries = {}
    seq: int = -1
    events: tuple[tuple[int, bytes], ...] = ()


def read_log(store: Personal, state: BookState) -> BookState:
    """Return the state after the log's newest event."""
    ledger = Ledger(store.client.identity.public)
    for item in store.enclave.query(type=PRIVATE, seq={"start_at": state.seq + 1}):
        ledger.apply(item)
    found = [(entry.seq, entry.id, text) for entry in ledger.entries(PRIVATE) for text in _text(store, entry)]
    return replace(fold_book(state, found), seq=max(state.seq, ledger.last))


def _text(store: Personal, entry: LedgerEntry) -> Iterator[str]:
    """Yield the text of an event of the book; nothing for other documents and those that do not open."""
    with suppress(DecryptFailed):
        document = open_document(store.client.identity, store.enclave.id, entry)
        if document.kind == BOOK_KIND:
            yield document.text


def fold_book(state: BookState, events: Sequence[tuple[int, bytes, str]]) -> BookState:
    """Return the state after these events: seq, id and text of each, by rising seq.

    The snapshot that covers most counts; changes that it covers do not count again. An event of
    another form has no effect.
    """
    found = [(seq, id_, _body(text)) for seq, id_, text in events]
    snapshots = [(upto, body) for seq, _, body in found if (upto := _upto(body, seq)) is not None]
    start, body = max(snapshots, key=lambda each: each[0], default=(-1, {}))
    entries = apply_changes({}, _changes(body["snapshot"])) if start > state.seq else state.entries
    for seq, _, each in found:
        if seq > start and "changes" in each:
            entries = apply_changes(entries, _changes(each["changes"]))
    held = (*state.events, *((seq, id_) for seq, id_, _ in found))
    seq = max([state.seq, *(seq for seq, _, _ in found)])
    return BookState(entries, seq, tuple(each for each in held if each[0] > start))


def _body(text: str) -> dict[str, Any]:
    """Return what an event says; nothing if it is not a JSON object."""
    with suppress(InvalidCommit):
        body = strict_json(text)
        if isinstance(body, dict):
            return body
    return {}


def _upto(body: dict[str, Any], seq: int) -> int | None:
    """Return the seq of the last event that a snapshot covers; None if the event is no snapshot."""
    upto = body.get("upto")
    return upto if type(upto) is int and 0 <= upto < min(seq, MAX_INT) and "snapshot" in body else None


def _changes(wire: Any) -> Changes:
    try:
        return parse_changes(wire)
    except InvalidCommit:
        return {}


def write_event(store: Personal, text: str) -> Receipt:
    """Write an event of the book, sealed."""
    fields = {"kind": BOOK_KIND, "name": NAME, "text": text}
    sealed = seal_document(store.client.identity, store.enclave.id, fields, os.urandom(NONCE_SIZE))
    return store.enclave.commit(PRIVATE, sealed)


def append_changes(store: Personal, changes: Changes) -> None:
    """Write changes, sealed, in as many events as their size needs."""
    for part in _parts(wire_changes(changes)):
        write_event(store, compact_json({"changes": part}))


def _parts(wires: Iterable[Any]) -> Iterator[list[Any]]:
    part, size = list[Any](), 0
    for wire in wires:
        length = len(compact_json(wire).encode()) + 1
        if part and size + length > MAX_TEXT:
            yield part
            part, size = [], 0
        part.append(wire)
        size += length
    if part:
        yield part


def compact_log(store: Personal, state: BookState) -> BookState:
    """Replace many events by one snapshot, if it fits into one event; return the state after it.

    Other devices may do the same at the same time, or write changes: both are still read.
    """
    text = compact_json({"snapshot": wire_changes(state.entries), "upto": state.seq})
    if len(state.events) <= MAX_EVENTS or len(text.encode()) > MAX_TEXT:
        return state
    receipt = write_event(store, text)
    for _, id_ in state.events:
        with suppress(EventDeleted, EventNotFound):  # another device was faster
            store.remove(id_)
    return replace(state, events=((receipt.seq, receipt.id),))
