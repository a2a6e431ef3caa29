"""Finds the recipients of an event: judged by the state after it, among the endpoints registered
before it.

With many endpoints that is expensive, and the result seldom changes. So it is cached for each kind
of event until rights, gates or endpoints of the enclave change. Equal results are one object, by
which the store recognises them.
"""

from typing import Protocol

from enc.core.machine.state import EnclaveState, StoredEnclave, Transition, view
from enc.core.primitives.types import Event, KeyRecord, RecordKind, Target
from enc.core.rules.policy_types import Draft, Effects, Subject, recipients
from enc.core.trees import sparse_merkle
from enc.core.trees.state_key import KV, identity_key
from enc.node.store.push_interface import Endpoints, Recipient, Recipients, Right, register

MAX_WITHOUT_ENDPOINTS = 65_536
"""Enclaves without endpoints that are cached as such, from one transaction to the next."""
MAX_ENDPOINTS = 65_536
"""Cached endpoints over all enclaves; those of a single enclave are cached whatever their number.
"""
MAX_ANSWERS = 1024
"""Cached recipient lists per enclave."""


class _Store(Protocol):
    def endpoints(self, enclave: bytes) -> Endpoints: ...


class _StateAfter:
    """Reads behind the state after a step that is not stored yet."""

    def __init__(self, transition: Transition, before: StoredEnclave) -> None:
        self._nodes, self._before = transition.tree_nodes, before

    def read_node(self, node_hash: bytes) -> bytes:
        return self._nodes.get(node_hash) or self._before.read_node(node_hash)

    def leaf(self, root: bytes, key: bytes) -> bytes | None:
        return sparse_merkle.get(self, root, key)

    def target(self, event_id: bytes) -> Target | None:
        return self._before.target(event_id)

    def record(self, kind: RecordKind, key: bytes) -> KeyRecord | None:
        return self._before.record(kind, key)

    def record_of(self, event_id: bytes) -> KeyRecord | None:
        return self._before.record_of(event_id)


class _EnclaveRecipients:
    """The endpoints of one enclave, and the cached results about them."""

    def __init__(self, endpoints: Endpoints) -> None:
        self.endpoints = endpoints
        self._bitmasks: dict[bytes, int] = {}
        self.keys: dict[bytes, bytes] = {}
        self.reindex()

    def reindex(self) -> None:
        """Update after a change of endpoints. What is known about the remaining identities is kept,
        since reading it again is expensive.
        """
        known = {identity: key for key, identity in self.keys.items()}
        self.urls = sorted({(identity, url) for (identity, _), url in self.endpoints.items()})
        self.identities = frozenset(identity for identity, _ in self.urls)
        self.keys = {known.get(identity) or identity_key(identity): identity for identity in self.identities}
        self._bitmasks = {each: held for each, held in self._bitmasks.items() if each in self.identities}
        self._forget()

    def _forget(self) -> None:
        self._answers: dict[tuple[Subject, bytes | None], Recipients] = {}
        self._same: dict[Recipients, Recipients] = {}

    def recipients_of(
        self, subject: Subject, author: bytes, transition: Transition, reader: StoredEnclave
    ) -> Recipients:
        """Return the recipients of an event; the result may depend on whether the author is one of
        the identities.
        """
        key = (subject, author if author in self.identities else None)
        found = self._answers.get(key)
        if found is None:
            if len(self._answers) >= MAX_ANSWERS:
                self._answers, self._same = {}, {}
            draft = view(transition.state, _StateAfter(transition, reader))
            found = self._judge(subject, author, transition.state, draft)
            found = self._answers[key] = self._same.setdefault(found, found)
        return found

    def _judge(self, subject: Subject, author: bytes, state: EnclaveState, draft: Draft) -> Recipients:
        held = self._bitmasks | {each: draft.bitmask(each) for each in self.identities - self._bitmasks.keys()}
        # Of identities with equal rights, one is judged for all.
        like = {
            identity: (held[identity], identity == author, identity == state.sequencer) for identity in self.identities
        }
        asked = {kind: identity for identity, kind in like.items()}
        bitmasks = {identity: held[identity] for identity in asked.values()}
        given = recipients(state.policy, subject, author, bitmasks, draft.closed_gates, state.sequencer)
        self._bitmasks = held  # only now: a failed step must leave nothing in the cache
        rights: dict[bytes, Right | None] = {identity: given.get(asked[kind]) for identity, kind in like.items()}
        return tuple(
            Recipient(identity, url, right) for identity, url in self.urls if (right := rights[identity]) is not None
        )

    def invalidate(self, event: Event, effects: Effects) -> None:
        """Drop cached results that the event may change: bitmasks of identities with endpoints, or
        gates.
        """
        is_slot = event.type in ("Shared", "Own")
        touched = [key for key in effects.writes if key in self.keys or (key[:1] == KV and not is_slot)]
        for key in touched:
            self._bitmasks.pop(self.keys.get(key, b""), None)
        if touched:
            self._forget()


class RecipientCache:
    """Recipients by enclave, for the sequencer's thread. Each event passed in is assumed to be
    written; call `forget` if it was not.
    """

    def __init__(self, store: _Store) -> None:
        self._store = store
        self._without_endpoints: set[bytes] = set()
        self._known: dict[bytes, _EnclaveRecipients] = {}
        self._has_grown = False

    def recipients_of(
        self, event: Event, subject: Subject, effects: Effects, transition: Transition, reader: StoredEnclave
    ) -> Recipients:
        """Return the recipients of the event; `reader` reads behind the state before it."""
        enclave = event.enclave
        if enclave in self._without_endpoints and not effects.endpoints:
            return ()
        known = self._known.get(enclave)
        enclave_recipients = self._load(enclave) if known is None else known
        audience = (
            self._judge_event(enclave_recipients, event, subject, effects, transition, reader)
            if enclave_recipients.urls
            else ()
        )
        if effects.endpoints or effects.lifecycle == "terminated":
            register(enclave_recipients.endpoints, effects)
            enclave_recipients.reindex()
            known = None
        if known is None:
            self._keep(enclave, enclave_recipients)
        return audience

    def _judge_event(
        self,
        enclave_recipients: _EnclaveRecipients,
        event: Event,
        subject: Subject,
        effects: Effects,
        transition: Transition,
        reader: StoredEnclave,
    ) -> Recipients:
        if effects.writes:
            enclave_recipients.invalidate(event, effects)
        return enclave_recipients.recipients_of(subject, event.from_, transition, reader)

    def forget(self, enclave: bytes) -> None:
        """Drop what is cached of an enclave, so that it is read from the store again."""
        self._without_endpoints.discard(enclave)
        self._known.pop(enclave, None)

    def _load(self, enclave: bytes) -> _EnclaveRecipients:
        return _EnclaveRecipients({} if enclave in self._without_endpoints else self._store.endpoints(enclave))

    def _keep(self, enclave: bytes, enclave_recipients: _EnclaveRecipients) -> None:
        self.forget(enclave)
        self._has_grown = True
        if enclave_recipients.urls:
            self._known[enclave] = enclave_recipients
        else:
            self._without_endpoints.add(enclave)

    def trim(self) -> None:
        """Shrink the cache. Call it only between transactions: data dropped within one would be
        read from a store that does not have it yet.
        """
        if not self._has_grown:
            return
        self._has_grown = False
        while len(self._known) > 1 and self._weight() > MAX_ENDPOINTS:
            self._known.pop(next(iter(self._known)))
        if len(self._without_endpoints) > MAX_WITHOUT_ENDPOINTS:
            self._without_endpoints.clear()

    def _weight(self) -> int:
        return sum(len(each.endpoints) for each in self._known.values())
