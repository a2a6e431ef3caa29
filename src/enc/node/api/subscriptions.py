"""Live subscriptions: which subscription receives which event, and when a subscription ends.

Everything here runs on the event loop's thread. A subscription first catches up from the store;
meanwhile the hub skips it, since it will read new events from the store. It becomes live in the
same turn of the loop in which it finds no event in the store that it has not considered: so it
misses no event and receives none twice.

The rights that count are those after the event: after each event that touches a subscriber's own
leaf or a gate, the subscriber's read scope is looked up again, on another thread.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

from enc.core.errors import RateLimited, Unavailable
from enc.core.log.filter import Filter
from enc.core.primitives.types import Event
from enc.core.session.session import SKEW, TransportKeys
from enc.core.trees.state_key import identity_key
from enc.node.api.live_events import Backlog, Batch, LiveEvents, Offload, Publication, Task, Work
from enc.node.ops.internal_errors import internal_error
from enc.node.read.access import Access
from enc.node.store.steps import Step
from enc.runtime.fair_share import FairShare

Reason = Literal[
    "access_revoked",
    "session_expired",
    "enclave_terminated",
    "enclave_paused",
    "enclave_migrated",
    "too_slow",
    "shutting_down",
    "banned",
    "enclave_suspended",
    "enclave_purged",
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
        address: str,
        access: Access,
        filter_: Filter,
        keys: TransportKeys,
        expires: int,
        send: Callable[["QuerySubscription", bytes], bool],
        fall_back: Callable[["QuerySubscription"], None],
        on_skipped: Callable[["QuerySubscription"], None],
        close: Callable[["QuerySubscription", Reason], None],
    ) -> None:
        self.sub_id, self.address, self.access, self.filter, self.keys = sub_id, address, access, filter_, keys
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
        after = step.transition.state
        return self._own_leaf in step.transition.leaves or after.closed_gates != self.access.state.closed_gates

    def bitmask_after(self, step: Step) -> int:
        """Return the subscriber's bitmask after a step, given the one before it."""
        leaves = step.transition.leaves
        if self._own_leaf not in leaves:
            return self.access.bitmask
        return int.from_bytes(leaves[self._own_leaf] or b"", "big")

    def refresh_rights(self, access: Access) -> None:
        """Use the rights of `access` from now on."""
        self.access, self.readable = access, access.readable()
        self.was_paused = self.was_paused and access.state.lifecycle == "paused"

    def wants(self, event: Event, subject: str) -> bool:
        return self.filter.matches(event) and self.readable.admits(event, subject)


class _AtAddress:
    """The subscriptions of one address to one enclave."""

    def __init__(self, address: str) -> None:
        self.subscriptions: dict[QuerySubscription, None] = {}
        self.backlog = Backlog(address)


class _Listeners:
    """The subscriptions to one enclave."""

    def __init__(self) -> None:
        self.by_address: dict[str, _AtAddress] = {}
        self.newest = -1


class SubscriptionHub:
    """All subscriptions of this node."""

    def __init__(
        self, max_count: int, clock: Callable[[], float] = time.perf_counter, *, by_address: bool = False
    ) -> None:
        """`by_address`: whether each address has a fair share of the places, so that no address takes all."""
        self._max_count, self._by_address = max_count, by_address
        self._places = FairShare(max_count)
        self._by_enclave: dict[bytes, _Listeners] = {}
        self._live = LiveEvents(clock)
        self.offload: Offload = _at_once
        """Runs long tasks; by default on the event loop."""

    @property
    def count(self) -> int:
        """Number of places that are taken."""
        return self._places.used

    def reserve(self, address: str) -> None:
        """Reserve a place before a Query is opened, so that concurrent Queries cannot exceed the
        limit.

        Raises Unavailable if every place is taken, or RateLimited if this address has its share.
        """
        if not self._places.take(self._key(address)):
            if self.count >= self._max_count:
                raise Unavailable("too many subscriptions on this node", retry_after_ms=1000)
            raise RateLimited("too many subscriptions from this address", retry_after_ms=1000)

    def release(self, address: str) -> None:
        """Release the place of a Query that did not become a subscription, or of one that ended."""
        self._places.release(self._key(address))

    def _key(self, address: str) -> str | None:
        return address if self._by_address else None

    def add(self, subscription: QuerySubscription) -> None:
        """Register a subscription for which a place was reserved."""
        listeners = self._by_enclave.setdefault(subscription.enclave, _Listeners())
        at = listeners.by_address.get(subscription.address)
        if at is None:
            at = listeners.by_address[subscription.address] = _AtAddress(subscription.address)
        at.subscriptions[subscription] = None

    def remove(self, subscription: QuerySubscription) -> None:
        subscription.live = False
        listeners = self._by_enclave.get(subscription.enclave, _Listeners())
        at = listeners.by_address.get(subscription.address)
        if at is None or subscription not in at.subscriptions:
            return
        del at.subscriptions[subscription]
        self.release(subscription.address)
        if not at.subscriptions:
            del listeners.by_address[subscription.address]
            if not listeners.by_address:
                del self._by_enclave[subscription.enclave]

    def newest(self, enclave: bytes) -> int:
        """Return the seq of the latest event that was published while the enclave had a subscription."""
        listeners = self._by_enclave.get(enclave)
        return -1 if listeners is None else listeners.newest

    def publish(self, steps: Sequence[Step]) -> None:
        """Send the events of these durable steps to the live subscriptions that may read them."""
        batches: dict[bytes, list[Publication]] = {}
        for step in steps:
            if step.event is not None and step.event.enclave in self._by_enclave:
                batches.setdefault(step.event.enclave, []).append(Publication(step, step.event))
        for enclave, batch in batches.items():
            listeners = self._by_enclave[enclave]
            listeners.newest = max(listeners.newest, batch[-1].event.seq)
            self._live.spread(self._put_all(list(listeners.by_address.values()), batch))
        if batches:
            self._live.run(self.offload)

    def _put_all(self, places: "Sequence[_AtAddress]", batch: Batch) -> Iterator[None]:
        size = sum(each.size for each in batch)
        for at in places:
            self._live.put(at.backlog, batch, size, partial(self._deliver_all, at))
            yield

    def _deliver_all(self, at: "_AtAddress", backlog: Backlog) -> Work:
        while (batch := self._live.take(backlog)) is not None:
            for subscription in [s for s in at.subscriptions if s.fell_behind]:
                if subscription in at.subscriptions:
                    subscription.on_skipped(subscription)
                yield None
            for publication in batch:
                for subscription in list(at.subscriptions):
                    if subscription.live and subscription.after < publication.event.seq:
                        yield from self._deliver_safely(subscription, publication)
                    yield None

    def _deliver_safely(self, subscription: QuerySubscription, publication: Publication) -> Work:
        before = subscription.after
        try:
            yield from _find_scope(subscription, publication)
            if subscription.live:  # it may have been closed meanwhile
                self._deliver(subscription, publication)
        except Exception as e:  # this one reads on from the store; the others still receive the event
            internal_error(e, "publish")
            subscription.fall_behind(before)

    def _deliver(self, subscription: QuerySubscription, publication: Publication) -> None:
        step, event = publication.step, publication.event
        if event.seq > subscription.after + 1:  # skipped, or a write that was reported as failed reached the disk
            subscription.fall_behind(subscription.after)
            return
        subscription.after = event.seq
        if subscription.may_change_rights(step):
            subscription.refresh_rights(_access_after(subscription, publication))
        if not subscription.readable.scope:
            subscription.close(subscription, "access_revoked")
            return
        if subscription.wants(event, step.subject) and not subscription.send(subscription, publication.item):
            subscription.fall_behind(event.seq - 1)
            return
        if step.effects.lifecycle in _ENDS:
            subscription.close(subscription, _ENDS[step.effects.lifecycle])

    def expire(self, now: int) -> None:
        """Close the subscriptions whose sessions have expired. `now` is in Unix seconds."""
        self.close_where(lambda subscription: "session_expired" if subscription.expires <= now else None)

    def close_where(self, reason: Callable[[QuerySubscription], Reason | None]) -> None:
        """Close each subscription for which `reason` returns one."""
        over = [
            (subscription, why)
            for listeners in self._by_enclave.values()
            for at in listeners.by_address.values()
            for subscription in at.subscriptions
            if (why := reason(subscription)) is not None
        ]
        for subscription, why in over:
            subscription.close(subscription, why)


def _find_scope(subscription: QuerySubscription, publication: Publication) -> Work:
    """Look up the read scope of a subscriber whose rights may have changed, once for all
    subscribers with the same rights: with thousands of gates in a manifest this takes milliseconds.
    """
    if subscription.may_change_rights(publication.step):
        access = _access_after(subscription, publication)
        if access.rights_key not in publication.scopes:
            yield lambda: publication.scopes.setdefault(access.rights_key, access.scope)


def _access_after(subscription: QuerySubscription, publication: Publication) -> Access:
    """Return the subscriber's rights after an event."""
    step, before = publication.step, subscription.access
    access = before.in_state(step.transition.state, subscription.bitmask_after(step))
    scope = publication.scopes.get(access.rights_key)
    if scope is not None:
        access.scope = scope
    return access


async def _at_once(address: str, task: Task) -> None:
    task()


def end_reason(access: Access, sequencer: bytes) -> Reason | None:
    """Return why this node will never have further events of this enclave, or None.

    A paused enclave returns None: it may be resumed.
    """
    if access.state.lifecycle == "terminated":
        return "enclave_terminated"
    return None if access.state.sequencer == sequencer else "enclave_migrated"
