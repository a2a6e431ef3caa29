"""The HTTP API: decode the request, call a handler, encode the response. No protocol rule lives here.

`POST /` is on the hot path and goes straight to the commit intake; every other path is routed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import Decoder, encode
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars

from enc.core.errors import (
    Banned,
    BodyTooLarge,
    EncError,
    EnclaveNotFound,
    InvalidQuery,
    InvalidRange,
)
from enc.core.log.receipt import wire_receipt
from enc.core.primitives.encoding import MAX_INT, unhex
from enc.core.primitives.types import Receipt
from enc.core.session.envelope import parse_request
from enc.node.api.read_pool import ReadPool
from enc.node.ops.internal_errors import internal_error
from enc.node.ops.request_log import OTHER, Request, RequestLog
from enc.node.sequence.commit_intake import CommitIntake, Result
from enc.runtime.rate_limit import RateLimiter, address_key
from enc.runtime.serving.fast_response import Finish

SEALED_PATHS = {
    "/inclusion": "Inclusion_Proof",
    "/bundle": "Bundle_Proof",
    "/state": "State_Proof",
    "/state-batch": "State_Batch",
    "/checkpoint": "Checkpoint",
    "/export": "Export",
    "/deliveries": "Deliveries",
}
"""Paths of sealed requests, each with the one request type that it accepts."""
EXPOSED = ("Retry-After", "X-Request-Id")
"""Headers that the scripts of web pages may read."""


class _PlainFields(Struct):
    exp: Raw | UnsetType = UNSET


_plain_fields = Decoder(_PlainFields)


def is_commit(body: bytes) -> bool:
    """Return whether a body is a commit: only commits have a top-level `exp`.

    JSON strings escape their quotes, so a substring search classifies most bodies without decoding.
    """
    if b'"exp"' not in body:
        return False
    if b'"session"' not in body:
        return True
    try:
        return _plain_fields.decode(body).exp is not UNSET
    except (ValueError, RecursionError):
        return True


Page = Callable[[], Awaitable[tuple[int, str, bytes]]]
"""Returns a status, a media type and a body."""


class HttpApi:
    """The ASGI application for everything but WebSockets.

    `pages` maps further GET paths to the functions that render them, `more` holds further routes.
    """

    def __init__(
        self,
        intake: CommitIntake,
        reads: ReadPool,
        rates: RateLimiter,
        max_body: int,
        pages: Mapping[str, Page],
        requests: RequestLog,
        more: Sequence[Route] = (),
    ) -> None:
        self._intake, self._reads, self._rates, self._max_body = intake, reads, rates, max_body
        self._pages, self._requests = pages, requests
        self._tasks: set[asyncio.Task[bytes]] = set()
        routes = [*self._routes(), *more]
        self._forms: dict[object, str] = {route.endpoint: route.path for route in routes}
        self._router = Router(routes, redirect_slashes=False, default=self._not_found)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = address_of(scope)
        request = self._requests.begin(scope["method"], scope["path"], address, scope["headers"])
        bind_contextvars(request=request.id)  # for all log entries of this task
        answer = self._measured(send, request, scope)
        try:
            self._rates.take(address)
            if scope["path"] == "/" and scope["method"] == "POST":
                await respond(answer, 200, await self._post(scope, receive, request))
            elif scope["path"] == "/":
                raise HTTPException(405, headers={"Allow": "POST"})
            else:
                scope["app"] = self  # then the router raises, and this method writes the error response
                await self._router(scope, receive, answer)
        except HTTPException as e:
            allow = (e.headers or {}).get("Allow", "")
            error = InvalidQuery(f"method: expected {allow}")
            await respond_error(answer, error, e.status_code, (b"allow", allow.encode()))
        except EncError as e:
            await respond_error(answer, e)
        except Exception as e:
            await respond_error(answer, internal_error(e, scope["path"]))

    def _measured(self, send: Send, request: Request, scope: Scope) -> Send:
        """Return `send` with the request's id in the answer, and the request counted at its end."""
        status = 500

        async def measure(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], request.header]}
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                form = "/" if scope["path"] == "/" else self._forms.get(scope.get("endpoint"), OTHER)
                self._requests.end(request, status, form)

        return measure

    # POST /

    def quick(self, body: bytes, host: str, finish: Finish) -> None:
        """Do what `__call__` does for a `POST /` whose body is complete; `finish` writes the response."""
        address = address_key(host)
        request = self._requests.begin("POST", "/", address)
        try:
            self._rates.take(address)
            if is_commit(body):
                self._intake.submit(body, lambda result, _: self._finish(finish, result, request), address, request.id)
            else:
                task = asyncio.get_running_loop().create_task(self._sealed(body, ("Query", "Pull"), address))
                self._tasks.add(task)
                task.add_done_callback(lambda done: self._finish_task(finish, done, request))
        except EncError as e:
            self._finish(finish, e, request)
        except Exception as e:
            self._finish(finish, internal_error(e, "/", request.id), request)

    def _finish_task(self, finish: Finish, task: "asyncio.Task[bytes]", request: Request) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            finish(200, task.result(), request.header)
            self._requests.end(request, 200, "/")
            return
        if not isinstance(error, EncError):
            error = internal_error(error or Exception(), "/", request.id)
        self._finish(finish, error, request)

    def _finish(self, finish: Finish, result: Result, request: Request) -> None:
        if isinstance(result, Receipt):
            status = 200
            finish(status, encode(wire_receipt(result)), request.header)
        else:
            status = result.status
            finish(status, encode(result.to_wire()), *error_headers(result), request.header)
        self._requests.end(request, status, "/")

    async def _post(self, scope: Scope, receive: Receive, request: Request) -> bytes:
        body, address = await read_body(scope, receive, self._max_body), request.address
        if not is_commit(body):
            return await self._sealed(body, ("Query", "Pull"), address)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def reply(result: Result, _: object) -> None:
            if not future.done():
                future.set_result(result)

        self._intake.submit(body, reply, address, request.id)
        result = await future
        if isinstance(result, Receipt):
            return encode(wire_receipt(result))
        raise result

    async def _sealed(self, body: bytes, types: tuple[str, ...], address: str) -> bytes:
        request = parse_request(body)
        if request.type not in types:
            raise InvalidQuery(f"type: expected {' or '.join(types)} at this path")
        return await self._reads.run_steps(address, self._reads.handlers.answer(request, address))

    # Other paths

    def _routes(self) -> list[Route]:
        routes = [Route(path, self._sealed_handler(type_), methods=["POST"]) for path, type_ in SEALED_PATHS.items()]
        for prefix in ("", "/enclave"):
            routes.append(Route(prefix + "/{enclave}/sth", self._public_handler(self._sth), methods=["GET"]))
            routes.append(
                Route(prefix + "/{enclave}/consistency", self._public_handler(self._consistency), methods=["GET"])
            )
        routes += [Route(path, self._page_handler(make), methods=["GET"]) for path, make in self._pages.items()]
        return routes

    def _sealed_handler(self, type_: str) -> Callable[[HttpRequest], Awaitable[Response]]:
        async def handle(request: HttpRequest) -> Response:
            body = await read_body(request.scope, request.receive, self._max_body)
            return Response(
                await self._sealed(body, (type_,), address_of(request.scope)), media_type="application/json"
            )

        return handle

    def _public_handler(self, work: Callable[[HttpRequest], bytes]) -> Callable[[HttpRequest], Awaitable[Response]]:
        async def handle(request: HttpRequest) -> Response:
            return Response(
                await self._reads.run(address_of(request.scope), work, request), media_type="application/json"
            )

        return handle

    def _page_handler(self, make: Page) -> Callable[[HttpRequest], Awaitable[Response]]:
        async def handle(request: HttpRequest) -> Response:
            status, media_type, body = await make()
            return Response(body, status, media_type=media_type)

        return handle

    def _sth(self, request: HttpRequest) -> bytes:
        return self._reads.handlers.public(_enclave(request), lambda proofs: proofs.sth())

    def _consistency(self, request: HttpRequest) -> bytes:
        enclave, first, second = _enclave(request), _size(request, "from"), _size(request, "to")
        return self._reads.handlers.public(enclave, lambda proofs: proofs.consistency(first, second))

    async def _not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond_error(send, InvalidQuery("no such path"), 404)


def address_of(scope: Scope) -> str:
    """Return the key of the sender's address, by which rates and turns are counted."""
    return address_key(scope["client"][0] if scope["client"] else "")


async def read_body(scope: Scope, receive: Receive, max_body: int) -> bytes:
    """Return the whole body; raise BodyTooLarge before more than the limit is in memory."""
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > max_body:
            raise BodyTooLarge(f"the body is over {max_body} bytes")
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body", False):
        if len(body) > max_body:
            raise BodyTooLarge(f"the body is over {max_body} bytes")
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidQuery("the request ended before its body was complete")
        body += message.get("body", b"")
    if len(body) > max_body:
        raise BodyTooLarge(f"the body is over {max_body} bytes")
    return body


def _enclave(request: HttpRequest) -> bytes:
    return unhex(request.path_params["enclave"], 32, "enclave", EnclaveNotFound)


def _size(request: HttpRequest, name: str) -> int | None:
    texts = request.query_params.getlist(name)
    if not texts:
        return None
    if len(texts) > 1:
        raise InvalidQuery(f"{name}: expected once")
    text = texts[0]
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= MAX_INT):
        raise InvalidRange(f"{name}: expected a tree size")
    return int(text)


async def respond(
    send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes], media_type: bytes = b"application/json"
) -> None:
    """Send a response."""
    first = [(b"content-type", media_type), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*first, *headers]})
    await send({"type": "http.response.body", "body": body})


async def respond_error(send: Send, error: EncError, status: int | None = None, *more: tuple[bytes, bytes]) -> None:
    """Send an error as JSON, with the headers that its status needs."""
    await respond(send, status or error.status, encode(error.to_wire()), *more, *error_headers(error))


def error_headers(error: EncError) -> list[tuple[bytes, bytes]]:
    """Return `Retry-After` for 429 and 503, and `Connection: close` for 413 and a ban."""
    if error.status in (429, 503):
        return [(b"retry-after", b"%d" % -(-error.context.get("retry_after_ms", 1000) // 1000))]
    return [(b"connection", b"close")] if error.status == 413 or isinstance(error, Banned) else []


def with_cors(app: ASGIApp, origins: tuple[str, ...]) -> ASGIApp:
    """Return the application with CORS headers that let browser pages of these origins call it."""
    if not origins:
        return app
    cors = CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=["Retry-After", "X-Request-Id"],
    )

    async def choose(scope: Scope, receive: Receive, send: Send) -> None:
        is_browser = any(name == b"origin" for name, _ in scope["headers"])
        await (cors if is_browser else app)(scope, receive, send)

    return choose
