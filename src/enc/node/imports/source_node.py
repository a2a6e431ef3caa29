"""Downloads an enclave's log page by page from another node, with a session of this node's own key."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder, encode

from enc.core.errors import (
    EncError,
    InvalidArchive,
    PeerError,
    RateLimited,
    ReplayFailed,
    Unavailable,
    UpstreamUnreachable,
    from_wire,
)
from enc.core.log.event import parse_event
from enc.core.log.filter import MAX_LIMIT
from enc.core.primitives.encoding import decode_json
from enc.core.primitives.sealing import NONCE_SIZE
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Event, TreeHead
from enc.core.session.envelope import answer_text, seal_request
from enc.core.session.session import Session, client_keys, open_session
from enc.core.trees.tree_head import WireHead, head_from_wire
from enc.runtime.checked_http import post
from enc.runtime.endpoints import HttpEndpoint

MAX_PAGE_BYTES = 32 << 20
"""Most bytes of one answer."""
SESSION_S = 3600
RENEW_S = 300
"""Seconds before its expiry at which a session is replaced."""
PAUSES_S = (1, 2, 4, 8)
"""Pauses between retries of a page."""


class _Page(Struct):
    events: list[Raw]
    seq: int
    sth: WireHead | None = None


_page, _error = Decoder(_Page), Decoder(dict[str, Any])


class ImportCancelled(EncError):
    """The node is stopping."""


class RemoteLog:
    """The log of one enclave on another node, up to and including seq `last`."""

    sth: TreeHead | None = None
    """The tree head that came with the last page."""

    def __init__(
        self,
        endpoint: HttpEndpoint,
        key: PrivateKey,
        seq_pub: bytes,
        enclave: bytes,
        last: int,
        clock: Callable[[], int],
        stopped: threading.Event,
        *,
        max_bytes: int,
        allow_private: bool,
    ) -> None:
        self._endpoint, self._key, self._seq_pub, self._enclave, self._last = endpoint, key, seq_pub, enclave, last
        self._clock, self._stopped, self._allow_private = clock, stopped, allow_private
        self._bytes_left = max_bytes
        self._session: Session | None = None

    def events(self) -> Iterator[Event]:
        """Yield the events in order; fetch the next page while the caller uses this one."""
        with ThreadPoolExecutor(1, thread_name_prefix="source") as pool:
            seq, page = 0, pool.submit(self._fetch, 0)
            while True:
                lines = page.result()
                if seq + len(lines) <= self._last:
                    page = pool.submit(self._fetch, seq + len(lines))
                for line in lines:
                    yield _event(line, seq)
                    seq += 1
                if seq > self._last:
                    return

    def _fetch(self, from_seq: int) -> list[bytes]:
        page = self._fetch_with_retries(from_seq)
        if page.seq != self._last:
            message = f"the source's log ends at seq {page.seq}; expected the Migrate at seq {self._last} as its end"
            raise InvalidArchive(message)
        if not 0 < len(page.events) <= min(MAX_LIMIT, self._last + 1 - from_seq):
            raise ReplayFailed(from_seq, InvalidArchive("the source returned no event here, or too many"))
        lines = [bytes(raw) for raw in page.events]
        self._bytes_left -= sum(map(len, lines))
        if self._bytes_left < 0:
            raise InvalidArchive("the log is over this node's size limit")
        if from_seq + len(lines) > self._last:
            self.sth = _head(page)
        return lines

    def _fetch_with_retries(self, from_seq: int) -> _Page:
        for pause in (*PAUSES_S, None):
            try:
                return self._request_page(from_seq)
            except (UpstreamUnreachable, Unavailable, RateLimited) as e:
                if pause is None:
                    raise UpstreamUnreachable(f"seq {from_seq}: {e.message}") from None
                if self._stopped.wait(pause):
                    raise ImportCancelled("the node is stopping") from None
        raise AssertionError("not reached")

    def _request_page(self, from_seq: int) -> _Page:
        session = self._current_session()
        body = {"from_seq": from_seq, "limit": MAX_LIMIT}
        request = seal_request(session, self._seq_pub, self._enclave, "Export", body, os.urandom(NONCE_SIZE))
        status, answer = post(
            self._endpoint,
            "/export",
            encode(request),
            max_bytes=MAX_PAGE_BYTES,
            allow_private=self._allow_private,
            stopped=self._stopped,
        )
        if status != 200:
            raise _refusal(status, answer)
        try:
            plain = answer_text(client_keys(session, self._seq_pub, self._enclave), answer)
        except PeerError as e:
            raise InvalidArchive(f"seq {from_seq}: cannot open the source's answer: {e.message}") from None
        return decode_json(plain, _page, InvalidArchive)

    def _current_session(self) -> Session:
        now = self._clock() // 1000
        if self._session is None or self._session.token.expires < now + RENEW_S:
            self._session = open_session(self._key, now + SESSION_S)
        return self._session


def _event(line: bytes, seq: int) -> Event:
    try:
        return parse_event(line)
    except PeerError as e:
        raise ReplayFailed(seq, InvalidArchive(e.message)) from None


def _head(page: _Page) -> TreeHead | None:
    try:
        return None if page.sth is None else head_from_wire(page.sth)
    except PeerError as e:
        raise InvalidArchive(f"sth: {e.message}") from None


def _refusal(status: int, answer: bytes) -> EncError:
    """Return the error for a source's refusal, with its code only: this node does not repeat
    foreign text.
    """
    try:
        error = from_wire(_error.decode(answer))
    except (ValueError, RecursionError):
        return UpstreamUnreachable(f"the source answered with status {status}")
    if isinstance(error, Unavailable | RateLimited):
        return type(error)("the source is busy")
    code = error.code if error.code.isascii() and error.code.isidentifier() and len(error.code) <= 64 else "an error"
    return InvalidArchive(f"the source rejected the request: {code}")
