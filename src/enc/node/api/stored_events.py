"""Sends stored events to the subscriptions of one WebSocket, at the pace of its peer."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from enc.core.log.filter import MAX_LIMIT, Filter, Range
from enc.core.primitives.encoding import MAX_INT
from enc.node.api.fair_slots import FairSlots
from enc.node.api.read_pool import ReadPool
from enc.node.api.send_queue import SendQueue
from enc.node.api.subscriptions import QuerySubscription, Reason, end_reason
from enc.node.read.access import Access
from enc.node.read.seal_answer import seal_between
from enc.node.read.steps import Steps
from enc.runtime.serving.peers import PeerConnection

MAX_SLICE = 1 << 20
"""Most bytes of stored events in memory for one connection, unless a single event is longer."""


class StoredEventSender:
    """Sends stored events to the subscriptions of one connection until they can go live.

    `read_slots` limits the concurrent reads of all connections. `newest` returns the seq of the
    latest event that was published in an enclave. `send` queues a message, `is_open`
    and `close` ask about and end a subscription of the connection.
    """

    def __init__(
        self,
        reads: ReadPool,
        seq_pub: bytes,
        read_slots: FairSlots,
        queue: SendQueue,
        peer: PeerConnection,
        address: str,
        *,
        newest: Callable[[bytes], int],
        send: Callable[[dict[str, Any]], None],
        is_open: Callable[[QuerySubscription], bool],
        close: Callable[[QuerySubscription, Reason], None],
    ) -> None:
        self._reads, self._seq_pub, self._read_slots = reads, seq_pub, read_slots
        self._address, self._newest = address, newest
        self._queue, self._peer, self._send, self._is_open, self._close = queue, peer, send, is_open, close
        self._slice_lock = asyncio.Lock()
        """Held while a slice of stored events is in memory: a peer that does not read holds at most one."""

    async def catch_up(self, subscription: QuerySubscription) -> None:
        """Send stored events, EOSE, and the events written meanwhile; then go live."""
        newest = subscription.access.state.seq
        more = await self._send_stored(subscription, in_seq_range(subscription.filter, 0, newest))
        subscription.after = newest
        if self._is_open(subscription):
            self._send({"type": "EOSE", "sub_id": subscription.sub_id, **({"more": True} if more else {})})
            await self.read_missed(subscription)

    async def _send_stored(self, subscription: QuerySubscription, filter_: Filter) -> bool:
        """Send what the filter finds, slice by slice, each with current rights; return whether the
        limit cut it.
        """
        left = rows = filter_.limit
        while True:
            sent = await self._send_slice(subscription, replace(filter_, limit=rows))
            left -= sent.count
            if not (sent.more and left and await self._refresh_rights(subscription)):
                return sent.more
            filter_, rows = after_seq(filter_, sent.last), sent.rows_after(left)

    async def read_missed(self, subscription: QuerySubscription) -> None:
        """Send the stored events that were not considered yet, until there are none."""
        rows = MAX_LIMIT
        while self._is_open(subscription) and not await self._go_live(subscription):
            state = subscription.access.state
            filter_ = in_seq_range(subscription.filter, subscription.after + 1, state.seq)
            sent = await self._send_slice(subscription, replace(filter_, limit=rows, reverse=False))
            subscription.after, rows = sent.last if sent.more else state.seq, sent.rows_after(MAX_LIMIT)
        reason = end_reason(subscription.access, self._seq_pub)
        if reason is None and not subscription.was_paused and subscription.access.state.lifecycle == "paused":
            reason = "enclave_paused"
        if reason is not None:
            self._close(subscription, reason)

    async def _go_live(self, subscription: QuerySubscription) -> bool:
        """Go live and return True if every stored event was considered; then the hub delivers the
        next one.
        """
        if not await self._refresh_rights(subscription):
            return True
        newest = max(subscription.access.state.seq, self._newest(subscription.enclave))
        subscription.live = subscription.after >= newest
        subscription.fell_behind = subscription.fell_behind and not subscription.live
        return subscription.live

    async def _refresh_rights(self, subscription: QuerySubscription) -> bool:
        """Look up the subscriber's rights again; return whether the subscription is still open."""
        async with self._read_slots.hold(self._address):
            access = await self._reads.run_steps(
                self._address, self._access(subscription), subscription.access.identity
            )
        if self._is_open(subscription):
            subscription.refresh_rights(access)
            if not subscription.access.scope:
                self._close(subscription, "access_revoked")
        return self._is_open(subscription)

    def _access(self, subscription: QuerySubscription) -> Steps[Access]:
        access = self._reads.handlers.access(subscription.enclave, subscription.access.identity)
        yield None
        access.readable()
        return access

    async def _send_slice(self, subscription: QuerySubscription, filter_: Filter) -> "SentSlice":
        """Send the first slice of what the filter finds."""
        async with self._slice_lock:
            await self._queue.wait_for_room()
            async with self._read_slots.hold(self._address):
                steps = self._reads.handlers.page(subscription.access, filter_, MAX_SLICE)
                items, more = await self._reads.run_steps(self._address, steps, subscription.access.identity)
            with self._peer.counting_unsent(sum(len(item.head) + len(item.rest) for item in items)):
                for item in items:
                    await self._queue.wait_for_room()
                    if self._is_open(subscription):
                        self._queue.put(event_message(subscription, item.json))
        return SentSlice(len(items), items[-1].seq if items else -1, more)


class SentSlice(Struct, frozen=True):
    """What was sent of the stored events: their number, the last seq, and whether there are more.

    It does not hold the events, so that they are freed while the peer reads.
    """

    count: int
    last: int
    more: bool

    def rows_after(self, most: int) -> int:
        """Return the limit of the next slice: little more than this one held, since the store reads
        all that it finds.
        """
        return min(most, 2 * self.count or most)


def event_message(subscription: QuerySubscription, item: bytes) -> bytes:
    """Return a sealed Event message in ASCII: other characters in a long str take several times the
    memory.
    """
    name = encode(subscription.sub_id)
    name = name if name.isascii() else json.dumps(subscription.sub_id).encode()
    return seal_between(b'{"type":"Event","sub_id":%b,"event":"' % name, subscription.keys, item, b'"}')


def after_seq(filter_: Filter, seq: int) -> Filter:
    """Return the filter restricted to what it finds after this seq."""
    return in_seq_range(filter_, 0, seq - 1) if filter_.reverse else in_seq_range(filter_, seq + 1, MAX_INT)


def in_seq_range(filter_: Filter, low: int, high: int) -> Filter:
    """Return the filter restricted to seqs from `low` to `high`."""
    seqs = filter_.seqs
    if isinstance(seqs, frozenset):
        return replace(filter_, seqs=frozenset(seq for seq in seqs if low <= seq <= high))
    if seqs is None:
        return replace(filter_, seqs=Range(low, high))
    return replace(filter_, seqs=Range(max(low, seqs.low), min(high, seqs.high)))
