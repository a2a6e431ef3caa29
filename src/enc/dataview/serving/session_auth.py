"""Authenticates requests to a server of views: `httpx.get(url, auth=SessionAuth(identity))`."""

import secrets
import time
from collections.abc import Callable, Generator

import httpx

from enc.client.keys.identity import Identity
from enc.core.errors import InvalidSession
from enc.core.primitives.encoding import unhex
from enc.core.primitives.sealing import NONCE_SIZE
from enc.core.session.session import Session, open_session
from enc.dataview.serving.rights import authorization

DURATION_S = 3600
_MARGIN_S = 120


class SessionAuth(httpx.Auth):
    """Signs each request. `server`: the server's key in hex; without it, the key is fetched once
    and trusted.

    Sessions last an hour and are renewed.
    """

    requires_response_body = True

    def __init__(self, identity: Identity, server: str | None = None, clock: Callable[[], float] = time.time) -> None:
        self._identity, self._clock = identity, clock
        self._server = None if server is None else unhex(server, 32, "server", InvalidSession)
        self._session: Session | None = None

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if self._server is None:
            answer = yield httpx.Request("GET", request.url.copy_with(raw_path=b"/info"))
            self._server = unhex(_session_pub(answer), 32, "session_pub", InvalidSession)
        target, now_ms = request.url.raw_path.decode("ascii"), int(self._clock() * 1000)
        nonce = secrets.token_bytes(NONCE_SIZE)
        header = authorization(self._fresh(), self._server, request.method, target, now_ms, nonce)
        request.headers["authorization"] = header
        yield request

    def _fresh(self) -> Session:
        now = int(self._clock())
        if self._session is None or self._session.token.expires < now + _MARGIN_S:
            self._session = open_session(self._identity.key, now + DURATION_S)
        return self._session


def _session_pub(answer: httpx.Response) -> object:
    try:
        found = answer.json()
    except ValueError:
        found = None
    return found.get("session_pub") if isinstance(found, dict) else None
