"""The proved States, traits and roles of identities in an enclave."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from msgspec import Struct

from enc.client.enclave.combined_reads import blame_for_content, policy
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.verify.facts import StateFact
from enc.client.wire.flow import Flow, Pause
from enc.core.errors import TreeSizeNotFound
from enc.core.log.filter import MAX_LIMIT
from enc.core.rules.policy_types import Policy
from enc.core.trees.state_key import Namespace

T = TypeVar("T")

BATCH = 256
"""Keys of one State_Batch."""


class Member(Struct, frozen=True):
    """The State and traits of one identity, proved."""

    identity: bytes
    state: str
    traits: tuple[str, ...]
    fact: StateFact


def member(reader: EnclaveReader, identity: bytes) -> Flow[Member]:
    rules = yield from policy(reader)
    fact = yield from _once_closed(reader, lambda: reader.state_fact("rbac", identity))
    return _member(rules, fact)


def _once_closed(reader: EnclaveReader, ask: Callable[[], Flow[T]]) -> Flow[T]:
    """Retry until the enclave's first bundle is closed; before that no state is proved."""
    backoff = reader.node.caller.backoff()
    while True:
        try:
            return (yield from ask())
        except TreeSizeNotFound as e:
            pause = backoff.wait(e)
        yield Pause(pause)


def _member(rules: Policy, fact: StateFact) -> Member:
    bitmask = int.from_bytes(fact.value or b"", "big")
    return Member(fact.key, rules.state_of(bitmask), tuple(rules.traits_of(bitmask)), fact)


def members(reader: EnclaveReader) -> Flow[list[Member]]:
    """Return every identity with a State or trait, proved, among those that readable events
    concern.
    """
    rules = yield from policy(reader)
    named = dict.fromkeys(rules.initial_members)
    types, after = list(rules.dialect.access_types), -1
    while True:
        page = yield from reader.page({"type": types, "seq": {"start_at": after + 1}, "limit": MAX_LIMIT})
        for item in page.items:
            with blame_for_content(reader, item.event):
                named.update(dict.fromkeys(rules.dialect.affected_identities(item.event)))
        if not page.more or not page.items:
            break
        after = page.items[-1].seq
    identities, found = list(named), list[Member]()
    for i in range(0, len(identities), BATCH):
        keys: list[tuple[Namespace, bytes]] = [("rbac", identity) for identity in identities[i : i + BATCH]]
        facts = yield from _once_closed(reader, partial(reader.state_facts, keys))
        found += [_member(rules, fact) for fact in facts if fact.value is not None]
    return found
