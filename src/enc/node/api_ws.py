"""The WebSocket surface: one connection, several identities, commits and subscriptions.

A Query subscribes: its stored events, EOSE, then live ones. Commits are answered by Receipt or Error, in any order; an
Error names the commit's `hash` where it could be read. The connection ends when the last of its subscriptions does, and
lives on without if it never had one.

Output waits in a line of bounded length. A peer that does not read is not read from. A subscription whose events find
the line full, or too much in the lines of all, goes back to reading from the store at the peer's pace, and is cut with
`too_slow` if the peer takes nothing at all while events go by.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder, encode
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from enc.core.encoding import MAX_INT, decode_json
from enc.core.envelope import Request, parse_request
from enc.core.errors import EncError, InvalidQuery, RateLimited, Unavailable
from enc.core.filter import MAX_LIMIT, Filter, Range, parse_filter
from enc.core.receipt import wire_receipt
from enc.core.types import Receipt
from enc.node.answers import Asked, read_query, sealed
from enc.node.api_http import Asking, is_commit
from enc.node.desk import CommitIntake, Result
from enc.node.line import FLUSH_S, Line
from enc.node.peers import Peer
from enc.node.sequencer import internal_error
from enc.node.subscriptions import Hub, Reason, Subscription, ended
from enc.runtime.rate_limit import RateLimiter, address_key

MAX_SUB_ID = 64
MAX_SLICE = 1 << 20
"""Bytes of stored events that are in memory for one connection, unless a single event is longer."""
MAX_READING = 16
"""Such slices that all connections read at the same time."""
MAX_PASSED = 32
"""How often events may pass by a subscription that fell behind while its peer takes nothing."""
NORMAL, OVERLOADED = 1000, 1013


class _Message(Struct):
    type: Any = None
    sub_id: Any = None


class _Hash(Struct):
    hash: str = ""


_message, _hash = Decoder(_Message), Decoder(_Hash)


class Settings(Struct, frozen=True):
    """Bounds of a connection."""

    max_subscriptions: int
    max_buffer: int
    max_websockets: int


class WebSocketApi:
    """An ASGI application for WebSockets."""

    def __init__(
        self, intake: CommitIntake, asking: Asking, hub: Hub, rates: RateLimiter, settings: Settings, seq_pub: bytes
    ) -> None:
        self.intake, self.asking, self.hub, self.rates = intake, asking, hub, rates
        self.settings, self.seq_pub = settings, seq_pub
        self.connections: set[Connection] = set()
        self.reading = asyncio.Semaphore(MAX_READING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The protocol has checked the path."""
        await receive()
        await send({"type": "websocket.accept"})
        address = address_key(scope["client"][0] if scope["client"] else "")
        connection = Connection(self, receive, send, address, scope["state"]["peer"])
        if len(self.connections) >= self.settings.max_websockets:
            connection.say(Unavailable("too many WebSockets", retry_after_ms=1000).to_wire())
            connection.end(OVERLOADED)
        self.connections.add(connection)
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)

    def shut_down(self) -> None:
        """Tell every subscriber that the node goes away, and end every connection once its commits are answered."""
        for connection in list(self.connections):
            connection.shut_down()

    async def ended(self) -> None:
        """When every connection has ended; they have bounded time for it."""
        deadline = asyncio.get_running_loop().time() + FLUSH_S + 1
        while self.connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.005)


class Connection:
    """One WebSocket."""

    def __init__(self, api: WebSocketApi, receive: Receive, send: Send, address: str, peer: Peer) -> None:
        self._api, self._receive, self._address, self._peer = api, receive, address, peer
        self._line = Line(send, api.settings.max_buffer, peer.hold)
        self._subscriptions: dict[str, Subscription] = {}
        self._names = 0
        self._commits = 0
        """Commits that are not answered yet."""
        self._tasks: set[asyncio.Task[None]] = set()
        """For subscriptions that are catching up, or not there yet."""
        self._opening = 0
        """Queries that are no subscription yet."""
        self._is_closing = False
        self._page = asyncio.Lock()
        """Held while a slice of stored events is in memory: a peer that does not read has one, however much it asks."""
        self._passed_by: dict[Subscription, tuple[int, int]] = {}
        """Of those that fell behind: what had gone when events last passed by, and how often nothing had since."""

    async def run(self) -> None:
        """Until the peer has gone, or everything is said."""
        loop = asyncio.get_running_loop()
        tasks = (loop.create_task(self._read()), loop.create_task(self._line.run()))
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
            await self._line.room()
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            if self._line.has_ended:
                continue  # nobody would hear what became of it
            body = message.get("bytes")
            self._take(message["text"].encode() if body is None else body)

    def shut_down(self) -> None:
        if not self._is_closing:
            self.say({"type": "Notice", "message": "the node is shutting down"})
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        for subscription in list(self._subscriptions.values()):
            self._close(subscription, "shutting_down")
        self._end_if_idle()

    # Output

    def say(self, message: dict[str, Any]) -> None:
        self._line.put(encode(message))

    def end(self, code: int) -> None:
        self._line.end(code)

    def _end_if_idle(self) -> None:
        """A connection whose last subscription is gone ends, once its commits are answered."""
        if (self._names or self._is_closing) and not (self._subscriptions or self._opening or self._commits):
            self.end(NORMAL)

    # Input

    def _take(self, body: bytes) -> None:
        try:
            self._api.rates.take(self._address)
            if is_commit(body):
                self._api.intake.submit(body, self._settled)
                self._commits += 1
                return
            message = decode_json(body, _message, InvalidQuery)
            if message.type == "Close":
                self._unsubscribe(message.sub_id)
            elif message.type == "Query":
                self._subscribe(parse_request(body), message.sub_id)
            else:
                raise InvalidQuery("type: expected Query or Close, or a commit")
        except EncError as e:
            self.say({**e.to_wire(), **_named(body)})
        except Exception as e:
            self.say(internal_error(e, "websocket").to_wire())

    def _settled(self, result: Result, commit_hash: bytes | None) -> None:
        self._commits -= 1
        if isinstance(result, Receipt):
            self.say(wire_receipt(result))
        else:
            self.say({**result.to_wire(), **({"hash": commit_hash.hex()} if commit_hash else {})})
        if not self._commits:
            self._end_if_idle()

    def _unsubscribe(self, sub_id: Any) -> None:
        subscription = self._subscriptions.get(sub_id) if isinstance(sub_id, str) else None
        if subscription is None:
            raise InvalidQuery("sub_id: no such subscription on this connection")
        self._drop(subscription)

    # Subscriptions

    def _subscribe(self, request: Request, offered: Any) -> None:
        if not (offered is None or _is_name(offered)):
            raise InvalidQuery(f"sub_id: expected a text of 1 to {MAX_SUB_ID} characters")
        if self._is_closing:
            raise Unavailable("the node is shutting down", retry_after_ms=1000)
        if len(self._subscriptions) + self._opening >= self._api.settings.max_subscriptions:
            raise RateLimited("too many subscriptions on this connection", retry_after_ms=1000)
        self._api.hub.take_place()
        self._opening += 1
        opening = Opening()
        self._run(self._start(request, offered, opening)).add_done_callback(lambda _: self._opened(opening))

    def _run(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _opened(self, opening: "Opening") -> None:
        """The Query is a subscription now, or never will be: also one that was cancelled before its first step."""
        if not opening.is_over:
            opening.is_over = True
            self._opening -= 1
            if not opening.is_subscription:
                self._api.hub.give_back()
                self._end_if_idle()

    async def _start(self, request: Request, offered: str | None, opening: "Opening") -> None:
        subscription: Subscription | None = None
        try:
            asked, filter_ = await self._api.asking.run(self._open, request)
            subscription = self._add(asked, filter_, offered)
        except EncError as e:
            self.say({**e.to_wire(), **({} if offered is None else {"sub_id": offered})})
        except Exception as e:
            self.say(internal_error(e, "subscription").to_wire())
        opening.is_subscription = subscription is not None
        self._opened(opening)
        if subscription is not None:
            await self._follow(subscription, self._catch_up)

    async def _follow(
        self, subscription: Subscription, work: Callable[[Subscription], Coroutine[Any, Any, None]]
    ) -> None:
        """Bring a subscription to where it can be live; one for which that fails is an error, and gone."""
        try:
            await work(subscription)
        except Exception as e:
            error = e if isinstance(e, EncError) else internal_error(e, "subscription")
            if self._is_open(subscription):
                self.say({**error.to_wire(), "sub_id": subscription.sub_id})
                self._drop(subscription)

    def _open(self, request: Request) -> tuple[Asked, Filter]:
        asked = self._api.asking.answers.open(request)
        filter_ = parse_filter(read_query(asked.opened).filter)
        asked.access.check_reads()
        return asked, filter_

    def _add(self, asked: Asked, filter_: Filter, offered: str | None) -> Subscription:
        sub_id = offered or ""
        while not sub_id or sub_id in self._subscriptions:
            self._names += 1
            sub_id = f"sub-{self._names}"
        self._names += 1
        expires = asked.request.token.expires
        subscription = Subscription(
            sub_id,
            asked.access,
            filter_,
            asked.opened.keys,
            expires,
            self._send_event,
            self._fall_back,
            self._passed,
            self._close,
        )
        self._subscriptions[sub_id] = subscription
        self._api.hub.add(subscription)
        return subscription

    async def _catch_up(self, subscription: Subscription) -> None:
        """Stored events, EOSE, whatever came meanwhile; then live."""
        newest = subscription.access.state.seq
        more = await self._send_stored(subscription, within(subscription.filter, 0, newest))
        subscription.after = newest
        if self._is_open(subscription):
            self.say({"type": "EOSE", "sub_id": subscription.sub_id, **({"more": True} if more else {})})
            await self._chase(subscription)

    async def _send_stored(self, subscription: Subscription, filter_: Filter) -> bool:
        """What the filter finds, slice by slice, each under the rights of its moment; whether the limit cut it."""
        left = rows = filter_.limit
        while True:
            sent = await self._send_slice(subscription, replace(filter_, limit=rows))
            left -= sent.count
            if not (sent.more and left and self._renew(subscription)):
                return sent.more
            filter_, rows = beyond(filter_, sent.last), sent.rows_after(left)

    async def _chase(self, subscription: Subscription) -> None:
        """What is stored and was not considered; until nothing is."""
        rows = MAX_LIMIT
        while self._is_open(subscription) and not self._go_live(subscription):
            state = subscription.access.state
            filter_ = within(subscription.filter, subscription.after + 1, state.seq)
            sent = await self._send_slice(subscription, replace(filter_, limit=rows, reverse=False))
            subscription.after, rows = sent.last if sent.more else state.seq, sent.rows_after(MAX_LIMIT)
        reason = ended(subscription.access, self._api.seq_pub)
        if reason is None and not subscription.was_paused and subscription.access.state.lifecycle == "paused":
            reason = "enclave_paused"
        if reason is not None:
            self._close(subscription, reason)

    def _go_live(self, subscription: Subscription) -> bool:
        """Whether nothing is stored that was not considered; then the next event comes from the hub."""
        if not self._renew(subscription):
            return True
        subscription.live = subscription.after >= subscription.access.state.seq
        subscription.fell_behind = subscription.fell_behind and not subscription.live
        return subscription.live

    def _renew(self, subscription: Subscription) -> bool:
        """Look its rights up again; whether it is still open then."""
        if self._is_open(subscription):
            subscription.renew(self._api.asking.answers.access(subscription.enclave, subscription.access.identity))
            if not subscription.access.scope:
                self._close(subscription, "access_revoked")
        return self._is_open(subscription)

    def _is_open(self, subscription: Subscription) -> bool:
        return self._subscriptions.get(subscription.sub_id) is subscription

    async def _send_slice(self, subscription: Subscription, filter_: Filter) -> "Slice":
        """The first of what the filter finds."""
        asking = self._api.asking
        async with self._page:
            await self._line.room()
            async with self._api.reading:
                items, more = await asking.run(asking.answers.page, subscription.access, filter_, MAX_SLICE)
            with self._peer.holding(sum(len(item.head) + len(item.rest) for item in items)):
                for item in items:
                    await self._line.room()
                    if self._is_open(subscription):
                        self._line.put(event_message(subscription, item.json))
        return Slice(len(items), items[-1].seq if items else -1, more)

    def _send_event(self, subscription: Subscription, item: bytes) -> bool:
        """Whether there was room."""
        if self._line.is_full or self._peer.is_crowded:
            return False
        self._line.put(event_message(subscription, item))
        return True

    def _fall_back(self, subscription: Subscription) -> None:
        self._passed_by[subscription] = (self._line.sent, 0)
        self._run(self._follow(subscription, self._chase))

    def _passed(self, subscription: Subscription) -> None:
        """Events pass by one that fell behind: a peer that takes nothing meanwhile is cut, one that reads is not."""
        sent, passed = self._passed_by.get(subscription, (-1, 0))
        passed = passed + 1 if sent == self._line.sent and not self._line.is_empty else 0
        self._passed_by[subscription] = (self._line.sent, passed)
        if passed >= MAX_PASSED:
            self._close(subscription, "too_slow")

    def _close(self, subscription: Subscription, reason: Reason) -> None:
        if self._is_open(subscription):
            self.say({"type": "Closed", "sub_id": subscription.sub_id, "reason": reason})
            self._drop(subscription)

    def _drop(self, subscription: Subscription) -> None:
        del self._subscriptions[subscription.sub_id]
        self._passed_by.pop(subscription, None)
        self._api.hub.remove(subscription)
        self._end_if_idle()


def _is_name(offered: Any) -> bool:
    return isinstance(offered, str) and 0 < len(offered) <= MAX_SUB_ID


def _named(body: bytes) -> dict[str, str]:
    """Which commit or Query an Error is about, where it was refused before it was read."""
    try:
        if is_commit(body):
            name = _hash.decode(body).hash
            return {"hash": name} if len(name) == 64 else {}
        message = _message.decode(body)
    except (ValueError, RecursionError):
        return {}
    return {"sub_id": message.sub_id} if message.type == "Query" and _is_name(message.sub_id) else {}


class Slice(Struct, frozen=True):
    """Of stored events that were sent: how many, the last one's seq, and whether there are more. Not they themselves:
    nobody is to keep them while the peer takes them."""

    count: int
    last: int
    more: bool

    def rows_after(self, most: int) -> int:
        """How many the next one is to look for: few more than this one held, since all that are found are read."""
        return min(most, 2 * self.count or most)


class Opening:
    """A Query on its way to be a subscription."""

    is_over = is_subscription = False


def event_message(subscription: Subscription, item: bytes) -> bytes:
    """In ASCII: a long text with other characters would take several times its length."""
    name = encode(subscription.sub_id)
    name = name if name.isascii() else json.dumps(subscription.sub_id).encode()
    return sealed(b'{"type":"Event","sub_id":%b,"event":"' % name, subscription.keys, item, b'"}')


def beyond(filter_: Filter, seq: int) -> Filter:
    """The filter, for what it finds after this seq only."""
    return within(filter_, 0, seq - 1) if filter_.reverse else within(filter_, seq + 1, MAX_INT)


def within(filter_: Filter, low: int, high: int) -> Filter:
    """The filter, for these seqs only."""
    seqs = filter_.seqs
    if isinstance(seqs, frozenset):
        return replace(filter_, seqs=frozenset(seq for seq in seqs if low <= seq <= high))
    if seqs is None:
        return replace(filter_, seqs=Range(low, high))
    return replace(filter_, seqs=Range(max(low, seqs.low), min(high, seqs.high)))
