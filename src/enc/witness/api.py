"""The HTTP API of a witness: its identity, the enclaves it follows, co-signed heads and evidence.

    GET  /                    the witness's identity
    GET  /enclaves            the enclaves it follows, and their state
    GET  /heads/{enclave}     the latest co-signed head; ?size=N: the one of N bundles
    GET  /heads               all stored heads, one JSON per line: ?after=N&limit=N&enclave=ID
    POST /heads               a head that a client was shown, to be compared
    GET  /evidence            the list of evidence: ?after=N&limit=N
    GET  /evidence/{id}       a file for `enc verify`

Anyone may read. Requests can make the witness store and do only a bounded amount.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
from msgspec import Struct
from msgspec.json import Decoder, encode
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from enc.core.errors import (
    EncError,
    EnclaveNotFound,
    InternalError,
    InvalidProof,
    InvalidQuery,
    InvalidSignature,
    NoSuchPath,
    TreeSizeNotFound,
    Unavailable,
    UpstreamUnreachable,
    WorldError,
)
from enc.core.primitives.encoding import decode_json, unhex
from enc.core.trees.cosigning import wire_cosigned
from enc.core.trees.tree_head import WireHead, head_from_wire
from enc.runtime.fair_share import FairShare
from enc.runtime.rate_limit import RateLimiter, address_key
from enc.version import __version__
from enc.witness.http_util import JSON, body, enclave_id, error_response, number, page, tagged
from enc.witness.ledger import HeadLedger, LedgerRow
from enc.witness.watcher import Watch

MAX_REQUESTS = 256
"""Requests served at the same time, also incomplete ones; an address has a fair share of them."""
LINES = "application/x-ndjson"

_log = structlog.get_logger("enc.witness")


class _SubmittedHead(Struct):
    """A head with its enclave. Further fields, as in a co-signed head or a head file, are
    ignored.
    """

    enclave: str
    sth: WireHead
    sequencer: str | None = None


_submitted = Decoder(_SubmittedHead)
Make = Callable[[Request], tuple[str, bytes]]


class WitnessApi:
    """An ASGI application."""

    def __init__(
        self,
        key: bytes,
        ledger: HeadLedger,
        watches: Mapping[bytes, Watch],
        rates: RateLimiter,
        interval: float,
        *,
        by_address: bool = True,
    ):
        """`by_address`: whether each address has a share of the requests: not behind a proxy."""
        self._key, self._ledger, self._watches, self._rates, self._interval = key, ledger, watches, rates, interval
        self._places, self._by_address = FairShare(MAX_REQUESTS), by_address
        routes = [
            Route("/", self._get(self._identity), methods=["GET"]),
            Route("/enclaves", self._get(self._enclaves), methods=["GET"]),
            Route("/heads", self._heads, methods=["GET", "POST"]),
            Route("/heads/{enclave}", self._get(self._head), methods=["GET"]),
            Route("/evidence", self._get(self._list), methods=["GET"]),
            Route("/evidence/{id}", self._get(self._file), methods=["GET"]),
        ]
        self._router = Router(routes, redirect_slashes=False, default=_no_such_path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        address = address_key(scope["client"][0] if scope.get("client") else "") if self._by_address else None
        has_place = self._places.take(address)
        try:
            if not has_place:
                raise Unavailable("too many requests at a time", retry_after_ms=1000)
            scope["app"] = self  # makes the router raise, so that errors are answered here
            await self._router(scope, receive, send)
        except HTTPException as e:
            allow = (e.headers or {}).get("Allow", "")
            error = InvalidQuery(f"method not allowed: use {allow}")
            await error_response(error, e.status_code, {"allow": allow})(scope, receive, send)
        except EncError as e:
            await error_response(e)(scope, receive, send)
        except Exception as e:  # clients must not see internal details
            _log.error("unexpected", path=scope["path"][:200], error=type(e).__name__)
            await error_response(InternalError("the witness failed"))(scope, receive, send)
        finally:
            if has_place:
                self._places.release(address)

    def _get(self, make: Make) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            return tagged(request, *make(request))

        return handle

    # Published

    def _identity(self, request: Request) -> tuple[str, bytes]:
        found = {
            "witness": self._key.hex(),
            "software": {"name": "enc", "version": __version__},
            "enclaves": len(self._watches),
            "interval_s": self._interval,
        }
        return JSON, encode(found)

    def _enclaves(self, request: Request) -> tuple[str, bytes]:
        return JSON, encode({"enclaves": [self._status(watch) for watch in self._watches.values()]})

    def _status(self, watch: Watch) -> dict[str, Any]:
        latest, pin = self._ledger.latest(watch.enclave), self._ledger.load(watch.enclave)
        seen = latest.cosigned if latest else None
        return {
            "enclave": watch.enclave.hex(),
            "node": watch.url,
            "sequencer": pin.sequencer.hex() if pin else None,
            "state": watch.state,
            "why": watch.why or None,
            "checked": watch.checked,
            "size": seen.head.ts if seen else 0,
            "seen": seen.seen if seen else None,
            "evidence": self._ledger.evidence.count(watch.enclave),
        }

    def _head(self, request: Request) -> tuple[str, bytes]:
        enclave, size = enclave_id(request.path_params["enclave"]), number(request, "size")
        if size is not None:
            row = self._ledger.at(enclave, size)
            if row is None:
                raise TreeSizeNotFound("size: no co-signed head of this size is stored")
            return JSON, row.wire
        row = self._ledger.latest(enclave)
        if row is None:
            raise EnclaveNotFound("enclave: no head of this enclave was co-signed")
        return JSON, row.wire

    async def _heads(self, request: Request) -> Response:
        if request.method == "POST":
            return Response(await self._compare(request), media_type=JSON)
        return tagged(request, *self._lines(request))

    def _lines(self, request: Request) -> tuple[str, bytes]:
        one = request.query_params.get("enclave")
        after, limit = page(request)
        rows = self._ledger.page(after, limit, None if one is None else enclave_id(one))
        return LINES, b"".join(self._line(row) for row in rows)

    def _line(self, row: LedgerRow) -> bytes:
        """Return a line of a head file, with its source and the number for the next page."""
        wire = wire_cosigned(row.cosigned)
        return encode({**wire, "source": f"witness {self._key.hex()}", "n": row.n}) + b"\n"

    def _list(self, request: Request) -> tuple[str, bytes]:
        found = [
            {
                "n": filed.n,
                "id": filed.id,
                "enclave": filed.enclave.hex(),
                "kind": filed.kind,
                "convicts": filed.convicts,
                "at": filed.at,
                "message": filed.message,
            }
            for filed in self._ledger.evidence.page(*page(request))
        ]
        return JSON, encode({"evidence": found})

    def _file(self, request: Request) -> tuple[str, bytes]:
        body = self._ledger.evidence.body(request.path_params["id"])
        if body is None:
            raise NoSuchPath("id: no such evidence")
        return JSON, body

    # Submitted

    async def _compare(self, request: Request) -> bytes:
        self._rates.take(address_key(request.client.host if request.client else ""))
        wire = decode_json(await body(request), _submitted, InvalidQuery)
        watch = self._watches.get(enclave_id(wire.enclave))
        if watch is None:
            raise EnclaveNotFound("enclave: the witness does not follow it")
        signer = None if wire.sequencer is None else unhex(wire.sequencer, 32, "sequencer", InvalidQuery)
        try:
            head = head_from_wire(wire.sth)
        except InvalidProof as e:
            raise InvalidQuery(e.message) from None
        try:
            verdict = await watch.compare(signer, head)
        except InvalidProof as e:
            raise InvalidSignature(e.message) from None
        except Unavailable:
            raise
        except WorldError as e:
            raise UpstreamUnreachable(f"the head cannot be compared now: {e.message}") from e
        if not verdict.contradicts:
            return encode({"verdict": "consistent"})
        filed = verdict.filed.id if verdict.filed else None
        return encode({"verdict": "contradiction", "message": verdict.message, "evidence": filed})


async def _no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    raise NoSuchPath("no such path")
