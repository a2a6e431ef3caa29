"""The WebSocket API: one connection carries commits and subscriptions of several identities.

A Query subscribes: the node sends its stored events, EOSE, then live ones. A commit is answered by
a Receipt or an Error, in any order; an Error names the commit's `hash` if it could be read. The
connection ends with its last subscription, and stays open if it never had one.

Output waits in a queue of bounded size. The node does not read from a peer that does not read. A
subscription whose events find the queue full, or too many bytes waiting for all peers, goes back to
reading from the store at the peer's pace. It is closed with `too_slow` if the peer reads nothing at
all while events are skipped.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder, encode
from starlette.types import Receive, Scope, Send
from structlog.contextvars import bind_contextvars

from enc.core.errors import Banned, EncError, InvalidQuery, RateLimited, Unavailable
from enc.core.log.filter import Filter, parse_filter
from enc.core.log.receipt import wire_receipt
from enc.core.primitives.encoding import decode_json
from enc.core.primitives.types import Receipt
from enc.core.session.envelope import SealedRequest, parse_request
from enc.node.api.fair_slots import FairSlots
from enc.node.api.http_api import address_of, is_commit
from enc.node.api.read_pool import ReadPool
from enc.node.api.send_queue import FLUSH_S, SendQueue
from enc.node.api.stored_events import StoredEventSender, event_message
from enc.node.api.subscriptions import QuerySubscription, Reason, SubscriptionHub
from enc.node.ops.internal_errors import internal_error
from enc.node.ops.request_log import RequestLog
from enc.node.read.request_handlers import OpenedRequest, parse_query
from enc.node.sequence.commit_intake import CommitIntake, Result
from enc.runtime.fair_share import FairShare
from enc.runtime.rate_limit import RateLimiter
from enc.runtime.serving.peers import PeerConnection

MAX_SUB_ID = 64
MAX_CONCURRENT_READS = 16
"""Most slices that all connections read from the store at the same time."""
MAX_SKIPPED = 32
"""How often events may be skipped for a subscription that fell behind while its peer reads nothing.
"""
NORMAL, REFUSED, OVERLOADED = 1000, 1008, 1013


class _Message(Struct):
    """Its fields have types, so that the parser builds nothing else from what a peer sends."""

    type: str | None = None
    sub_id: str | None = None


class _Hash(Struct):
    hash: str = ""


_message, _hash = Decoder(_Message), Decoder(_Hash)


class WebSocketLimits(Struct, frozen=True):
    """Limits of WebSocket connections."""

    max_subscriptions: int
    max_buffer: int
    max_websockets: int
    by_address: bool = False
    """Whether each address has a fair share of `max_websockets`, so that no address takes all."""


class WebSocketApi:
    """The ASGI application for WebSockets."""

    def __init__(
        self,
        intake: CommitIntake,
        reads: ReadPool,
        hub: SubscriptionHub,
        rates: RateLimiter,
        limits: WebSocketLimits,
        seq_pub: bytes,
        requests: RequestLog,
    ) -> None:
        self._requests = requests
        self.intake, self.reads, self.hub, self.rates = intake, reads, hub, rates
        self.limits, self.seq_pub = limits, seq_pub
        self.connections: set[WebSocketConnection] = set()
        self._places = FairShare(limits.max_websockets)
        self.read_slots = FairSlots(MAX_CONCURRENT_READS)
        hub.offload = self._offload

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket; the protocol has already checked the path."""
        await receive()
        await send({"type": "websocket.accept"})
        address = address_of(scope)
        request = self._requests.begin("GET", "/", address, scope["headers"])
        bind_contextvars(request=request.id)  # for all log entries of this connection's tasks
        connection = WebSocketConnection(self, receive, send, address, scope["state"]["peer"])
        connection.request = request.id
        if self.reads.handlers.restrictions.bans.is_address_banned(address):
            connection.refuse()
        place = address if self.limits.by_address else None
        has_place = self._places.take(place)
        if not has_place:
            connection.send(Unavailable("too many WebSockets", retry_after_ms=1000).to_wire())
            connection.end(OVERLOADED)
        self.connections.add(connection)
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)
            self._requests.end_websocket(request, connection.commits)
            if has_place:
                self._places.release(place)

    async def _offload(self, address: str, task: Callable[[], object]) -> object:
        """Run a long task for the subscriptions of an address on a reader thread."""
        async with self.read_slots.hold(address):
            return await self.reads.run_own(address, task)

    def refuse_where(self, is_banned: Callable[[str], bool]) -> None:
        """End the connections of banned addresses."""
        for connection in [each for each in self.connections if is_banned(each.address)]:
            connection.refuse()

    def shut_down(self) -> None:
        """Notify every subscriber, and end every connection once its commits are answered."""
        for connection in list(self.connections):
            connection.shut_down()

    async def ended(self) -> None:
        """Wait, for a bounded time, until every connection has ended."""
        deadline = asyncio.get_running_loop().time() + FLUSH_S + 1
        while self.connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.005)


class WebSocketConnection:
    """One WebSocket."""

    request = ""
    """Its id, for the log."""
    commits = 0
    """Number of commits that were taken in."""

    def __init__(self, api: WebSocketApi, receive: Receive, send: Send, address: str, peer: PeerConnection) -> None:
        self._api, self._receive, self.address, self._peer = api, receive, address, peer
        self._queue = SendQueue(send, api.limits.max_buffer, peer.add_unsent)
        self._subscriptions: dict[str, QuerySubscription] = {}
        self._name_count = 0
        self._commits = 0
        """Number of commits without an answer."""
        self._tasks: set[asyncio.Task[None]] = set()
        """Tasks of subscriptions that are catching up or are still being opened."""
        self._pending = 0
        """Number of Queries that are still being opened."""
        self._is_closing = False
        self._stored = StoredEventSender(
            api.reads,
            api.seq_pub,
            api.read_slots,
            self._queue,
            peer,
            address,
            newest=api.hub.newest,
            send=self.send,
            is_open=self._is_open,
            close=self._close,
        )
        self._skipped: dict[QuerySubscription, tuple[int, int]] = {}
        """For each subscription that fell behind: the queue's `sent` at the last skip, and the
        number of skips without progress.
        """

    async def run(self) -> None:
        """Serve until the peer has gone or the connection has ended."""
        loop = asyncio.get_running_loop()
        tasks = (loop.create_task(self._read()), loop.create_task(self._queue.run()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for subscription in self._subscriptions.values():
                self._api.hub.remove(subscription)
            others = tuple(self._tasks)
            for task in (*tasks, *others):
                task.cancel()
            await asyncio.gather(*tasks, *others, return_exceptions=True)

    async def _read(self) -> None:
        while True:
            await self._queue.wait_for_room()
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            if self._queue.has_ended:
                continue  # nobody would receive the answer
            body = message.get("bytes")
            self._handle(message["text"].encode() if body is None else body)

    def shut_down(self) -> None:
        if not self._is_closing:
            self.send({"type": "Notice", "message": "the node is shutting down"})
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        for subscription in list(self._subscriptions.values()):
            self._close(subscription, "shutting_down")
        self._end_if_idle()

    def refuse(self) -> None:
        """End the connection of an address that is banned."""
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        self.send(Banned("the operator of this node has banned this address").to_wire())
        self.end(REFUSED)

    # Output

    def send(self, message: dict[str, Any]) -> None:
        self._queue.put(encode(message))

    def end(self, code: int) -> None:
        self._queue.end(code)

    def _end_if_idle(self) -> None:
        """End the connection if its last subscription is gone and its commits are answered."""
        if (self._name_count or self._is_closing) and not (self._subscriptions or self._pending or self._commits):
            self.end(NORMAL)

    # Input

    def _handle(self, body: bytes) -> None:
        try:
            self._api.rates.take(self.address)
            if is_commit(body):
                self._api.intake.submit(body, self._commit_done, self.address, self.request)
                self._commits += 1
                self.commits += 1
                return
            message = decode_json(body, _message, InvalidQuery)
            if message.type == "Close":
                self._unsubscribe(message.sub_id)
            elif message.type == "Query":
                self._subscribe(parse_request(body), message.sub_id)
            else:
                raise InvalidQuery("type: expected Query, Close or a commit")
        except EncError as e:
            self.send({**e.to_wire(), **_subject_of(body)})
        except Exception as e:
            self.send(internal_error(e, "websocket").to_wire())

    def _commit_done(self, result: Result, commit_hash: bytes | None) -> None:
        self._commits -= 1
        if isinstance(result, Receipt):
            self.send(wire_receipt(result))
        else:
            self.send({**result.to_wire(), **({"hash": commit_hash.hex()} if commit_hash else {})})
        if not self._commits:
            self._end_if_idle()

    def _unsubscribe(self, sub_id: str | None) -> None:
        subscription = None if sub_id is None else self._subscriptions.get(sub_id)
        if subscription is None:
            raise InvalidQuery("sub_id: no such subscription on this connection")
        self._drop(subscription)

    # Subscriptions

    def _subscribe(self, request: SealedRequest, offered: str | None) -> None:
        if not (offered is None or _is_name(offered)):
            raise InvalidQuery(f"sub_id: expected a text of 1 to {MAX_SUB_ID} characters")
        if self._is_closing:
            raise Unavailable("the node is shutting down", retry_after_ms=1000)
        if len(self._subscriptions) + self._pending >= self._api.limits.max_subscriptions:
            raise RateLimited("too many subscriptions on this connection", retry_after_ms=1000)
        self._api.hub.reserve(self.address)
        self._pending += 1
        pending = PendingSubscription()
        self._run(self._start(request, offered, pending)).add_done_callback(lambda _: self._pending_done(pending))

    def _run(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _pending_done(self, pending: "PendingSubscription") -> None:
        """Count a Query as opened or failed, also one that was cancelled before its first step."""
        if not pending.is_over:
            pending.is_over = True
            self._pending -= 1
            if not pending.is_subscription:
                self._api.hub.release(self.address)
                self._end_if_idle()

    async def _start(self, request: SealedRequest, offered: str | None, pending: "PendingSubscription") -> None:
        subscription: QuerySubscription | None = None
        try:
            opened, filter_ = await self._api.reads.run(self.address, self._open, request)
            self._api.reads.handlers.check_allowed(request)  # a ban may have come meanwhile
            subscription = self._add(opened, filter_, offered)
        except EncError as e:
            self.send({**e.to_wire(), **({} if offered is None else {"sub_id": offered})})
        except Exception as e:
            self.send(internal_error(e, "subscription").to_wire())
        pending.is_subscription = subscription is not None
        self._pending_done(pending)
        if subscription is not None:
            await self._run_subscription(subscription, self._stored.catch_up)

    async def _run_subscription(
        self, subscription: QuerySubscription, work: Callable[[QuerySubscription], Coroutine[Any, Any, None]]
    ) -> None:
        """Run the task that makes a subscription live; report its failure as an Error and drop the
        subscription.
        """
        try:
            await work(subscription)
        except Exception as e:
            error = e if isinstance(e, EncError) else internal_error(e, "subscription")
            if self._is_open(subscription):
                self.send({**error.to_wire(), "sub_id": subscription.sub_id})
                self._drop(subscription)

    def _open(self, request: SealedRequest) -> tuple[OpenedRequest, Filter]:
        opened = self._api.reads.handlers.open(request)
        filter_ = parse_filter(parse_query(opened.inner).filter)
        opened.access.check_reads()
        return opened, filter_

    def _add(self, opened: OpenedRequest, filter_: Filter, offered: str | None) -> QuerySubscription:
        sub_id = offered or ""
        while not sub_id or sub_id in self._subscriptions:
            self._name_count += 1
            sub_id = f"sub-{self._name_count}"
        self._name_count += 1
        expires = opened.outer.token.expires
        subscription = QuerySubscription(
            sub_id,
            self.address,
            opened.access,
            filter_,
            opened.inner.keys,
            expires,
            self._send_event,
            self._fall_back,
            self._count_skipped,
            self._close,
        )
        self._subscriptions[sub_id] = subscription
        self._api.hub.add(subscription)
        return subscription

    def _is_open(self, subscription: QuerySubscription) -> bool:
        return self._subscriptions.get(subscription.sub_id) is subscription

    def _send_event(self, subscription: QuerySubscription, item: bytes) -> bool:
        """Queue a live event; return False if there is no room."""
        if self._queue.is_full or self._peer.is_crowded:
            return False
        self._queue.put(event_message(subscription, item))
        return True

    def _fall_back(self, subscription: QuerySubscription) -> None:
        self._skipped[subscription] = (self._queue.sent, 0)
        self._run(self._run_subscription(subscription, self._stored.read_missed))

    def _count_skipped(self, subscription: QuerySubscription) -> None:
        """Count events skipped for a subscription that fell behind; close it if its peer reads
        nothing meanwhile.
        """
        sent, skipped = self._skipped.get(subscription, (-1, 0))
        skipped = skipped + 1 if sent == self._queue.sent and not self._queue.is_empty else 0
        self._skipped[subscription] = (self._queue.sent, skipped)
        if skipped >= MAX_SKIPPED:
            self._close(subscription, "too_slow")

    def _close(self, subscription: QuerySubscription, reason: Reason) -> None:
        if self._is_open(subscription):
            self.send({"type": "Closed", "sub_id": subscription.sub_id, "reason": reason})
            self._drop(subscription)

    def _drop(self, subscription: QuerySubscription) -> None:
        del self._subscriptions[subscription.sub_id]
        self._skipped.pop(subscription, None)
        self._api.hub.remove(subscription)
        self._end_if_idle()


def _is_name(offered: str) -> bool:
    return 0 < len(offered) <= MAX_SUB_ID


def _subject_of(body: bytes) -> dict[str, str]:
    """Return the `hash` or `sub_id` of a message that was rejected before it was parsed, if
    readable.
    """
    try:
        if is_commit(body):
            name = _hash.decode(body).hash
            return {"hash": name} if len(name) == 64 else {}
        message = _message.decode(body)
    except (ValueError, RecursionError):
        return {}
    name = message.sub_id or ""
    return {"sub_id": name} if message.type == "Query" and _is_name(name) else {}


class PendingSubscription:
    """A Query that is being opened."""

    is_over = is_subscription = False
