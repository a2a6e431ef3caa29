"""Reads that combine verified answers: the Manifest, the rules, and the current content of events."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import msgspec
from msgspec import Struct

from enc.client.enclave.backup import first_event
from enc.client.enclave.lifecycle import Lifecycle, lifecycle
from enc.client.enclave.search import PagedSearch
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.verify.facts import EventStatus, status_of
from enc.client.verify.items import Item
from enc.client.wire.flow import Flow
from enc.core.errors import (
    Banned,
    EncError,
    EnclaveMigrated,
    EnclaveSuspended,
    EventNotFound,
    EventPending,
    InvalidProof,
    TreeSizeNotFound,
    Unauthorized,
)
from enc.core.log.event import wire_event
from enc.core.log.filter import MAX_IDS
from enc.core.primitives.types import Event, TreeHead
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import Policy

MAX_KEYS = 256
"""Most keys of one request about the state."""
REFUSALS = (Unauthorized, Banned, EnclaveSuspended)


class Overview(Struct, frozen=True):
    enclave: bytes
    sequencer: bytes
    manifest: Mapping[str, Any]
    created: int
    """Unix milliseconds."""
    lifecycle: Lifecycle
    head: TreeHead
    names: Mapping[str, list[str]]
    """What an identity can be: States and traits, or roles."""


def manifest_event(reader: EnclaveReader) -> Flow[Event]:
    """Return event 0. The enclave's id is a hash of it, so no other event can be shown.

    Owners that may not read it with a Query may still export it, also while the operator of the node
    has banned them or suspended the enclave.
    """
    refusal: EncError = EventNotFound("you may not read the Manifest")
    try:
        page = yield from reader.page({"seq": 0})
        if page.items:
            return page.items[0].event
    except REFUSALS as e:
        refusal = e
    try:
        return (yield from first_event(reader))
    except REFUSALS:
        raise refusal from None


def policy(reader: EnclaveReader) -> Flow[Policy]:
    event = yield from manifest_event(reader)
    with blame_for_content(reader, event):
        return parse_manifest(event.content or "")


def overview(reader: EnclaveReader) -> Flow[Overview]:
    event = yield from manifest_event(reader)
    head = yield from reader.session.head()
    with blame_for_content(reader, event):
        rules = parse_manifest(event.content or "")
    state = yield from lifecycle(reader, rules)
    sequencer = reader.session.known_verifier().sequencer
    return Overview(reader.enclave, sequencer, rules.manifest, event.timestamp, state, head, rules.names)


def blame_for_content(reader: EnclaveReader, event: Event) -> AbstractContextManager[None]:
    """Blame the node for content that breaks the protocol: an honest node would have rejected it."""
    return reader.session.known_verifier().blame_node(f"event {event.seq}", msgspec.json.encode(wire_event(event)))


def follow(reader: EnclaveReader) -> Flow[None]:
    """Switch to the enclave's current node, if a known Migrate shows that it left this one."""
    verifier = yield from reader.session.verifier()
    try:
        verifier.check_is_current()
    except EnclaveMigrated as e:
        yield from reader.follow(e)


def status(reader: EnclaveReader, event_id: bytes, *, wait: bool) -> Flow[EventStatus]:
    placed = yield from reader.status_fact(event_id, wait=wait)
    return status_of(placed.status)


def statuses(
    reader: EnclaveReader, ids: Sequence[bytes]
) -> Flow[dict[bytes, EventStatus | Literal["pending", "unknown"]]]:
    """Return the status of many events: asks for each bundle once, and for the state in batches.

    pending: in no closed bundle yet; unknown: the node has no such event.
    """
    found, places = dict[bytes, EventStatus | Literal["pending", "unknown"]](), dict[bytes, int]()
    for id_ in ids:
        if id_ not in places:
            try:
                _, anchor = yield from reader.place(id_)
                bundle = yield from reader.bundle(anchor.index)
                places |= dict.fromkeys(bundle.ids, anchor.index)
            except (EventPending, TreeSizeNotFound):
                found[id_] = "pending"
            except EventNotFound:
                found[id_] = "unknown"
    placed = [id_ for id_ in ids if id_ in places]
    for part in (placed[i : i + MAX_KEYS] for i in range(0, len(placed), MAX_KEYS)):
        facts = yield from reader.state_facts([("event_status", id_) for id_ in part])
        for id_, fact in zip(part, facts, strict=True):
            with reader.session.known_verifier().blame_node("status", id_.hex().encode()):
                if fact.anchor.index < places[id_]:
                    raise InvalidProof("older than the event")
            found[id_] = status_of(fact)
    return found


def content(reader: EnclaveReader, item: Item) -> Flow[str | None]:
    """Return an event's current content: its own, or that of its latest Update; None if it is erased
    or withheld.

    Which Update is the latest is the node's statement, not proved.
    """
    found = yield from contents(reader, [item])
    return found[item.id]


def contents(reader: EnclaveReader, items: Sequence[Item]) -> Flow[dict[bytes, str | None]]:
    """Return the current contents of many events, by id: asks for up to 100 Updates at once."""
    updates = yield from latest_updates(reader, items)
    return {item.id: _content(item, updates) for item in items}


def latest_updates(reader: EnclaveReader, items: Sequence[Item]) -> Flow[dict[bytes, Event]]:
    """Return the latest Update of each updated item, by the item's id, unless it may not be read."""
    updates = dict[bytes, Event]()
    yield from read_events(reader, {item.updated_by for item in items if item.updated_by is not None}, updates)
    for item in items:
        update = updates.get(item.updated_by or b"")
        if update is not None and (update.type != "Update" or update.target != item.id):
            message = f"event {item.seq}: updated_by does not name an Update of this event"
            raise reader.session.known_verifier().forgery(message, update.id.hex().encode())
    return {item.id: updates[item.updated_by] for item in items if item.updated_by in updates}


def read_events(reader: EnclaveReader, ids: Collection[bytes], into: dict[bytes, Event]) -> Flow[None]:
    """Read events by id, up to 100 at once, as far as they exist and may be read."""
    asked = sorted(ids)
    for part in (asked[i : i + MAX_IDS] for i in range(0, len(asked), MAX_IDS)):
        pages = PagedSearch({"id": part}, None, reverse=False)
        while pages.wire is not None:
            page = yield from reader.page(pages.wire)
            into.update((item.id, item.event) for item in pages.advance(page))


def _content(item: Item, updates: Mapping[bytes, Event]) -> str | None:
    if item.updated_by is None:
        return item.content
    if item.id not in updates:
        raise EventNotFound(f"event {item.seq} is updated, but the node does not show you the Update")
    return updates[item.id].content
