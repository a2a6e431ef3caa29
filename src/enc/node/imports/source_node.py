"""Fetches an enclave's log page by page from another node, with a session of this node's own key."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor
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
from enc.core.machine.archive import compressor_of
from enc.core.primitives.encoding import decode_json
from enc.core.primitives.sealing import NONCE_SIZE
from enc.core.primitives.signer import Signer
from enc.core.primitives.types import Event, TreeHead
from enc.core.session.envelope import answer_text, seal_request
from enc.core.session.session import Session, client_keys, open_session
from enc.core.trees.tree_head import WireHead, head_from_wire
from enc.node.imports.source_calls import SourceCalls
from enc.node.imports.uploads import Upload
from enc.runtime.endpoints import HttpEndpoint

MAX_PAGE_BYTES = 16 << 20
"""Most bytes of one answer: a node's pages have at most 8 MiB before they are sealed, and sealing
adds a third.
"""
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
    """The log of one enclave on another node.

    `fetch` stores it as lines, compressed like those of an archive.
    """

    sth: TreeHead | None = None
    """The tree head that came with the last page."""
    fetched = 0
    """Number of events that were fetched; a growing log may have nothing new."""

    def __init__(
        self,
        endpoint: HttpEndpoint,
        key: Signer,
        seq_pub: bytes,
        enclave: bytes,
        last: int | None,
        clock: Callable[[], int],
        *,
        max_bytes: int,
        first: int = 0,
    ) -> None:
        """`last`: the seq at which the log ends; None: it may grow, and is fetched up to its present
        end. `first`: the seq to begin with.
        """
        self._endpoint, self._key, self._seq_pub, self._enclave = endpoint, key, seq_pub, enclave
        self.first, self._last, self._is_growing = first, last or 0, last is None
        self._clock, self._bytes_left = clock, max_bytes
        self._session: Session | None = None
        self._compressor = compressor_of()

    async def fetch(self, upload: Upload, calls: SourceCalls, pages: Executor) -> None:
        """Fetch the log into the upload. Pages are opened on a thread of `pages`."""
        loop, seq = asyncio.get_running_loop(), self.first
        while seq <= self._last or (self._is_growing and seq == self.first):
            session, answer = await self._fetch_with_retries(upload, calls, seq)
            seq, packed = await loop.run_in_executor(pages, self._pack, session, answer, seq)
            upload.add_bytes(0, len(packed))
            await loop.run_in_executor(pages, upload.write, packed)
            self.fetched = seq - self.first
            if not self.fetched:
                break
        upload.rewind()

    async def _fetch_with_retries(self, upload: Upload, calls: SourceCalls, seq: int) -> tuple[Session, bytes]:
        for pause in (*PAUSES_S, None):
            try:
                return await self._request_page(upload, calls, seq)
            except (UpstreamUnreachable, Unavailable, RateLimited) as e:
                if pause is None or (isinstance(e, UpstreamUnreachable) and not self._retries_unreachable):
                    raise UpstreamUnreachable(f"seq {seq}: {e.message}") from None
                await asyncio.sleep(pause)
        raise AssertionError("not reached")

    @property
    def _retries_unreachable(self) -> bool:
        """Whether a source that cannot be reached is tried again. That of a growing log is not, before its
        first page: somebody may wait for the attempt to end, and the log is ordered again.
        """
        return bool(self.fetched) or not self._is_growing

    async def _request_page(self, upload: Upload, calls: SourceCalls, seq: int) -> tuple[Session, bytes]:
        session = self._current_session()
        body = {"from_seq": seq, "limit": MAX_LIMIT}
        request = seal_request(session, self._seq_pub, self._enclave, "Export", body, os.urandom(NONCE_SIZE))
        status, answer = await calls.post(
            self._endpoint,
            upload.address,
            "/export",
            encode(request),
            max_bytes=MAX_PAGE_BYTES,
            received=lambda size: upload.add_bytes(size, 0),
        )
        if status != 200:
            raise _refusal(status, answer)
        return session, answer

    def _pack(self, session: Session, answer: bytes, seq: int) -> tuple[int, bytes]:
        """Return the seq after the page's last event, and its events compressed."""
        lines = self._lines(self._open(session, answer, seq), seq)
        self._bytes_left -= sum(map(len, lines))
        if self._bytes_left < 0:
            raise InvalidArchive("the log is over this node's size limit")
        packed = self._compressor.compress(b"".join(line + b"\n" for line in lines))
        seq += len(lines)
        return seq, packed + (self._compressor.flush() if seq > self._last else b"")

    def _open(self, session: Session, answer: bytes, seq: int) -> _Page:
        try:
            plain = answer_text(client_keys(session, self._seq_pub, self._enclave), answer)
        except PeerError as e:
            raise InvalidArchive(f"seq {seq}: cannot open the source's answer: {e.message}") from None
        return decode_json(plain, _page, InvalidArchive)

    def _lines(self, page: _Page, seq: int) -> list[bytes]:
        if self._is_growing:
            self._last = page.seq
            if not page.events and page.seq < seq:
                return []
        if page.seq != self._last:
            message = f"the source's log ends at seq {page.seq}; expected the Migrate at seq {self._last} as its end"
            raise InvalidArchive(message)
        if not 0 < len(page.events) <= min(MAX_LIMIT, self._last + 1 - seq):
            raise ReplayFailed(seq, InvalidArchive("the source returned no event here, or too many"))
        if seq + len(page.events) > self._last:
            self.sth = _head(page)
        return [bytes(raw).replace(b"\n", b" ") for raw in page.events]  # no line feed in JSON means anything

    def _current_session(self) -> Session:
        now = self._clock() // 1000
        if self._session is None or self._session.token.expires < now + RENEW_S:
            self._session = open_session(self._key, now + SESSION_S)
        return self._session


def parse_line(line: bytes, seq: int) -> Event:
    """Parse a line of a fetched log; raise ReplayFailed."""
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
