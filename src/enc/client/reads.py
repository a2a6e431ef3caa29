"""What apps ask of an enclave, put together from checked answers: its constitution, members, slots, and all of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from enc.client.facts import EventStatus, StateFact, status_of
from enc.client.flow import Flow, Pause
from enc.client.items import Item
from enc.client.link import Bundle, Link, Page
from enc.core.content import check_operation, content_object, text_field
from enc.core.encoding import strict_json
from enc.core.errors import EventNotFound, InvalidProof, TreeSizeNotFound
from enc.core.event import wire_event
from enc.core.filter import MAX_LIMIT
from enc.core.hashing import sha256
from enc.core.manifest import parse_manifest
from enc.core.policy import Policy
from enc.core.state_key import DELETED, Namespace, own_slot, shared_slot
from enc.core.types import Event, TreeHead

LIFECYCLES: Mapping[bytes | None, "Lifecycle"] = {
    None: "active",
    sha256(b"paused"): "paused",
    sha256(b"terminated"): "terminated",
    sha256(b"migrated"): "migrated",
}
Lifecycle = Literal["active", "paused", "terminated", "migrated"]

T = TypeVar("T")

BATCH = 256
_ACCESS = ["Manifest", "Move", "Grant", "Revoke", "Transfer", "AC_Bundle"]


class Member(Struct, frozen=True):
    """What somebody is, proved."""

    identity: bytes
    state: str
    traits: tuple[str, ...]
    fact: StateFact


class Slot(Struct, frozen=True):
    """What a slot holds: `value` None is unset. `proved`: under a signed head; else its bundle is still open."""

    value: Any
    event: Event | None
    proved: bool


class Overview(Struct, frozen=True):
    enclave: bytes
    sequencer: bytes
    manifest: Mapping[str, Any]
    created: int
    """Unix milliseconds."""
    lifecycle: Lifecycle
    head: TreeHead


def manifest_event(link: Link) -> Flow[Event]:
    """Event 0. It is a Manifest, and the enclave's id is a hash of it, so no other can be shown."""
    page = yield from link.page({"seq": 0})
    if not page.items:
        raise EventNotFound("the Manifest is not yours to read")
    return page.items[0].event


def policy(link: Link) -> Flow[Policy]:
    event = yield from manifest_event(link)
    with _sound(link, event):
        return parse_manifest(event.content or "")


def overview(link: Link) -> Flow[Overview]:
    event = yield from manifest_event(link)
    head = yield from link.head()
    state = yield from lifecycle(link)
    with _sound(link, event):
        manifest = strict_json(event.content or "")
    return Overview(link.enclave, event.sequencer, manifest, event.timestamp, state, head)


def _sound(link: Link, event: Event) -> AbstractContextManager[None]:
    """What no node takes, the enclave's node has not taken: a content that breaks its form is the node's doing."""
    return link.known_witness().judging(f"event {event.seq}", msgspec.json.encode(wire_event(event)))


def lifecycle(link: Link) -> Flow[Lifecycle]:
    """As of the last closed bundle; an enclave without one has only begun."""
    try:
        fact = yield from link.state_fact("kv", shared_slot("lifecycle"))
    except TreeSizeNotFound:
        return "active"
    if fact.value not in LIFECYCLES:
        raise link.known_witness().forgery("lifecycle: the state says what is none", (fact.value or b"").hex().encode())
    return LIFECYCLES[fact.value]


def status(link: Link, event_id: bytes, *, wait: bool) -> Flow[EventStatus]:
    placed = yield from link.status_fact(event_id, wait=wait)
    return status_of(placed.status)


def member(link: Link, identity: bytes) -> Flow[Member]:
    rules = yield from policy(link)
    fact = yield from _once_closed(link, lambda: link.state_fact("rbac", identity))
    return _member(rules, fact)


def _once_closed(link: Link, ask: Callable[[], Flow[T]]) -> Flow[T]:
    """Until an enclave's first bundle closes, nothing of its state is proved: wait for it, with patience."""
    backoff = link.node.courier.backoff()
    while True:
        try:
            return (yield from ask())
        except TreeSizeNotFound as e:
            pause = backoff.wait(e)
        yield Pause(pause)


def _member(rules: Policy, fact: StateFact) -> Member:
    bitmask = int.from_bytes(fact.value or b"", "big")
    return Member(fact.key, rules.state_of(bitmask), tuple(rules.traits_of(bitmask)), fact)


def members(link: Link) -> Flow[list[Member]]:
    """Everybody who is or holds anything, each proved; among those that events which may be read are about."""
    rules = yield from policy(link)
    named: dict[bytes, None] = {}
    after = -1
    while True:
        page = yield from link.page({"type": _ACCESS, "seq": {"start_at": after + 1}, "limit": MAX_LIMIT})
        for item in page.items:
            with _sound(link, item.event):
                named.update(dict.fromkeys(_named(item.event)))
        if not page.more or not page.items:
            break
        after = page.items[-1].seq
    identities, found = list(named), list[Member]()
    for i in range(0, len(identities), BATCH):
        keys: list[tuple[Namespace, bytes]] = [("rbac", identity) for identity in identities[i : i + BATCH]]
        facts = yield from _once_closed(link, partial(link.state_facts, keys))
        found += [_member(rules, fact) for fact in facts if fact.value is not None]
    return found


def _named(event: Event) -> Iterator[bytes]:
    """Whose bitmask the event may have changed."""
    content = content_object(event)
    if event.type == "Manifest":
        parse_manifest(event.content or "")
        yield from (bytes.fromhex(entry["identity"]) for entry in content.get("RBAC", content)["init"])
        return
    yield event.from_
    operations = content.get("operations") if event.type == "AC_Bundle" else [{**content, "type": event.type}]
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise InvalidProof("operations: expected a list of them")
    for each in operations:
        check_operation(each.get("type", ""), each, "operation")
        if each["type"] != "Gate":
            yield bytes.fromhex(each["target"])


def slot(link: Link, type_: Literal["Shared", "Own"], key: str, owner: bytes) -> Flow[Slot]:
    """A slot's value. The newest event that sets it is what the proved state says, unless it is newer than that."""
    raw = shared_slot(key) if type_ == "Shared" else own_slot(owner, key)
    try:
        fact = yield from link.state_fact("kv", raw)
    except TreeSizeNotFound:
        fact = None
    event, value = yield from _setter(link, type_, key, owner)
    if fact is None:
        return Slot(value, event, proved=False)
    if (None if event is None or value is None else event.content_hash) == fact.value:
        return Slot(value, event, proved=True)
    if event is None and not (yield from _may_read(link, type_, owner)):
        raise EventNotFound(f"slot {key} is set, but what set it is not yours to read")
    if event is None or event.timestamp < fact.anchor.head.t:
        message = f"slot {key}: what set it last is withheld"
        raise link.known_witness().forgery(message, (fact.value or b"").hex().encode())
    return Slot(value, event, proved=False)


def _setter(link: Link, type_: str, key: str, owner: bytes) -> Flow[tuple[Event | None, Any]]:
    """The newest event that sets the slot, of those that may be read, and the value."""
    wire: dict[str, Any] = {"type": type_, "limit": 100, "reverse": True}
    if type_ == "Own":
        wire["from"] = owner.hex()
    while True:
        page: Page = yield from link.page(wire)
        for event in (item.event for item in page.items):
            with _sound(link, event):
                content = content_object(event)
                if text_field(content, "key", "content") == key:
                    if "value" not in content:
                        raise InvalidProof("content.value: missing")
                    return event, content["value"]
        if not page.more:
            return None, None
        wire["seq"] = {"end_before": page.items[-1].seq}


def _may_read(link: Link, type_: str, owner: bytes) -> Flow[bool]:
    """Whether the slot's setters are surely shown to this identity, by the Manifest and the last closed bundle."""
    rules = yield from policy(link)
    fact = yield from link.state_fact("rbac", link.identity.public)
    reach = rules.read_scope(int.from_bytes(fact.value or b"", "big"), lambda alias: True).of(type_)
    return reach == "all" or (reach == "own" and type_ == "Own" and owner == link.identity.public)


def content(link: Link, item: Item) -> Flow[str | None]:
    """What an event says now: its own content, or that of its latest Update, by the node's word which that is.

    None where it is erased.
    """
    if item.updated_by is None:
        return item.content
    page = yield from link.page({"id": item.updated_by.hex()})
    if not page.items:
        raise EventNotFound(f"event {item.seq} is updated, but the Update is not shown: withheld, or not yours to read")
    update = page.items[0].event
    if update.type != "Update" or ("r", item.id.hex()) not in {tag[:2] for tag in update.tags}:
        message = f"event {item.seq}: its update is none"
        raise link.known_witness().forgery(message, update.id.hex().encode())
    return update.content


# All of it


def whole_bundle(link: Link, index: int, first_seq: int) -> Flow[tuple[Bundle, list[Item]]]:
    """All events of one closed bundle, proved to be all: what is not shown is shown to be deleted."""
    bundle = yield from link.bundle(index)
    items = yield from _range(link, first_seq, first_seq + len(bundle.ids))
    shown = {item.seq: item for item in items}
    missing = []
    for seq, id_ in enumerate(bundle.ids, first_seq):
        item = shown.get(seq)
        if item is None:
            missing.append(id_)
        elif item.id != id_:
            raise link.known_witness().forgery(f"event {seq} is not the one of the log", item.id.hex().encode())
    for i in range(0, len(missing), BATCH):
        yield from _check_deleted(link, missing[i : i + BATCH])
    return bundle, items


def _range(link: Link, first: int, end: int) -> Flow[list[Item]]:
    items: list[Item] = []
    while True:
        start = items[-1].seq + 1 if items else first
        page = yield from link.page({"seq": {"start_at": start, "end_before": end}, "limit": MAX_LIMIT})
        items += page.items
        if not page.more:
            return items


def _check_deleted(link: Link, ids: Sequence[bytes]) -> Flow[None]:
    """By the state after the last closed bundle; or by a Delete that has come since."""
    facts = yield from link.state_facts([("event_status", id_) for id_ in ids])
    for fact in facts:
        if fact.value == DELETED:
            continue
        page = yield from link.page({"type": "Delete", "tags": {"r": fact.key.hex()}})
        if all(item.event.timestamp < fact.anchor.head.t for item in page.items):
            message = f"event {fact.key.hex()} is in the log and is withheld, unless it is not yours to read"
            raise link.known_witness().forgery(message, fact.key.hex().encode())
