"""WebSocket messages that never end, and frames that break the protocol."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from msgspec.structs import replace
from websockets.frames import Frame, Opcode

from enc.node.config import LimitSettings
from enc.runtime.serving.closing import close_slow
from enc.runtime.serving.ws_protocol import FRAME_BYTES
from tests.node.api.http_requests import dialed
from tests.node.served import DEV, Served
from tests.node.server.limits_setup import KIB, MIB, limited

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.fixture(scope="module")
def small() -> Iterator[Served]:
    """Serve a node whose messages have at most 64 KiB."""
    with Served(limited(body=64 * KIB)) as node:
        yield node


@contextmanager
def upgraded(node: Served) -> Iterator[socket.socket]:
    with dialed(node) as peer:
        peer.sendall(UPGRADE)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += peer.recv(1)
        assert head.startswith(b"HTTP/1.1 101 ")
        yield peer


def frame(opcode: int, data: bytes, *, fin: bool = True, rsv: int = 0, length: int | None = None) -> bytes:
    """Return a masked frame. `length`: the length that it states, if that is not the data's."""
    size = len(data) if length is None else length
    head = bytes([fin << 7 | rsv | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([0x80 | 127]) + size.to_bytes(8, "big")
    return head + bytes(4) + data


def close_code(peer: socket.socket) -> int:
    """Return the code of the close frame, after which the connection ends; other frames are skipped."""
    with peer.makefile("rb") as file:
        while True:
            first, second = file.read(2)
            data = file.read(int.from_bytes(file.read(2), "big") if second == 126 else second)
            if first & 0x0F == Opcode.CLOSE:
                assert file.read(1) == b""
                return int.from_bytes(data[:2], "big")


BROKEN: dict[str, tuple[int, bytes]] = {
    "no UTF-8": (1007, frame(1, b"\xff\xfe")),
    "half a character": (1007, frame(1, b'{"a":"\xc3')),
    "no UTF-8 in parts": (1007, frame(1, b"\xff", fin=False) + frame(0, b"\xfe")),
    "no UTF-8, and more behind it": (1007, frame(1, b"\xff") + frame(9, b"x") + frame(1, b"\xff")),
    "no UTF-8 in a reason": (1007, frame(8, b"\x03\xe8\xff")),
    "an unknown opcode": (1002, frame(3, b"x")),
    "an unknown control opcode": (1002, frame(11, b"x")),
    "a reserved bit": (1002, frame(1, b"x", rsv=0x40)),
    "all reserved bits": (1002, frame(2, b"x", rsv=0x70)),
    "a ping in parts": (1002, frame(9, b"x", fin=False)),
    "a long ping": (1002, frame(9, b"x" * 126)),
    "a continuation of nothing": (1002, frame(0, b"x")),
    "a message inside another": (1002, frame(1, b"x", fin=False) + frame(1, b"y")),
    "a close inside a message": (1002, frame(1, b"x", fin=False) + frame(8, b"\x03\xe8")),
    "a close of one byte": (1002, frame(8, b"x")),
    "a close code that is none": (1002, frame(8, b"\x00\x01")),
    "no mask": (1002, b"\x81\x01x"),
    "a message that is too long": (1009, frame(1, b"", length=64 * KIB + 1)),
    "a message without end": (1009, frame(1, b"", length=1 << 62)),
    "parts that are too long": (1009, frame(1, b"x" * 40_000, fin=False) + frame(0, b"", length=40_000)),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_frame_ends_the_connection_with_its_code(
    small: Served, kind: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    code, sent = BROKEN[kind]
    with upgraded(small) as peer:
        peer.sendall(sent)
        assert close_code(peer) == code
    small.until(lambda: not small.node.ws.connections)
    assert caplog.messages == []
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("seed", range(5))
def test_random_frames_leave_no_traceback(
    small: Served, seed: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(20):
        with upgraded(small) as peer:
            peer.sendall(os.urandom(400))
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(KIB):
                pass
    small.until(lambda: not small.node.ws.connections)
    assert caplog.messages == []
    assert "Traceback" not in "".join(capfd.readouterr())


# Messages that never end


def connection_of(node: Served, peer: socket.socket) -> Any:
    def find() -> list[Any]:
        own = peer.getsockname()
        return [c for c in node.connections_state.connections if c.transport.get_extra_info("peername") == own]

    (found,) = node.on_loop(find)
    return found


def cut(node: Served, seconds: float) -> int:
    loop = node.node.loop
    return node.on_loop(lambda: close_slow(node.connections_state, loop.time() + seconds, 30))


@pytest.mark.parametrize(
    "begun",
    [
        b"\x81",
        frame(1, b"{}")[:-1],
        frame(1, b"x", fin=False),
        frame(1, b"", fin=False),
        frame(1, b"x", fin=False) + frame(9, b"ping"),
        frame(1, b"{}") + frame(1, b"x", fin=False) + frame(0, b"x", fin=False),
    ],
    ids=["a byte", "half a frame", "a part", "an empty part", "a ping between parts", "behind another"],
)
def test_a_message_must_be_complete_in_time(small: Served, begun: bytes) -> None:
    with upgraded(small) as peer:
        assert cut(small, 3600) == 0
        peer.sendall(begun)
        one = connection_of(small, peer)
        small.until(lambda: one.waiting_since is not None and not one.read_paused)
        assert (cut(small, 29), cut(small, 31)) == (0, 1)
        with pytest.raises((ConnectionError, ValueError)):
            close_code(peer)


def test_a_ping_between_parts_does_not_prolong_it(small: Served) -> None:
    with upgraded(small) as peer:
        peer.sendall(frame(1, b"x", fin=False))
        one = connection_of(small, peer)
        small.until(lambda: one.waiting_since is not None)
        small.on_loop(lambda: setattr(one, "waiting_since", 0.0))
        for sent in (frame(9, b"a"), frame(10, b"b") + frame(9, b"c")):
            peer.sendall(sent)
            assert peer.recv(3)[0] == 0x80 | Opcode.PONG
            assert small.on_loop(lambda: one.waiting_since) == 0.0


def test_the_time_begins_anew_with_each_message(small: Served) -> None:
    with upgraded(small) as peer:
        peer.sendall(frame(1, b"{}")[:-1])
        one = connection_of(small, peer)
        small.until(lambda: one.waiting_since is not None)
        for more in (b"}" + frame(9, b"xy")[:-1], b"y" + frame(10, b"xy")[:-1]):
            small.on_loop(lambda: setattr(one, "waiting_since", 0.0))
            peer.sendall(more)
            small.until(lambda: one.waiting_since not in (None, 0.0))
        peer.sendall(b"y")
        small.until(lambda: one.waiting_since is None)
        assert cut(small, 3600) == 0


def test_a_message_that_the_node_has_not_taken_is_not_late(small: Served) -> None:
    with upgraded(small) as peer:
        peer.sendall(frame(1, b"x", fin=False))
        one = connection_of(small, peer)
        small.until(lambda: one.waiting_since is not None)
        small.on_loop(lambda: setattr(one, "read_paused", True))
        assert cut(small, 31) == 0
        small.on_loop(lambda: setattr(one, "read_paused", False))
        assert cut(small, 31) == 1


def test_what_the_node_has_not_taken_counts_too_and_its_rest_is_not_late(small: Served) -> None:
    peers, go_on = small.server.peers, small.on_loop(asyncio.Event)
    with upgraded(small) as peer:
        small.until(lambda: len(small.node.ws.connections) == 1)
        (connection,) = small.node.ws.connections
        small.on_loop(lambda: setattr(connection._queue, "wait_for_room", go_on.wait))
        peer.sendall(frame(1, b"{}"))  # it waits for this one already
        one = connection_of(small, peer)
        small.until(lambda: one.queue.empty() and not one.read_paused)
        peer.sendall(frame(1, b"x" * 1000) + frame(1, b"y" * 500, fin=False))
        small.until(lambda: one.read_paused)
        assert peers.incoming == 1500 + FRAME_BYTES
        small.on_loop(lambda: setattr(one, "waiting_since", 0.0))
        small.on_loop(go_on.set)
        small.until(lambda: peers.incoming == 500 + FRAME_BYTES)
        assert one.waiting_since
    small.until(lambda: peers.incoming == 0)


def test_an_incomplete_message_counts_to_its_peer(small: Served) -> None:
    peers = small.server.peers
    small.until(lambda: peers.incoming == 0)
    with upgraded(small) as peer:
        peer.sendall(frame(1, b"x" * 1000, fin=False) + frame(0, b"", fin=False))
        small.until(lambda: peers.incoming == 1000 + 2 * FRAME_BYTES)
        peer.sendall(frame(0, b"y" * 500)[:-1])
        small.until(lambda: peers.incoming == 1499 + 2 * FRAME_BYTES)
        peer.sendall(b"y")
        small.until(lambda: peers.incoming == 0)
    with upgraded(small) as peer:
        peer.sendall(frame(1, b"x" * 1000, fin=False))
        small.until(lambda: peers.incoming > 1000)
    small.until(lambda: peers.incoming == 0)


@pytest.mark.parametrize("part", [frame(1, b"x" * 60_000, fin=False), frame(1, b"x" * 60_000)[:-1]])
def test_an_address_holds_a_bounded_amount_of_incomplete_messages(part: bytes) -> None:
    config = replace(DEV, dev=False, limits=LimitSettings(incoming_bytes_per_address=MIB))
    with Served(config) as node:
        peers, held = node.server.peers, list[socket.socket]()
        for _ in range(40):
            with dialed(node) as peer:
                held.append(peer.dup())
            held[-1].sendall(UPGRADE)
            assert held[-1].recv(KIB).startswith(b"HTTP/1.1 101 ")
            held[-1].sendall(part)
        node.until(lambda: peers.dropped >= 22)
        assert MIB - len(part) < peers.incoming <= MIB
        for peer in held:
            peer.close()
        node.until(lambda: peers.incoming == peers.count == 0)


def test_parts_without_data_count_too() -> None:
    config = replace(DEV, dev=False, limits=LimitSettings(incoming_bytes_per_address=MIB))
    with Served(config) as node, upgraded(node) as peer:
        parts = frame(1, b"", fin=False) + frame(0, b"", fin=False) * (MIB // FRAME_BYTES + 1)
        with suppress(ConnectionError):  # it is dropped while it sends
            peer.sendall(parts)
        node.until(lambda: node.server.peers.dropped == 1)


def test_a_message_in_parts_is_read() -> None:
    with Served() as node, upgraded(node) as peer:
        peer.sendall(frame(1, b'{"type":', fin=False) + frame(9, b"") + frame(0, '"ä'.encode()[:2], fin=False))
        peer.sendall(frame(0, "ä".encode()[1:] + b'"}'))
        answer = peer.recv(KIB)
        assert answer[:2] == Frame(Opcode.PONG, b"").serialize(mask=False)
        while b"INVALID_QUERY" not in answer:
            answer += peer.recv(KIB)
