"""How a node is asked for events: what is the newest, and what stands in a range. For the driver and for executors."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct

from enc.client import Client, Distrust, Enclave
from enc.client.raw import unverified_page
from enc.core.commit import version_of
from enc.core.errors import EncError, IdentityNotFound, PeerError, Unauthorized, Unavailable, WorldError
from enc.core.event import check_event, parse_event
from enc.core.filter import MAX_LIMIT
from enc.dataview.options import ALL, MAX_ENCLAVES, Options
from enc.dataview.rows import Place, mark, now, raw_batch, seq_of

STEP = 1000
"""Seqs by which a stream goes on where the newest event does not prove itself: such a node may name any number."""
MAX_CLIENTS = 32
ID_LINE = 66
"""Bytes of a line with an id."""

logger = logging.getLogger("enc.dataview")


class Tip(Struct, frozen=True):
    """How far a log goes, as its node says: up to `next`, not included."""

    next: int
    enc_v: int | None
    is_proved: bool
    """The newest event checks. Without, `next` is a bare word."""


class Span(Struct, frozen=True):
    """Half-open: the seqs of one enclave that one task reads."""

    enclave: str
    start: int
    end: int
    enc_v: int | None = None


_clients: dict[tuple[int, Options], Client] = {}


def client_for(options: Options) -> Client:
    """One client for each set of options, kept for as long as this process lives: connections and sessions are reused.

    Spark's workers fork; a client that was made before is not this process's own.
    """
    key = os.getpid(), options
    if key not in _clients:
        for old in [each for each in _clients if each[0] != key[0]]:
            del _clients[old]
        while len(_clients) >= MAX_CLIENTS:
            _clients.pop(next(iter(_clients))).close()
        _clients[key] = options.client()
    return _clients[key]


def enclave_for(options: Options, client: Client, enclave: str) -> Enclave:
    """The registry itself is where the options say: it need not be registered."""
    is_registry = options.registry_enclave is not None and options.registry_enclave.hex() == enclave
    return client.enclave(enclave, at=options.registry if is_registry else None)


def enclaves_of(options: Options, client: Client) -> tuple[str, ...]:
    """Which there are now: those that are named, or all that a registry knows of, or of an identity; and the file's."""
    found = dict.fromkeys(_named(options, client))
    if options.enclaves_file is not None:
        found |= dict.fromkeys(_noted(Path(options.enclaves_file)))
    return tuple(found)[:MAX_ENCLAVES]


def _named(options: Options, client: Client) -> Iterable[str]:
    if options.identity is not None:
        return _listed(client, _made_known(options.identity, client), creator=options.identity)
    if options.enclaves == (ALL,) and options.registry_enclave is not None:
        return _listed(client, {options.registry_enclave.hex(): None})
    return options.enclaves


def _listed(client: Client, found: dict[str, None], **search: Any) -> dict[str, None]:
    """Those found before, and all of a registry's list."""
    after: str | None = None
    while len(found) < MAX_ENCLAVES:
        page, after = client.listing(**search, after=after)
        found |= {entry["enclave_id"]: None for entry in page if _is_id(entry.get("enclave_id"))}
        if after is None:
            break
    return found


def _noted(path: Path) -> list[str]:
    """The ids in a file, which somebody else writes: none while there is no file, and what is no id is passed by."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_ENCLAVES * ID_LINE).decode(errors="replace")
    except FileNotFoundError:
        return []
    except OSError as e:
        raise Unavailable(f"{path}: cannot be read: {e.strerror}") from None
    return [line for line in map(str.strip, text.splitlines()) if _is_id(line)]


def _made_known(identity: bytes, client: Client) -> dict[str, None]:
    try:
        return {enclave.hex(): None for enclave in client.lookup(identity).enclaves.values()}
    except IdentityNotFound:
        return {}


def _is_id(text: object) -> bool:
    """A list is the registry's bare word."""
    return isinstance(text, str) and len(text) == 64 and not set(text) - set("0123456789abcdef")


def wire_filter(options: Options, pushed: Mapping[str, Any]) -> dict[str, Any]:
    """What the node is asked to look for: the options' words, and the filters that Spark pushes down."""
    found: dict[str, Any] = {}
    if options.types:
        found["type"] = list(options.types)
    if options.authors:
        found["from"] = list(options.authors)
    return {**found, **pushed}


def tip(enclave: Enclave, options: Options) -> Tip:
    """The end of a log, as far as it may be read. An enclave that shows nothing ends where it begins."""
    try:
        page = unverified_page(enclave, {**wire_filter(options, {}), "limit": 1, "reverse": True})
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
        logger.warning("%s: its newest event does not check: %s", enclave.hex, e.message)
        return Tip(0 if seq is None else seq + 1, None, False)
    return Tip(event.seq + 1, enc_v, event.enclave == enclave.id)


def after(enclave: Enclave, options: Options, start: int) -> int:
    """The seq behind the first event from `start` on; `start` where there is none."""
    page = unverified_page(enclave, {**wire_filter(options, {}), "seq": {"start_at": start}, "limit": 1})
    seq = seq_of(page.events[0]) if page.events else None
    return start if seq is None or seq < start else seq + 1


def read_span(options: Options, span: Span, pushed: Mapping[str, Any] | None = None) -> Iterator[pa.RecordBatch]:
    """Raw rows of a span, a page at a time. What a node says that cannot be is a row too, and goes to quarantine."""
    place = Place(options.origin, span.enclave, span.enc_v)
    try:
        enclave = enclave_for(options, client_for(options), span.enclave)
        for events in _pages(enclave, wire_filter(options, pushed or {}), span):
            yield raw_batch(events, place, now())
    except WorldError as e:
        if options.on_unreachable == "fail":
            raise
        yield _unread(place, span, e)
    except (Distrust, PeerError) as e:
        yield _unread(place, span, e)


def _unread(place: Place, span: Span, error: EncError) -> pa.RecordBatch:
    """A mark that says which seqs."""
    logger.warning("%s: seqs %d to %d are not read: %s", span.enclave, span.start, span.end - 1, error.message)
    return mark(error, place, now(), unread={"from": span.start, "until": span.end})


def _pages(enclave: Enclave, base: Mapping[str, Any], span: Span) -> Iterator[list[bytes]]:
    """Each page begins after the last event of the one before, and so there are no more of them than seqs."""
    start, bounds = span.start, base.get("seq", {})
    while start < span.end:
        seq = {**bounds, "start_at": max(start, bounds.get("start_at", 0)), "end_before": span.end}
        page = unverified_page(enclave, {**base, "seq": seq, "limit": MAX_LIMIT})
        if page.events:
            yield page.events
        last = seq_of(page.events[-1]) if page.events else None
        if not page.more or last is None or last < start:
            return
        start = last + 1
