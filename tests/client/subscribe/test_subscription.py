"""Subscriptions: a feed over WebSockets, simulated and real."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

from enc.client import AsyncClient, Client, Identity, Unreachable
from enc.client.link.enclave_session import RENEW_S, SESSION_S
from enc.client.subscribe import feed as module
from enc.core.errors import (
    RateLimited,
    Unavailable,
)
from enc.runtime.backoff import RetryPauses
from tests.client.relay import Relay
from tests.client.scene import Scene
from tests.client.stage import FACES, Face, Stage
from tests.client.subscribe.driver import Driver
from tests.core.world import person
from tests.node.served import PATIENCE_S, SMALL, Served

# Subscriptions: who drives the feed


@pytest.fixture(params=FACES)
def staged(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    stage = Stage(request.param, tmp_path, monkeypatch)
    yield Scene(stage)
    stage.close()


def test_a_subscription_connects_again_until_patience_is_over(staged: Scene) -> None:
    e = staged.stage.client("bob", patience=10.0).enclave(staged.enclave.id)
    feed = e.subscribe()
    assert [next(feed).seq for _ in range(8)] == list(range(8))
    staged.lie("messages", lambda messages: [])
    with pytest.raises(Unreachable):
        next(feed)
    naps = staged.stage.naps
    assert naps == sorted(naps)
    assert 5 < sum(naps) < 10
    assert list(feed) == [], "it is over"


def test_patience_begins_anew_with_every_event(staged: Scene) -> None:
    feed = staged.stage.client("bob", patience=0.15).enclave(staged.enclave.id).subscribe()
    staged.lie("messages", lambda messages: messages[:1])
    assert [next(feed).seq for _ in range(8)] == list(range(8))
    assert staged.stage.naps == [0.1] * 7


def test_patience_does_not_begin_anew_with_a_refusal(staged: Scene) -> None:
    """The node is asked again after the time that it gave."""
    slow = RateLimited("slow", retry_after_ms=2000).to_wire()
    staged.lie("messages", lambda messages: [{**slow, "sub_id": messages[0]["sub_id"]}])
    feed = staged.stage.client("bob", patience=7.0).enclave(staged.enclave.id).subscribe()
    with pytest.raises(RateLimited):
        next(feed)
    assert staged.stage.naps == [2.0, 2.0, 2.0]


def test_patience_does_not_begin_anew_with_idle_words(staged: Scene) -> None:
    staged.lie("messages", lambda messages: [{"type": "Notice", "message": "soon"}])
    feed = staged.stage.client("bob", patience=7.0).enclave(staged.enclave.id).subscribe()
    with pytest.raises(Unreachable):
        next(feed)
    assert sum(staged.stage.naps) < 7


def test_a_node_that_shuts_down_is_connected_to_again(staged: Scene) -> None:
    feed = staged.stage.client("bob", patience=10.0).enclave(staged.enclave.id).subscribe()
    over = {"type": "Closed", "sub_id": "feed-1", "reason": "shutting_down"}
    staged.lie("messages", lambda messages: [*messages[:3], over])
    assert [next(feed).seq for _ in range(3)] == [0, 1, 2]
    staged.node.be_honest()
    assert [next(feed).seq for _ in range(5)] == [3, 4, 5, 6, 7]


def test_a_subscription_that_is_closed_is_over(staged: Scene) -> None:
    with staged.enclave.subscribe() if staged.stage.face == "sync" else closing(staged.enclave.subscribe()) as feed:
        assert next(feed).seq == 0
        assert len(staged.node.sockets) == 1
    assert staged.node.sockets == []
    assert list(feed) == []
    feed.close()


class closing:  # noqa: N801
    """`async with`, driven."""

    def __init__(self, feed: Any) -> None:
        self._feed = feed

    def __enter__(self) -> Any:
        assert self._feed._runner.run(self._feed._inner.__aenter__()) is self._feed._inner
        return self._feed

    def __exit__(self, *_: object) -> None:
        self._feed._runner.run(self._feed._inner.__aexit__(None, None, None))


def test_the_session_is_renewed_when_nothing_comes_for_long(staged: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without messages the session is renewed when due, and events continue."""
    feed = staged.enclave.subscribe(after=6)
    assert next(feed).seq == 7
    (socket,) = staged.node.sockets
    socket.waiting.clear()
    quiet = [True]

    def recv(self: Any, timeout: float | None = None) -> str:
        if not socket.waiting and quiet.pop():
            staged.stage.clock.tick((SESSION_S - RENEW_S + 1) * 1000)
            raise TimeoutError
        if len(socket.received) == 2 and len(socket.waiting) == 1:
            staged.node.take(staged.commit("live"))
        return encode(socket.waiting.popleft()).decode()

    monkeypatch.setattr("tests.client.stage.Connection.recv", recv)
    assert next(feed).seq == 8
    assert len({message["session"] for message in socket.received if message["type"] == "Query"}) == 2


# A real node


EVENTS = 60


@pytest.mark.parametrize("face", FACES)
def test_a_real_connection_that_is_cut_while_events_are_written(
    face: Face, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enc.client.wire.retrying_caller.PAUSES", RetryPauses(first_s=0.0))
    with Served() as node, Relay(node.url) as relay:
        monkeypatch.setattr("enc.client.clients.wiring.now_ms", lambda: node.clock.now)
        enclave = node.create(SMALL)

        def heard(seq: int) -> bool:
            """Cut the connection now and then; add three events when all have arrived. Returns whether to go on."""
            if seq % 7 == 3:
                relay.cut()
            if seq % 3 == 0 and seq < EVENTS:
                for i in range(3):
                    enclave.send("bob", "message", f"{seq + i}")
            return seq < EVENTS

        follow = follow_sync if face == "sync" else follow_async
        assert follow(relay.url, enclave.id, tmp_path, heard) == list(range(EVENTS + 1))
        assert relay.connections > EVENTS // 7


Heard = Callable[[int], bool]


def follow_sync(url: str, enclave: bytes, pins: Path, heard: Heard, **more: Any) -> list[int]:
    seqs, client = [], Client(url, Identity(person("bob")), pins=pins, **more)
    with client, client.enclave(enclave).subscribe() as feed:
        for item in feed:
            seqs.append(item.seq)
            if not heard(item.seq):
                break
    return seqs


def follow_async(url: str, enclave: bytes, pins: Path, heard: Heard, **more: Any) -> list[int]:
    async def follow() -> list[int]:
        seqs, client = [], AsyncClient(url, Identity(person("bob")), pins=pins, **more)
        async with client, client.enclave(enclave).subscribe() as feed:
            async for item in feed:
                seqs.append(item.seq)
                if not heard(item.seq):
                    break
        return seqs

    return asyncio.run(follow())


@pytest.mark.parametrize("face", FACES)
def test_the_end_does_not_wait_for_events_that_nobody_reads(
    face: Face, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection reads no more while many events wait, so the node's confirmation does not come."""
    with Served() as node:
        monkeypatch.setattr("enc.client.clients.wiring.now_ms", lambda: node.clock.now)
        enclave = node.create(SMALL)
        for n in range(EVENTS):
            enclave.send("bob", "message", f"{n}")
        follow = follow_sync if face == "sync" else follow_async
        given = list[list[int]]()
        reader = threading.Thread(
            target=lambda: given.append(follow(node.url, enclave.id, tmp_path, lambda seq: False, timeout=3600.0)),
            daemon=True,
        )
        reader.start()
        reader.join(PATIENCE_S)
        assert given == [[0]], "it still waits"


def test_a_query_that_is_closed_when_only_a_cut_one_is_left(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A truncated Query brings no more events, so it must not prevent a new one."""
    monkeypatch.setattr(module, "MAX_LIMIT", 3)
    driver = Driver(scene)
    driver.connect()
    while (message := driver.socket.waiting.popleft())["type"] != "EOSE":
        driver.feed.receive(encode(message).decode())
    assert message["more"] is True
    driver.feed.receive(encode(message).decode())
    newest = list(driver.feed._queries)[-1]
    with pytest.raises(Unavailable):
        driver.feed.receive(encode({"type": "Closed", "sub_id": newest, "reason": "too_slow"}).decode())
