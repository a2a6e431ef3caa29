"""Reads events from a node: the newest one, and ranges. For the driver and for executors."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct

from enc.client import Client, Distrust, Enclave
from enc.core.errors import EncError, IdentityNotFound, PeerError, Unauthorized, Unavailable, WorldError
from enc.core.log.commit import version_of
from enc.core.log.event import check_event, parse_event
from enc.core.log.filter import MAX_LIMIT
from enc.dataview.rows.raw_rows import RowOrigin, now, raw_batch, seq_of, unread_row
from enc.dataview.source.options import ALL, SourceOptions, check_count

STEP = 1000
"""Seqs by which a stream advances if the newest event is not verified: such a node may claim any
number.
"""
MAX_CLIENTS = 32
MAX_LINE = 1024
"""Bytes of a line of a file with ids; of a longer line, each part counts as one."""

logger = logging.getLogger("enc.dataview")


class Tip(Struct, frozen=True):
    """The end of a log as its node reports it: up to `next`, exclusive."""

    next: int
    enc_v: int | None
    is_proved: bool
    """The newest event is verified. Otherwise `next` is an unverified claim."""


class Span(Struct, frozen=True):
    """A half-open range of seqs of one enclave that one task reads."""

    enclave: str
    start: int
    end: int
    enc_v: int | None = None


_clients: dict[tuple[int, SourceOptions], Client] = {}


def client_for(options: SourceOptions) -> Client:
    """Return this process's client for a set of options, so that connections and sessions are
    reused.

    Spark's workers fork: a client created by the parent process is not used.
    """
    key = os.getpid(), options
    if key not in _clients:
        for old in [each for each in _clients if each[0] != key[0]]:
            del _clients[old]
        while len(_clients) >= MAX_CLIENTS:
            _clients.pop(next(iter(_clients))).close()
        _clients[key] = options.client()
    return _clients[key]


def enclave_for(options: SourceOptions, client: Client, enclave: str) -> Enclave:
    """Return the enclave. The registry itself is at the address in the options: it need not be
    registered.
    """
    is_registry = options.registry_enclave is not None and options.registry_enclave.hex() == enclave
    return client.enclave(enclave, at=options.registry if is_registry else None)


def enclaves_of(options: SourceOptions, client: Client) -> tuple[str, ...]:
    """Return the current enclaves: those given, listed by a registry or of an identity, and the
    file's. MisuseError if they are more than the option maxEnclaves allows.
    """
    found = dict.fromkeys(_named(options, client))
    if options.enclaves_file is not None:
        _add_ids_in_file(found, options, Path(options.enclaves_file))
    return tuple(found)


def _named(options: SourceOptions, client: Client) -> Iterable[str]:
    if options.identity is not None:
        return _listed(options, client, _enclaves_of_identity(options.identity, client), creator=options.identity)
    if options.enclaves == (ALL,) and options.registry_enclave is not None:
        return _listed(options, client, {options.registry_enclave.hex(): None})
    return options.enclaves


def _listed(options: SourceOptions, client: Client, found: dict[str, None], **search: Any) -> dict[str, None]:
    """Return `found` and all enclaves of a registry's list."""
    after: str | None = None
    while True:
        page, after = client.listing(**search, after=after)
        found |= {entry["enclave_id"]: None for entry in page if _is_id(entry.get("enclave_id"))}
        check_count(len(found), options, f"enclaves: {options.origin}")
        if after is None:
            return found


def _add_ids_in_file(found: dict[str, None], options: SourceOptions, path: Path) -> None:
    """Add the ids in a file that another program writes. A missing file has none, other lines are
    skipped.
    """
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE).decode(errors="replace"):
                if _is_id(line.strip()):
                    found[line.strip()] = None
                    check_count(len(found), options, f"enclavesFile: {path}")
    except FileNotFoundError:
        return
    except OSError as e:
        raise Unavailable(f"{path}: cannot be read: {e.strerror}") from None


def _enclaves_of_identity(identity: bytes, client: Client) -> dict[str, None]:
    try:
        return {enclave.hex(): None for enclave in client.lookup(identity).enclaves.values()}
    except IdentityNotFound:
        return {}


def _is_id(text: object) -> bool:
    """Return True for an id: a registry's list is not signed."""
    return isinstance(text, str) and len(text) == 64 and not set(text) - set("0123456789abcdef")


def wire_filter(options: SourceOptions, pushed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filter for the node: from the options, and the filters that Spark pushes down."""
    found: dict[str, Any] = {}
    if options.types:
        found["type"] = list(options.types)
    if options.authors:
        found["from"] = list(options.authors)
    return {**found, **pushed}


def tip(enclave: Enclave, options: SourceOptions) -> Tip:
    """Return the end of the readable log. An enclave that shows nothing ends where it begins."""
    try:
        page = enclave.unverified_page({**wire_filter(options, {}), "limit": 1, "reverse": True})
    except Unauthorized:
        return Tip(0, None, True)
    if not page.events:
        return Tip(0, None, True)
    seq = seq_of(page.events[0])
    try:
        event = parse_event(page.events[0])
        enc_v = version_of(event)
        check_event(event, enc_v)
    except PeerError as e:
        logger.warning("%s: its newest event is invalid: %s", enclave.hex, e.message)
        return Tip(0 if seq is None else seq + 1, None, False)
    return Tip(event.seq + 1, enc_v, event.enclave == enclave.id)


def end_of_next_event(enclave: Enclave, options: SourceOptions, start: int) -> int:
    """Return the seq after the first event from `start` on; `start` if there is none."""
    page = enclave.unverified_page({**wire_filter(options, {}), "seq": {"start_at": start}, "limit": 1})
    seq = seq_of(page.events[0]) if page.events else None
    return start if seq is None or seq < start else seq + 1


def read_span(options: SourceOptions, span: Span, pushed: Mapping[str, Any] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield raw rows of a span, page by page. An invalid answer becomes a row too, and goes to
    quarantine.
    """
    place = RowOrigin(options.origin, span.enclave, span.enc_v)
    try:
        enclave = enclave_for(options, client_for(options), span.enclave)
        for events in _pages(enclave, wire_filter(options, pushed or {}), span):
            yield raw_batch(events, place, now())
    except WorldError as e:
        if options.on_unreachable == "fail":
            raise
        yield _unread_span(place, span, e)
    except (Distrust, PeerError) as e:
        yield _unread_span(place, span, e)


def _unread_span(place: RowOrigin, span: Span, error: EncError) -> pa.RecordBatch:
    """Return an unread row that names the seqs."""
    logger.warning("%s: cannot read seqs %d to %d: %s", span.enclave, span.start, span.end - 1, error.message)
    return unread_row(error, place, now(), unread={"from": span.start, "until": span.end})


def _pages(enclave: Enclave, base: Mapping[str, Any], span: Span) -> Iterator[list[bytes]]:
    """Yield pages. Each begins after the last event of the page before, so there are at most as
    many as seqs.
    """
    start, bounds = span.start, base.get("seq", {})
    while start < span.end:
        seq = {**bounds, "start_at": max(start, bounds.get("start_at", 0)), "end_before": span.end}
        page = enclave.unverified_page({**base, "seq": seq, "limit": MAX_LIMIT})
        if page.events:
            yield page.events
        last = seq_of(page.events[-1]) if page.events else None
        if not page.more or last is None or last < start:
            return
        start = last + 1
