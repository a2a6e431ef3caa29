"""The events through which the ownership of an enclave may have been passed on."""

import msgspec

from enc.client.enclave.combined_reads import blame_for_content, manifest_event
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.wire.flow import Flow
from enc.core.log.event import wire_event
from enc.core.log.filter import MAX_LIMIT
from enc.core.primitives.types import Commit, Event
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import Policy

TYPES = ["Manifest", "Move", "Grant", "Transfer", "Transfer_Owner", "AC_Bundle"]
"""Event types that can make an identity an owner."""
_OF_RIGHTS = frozenset("Move Force_Move Grant Revoke Revoke_Self Transfer AC_Bundle".split())
MAX_EVENTS = 100_000
"""Most events about rights that are examined."""


def concerns_owners(commit: Commit) -> bool:
    """Return whether the event may make somebody an owner, or end an ownership. Decides by the
    event alone, without the manifest.
    """
    if commit.type == "Transfer_Owner":
        return True
    return commit.type in _OF_RIGHTS and '"owner"' in (commit.content or "").lower()


def ownership_history(reader: EnclaveReader, before: int | None = None) -> Flow[tuple[Policy, list[Event]]]:
    """Return the rules, and the Manifest with all events before `before` that may pass ownership
    on.
    """
    events = list[Event]()
    end = {} if before is None else {"end_before": before}
    while True:
        start = {"start_after": events[-1].seq} if events else {}
        page = yield from reader.page({"type": TYPES, "seq": {**start, **end}, "limit": MAX_LIMIT})
        events += [item.event for item in page.items]
        if len(events) > MAX_EVENTS:
            message = f"more than {MAX_EVENTS} events about rights"
            raise reader.session.known_verifier().forgery(message, msgspec.json.encode(wire_event(events[-1])))
        if not page.more:
            break
    if not events or events[0].type != "Manifest":
        events.insert(0, (yield from manifest_event(reader)))
    with blame_for_content(reader, events[0]):
        return parse_manifest(events[0].content or ""), events
