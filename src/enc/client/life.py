"""Whether an enclave is active, paused, terminated or moved away: by its state or, where that is silent, by its log."""

from collections.abc import Mapping
from typing import Literal

from enc.client.flow import Flow
from enc.client.lineage import fetch_history
from enc.client.link import EnclaveReader
from enc.core.content import parse_migrate
from enc.core.errors import TreeSizeNotFound
from enc.core.hashing import sha256
from enc.core.policy import Policy, ReadScope
from enc.core.proof import parse_state_proof
from enc.core.state_key import shared_slot
from enc.core.types import Event

Lifecycle = Literal["active", "paused", "terminated", "migrated", "unknown"]

LIFECYCLES: Mapping[bytes | None, Lifecycle] = {
    None: "active",
    sha256(b"paused"): "paused",
    sha256(b"terminated"): "terminated",
    sha256(b"migrated"): "migrated",
}
_ENDS, _TURNS = ("Terminate", "Migrate"), ("Pause", "Resume")


def lifecycle(reader: EnclaveReader, rules: Policy) -> Flow[Lifecycle]:
    """What the enclave is: proved, as of the last closed bundle; or, by its log, as far as the node shows it."""
    found = _by_state(reader) if rules.lifecycle_in_state else _by_log(reader, rules)
    return (yield from found)


def _by_state(reader: EnclaveReader) -> Flow[Lifecycle]:
    """An enclave without a closed bundle has only begun."""
    try:
        fact = yield from reader.state_fact("kv", shared_slot("lifecycle"))
    except TreeSizeNotFound:
        return "active"
    if fact.value not in LIFECYCLES:
        raise reader.session.known_verifier().forgery(
            "lifecycle: the state says what is none", (fact.value or b"").hex().encode()
        )
    found = LIFECYCLES[fact.value]
    return (yield from _arrived(reader)) if found == "migrated" else found


def _arrived(reader: EnclaveReader) -> Flow[Lifecycle]:
    """The state says `migrated` until an event comes after the Migrate; where it led to, the enclave goes on."""
    history = yield from fetch_history(reader.session)
    if not history.moves or history.sequencer != reader.session.known_verifier().sequencer:
        return "migrated"
    turn = yield from _last(reader, _TURNS)
    return "paused" if turn is not None and turn.type == "Pause" else "active"


def _by_log(reader: EnclaveReader, rules: Policy) -> Flow[Lifecycle]:
    """The last event that changes it decides; unknown to who may not read them all."""
    scope = yield from _scope(reader, rules)
    if any(scope.of(type_) != "all" for type_ in (*_ENDS, *_TURNS)):
        return "unknown"
    end, turn = (yield from _last(reader, _ENDS)), (yield from _last(reader, _TURNS))
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
    """What this identity may read now. The node's word for it will do: the pages that it is about prove no more."""
    me, verifier = reader.identity.public, reader.session.known_verifier()
    text = yield from reader.session.ask(
        "/state", "State_Proof", {"namespace": "rbac", "key": me.hex(), "mode": "current"}
    )
    with verifier.blame_node("state", text):
        value = parse_state_proof(text).v
    bitmask = int.from_bytes(value or b"", "big")
    return rules.read_scope(bitmask, lambda alias: True, is_node=me == verifier.sequencer)
