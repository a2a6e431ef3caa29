"""Live subscriptions: who hears of which event, and when a subscription ends.

Everything here runs on the event loop's thread. A subscription first catches up from the store; while it does, new
events pass it by, since it will find them there. It goes live in the same turn of the loop in which it finds nothing
newer in the store than what it was sent: so it misses nothing and gets nothing twice.

Rights are those after the event: each event that touches a subscriber's own leaf, or a slot or gate, has its scope
looked up again.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from enc.core.errors import Unavailable
from enc.core.filter import Filter
from enc.core.session import SKEW, TransportKeys
from enc.core.state_key import KV, identity_key
from enc.core.types import Event
from enc.node.access import Access
from enc.node.sequencer import internal_error
from enc.node.store.base import Step, Store, search_item

Reason = Literal[
    "access_revoked",
    "session_expired",
    "enclave_terminated",
    "enclave_paused",
    "enclave_migrated",
    "too_slow",
    "shutting_down",
]

_ENDS: dict[str, Reason] = {
    "paused": "enclave_paused",
    "terminated": "enclave_terminated",
    "migrated": "enclave_migrated",
}


class Subscription:
    """One Query on one connection.

    `send` takes an item's JSON, and says whether there was room for it. `fall_back` makes it read from the store again:
    there was no room, or an event is missing between its last one and the next. `passed` is told when events pass it
    by meanwhile; `close` is told why it ended, once.
    """

    def __init__(
        self,
        sub_id: str,
        access: Access,
        filter_: Filter,
        keys: TransportKeys,
        expires: int,
        send: Callable[["Subscription", bytes], bool],
        fall_back: Callable[["Subscription"], None],
        passed: Callable[["Subscription"], None],
        close: Callable[["Subscription", Reason], None],
    ) -> None:
        self.sub_id, self.access, self.filter, self.keys = sub_id, access, filter_, keys
        self.expires = expires + SKEW
        self.send, self.passed, self.close = send, passed, close
        self._fall_back = fall_back
        self.readable = access.readable()
        self.after = -1
        """The seq up to which everything was considered."""
        self.live = False
        self.fell_behind = False
        """It was live, and reads from the store again."""
        self.was_paused = access.state.lifecycle == "paused"
        """When it began; it is not closed for that."""
        self._leaf = identity_key(access.identity)

    @property
    def enclave(self) -> bytes:
        return self.access.state.enclave

    def fall_behind(self, after: int) -> None:
        """Everything up to `after` was considered; what follows comes from the store."""
        self.after, self.live, self.fell_behind = after, False, True
        self._fall_back(self)

    def is_touched(self, step: Step) -> bool:
        leaves = step.transition.leaves
        return bool(leaves) and (self._leaf in leaves or any(key[:1] == KV for key in leaves))

    def renew(self, access: Access) -> None:
        """Rights as they are now."""
        self.access, self.readable = access, access.readable()
        self.was_paused = self.was_paused and access.state.lifecycle == "paused"

    def wants(self, event: Event, subject: str) -> bool:
        return self.filter.matches(event) and self.readable.admits(event, subject)


class Hub:
    """All subscriptions of this node."""

    def __init__(self, store: Store, most: int) -> None:
        self._store, self._most = store, most
        self._by_enclave: dict[bytes, dict[Subscription, None]] = {}
        self.count = 0

    def take_place(self) -> None:
        """Before a Query is opened, so that many at once do not pass the bound."""
        if self.count >= self._most:
            raise Unavailable("too many subscriptions on this node", retry_after_ms=1000)
        self.count += 1

    def give_back(self) -> None:
        """The place of a Query that became no subscription."""
        self.count -= 1

    def add(self, subscription: Subscription) -> None:
        """A place was taken for it."""
        self._by_enclave.setdefault(subscription.enclave, {})[subscription] = None

    def remove(self, subscription: Subscription) -> None:
        subscriptions = self._by_enclave.get(subscription.enclave, {})
        if subscription in subscriptions:
            del subscriptions[subscription]
            self.count -= 1
            if not subscriptions:
                del self._by_enclave[subscription.enclave]

    def publish(self, steps: Sequence[Step]) -> None:
        """Tell those who listen of what is durable now."""
        enclaves = {step.transition.state.enclave for step in steps if step.event is not None}
        for subscription in [s for enclave in enclaves for s in self._by_enclave.get(enclave, ()) if s.fell_behind]:
            subscription.passed(subscription)
        for step in steps:
            event = step.event
            if event is None:
                continue
            listeners = [s for s in self._by_enclave.get(event.enclave, ()) if s.live and s.after < event.seq]
            item = search_item(event).json if listeners else b""
            for subscription in listeners:
                before = subscription.after
                try:
                    self._tell(subscription, step, event, item)
                except Exception as e:  # it reads on from the store; the others hear of it all the same
                    internal_error(e, "publish")
                    subscription.fall_behind(before)

    def _tell(self, subscription: Subscription, step: Step, event: Event, item: bytes) -> None:
        if event.seq > subscription.after + 1:  # a write that was reported as failed had reached the disk
            subscription.fall_behind(subscription.after)
            return
        subscription.after = event.seq
        if subscription.is_touched(step):
            subscription.renew(Access(self._store, step.transition.state, subscription.access.identity))
        if not subscription.readable.scope:
            subscription.close(subscription, "access_revoked")
            return
        if subscription.wants(event, step.subject) and not subscription.send(subscription, item):
            subscription.fall_behind(event.seq - 1)
            return
        if step.effects.lifecycle in _ENDS:
            subscription.close(subscription, _ENDS[step.effects.lifecycle])

    def expire(self, now: int) -> None:
        """End what stands on sessions that are over. `now` is Unix seconds."""
        over = [s for subscriptions in self._by_enclave.values() for s in subscriptions if s.expires <= now]
        for subscription in over:
            subscription.close(subscription, "session_expired")


def ended(access: Access, sequencer: bytes) -> Reason | None:
    """Why nothing more will ever come from this enclave here, if so. A paused one may be resumed."""
    if access.state.lifecycle == "terminated":
        return "enclave_terminated"
    return None if access.state.sequencer == sequencer else "enclave_migrated"
