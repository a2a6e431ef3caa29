"""HTTP calls, blocking and async, with the same limits and the same errors."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpx
from websockets.exceptions import WebSocketException

from enc.client.errors import TimedOut, Unreachable
from enc.client.wire.flow import Answer, Call
from enc.core.errors import MisuseError

MAX_ANSWER = 64 << 20
"""Most bytes of one answer: no node sends more, and a hostile one must not exhaust memory."""

ANSWER_TIMEOUTS = 6
"""A complete answer may take this many timeouts; each wait for a part of it may take one."""


def _headers(call: Call) -> dict[str, str]:
    return {"content-type": call.kind, "accept-encoding": "identity"}


async def _pieces(call: Call) -> AsyncIterator[bytes]:
    for piece in call.pieces():
        yield piece


def base_url(url: str) -> str:
    """Return the node's URL without a trailing slash; raise MisuseError if it is not a valid one."""
    try:
        parsed = httpx.URL(url)
        host = parsed.host  # decoded lazily: a name that is not valid IDNA raises UnicodeError here
    except (httpx.InvalidURL, TypeError, UnicodeError) as e:
        raise MisuseError(f"not a URL: {url!r}: {e}") from None
    if parsed.scheme not in ("http", "https") or not host:
        raise MisuseError(f"not a node's URL: {url!r}: expected http:// or https:// and a host")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise MisuseError("a node's URL must not have a user name, a query or a fragment")
    return str(parsed).rstrip("/")


def web_socket_url(url: str) -> str:
    return "ws" + url.removeprefix("http") + "/"


CONNECTION_ERRORS = (WebSocketException, OSError, TimeoutError, ValueError)
"""Raised by a WebSocket that cannot be opened or that was lost."""


def unreachable(url: str, error: Exception) -> Unreachable:
    return Unreachable(f"cannot reach {url}: {str(error) or type(error).__name__}")


@contextmanager
def _translate_errors(url: str) -> Iterator[None]:
    try:
        yield
    except (httpx.TimeoutException, TimeoutError):
        raise TimedOut(f"no answer from {url} in time") from None
    except httpx.RequestError as e:
        raise unreachable(url, e) from None
    except RuntimeError as e:
        raise MisuseError(f"this client is closed: {e}") from None


def _secured(url: str) -> bool:
    """Whether to load certificates. Loading takes longer than the rest of a short command."""
    return url.startswith("https:")


def _base(own: str | None, call: Call) -> str:
    """Return the URL for a call: the node that it names, or else the client's own."""
    if call.base is None and own is None:
        raise MisuseError("no node's URL was given")
    return call.base or own or ""


class _Body:
    """Collects an answer's bytes within the size limit and within the time for a complete answer."""

    def __init__(self, url: str, timeout: float, most: int | None = None) -> None:
        self._url, self._parts, self._size = url, list[bytes](), 0
        self._most = MAX_ANSWER if most is None else most
        self._whole = ANSWER_TIMEOUTS * timeout

    def check(self, response: httpx.Response) -> None:
        """Start the clock. Rejects compressed answers: a few bytes could expand beyond memory."""
        self._until = time.monotonic() + self._whole
        if response.headers.get("content-encoding", "identity") != "identity":
            raise Unreachable(f"{self._url} answered in an encoding that was not requested")

    def add(self, part: bytes) -> None:
        self._size += len(part)
        if time.monotonic() > self._until:
            raise TimedOut(f"{self._url} takes too long to answer")
        if self._size > self._most:
            raise Unreachable(f"{self._url} answered with more than {self._most} bytes")
        self._parts.append(part)

    def content(self) -> bytes:
        return b"".join(self._parts)


class Transport:
    """Blocking. `url`: the client's own node, if it has one; a call may name another."""

    def __init__(self, url: str | None, timeout: float, client: httpx.Client | None = None) -> None:
        self.url = None if url is None else base_url(url)
        self.timeout = timeout
        self._is_given, self._secured = client is not None, _secured(self.url or "")
        self._client = client or httpx.Client(timeout=timeout, follow_redirects=False, verify=self._secured)
        self._other: httpx.Client | None = None

    def _client_for(self, url: str) -> httpx.Client:
        """Return a client that checks certificates exactly if this URL has them."""
        if self._is_given or _secured(url) == self._secured:
            return self._client
        if self._other is None:
            self._other = httpx.Client(timeout=self.timeout, follow_redirects=False, verify=not self._secured)
        return self._other

    def send(self, call: Call) -> Answer:
        url = _base(self.url, call)
        method, body = "GET" if call.body is None else "POST", _Body(url, self.timeout)
        content = call.body if call.file is None else call.pieces()
        with (
            _translate_errors(url),
            self._client_for(url).stream(method, url + call.path, content=content, headers=_headers(call)) as response,
        ):
            body.check(response)
            for part in response.iter_bytes():
                body.add(part)
            return Answer(response.status_code, body.content())

    def close(self) -> None:
        self._client.close()
        if self._other is not None:
            self._other.close()


class AsyncTransport:
    """Async. `most`: bytes of one answer, if not the default limit."""

    def __init__(
        self, url: str | None, timeout: float, client: httpx.AsyncClient | None = None, most: int | None = None
    ) -> None:
        self.url = None if url is None else base_url(url)
        self.timeout, self._most = timeout, most
        self._is_given, self._secured = client is not None, _secured(self.url or "")
        self._client = client or httpx.AsyncClient(timeout=timeout, follow_redirects=False, verify=self._secured)
        self._other: httpx.AsyncClient | None = None

    def _client_for(self, url: str) -> httpx.AsyncClient:
        """Return a client that checks certificates exactly if this URL has them."""
        if self._is_given or _secured(url) == self._secured:
            return self._client
        if self._other is None:
            self._other = httpx.AsyncClient(timeout=self.timeout, follow_redirects=False, verify=not self._secured)
        return self._other

    async def send(self, call: Call) -> Answer:
        url = _base(self.url, call)
        method, body = "GET" if call.body is None else "POST", _Body(url, self.timeout, self._most)
        content = call.body if call.file is None else _pieces(call)
        with _translate_errors(url):
            async with (
                asyncio.timeout(ANSWER_TIMEOUTS * self.timeout if call.file is None else None),
                self._client_for(url).stream(
                    method, url + call.path, content=content, headers=_headers(call)
                ) as response,
            ):
                body.check(response)
                async for part in response.aiter_bytes():
                    body.add(part)
                return Answer(response.status_code, body.content())

    async def close(self) -> None:
        await self._client.aclose()
        if self._other is not None:
            await self._other.aclose()
