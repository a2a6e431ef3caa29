"""An enclave's lifecycle: active, paused, terminated or migrated, by its state or else by its log."""

from collections.abc import Mapping
from typing import Literal

from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.sequencer_lookup import fetch_history
from enc.client.wire.flow import Flow
from enc.core.errors import TreeSizeNotFound
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import Event
from enc.core.rules.content import parse_migrate
from enc.core.rules.policy_types import Policy, ReadScope
from enc.core.trees.proof import parse_state_proof
from enc.core.trees.state_key import shared_slot

Lifecycle = Literal["active", "paused", "terminated", "migrated", "unknown"]

LIFECYCLES: Mapping[bytes | None, Lifecycle] = {
    None: "active",
    sha256(b"paused"): "paused",
    sha256(b"terminated"): "terminated",
    sha256(b"migrated"): "migrated",
}
_END_TYPES, _PAUSE_TYPES = ("Terminate", "Migrate"), ("Pause", "Resume")


def lifecycle(reader: EnclaveReader, rules: Policy) -> Flow[Lifecycle]:
    """Return the lifecycle: proved as of the last closed bundle, or according to the log shown."""
    found = _by_state(reader) if rules.lifecycle_in_state else _by_log(reader, rules)
    return (yield from found)


def _by_state(reader: EnclaveReader) -> Flow[Lifecycle]:
    """Read the lifecycle slot. An enclave without a closed bundle is active."""
    try:
        fact = yield from reader.state_fact("kv", shared_slot("lifecycle"))
    except TreeSizeNotFound:
        return "active"
    if fact.value not in LIFECYCLES:
        raise reader.session.known_verifier().forgery(
            "lifecycle: not a lifecycle value in the state", (fact.value or b"").hex().encode()
        )
    found = LIFECYCLES[fact.value]
    return (yield from _after_migrate(reader)) if found == "migrated" else found


def _after_migrate(reader: EnclaveReader) -> Flow[Lifecycle]:
    """Decide for state `migrated`, which stays until the next event: the new node's enclave is
    active.
    """
    history = yield from fetch_history(reader.session)
    if not history.moves or history.sequencer != reader.session.known_verifier().sequencer:
        return "migrated"
    turn = yield from _last(reader, _PAUSE_TYPES)
    return "paused" if turn is not None and turn.type == "Pause" else "active"


def _by_log(reader: EnclaveReader, rules: Policy) -> Flow[Lifecycle]:
    """Decide by the last event that changes the lifecycle; unknown if some may not be read."""
    scope = yield from _scope(reader, rules)
    if any(scope.of(type_) != "all" for type_ in (*_END_TYPES, *_PAUSE_TYPES)):
        return "unknown"
    end, turn = (yield from _last(reader, _END_TYPES)), (yield from _last(reader, _PAUSE_TYPES))
    if end is not None and end.type == "Terminate":
        return "terminated"
    if end is not None:
        verifier = reader.session.known_verifier()
        with verifier.blame_node(f"event {end.seq}", (end.content or "").encode()):
            if parse_migrate(end).new_sequencer != verifier.sequencer:
                return "migrated"
    return "paused" if turn is not None and turn.type == "Pause" else "active"


def _last(reader: EnclaveReader, types: tuple[str, ...]) -> Flow[Event | None]:
    page = yield from reader.page({"type": list(types), "reverse": True, "limit": 1})
    return page.items[0].event if page.items else None


def _scope(reader: EnclaveReader, rules: Policy) -> Flow[ReadScope]:
    """Return what this identity may read now. Unproved, since the pages that depend on it are too."""
    me, verifier = reader.identity.public, reader.session.known_verifier()
    text = yield from reader.session.ask(
        "/state", "State_Proof", {"namespace": "rbac", "key": me.hex(), "mode": "current"}
    )
    with verifier.blame_node("state", text):
        value = parse_state_proof(text).v
    bitmask = int.from_bytes(value or b"", "big")
    return rules.read_scope(bitmask, frozenset(rules.gates), is_node=me == verifier.sequencer)
