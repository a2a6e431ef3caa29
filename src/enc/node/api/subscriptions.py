"""Live subscriptions: which subscription receives which event, and when a subscription ends.

Everything here runs on the event loop's thread. A subscription first catches up from the store;
meanwhile the hub skips it, since it will read new events from the store. It becomes live in the
same turn of the loop in which it finds no event in the store that it has not considered: so it
misses no event and receives none twice.

The rights that count are those after the event: after each event that touches a subscriber's own
leaf, a slot or a gate, the subscriber's read scope is looked up again.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from enc.core.errors import Unavailable
from enc.core.log.filter import Filter
from enc.core.primitives.types import Event
from enc.core.session.session import SKEW, TransportKeys
from enc.core.trees.state_key import KV, identity_key
from enc.node.ops.internal_errors import internal_error
from enc.node.read.access import Access
from enc.node.store.events import search_item
from enc.node.store.steps import Step
from enc.node.store.store_interface import Store

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


class QuerySubscription:
    """One Query on one connection.

    `send` takes the JSON of an item and returns whether there was room for it. `fall_back` is
    called when the subscription must read from the store again: there was no room, or an event is
    missing between its last one and the next. `on_skipped` is called when the hub skips it because
    it fell behind. `close` is called once, with the reason.
    """

    def __init__(
        self,
        sub_id: str,
        access: Access,
        filter_: Filter,
        keys: TransportKeys,
        expires: int,
        send: Callable[["QuerySubscription", bytes], bool],
        fall_back: Callable[["QuerySubscription"], None],
        on_skipped: Callable[["QuerySubscription"], None],
        close: Callable[["QuerySubscription", Reason], None],
    ) -> None:
        self.sub_id, self.access, self.filter, self.keys = sub_id, access, filter_, keys
        self.expires = expires + SKEW
        self.send, self.on_skipped, self.close = send, on_skipped, close
        self._fall_back = fall_back
        self.readable = access.readable()
        self.after = -1
        """Every event up to this seq was considered."""
        self.live = False
        self.fell_behind = False
        """Whether it was live and now reads from the store again."""
        self.was_paused = access.state.lifecycle == "paused"
        """Whether the enclave was paused when it began; a pause does not close such a subscription.
        """
        self._own_leaf = identity_key(access.identity)

    @property
    def enclave(self) -> bytes:
        return self.access.state.enclave

    def fall_behind(self, after: int) -> None:
        """Read from the store again; every event up to `after` was considered."""
        self.after, self.live, self.fell_behind = after, False, True
        self._fall_back(self)

    def may_change_rights(self, step: Step) -> bool:
        leaves = step.transition.leaves
        return bool(leaves) and (self._own_leaf in leaves or any(key[:1] == KV for key in leaves))

    def refresh_rights(self, access: Access) -> None:
        """Use the rights of `access` from now on."""
        self.access, self.readable = access, access.readable()
        self.was_paused = self.was_paused and access.state.lifecycle == "paused"

    def wants(self, event: Event, subject: str) -> bool:
        return self.filter.matches(event) and self.readable.admits(event, subject)


class SubscriptionHub:
    """All subscriptions of this node."""

    def __init__(self, store: Store, max_count: int) -> None:
        self._store, self._max_count = store, max_count
        self._by_enclave: dict[bytes, dict[QuerySubscription, None]] = {}
        self.count = 0

    def reserve(self) -> None:
        """Reserve a place before a Query is opened, so that concurrent Queries cannot exceed the
        limit.

        Raises Unavailable if every place is taken.
        """
        if self.count >= self._max_count:
            raise Unavailable("too many subscriptions on this node", retry_after_ms=1000)
        self.count += 1

    def release(self) -> None:
        """Release the place of a Query that did not become a subscription."""
        self.count -= 1

    def add(self, subscription: QuerySubscription) -> None:
        """Register a subscription for which a place was reserved."""
        self._by_enclave.setdefault(subscription.enclave, {})[subscription] = None

    def remove(self, subscription: QuerySubscription) -> None:
        subscriptions = self._by_enclave.get(subscription.enclave, {})
        if subscription in subscriptions:
            del subscriptions[subscription]
            self.count -= 1
            if not subscriptions:
                del self._by_enclave[subscription.enclave]

    def publish(self, steps: Sequence[Step]) -> None:
        """Send the events of these durable steps to the live subscriptions that may read them."""
        enclaves = {step.transition.state.enclave for step in steps if step.event is not None}
        for subscription in [s for enclave in enclaves for s in self._by_enclave.get(enclave, ()) if s.fell_behind]:
            subscription.on_skipped(subscription)
        for step in steps:
            event = step.event
            if event is None:
                continue
            listeners = [s for s in self._by_enclave.get(event.enclave, ()) if s.live and s.after < event.seq]
            item = search_item(event).json if listeners else b""
            for subscription in listeners:
                before = subscription.after
                try:
                    self._deliver(subscription, step, event, item)
                except Exception as e:  # this one reads on from the store; the others still receive the event
                    internal_error(e, "publish")
                    subscription.fall_behind(before)

    def _deliver(self, subscription: QuerySubscription, step: Step, event: Event, item: bytes) -> None:
        if event.seq > subscription.after + 1:  # a write that was reported as failed did reach the disk
            subscription.fall_behind(subscription.after)
            return
        subscription.after = event.seq
        if subscription.may_change_rights(step):
            subscription.refresh_rights(Access(self._store, step.transition.state, subscription.access.identity))
        if not subscription.readable.scope:
            subscription.close(subscription, "access_revoked")
            return
        if subscription.wants(event, step.subject) and not subscription.send(subscription, item):
            subscription.fall_behind(event.seq - 1)
            return
        if step.effects.lifecycle in _ENDS:
            subscription.close(subscription, _ENDS[step.effects.lifecycle])

    def expire(self, now: int) -> None:
        """Close the subscriptions whose sessions have expired. `now` is in Unix seconds."""
        over = [s for subscriptions in self._by_enclave.values() for s in subscriptions if s.expires <= now]
        for subscription in over:
            subscription.close(subscription, "session_expired")


def end_reason(access: Access, sequencer: bytes) -> Reason | None:
    """Return why this node will never have further events of this enclave, or None.

    A paused enclave returns None: it may be resumed.
    """
    if access.state.lifecycle == "terminated":
        return "enclave_terminated"
    return None if access.state.sequencer == sequencer else "enclave_migrated"
