"""The server of a receiver: which sites it answers, and its limits."""

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from enc.cli.enclave.receiver import LIMITS, Listener


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"taken"})


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    with Listener(app, "https://me.example/push", socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "me.example"}, 200),
        ({"host": "evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://localhost:3000"}, 403),
    ],
)
def test_it_answers_for_the_name_that_is_registered_and_to_no_page(
    listener: Listener, headers: dict[str, str], status: int
) -> None:
    host, port = listener.address
    answer = httpx.post(f"http://{host}:{port}/push", headers=headers, trust_env=False)
    assert answer.status_code == status
    if status == 421:
        assert "--url" in answer.json()["message"]


def test_idle_connections_of_one_address_keep_no_other_out(listener: Listener) -> None:
    most = LIMITS.connections_per_address
    peers = [socket.create_connection(listener.address, 30) for _ in range(most + 1)]
    try:
        assert peers[-1].recv(1 << 12).startswith(b"HTTP/1.1 503 ")
        transport = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(transport=transport) as other:
            host, port = listener.address
            assert other.post(f"http://{host}:{port}/push").status_code == 200
    finally:
        for peer in peers:
            peer.close()
