"""Whether an enclave is active, paused, terminated or moved away: by its state or, where that is silent, by its log."""

from collections.abc import Mapping
from typing import Literal

from enc.client.flow import Flow
from enc.client.lineage import learned
from enc.client.link import Link
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


def lifecycle(link: Link, rules: Policy) -> Flow[Lifecycle]:
    """What the enclave is: proved, as of the last closed bundle; or, by its log, as far as the node shows it."""
    found = _by_state(link) if rules.lifecycle_in_state else _by_log(link, rules)
    return (yield from found)


def _by_state(link: Link) -> Flow[Lifecycle]:
    """An enclave without a closed bundle has only begun."""
    try:
        fact = yield from link.state_fact("kv", shared_slot("lifecycle"))
    except TreeSizeNotFound:
        return "active"
    if fact.value not in LIFECYCLES:
        raise link.known_sceptic().forgery("lifecycle: the state says what is none", (fact.value or b"").hex().encode())
    found = LIFECYCLES[fact.value]
    return (yield from _arrived(link)) if found == "migrated" else found


def _arrived(link: Link) -> Flow[Lifecycle]:
    """The state says `migrated` until an event comes after the Migrate; where it led to, the enclave goes on."""
    history = yield from learned(link)
    if not history.moves or history.sequencer != link.known_sceptic().sequencer:
        return "migrated"
    turn = yield from _last(link, _TURNS)
    return "paused" if turn is not None and turn.type == "Pause" else "active"


def _by_log(link: Link, rules: Policy) -> Flow[Lifecycle]:
    """The last event that changes it decides; unknown to who may not read them all."""
    scope = yield from _scope(link, rules)
    if any(scope.of(type_) != "all" for type_ in (*_ENDS, *_TURNS)):
        return "unknown"
    end, turn = (yield from _last(link, _ENDS)), (yield from _last(link, _TURNS))
    if end is not None and end.type == "Terminate":
        return "terminated"
    if end is not None:
        sceptic = link.known_sceptic()
        with sceptic.judging(f"event {end.seq}", (end.content or "").encode()):
            if parse_migrate(end).new_sequencer != sceptic.sequencer:
                return "migrated"
    return "paused" if turn is not None and turn.type == "Pause" else "active"


def _last(link: Link, types: tuple[str, ...]) -> Flow[Event | None]:
    page = yield from link.page({"type": list(types), "reverse": True, "limit": 1})
    return page.items[0].event if page.items else None


def _scope(link: Link, rules: Policy) -> Flow[ReadScope]:
    """What this identity may read now. The node's word for it will do: the pages that it is about prove no more."""
    me, sceptic = link.identity.public, link.known_sceptic()
    text = yield from link.ask("/state", "State_Proof", {"namespace": "rbac", "key": me.hex(), "mode": "current"})
    with sceptic.judging("state", text):
        value = parse_state_proof(text).v
    bitmask = int.from_bytes(value or b"", "big")
    return rules.read_scope(bitmask, lambda alias: True, is_node=me == sceptic.sequencer)
