"""Calls over HTTP: by blocking and by awaiting, with the same bounds and the same errors."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpx
from websockets.exceptions import WebSocketException

from enc.client.errors import TimedOut, Unreachable
from enc.client.flow import Answer, Call
from enc.core.errors import MisuseError

MAX_ANSWER = 64 << 20
"""Bytes of one answer: no node sends more, and a hostile one shall not fill memory."""

WHOLE = 6
"""Timeouts that a whole answer may take; each wait for a part of it may take one."""


def _headers(call: Call) -> dict[str, str]:
    return {"content-type": call.kind, "accept-encoding": "identity"}


async def _pieces(call: Call) -> AsyncIterator[bytes]:
    for piece in call.pieces():
        yield piece


def base_url(url: str) -> str:
    """The node's URL without a slash at its end; MisuseError if it is none."""
    try:
        parsed = httpx.URL(url)
        host = parsed.host  # decoded only now: a name that is no IDNA is a UnicodeError
    except (httpx.InvalidURL, TypeError, UnicodeError) as e:
        raise MisuseError(f"not a URL: {url!r}: {e}") from None
    if parsed.scheme not in ("http", "https") or not host:
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


def _base(own: str | None, call: Call) -> str:
    """Where a call goes: to the node that it names, or to the client's own."""
    if call.base is None and own is None:
        raise MisuseError("no node's URL was given")
    return call.base or own or ""


class _Body:
    """An answer's bytes as they come: no more than the bound, and no longer than a drip of bytes may take."""

    def __init__(self, url: str, timeout: float, most: int | None = None) -> None:
        self._url, self._parts, self._size = url, list[bytes](), 0
        self._most = MAX_ANSWER if most is None else most
        self._whole = WHOLE * timeout

    def check(self, response: httpx.Response) -> None:
        """Nothing compressed was asked for: a few bytes of it may stand for more than memory holds."""
        self._until = time.monotonic() + self._whole
        if response.headers.get("content-encoding", "identity") != "identity":
            raise Unreachable(f"{self._url} answers in an encoding that was not asked for")

    def take(self, part: bytes) -> None:
        self._size += len(part)
        if time.monotonic() > self._until:
            raise TimedOut(f"{self._url} takes too long over its answer")
        if self._size > self._most:
            raise Unreachable(f"{self._url} answers with more than {self._most} bytes")
        self._parts.append(part)

    def whole(self) -> bytes:
        return b"".join(self._parts)


class Transport:
    """Blocks. `url`: the client's own node, if it has one; a call may name another."""

    def __init__(self, url: str | None, timeout: float, client: httpx.Client | None = None) -> None:
        self.url = None if url is None else base_url(url)
        self.timeout = timeout
        self._is_given, self._secured = client is not None, _secured(self.url or "")
        self._client = client or httpx.Client(timeout=timeout, follow_redirects=False, verify=self._secured)
        self._other: httpx.Client | None = None

    def _to(self, url: str) -> httpx.Client:
        """What speaks to the client's own node may check no certificates: another that has one is spoken to apart."""
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
            _translated(url),
            self._to(url).stream(method, url + call.path, content=content, headers=_headers(call)) as response,
        ):
            body.check(response)
            for part in response.iter_bytes():
                body.take(part)
            return Answer(response.status_code, body.whole())

    def close(self) -> None:
        self._client.close()
        if self._other is not None:
            self._other.close()


class AsyncTransport:
    """Awaits. `most`: bytes of one answer, where that is not the bound for all."""

    def __init__(
        self, url: str | None, timeout: float, client: httpx.AsyncClient | None = None, most: int | None = None
    ) -> None:
        self.url = None if url is None else base_url(url)
        self.timeout, self._most = timeout, most
        self._is_given, self._secured = client is not None, _secured(self.url or "")
        self._client = client or httpx.AsyncClient(timeout=timeout, follow_redirects=False, verify=self._secured)
        self._other: httpx.AsyncClient | None = None

    def _to(self, url: str) -> httpx.AsyncClient:
        """What speaks to the client's own node may check no certificates: another that has one is spoken to apart."""
        if self._is_given or _secured(url) == self._secured:
            return self._client
        if self._other is None:
            self._other = httpx.AsyncClient(timeout=self.timeout, follow_redirects=False, verify=not self._secured)
        return self._other

    async def send(self, call: Call) -> Answer:
        url = _base(self.url, call)
        method, body = "GET" if call.body is None else "POST", _Body(url, self.timeout, self._most)
        content = call.body if call.file is None else _pieces(call)
        with _translated(url):
            async with (
                asyncio.timeout(WHOLE * self.timeout if call.file is None else None),
                self._to(url).stream(method, url + call.path, content=content, headers=_headers(call)) as response,
            ):
                body.check(response)
                async for part in response.aiter_bytes():
                    body.take(part)
                return Answer(response.status_code, body.whole())

    async def close(self) -> None:
        await self._client.aclose()
        if self._other is not None:
            await self._other.aclose()
