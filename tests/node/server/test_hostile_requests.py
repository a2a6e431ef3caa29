"""Requests that are too large, cut off, malformed or never complete, and connections beyond the limit."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from msgspec.json import decode, encode

from enc.core.log.commit import wire_commit
from tests.node.api.websocket_peer import PATIENCE, Room, peer
from tests.node.raw_peer import MIB, Raw, pour, rss
from tests.node.running import RunningNode
from tests.plain_http import NO_TLS

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("requests") / "node") as node:
        yield node


# Bodies


def test_a_body_over_the_limit_is_413_by_its_length_and_by_its_bytes(node: RunningNode) -> None:
    with Raw(node) as raw:
        raw.post(b"", Content_Length=str(2 * MIB + 1))
        assert raw.rest().startswith(b"HTTP/1.1 413 ")
    with Raw(node) as raw:
        raw.send(f"POST / HTTP/1.1\r\nHost: {raw.host}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        raw.send((b"10000\r\n" + b" " * 65536 + b"\r\n") * 33)
        assert raw.rest().startswith(b"HTTP/1.1 413 ")


def test_a_truncated_body_changes_nothing(node: RunningNode) -> None:
    room = Room(node)
    body = encode(wire_commit(room.commit("alice", "message")))
    for cut in (0, 1, len(body) // 2, len(body) - 1):
        with Raw(node) as raw:
            raw.post(body[:cut], Content_Length=str(len(body)))
            raw.socket.shutdown(socket.SHUT_WR)
            assert b"200 OK" not in raw.rest()
    assert len(room.reader("alice").log(node.url)) == 1


@pytest.mark.parametrize(
    "sent",
    [b"\x00" * 1000, b"GET\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"],
    ids=["zeros", "half a request line", "a negative length", "a TLS hello"],
)
def test_what_is_no_http_is_400_and_closed(node: RunningNode, sent: bytes) -> None:
    with Raw(node) as raw:
        raw.send(sent)
        assert raw.rest().startswith(b"HTTP/1.1 400 ")


def test_a_head_without_end_is_refused(node: RunningNode) -> None:
    """Header lines without end: the node answers or closes, and buffers only a little of them."""
    before = rss(node)
    with Raw(node) as raw:
        raw.send(f"GET /info HTTP/1.1\r\nHost: {raw.host}\r\n".encode())
        sent = pour(raw, b"X-A: " + b"a" * 65_000 + b"\r\n", 64 * MIB)
        assert sent < 64 * MIB or rss(node) - before < 16 * MIB


# Slow writers


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"PO",
        b"POST / HTTP/1.1\r\nHost: localhost\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n",
    ],
    ids=["nothing", "a word", "half a head", "no body", "half a body", "half of the chunks", "half an upgrade"],
)
def test_a_request_that_never_completes_is_closed(strict: RunningNode, sent: bytes) -> None:
    with Raw(strict) as raw:
        raw.send(sent)
        assert b"200" not in raw.rest()


def test_bytes_that_trickle_in_do_not_prolong_it(strict: RunningNode) -> None:
    """The time limit applies to the whole request."""
    with Raw(strict) as raw:
        raw.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        raw.socket.settimeout(0.05)
        for _ in range(20 * PATIENCE):
            try:
                raw.send(b" ")
                assert raw.socket.recv(100) == b""
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("the node waits for ever")


def test_a_connection_that_asks_nothing_more_is_closed(strict: RunningNode) -> None:
    with Raw(strict) as raw:
        raw.send(f"GET /info HTTP/1.1\r\nHost: {raw.host}\r\n\r\n".encode())
        assert raw.rest().startswith(b"HTTP/1.1 200 ")


# Too many connections


async def test_connections_beyond_the_limit_get_503_and_room_is_made_when_one_goes(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node", env={"ENC_NODE_LIMITS_CONNECTIONS": "3"}) as node:
        room = Room(node)
        async with peer(node) as one, peer(node) as two:
            with Raw(node) as third:
                third.send(f"GET /info HTTP/1.1\r\nHost: {third.host}\r\n\r\n".encode())
                assert third.until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
                with Raw(node) as fourth:
                    head, _, body = fourth.rest().partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 503 ")
                assert b"retry-after: 1" in head.lower()
                assert decode(body)["code"] == "UNAVAILABLE"
                assert await one.lives(room)
                assert await two.lives(room)
        assert (await _get(node, "/info")).status_code == 200


async def _get(node: RunningNode, path: str) -> httpx.Response:
    """Send a GET, and repeat it until the node accepts the connection."""
    async with asyncio.timeout(PATIENCE), httpx.AsyncClient(timeout=PATIENCE, verify=NO_TLS) as client:
        while True:
            try:
                answer = await client.get(node.url + path)
            except httpx.TransportError:
                continue
            if answer.status_code != 503:
                return answer
