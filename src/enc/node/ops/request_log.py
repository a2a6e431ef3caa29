"""Names each request, measures it, and logs it if the operator wants that."""

import re
from collections.abc import Callable, Iterable
from itertools import count
from secrets import token_hex

import structlog
from msgspec import Struct
from structlog.contextvars import get_contextvars

from enc.node.ops.metrics import Metrics

HEADER = b"x-request-id"
MAX_PATH = 256
"""Characters of a path in the log."""
OTHER = "other"
"""Stands in metrics for paths that do not exist: strangers could invent any number of them."""

_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}").fullmatch
_PREFIX, _NUMBERS = token_hex(4), count(1)

_log = structlog.get_logger("enc.access")


def new_id() -> str:
    """Return a name that no other request has, also after a restart."""
    return f"{_PREFIX}-{next(_NUMBERS):x}"


def current_id() -> str:
    """Return the id of the request whose task this is; empty outside of one."""
    return str(get_contextvars().get("request", ""))


class Request(Struct):
    """A request that is not answered yet."""

    id: str
    method: str
    path: str
    address: str
    began: float

    @property
    def header(self) -> tuple[bytes, bytes]:
        return HEADER, self.id.encode()


class RequestLog:
    """Begins and ends requests. For the event loop's thread."""

    def __init__(
        self, metrics: Metrics, clock: Callable[[], float], *, is_logged: bool = False, takes_ids: bool = False
    ) -> None:
        """`clock`: seconds that never go back. `is_logged`: log each request. `takes_ids`: take the id of
        a request from its header, which a proxy has set.
        """
        self._metrics, self._clock, self.is_logged, self._takes_ids = metrics, clock, is_logged, takes_ids

    def begin(self, method: str, path: str, address: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> Request:
        return Request(self._given_id(headers) or new_id(), method, path, address, self._clock())

    def _given_id(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        given = next((value for name, value in headers if name == HEADER), b"") if self._takes_ids else b""
        return given.decode() if _ID(given) else ""

    def end(self, request: Request, status: int, form: str = OTHER) -> None:
        """Count an answered request. `form`: its path as in the documents, such as /{enclave}/sth."""
        seconds = self._clock() - request.began
        self._metrics.count_response(status)
        self._metrics.request_seconds.observe(seconds, form)
        if self.is_logged:
            _log.info(
                "request",
                request=request.id,
                method=request.method,
                path=request.path[:MAX_PATH],
                status=status,
                ms=round(seconds * 1000, 1),
                address=request.address,
            )

    def end_websocket(self, request: Request, commits: int) -> None:
        """Log a WebSocket that has ended, after so many commits."""
        if self.is_logged:
            seconds = round(self._clock() - request.began, 1)
            _log.info("websocket", request=request.id, seconds=seconds, commits=commits, address=request.address)
