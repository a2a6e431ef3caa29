"""Who is to hear of an event: judged by the state after it, over the endpoints that were registered before it.

With many endpoints that is much to ask of every event, and the answer seldom changes. So it is kept for each kind of
event, until rights, gates or endpoints of the enclave change; and equal answers are one object, by which the store
knows them again.
"""

from typing import Protocol

from enc.core import sparse_merkle
from enc.core.enclave import EnclaveState, Reader, Transition, view
from enc.core.policy import Draft, Effects, Subject, recipients
from enc.core.state_key import KV, identity_key
from enc.core.types import Event, Record, RecordKind, Target
from enc.node.store.push import Endpoints, Recipient, Recipients, Right, register

MAX_WITHOUT_ENDPOINTS = 65_536
"""Enclaves without endpoints that are remembered as such, from one transaction to the next."""
MAX_ENDPOINTS = 65_536
"""Endpoints that are remembered, of all enclaves; those of one are, whatever their number."""
MAX_ANSWERS = 1024
"""Audiences that are remembered of one enclave."""


class _Store(Protocol):
    def endpoints(self, enclave: bytes) -> Endpoints: ...


class _StateAfter:
    """What lies behind the state after a step that is not kept yet."""

    def __init__(self, transition: Transition, before: Reader) -> None:
        self._nodes, self._before = transition.tree_nodes, before

    def read_node(self, node_hash: bytes) -> bytes:
        return self._nodes.get(node_hash) or self._before.read_node(node_hash)

    def leaf(self, root: bytes, key: bytes) -> bytes | None:
        return sparse_merkle.get(self, root, key)

    def target(self, event_id: bytes) -> Target | None:
        return self._before.target(event_id)

    def record(self, kind: RecordKind, key: bytes) -> Record | None:
        return self._before.record(kind, key)

    def record_of(self, event_id: bytes) -> Record | None:
        return self._before.record_of(event_id)


class _EnclaveRecipients:
    """The endpoints of one enclave, and what was asked about them."""

    def __init__(self, endpoints: Endpoints) -> None:
        self.endpoints = endpoints
        self._bitmasks: dict[bytes, int] = {}
        self.keys: dict[bytes, bytes] = {}
        self.reindex()

    def reindex(self) -> None:
        """Endpoints have changed. Of those who stay, what they hold is still known: to read it again is much."""
        known = {identity: key for key, identity in self.keys.items()}
        self.urls = sorted({(identity, url) for (identity, _), url in self.endpoints.items()})
        self.identities = frozenset(identity for identity, _ in self.urls)
        self.keys = {known.get(identity) or identity_key(identity): identity for identity in self.identities}
        self._bitmasks = {each: held for each, held in self._bitmasks.items() if each in self.identities}
        self._forget()

    def _forget(self) -> None:
        self._answers: dict[tuple[Subject, bytes | None], Recipients] = {}
        self._same: dict[Recipients, Recipients] = {}

    def recipients_of(self, subject: Subject, author: bytes, transition: Transition, reader: Reader) -> Recipients:
        """Who hears of an event; whether its author does may depend on that."""
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
        closed = dict[str, bool]()

        def is_closed(alias: str) -> bool:
            if alias not in closed:
                closed[alias] = draft.is_closed(alias)
            return closed[alias]

        # Of those who hold the same, one is asked for all.
        like = {
            identity: (held[identity], identity == author, identity == state.sequencer) for identity in self.identities
        }
        asked = {kind: identity for identity, kind in like.items()}
        bitmasks = {identity: held[identity] for identity in asked.values()}
        given = recipients(state.policy, subject, author, bitmasks, is_closed, state.sequencer)
        self._bitmasks = held  # only now: of a step that fails nothing is remembered
        rights: dict[bytes, Right | None] = {identity: given.get(asked[kind]) for identity, kind in like.items()}
        return tuple(
            Recipient(identity, url, right) for identity, url in self.urls if (right := rights[identity]) is not None
        )

    def invalidate(self, event: Event, effects: Effects) -> None:
        """Forget what the event may change of who hears of what: bitmasks of listeners, or gates."""
        is_slot = event.type in ("Shared", "Own")
        touched = [key for key in effects.writes if key in self.keys or (key[:1] == KV and not is_slot)]
        for key in touched:
            self._bitmasks.pop(self.keys.get(key, b""), None)
        if touched:
            self._forget()


class RecipientCache:
    """For the sequencer's thread. What it is asked about is taken to happen; `forget` where it did not."""

    def __init__(self, store: _Store) -> None:
        self._store = store
        self._without_endpoints: set[bytes] = set()
        self._known: dict[bytes, _EnclaveRecipients] = {}
        self._has_grown = False

    def recipients_of(
        self, event: Event, subject: Subject, effects: Effects, transition: Transition, reader: Reader
    ) -> Recipients:
        """Who hears of the event; `reader` is what lies behind the state before it."""
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
        reader: Reader,
    ) -> Recipients:
        if effects.writes:
            enclave_recipients.invalidate(event, effects)
        return enclave_recipients.recipients_of(subject, event.from_, transition, reader)

    def forget(self, enclave: bytes) -> None:
        """The store alone tells the truth."""
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
        """Between two transactions: what is forgotten inside one would be read from a store that has none of it yet."""
        if not self._has_grown:
            return
        self._has_grown = False
        while len(self._known) > 1 and self._weight() > MAX_ENDPOINTS:
            self._known.pop(next(iter(self._known)))
        if len(self._without_endpoints) > MAX_WITHOUT_ENDPOINTS:
            self._without_endpoints.clear()

    def _weight(self) -> int:
        return sum(len(each.endpoints) for each in self._known.values())
