"""How the ownership of an enclave was passed on, by the events that may have done it."""

import msgspec

from enc.client.flow import Flow
from enc.client.link import EnclaveReader
from enc.client.reads import blame_for_content, manifest_event
from enc.core.event import wire_event
from enc.core.filter import MAX_LIMIT
from enc.core.manifest import parse_manifest
from enc.core.policy import Policy
from enc.core.types import Event

TYPES = ["Manifest", "Move", "Grant", "Transfer", "Transfer_Owner", "AC_Bundle"]
"""What may make somebody an owner."""
MAX_EVENTS = 100_000
"""Events about rights that are looked through."""


def ownership_history(reader: EnclaveReader, before: int | None = None) -> Flow[tuple[Policy, list[Event]]]:
    """The rules, and the Manifest with every event, before a seq, that may have passed the ownership on."""
    events = list[Event]()
    end = {} if before is None else {"end_before": before}
    while True:
        start = {"start_after": events[-1].seq} if events else {}
        page = yield from reader.page({"type": TYPES, "seq": {**start, **end}, "limit": MAX_LIMIT})
        events += [item.event for item in page.items]
        if len(events) > MAX_EVENTS:
            message = f"over {MAX_EVENTS} events about rights"
            raise reader.session.known_verifier().forgery(message, msgspec.json.encode(wire_event(events[-1])))
        if not page.more:
            break
    if not events or events[0].type != "Manifest":
        events.insert(0, (yield from manifest_event(reader)))
    with blame_for_content(reader, events[0]):
        return parse_manifest(events[0].content or ""), events
