"""The HTTP API (GET only): decodes requests, queries the database, encodes responses.

GET /views                    the views that the caller may read
GET /views/{name}             rows; see `query` for its parameters
GET /views/{name}/progress    how far it is complete, by enclave
GET /openapi.json             this API, with the views that the caller may read
GET /info                     the server's version, and the key for sessions
GET /health                   whether the database answers
GET /, /page/{path}           the web page that shows the views; see `page`
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import parse_qsl

import msgspec
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from enc.core.errors import EncError, InternalError, InvalidQuery, NoSuchPath
from enc.dataview.serving import openapi, page
from enc.dataview.serving.database import ServingDatabase
from enc.dataview.serving.errors import Unauthenticated
from enc.dataview.serving.handlers import JSON, ViewHandlers, ViewRequest, ViewResponse
from enc.dataview.serving.proofs import Prover
from enc.dataview.serving.rights import Rights
from enc.runtime.fair_threads import FairThreads
from enc.runtime.rate_limit import address_key

THREADS = 4
MAX_WAITING, MAX_EACH = 256, 64
"""Most requests that may wait for a thread: of all, and of one address."""
MAX_QUERY = 32 << 10
"""Most bytes of a URL's parameters."""
MAX_FIELDS = 64

_log = logging.getLogger("enc.dataview.serving")

Work = Callable[[ViewHandlers, ViewRequest], ViewResponse]


class ServingApi:
    """The ASGI application. `origins`: other web pages that may send requests. `clock`: Unix
    seconds.
    """

    def __init__(
        self,
        database: ServingDatabase,
        rights: Rights,
        prover: Prover,
        origins: Sequence[str] = (),
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._handlers, self._rights, self._clock = ViewHandlers(database, rights, prover), rights, clock
        self._threads = FairThreads(THREADS, MAX_WAITING, MAX_EACH, name="enc-views")
        router = Router(
            [
                Route("/views", self._get(ViewHandlers.views)),
                Route("/views/{name}", self._get(ViewHandlers.rows)),
                Route("/views/{name}/progress", self._get(ViewHandlers.progress)),
                Route("/openapi.json", self._get(openapi.answer)),
                Route("/info", self._get(ViewHandlers.info)),
                Route("/health", self._get(ViewHandlers.health)),
                Route("/", page.index),
                Route("/page/{path:path}", page.file),
            ],
            redirect_slashes=False,
            default=self._not_found,
        )
        self._router: ASGIApp = router
        self._cors = CORSMiddleware(
            self._guarded,
            allow_origins=origins,
            allow_methods=["GET"],
            allow_headers=["authorization", "if-none-match"],
            expose_headers=["etag", "link", "enc-complete"],
        )

    def close(self) -> None:
        self._threads.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._cors(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer every failure with an error of this API."""
        try:
            scope["app"] = self  # makes the router raise, so that this method answers
            await self._router(scope, receive, send)
        except HTTPException as e:
            error = _error(InvalidQuery("method not allowed; use GET"), e.status_code)
            error.headers["allow"] = "GET, HEAD"
            await error(scope, receive, send)
        except EncError as e:
            await _error(e)(scope, receive, send)
        except Exception:
            _log.exception("a request failed: %s", scope["path"])
            await _error(InternalError("internal error of the server"))(scope, receive, send)

    async def _not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NoSuchPath("no such path; see / or /openapi.json")

    def _get(self, work: Work) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            address = address_key(request.client.host if request.client else "")
            found = await self._threads.run(address, lambda: work(self._handlers, self._view_request(request)))
            return Response(found.body, found.status, {"content-type": found.media, **found.headers})

        return answer

    def _view_request(self, request: Request) -> ViewRequest:
        raw = request.scope["query_string"]
        target = request.scope["raw_path"] + (b"?" + raw if raw else b"")
        said = request.headers.get("authorization", "")
        now_ms = int(self._clock() * 1000)
        return ViewRequest(
            caller=self._rights.caller(said, request.method, target.decode("latin-1"), now_ms),
            path=request.scope["path"],
            name=request.path_params.get("name", ""),
            parameters=_parameters(raw),
            accept=request.headers.get("accept", ""),
            known=request.headers.get("if-none-match", ""),
        )


def _parameters(raw: bytes) -> tuple[tuple[str, str], ...]:
    if len(raw) > MAX_QUERY:
        raise InvalidQuery(f"a URL has at most {MAX_QUERY} bytes of parameters")
    try:
        text = raw.decode("ascii")
        return tuple(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS))
    except ValueError:
        raise InvalidQuery("the URL's parameters are not percent-encoded UTF-8, or too many") from None


def _error(error: EncError, status: int | None = None) -> Response:
    headers = {"cache-control": "no-store"}
    if error.status == Unauthenticated.status:
        headers["www-authenticate"] = "Bearer, ENC-Session"
    if "retry_after_ms" in error.context:
        headers["retry-after"] = str(-(-error.context["retry_after_ms"] // 1000))
    body = msgspec.json.encode(error.to_wire())
    return Response(body, status or error.status, {"content-type": JSON, **headers})
