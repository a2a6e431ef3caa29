"""A receiver as an ASGI app: one POST per push, answered with 200 once it is on disk, else with an
error. It also answers challenges.

Importing it needs no server. The load that strangers can cause is bounded: requests at a time,
bytes per request, and time to send them.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec

from enc.client.receive.delivery_worker import DeliveryWorker
from enc.core.errors import EncError, MisuseError
from enc.runtime.rate_limit import address_key

MAX_BODY = 16 << 20
"""Most bytes of a push: a node sends at most 4 MiB of events in one, or a single larger event."""
MAX_REQUESTS = 32
BODY_S = 30.0
_SHOWN = 100
"""Most characters of a path that the log repeats."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class _Receiver(Protocol):
    worker: DeliveryWorker

    def start(self) -> None: ...

    def close(self) -> None: ...

    def take(self, body: bytes) -> dict[str, str]: ...

    def log_throttled(self, level: int, kind: str, text: str) -> None: ...


class _Refused(Exception):
    """An HTTP-level refusal."""

    def __init__(self, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


class ReceiverApp:
    def __init__(self, receiver: _Receiver, path: str, max_body: int) -> None:
        self._receiver, self._path, self._max_body = receiver, path, max_body
        self._requests = 0
        self._arriving: dict[asyncio.Timeout, str] = {}
        """Deadlines of the requests whose body is not complete, oldest first, with their address."""
        # Not the loop's own threads: a handler that uses those would wait for pushes that wait for it.
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="enc-push")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    self._start()
                except MisuseError as e:
                    await send({"type": "lifespan.startup.failed", "message": e.message})
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await asyncio.to_thread(self._receiver.close)
                await send({"type": "lifespan.shutdown.complete"})
                return

    @asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncIterator[None]:
        """Run the receiver while a framework's app runs; frameworks do not start mounted apps:
        `FastAPI(lifespan=receiver.app.lifespan)`.
        """
        self._start()
        try:
            yield
        finally:
            await asyncio.to_thread(self._receiver.close)

    def _start(self) -> None:
        """Start the receiver; async handlers run on the server's loop."""
        self._receiver.worker.loop = asyncio.get_running_loop()
        self._receiver.start()

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        status, headers = 200, list[tuple[bytes, bytes]]()
        try:
            wire = await self._take(scope, receive)
        except _Refused as e:
            status, wire = e.status, {"type": "Error", "message": e.message}
            headers += e.headers
        except EncError as e:
            status, wire = e.status, {"type": "Error", "code": e.code, "message": e.message}
            if "retry_after_ms" in e.context:
                headers.append((b"retry-after", b"%d" % -(-e.context["retry_after_ms"] // 1000)))
        body = msgspec.json.encode(wire)
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _take(self, scope: Message, receive: Receive) -> dict[str, str]:
        self._check(scope)
        if self._requests >= MAX_REQUESTS and not self._cut_slowest():
            raise _Refused(503, "too many requests at a time", (b"retry-after", b"1"))
        self._requests += 1
        try:
            body = await self._body_in_time(scope, receive)
            self._start()
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._receiver.take, body)
        except TimeoutError:
            raise _Refused(408, "the request body took too long to arrive") from None
        except MisuseError:
            raise _Refused(503, "the receiver is stopping", (b"retry-after", b"1")) from None
        finally:
            self._requests -= 1

    async def _body_in_time(self, scope: Message, receive: Receive) -> bytes:
        async with asyncio.timeout(BODY_S) as deadline:
            self._arriving[deadline] = address_key(scope["client"][0] if scope.get("client") else "")
            try:
                return await self._body(scope, receive)
            finally:
                self._arriving.pop(deadline, None)

    def _cut_slowest(self) -> bool:
        """End the oldest request whose body is not complete, of the address that has most of them.

        So requests that never end do not block others. Returns whether there was one.
        """
        if not self._arriving:
            return False
        most, _ = Counter(self._arriving.values()).most_common(1)[0]
        slowest = next(deadline for deadline, address in self._arriving.items() if address == most)
        del self._arriving[slowest]
        slowest.reschedule(asyncio.get_running_loop().time())
        return True

    def _check(self, scope: Message) -> None:
        if not self._is_here(scope):
            self._log_path(scope)
            raise _Refused(404, "not found: pushes are accepted at another path")
        if scope["method"] != "POST":
            raise _Refused(405, "use POST", (b"allow", b"POST"))
        type_ = _header(scope, b"content-type").split(b";")[0].strip().lower()
        if type_ != b"application/json":
            raise _Refused(415, "expected application/json")
        if _header(scope, b"content-encoding") not in (b"", b"identity"):
            raise _Refused(415, "expected an uncompressed body")

    def _is_here(self, scope: Message) -> bool:
        """Whether the request is for the receiver's path. A mount's prefix is in `root_path`; some
        frameworks remove it from `path`. A mount at exactly the receiver's path has "/" below it.
        """
        root: str = scope.get("root_path", "")
        path: str = scope["path"]
        full = path if path == root or path.startswith(f"{root}/") else root + path
        return full == self._path or (root == self._path and full == f"{root}/")

    def _log_path(self, scope: Message) -> None:
        """Log a push to another path: a proxy may have changed it, and its node sees only a 404."""
        if scope["method"] == "POST":
            text = f"a request to {scope['path'][:_SHOWN]!r} was rejected: pushes are accepted at {self._path!r}"
            self._receiver.log_throttled(logging.WARNING, "path", f"{text}; a proxy must keep the URL's path")

    async def _body(self, scope: Message, receive: Receive) -> bytes:
        length = _header(scope, b"content-length")
        if length.isdigit() and (len(length) > 15 or int(length) > self._max_body):
            raise self._too_large()
        parts, size, more = list[bytes](), 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Refused(400, "the request ended early")
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            if size > self._max_body:
                raise self._too_large()
        return b"".join(parts)

    def _too_large(self) -> _Refused:
        return _Refused(413, f"the push is over {self._max_body} bytes", (b"connection", b"close"))


def _header(scope: Message, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key.lower() == name), b"")
