"""Calls over HTTP: by blocking and by awaiting, with the same bounds and the same errors."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

import httpx
from websockets.exceptions import WebSocketException

from enc.client.errors import TimedOut, Unreachable
from enc.client.flow import Answer, Call
from enc.core.errors import MisuseError

MAX_ANSWER = 64 << 20
"""Bytes of one answer: no node sends more, and a hostile one shall not fill memory."""

WHOLE = 6
"""Timeouts that a whole answer may take; each wait for a part of it may take one."""

_JSON = {"content-type": "application/json", "accept-encoding": "identity"}


def base_url(url: str) -> str:
    """The node's URL without a slash at its end; MisuseError if it is none."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as e:
        raise MisuseError(f"not a URL: {url!r}: {e}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise MisuseError(f"not a node's URL: {url!r}: expected http:// or https:// and a host")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise MisuseError("a node's URL has no user name, no query and no fragment")
    return str(parsed).rstrip("/")


def web_socket_url(url: str) -> str:
    return "ws" + url.removeprefix("http") + "/"


LOST = (WebSocketException, OSError, TimeoutError, ValueError)
"""What a WebSocket raises when it cannot be had or is gone."""


def unreachable(url: str, error: Exception) -> Unreachable:
    return Unreachable(f"cannot reach {url}: {str(error) or type(error).__name__}")


@contextmanager
def _translated(url: str) -> Iterator[None]:
    try:
        yield
    except (httpx.TimeoutException, TimeoutError):
        raise TimedOut(f"no answer from {url} in time") from None
    except httpx.RequestError as e:
        raise unreachable(url, e) from None
    except RuntimeError as e:
        raise MisuseError(f"this client is closed: {e}") from None


def _secured(url: str) -> bool:
    """Certificates are read where there are any to check: that takes longer than a short command's other work."""
    return url.startswith("https:")


class _Body:
    """An answer's bytes as they come: no more than the bound, and no longer than a drip of bytes may take."""

    def __init__(self, url: str, timeout: float) -> None:
        self._url, self._parts, self._size = url, list[bytes](), 0
        self._until = time.monotonic() + WHOLE * timeout

    def check(self, response: httpx.Response) -> None:
        """Nothing compressed was asked for: a few bytes of it may stand for more than memory holds."""
        if response.headers.get("content-encoding", "identity") != "identity":
            raise Unreachable(f"{self._url} answers in an encoding that was not asked for")

    def take(self, part: bytes) -> None:
        self._size += len(part)
        if time.monotonic() > self._until:
            raise TimedOut(f"{self._url} takes too long over its answer")
        if self._size > MAX_ANSWER:
            raise Unreachable(f"{self._url} answers with more than {MAX_ANSWER} bytes")
        self._parts.append(part)

    def whole(self) -> bytes:
        return b"".join(self._parts)


class Transport:
    """Blocks."""

    def __init__(self, url: str, timeout: float, client: httpx.Client | None = None) -> None:
        self.url = base_url(url)
        self.timeout = timeout
        self._client = client or httpx.Client(timeout=timeout, follow_redirects=False, verify=_secured(self.url))

    def send(self, call: Call) -> Answer:
        method, body = "GET" if call.body is None else "POST", _Body(self.url, self.timeout)
        with (
            _translated(self.url),
            self._client.stream(method, self.url + call.path, content=call.body, headers=_JSON) as response,
        ):
            body.check(response)
            for part in response.iter_bytes():
                body.take(part)
            return Answer(response.status_code, body.whole())

    def close(self) -> None:
        self._client.close()


class AsyncTransport:
    """Awaits."""

    def __init__(self, url: str, timeout: float, client: httpx.AsyncClient | None = None) -> None:
        self.url = base_url(url)
        self.timeout = timeout
        self._client = client or httpx.AsyncClient(timeout=timeout, follow_redirects=False, verify=_secured(self.url))

    async def send(self, call: Call) -> Answer:
        method, body = "GET" if call.body is None else "POST", _Body(self.url, self.timeout)
        with _translated(self.url):
            async with (
                asyncio.timeout(WHOLE * self.timeout),
                self._client.stream(method, self.url + call.path, content=call.body, headers=_JSON) as response,
            ):
                body.check(response)
                async for part in response.aiter_bytes():
                    body.take(part)
                return Answer(response.status_code, body.whole())

    def _stream(self, method: str, call: Call) -> AbstractAsyncContextManager[httpx.Response]:
        return self._client.stream(method, self.url + call.path, content=call.body, headers=_JSON)

    async def close(self) -> None:
        await self._client.aclose()
