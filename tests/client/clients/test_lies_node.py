"""Lies in subscriptions, and about the node itself: each test is named after the lie."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
from msgspec import Raw
from msgspec.json import encode

from enc.client import ForeignSequencer, Forgery, Unreachable
from enc.client.wire import transport as transport_module
from enc.core.errors import (
    EncError,
    EventNotFound,
)
from enc.core.log.event import wire_event
from enc.core.trees.tree_head import wire_head
from enc.testing.lying_node import Json, LyingNode
from tests.client.scene import BY_HEAD, Scene, instead
from tests.client.stage import drain
from tests.core.world import person

# Subscriptions


def test_duplicated_event_of_a_subscription(scene: Scene) -> None:
    scene.lie("messages", lambda messages: [messages[0], *messages])
    scene.caught(Forgery, scene.enclave.subscribe)


def test_duplicated_live_event_of_a_subscription(scene: Scene) -> None:
    feed = scene.enclave.subscribe(after=6)
    assert next(feed).seq == 7
    (socket,) = scene.node.sockets
    scene.enclave.commit("message", "live")
    socket.waiting.append(socket.waiting[-1])
    assert next(feed).seq == 8
    scene.caught(Forgery, lambda: next(feed))


def test_events_of_a_subscription_out_of_order(scene: Scene) -> None:
    scene.lie("messages", lambda messages: [messages[1], messages[0], *messages[2:]])
    scene.caught(Forgery, scene.enclave.subscribe)


def test_event_of_a_subscription_dated_before_the_one_before_it(scene: Scene) -> None:
    early = scene.node.event(scene.commit("early"), 7, scene.event("three").timestamp - 1)
    scene.lie("Event", lambda item: {**item, "event": wire_event(early)} if item["event"]["seq"] == 7 else None)
    scene.caught(Forgery, scene.other().subscribe)


@pytest.mark.parametrize("type_", ["Event", "EOSE", "Closed"])
def test_subscription_that_was_never_asked_for(scene: Scene, type_: str) -> None:
    def lie(messages: list[Json]) -> list[Json]:
        false = {**messages[0], "type": type_, "sub_id": "another", "reason": "enclave_terminated"}
        return [false, *messages]

    scene.lie("messages", lie)
    scene.caught(Forgery, scene.enclave.subscribe)


def test_altered_event_of_a_subscription(scene: Scene) -> None:
    scene.lie("Event", lambda item: item["event"].update(content="altered"))
    scene.caught(Forgery, scene.enclave.subscribe)


def test_event_of_a_subscription_out_of_the_filter(scene: Scene) -> None:
    scene.lie("filter", lambda asked: {name: asked[name] for name in asked if name != "type"})
    scene.caught(Forgery, lambda: scene.enclave.subscribe(type="Shared"))


def test_event_of_a_subscription_from_before_its_beginning(scene: Scene) -> None:
    scene.lie("filter", lambda asked: {"limit": asked["limit"]})
    scene.caught(Forgery, lambda: scene.enclave.subscribe(after=5))


def test_event_of_a_subscription_of_another_enclave(scene: Scene) -> None:
    elsewhere = scene.stage.create(meta={"n": 2})
    manifest = wire_event(scene.node.store.events(elsewhere.id, 0, 1)[0])
    scene.lie("Event", lambda item: {**item, "event": manifest})
    scene.caught(Forgery, scene.enclave.subscribe)


def test_replayed_event_of_another_session_s_subscription(scene: Scene) -> None:
    feed = scene.enclave.subscribe()
    next(feed)
    (socket,) = scene.node.sockets
    kept = list(socket.waiting)
    feed.close()
    scene.stage.clock.tick(3_600_000)
    scene.lie("messages", lambda messages: [{**each, "sub_id": messages[0]["sub_id"]} for each in kept])
    scene.caught(Forgery, scene.enclave.subscribe)


def test_subscription_that_is_cut_with_nothing_sent(scene: Scene) -> None:
    scene.lie("messages", lambda messages: [{**messages[-1], "more": True}])
    scene.caught(Forgery, scene.enclave.subscribe)


@pytest.mark.parametrize("text", ["<html>", "[]", '"x"', "{"], ids=str)
def test_message_of_a_subscription_that_is_none(scene: Scene, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.client.stage.Connection.recv", lambda *_, **__: text)
    scene.caught(Forgery, scene.enclave.subscribe)


def test_subscription_goes_no_further_after_a_lie(scene: Scene) -> None:
    scene.lie("messages", lambda messages: [messages[0], messages[0], *messages[1:]])
    feed = scene.enclave.subscribe()
    assert next(feed).seq == 0
    scene.caught(Forgery, lambda: next(feed))
    assert list(feed) == []
    assert scene.node.sockets == []


# The node


def test_node_whose_key_has_changed_between_runs(scene: Scene) -> None:
    scene.stage.node = LyingNode(scene.stage.clock, person("node2"), scene.node.copy().store)
    for ask in (*BY_HEAD.values(), lambda e: e.commit("message", "x"), lambda e: e.query(), lambda e: e.subscribe()):
        e = scene.stage.client("bob").enclave(scene.enclave.id)
        scene.caught(ForeignSequencer, lambda ask=ask, e=e: ask(e))  # type: ignore[misc]


def test_node_that_hides_that_its_key_has_changed(scene: Scene) -> None:
    """The node announces the old key but can sign only with the new one."""
    true, head = scene.node.key.public.hex(), scene.enclave.head()
    scene.stage.node = LyingNode(scene.stage.clock, person("node2"), scene.node.copy().store)
    scene.lie("info", lambda _: {"seq_pub": true})
    scene.lie("sth", lambda _: wire_head(scene.node.head(scene.enclave.id, head.ts, head.r, head.t)))
    scene.caught(ForeignSequencer, scene.other().head)


def test_node_whose_key_is_no_point_of_the_curve(scene: Scene) -> None:
    scene.lie("info", lambda _: {"seq_pub": "ff" * 32})
    scene.caught(Forgery, scene.stage.client("bob").enclave(scene.enclave.id).head)


def test_node_with_another_key_than_expected(scene: Scene) -> None:
    client = scene.stage.client("bob", seq_pub=person("node2").public)
    scene.caught(ForeignSequencer, client.enclave(scene.enclave.id).head)
    scene.caught(ForeignSequencer, client.seq_pub)


GARBAGE = [b"", b"garbage", b"{", b"[" * 100_000, b"null", b"\xff\xfe", b"<!doctype html><title>Welcome</title>"]


garbage = pytest.mark.parametrize("garbage", GARBAGE, ids=lambda body: repr(body[:8]))


ASKS: dict[str, Callable[[Any], Any]] = {
    **BY_HEAD,
    "commit": lambda e: e.commit("message", "x"),
    "query": lambda e: e.query(),
    "proof": lambda e: e.proof(bytes(32)),
}


asks = pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)


@garbage
@asks
def test_garbage(scene: Scene, garbage: bytes, ask: Callable[[Any], Any]) -> None:
    scene.node.wire = lambda request, response: httpx.Response(200, content=garbage)
    scene.caught(Forgery, lambda: ask(scene.enclave))


@garbage
def test_garbage_for_a_key(scene: Scene, garbage: bytes) -> None:
    scene.node.wire = lambda request, response: httpx.Response(200, content=garbage)
    scene.caught(Forgery, scene.other().head)


@garbage
def test_sealed_garbage(scene: Scene, garbage: bytes) -> None:
    """Correctly sealed, but not the requested answer."""
    for kind in ("Query", "State_Proof", "State_Batch", "Bundle_Proof", "Inclusion_Proof"):
        scene.lie(kind, lambda _: Raw(garbage))
    for ask in list(ASKS.values())[1:]:
        if ask is not ASKS["commit"]:
            scene.caught(Forgery, lambda ask=ask: ask(scene.enclave))  # type: ignore[misc]


@pytest.mark.parametrize("status", [200, 301, 302, 307, 308, 404, 500, 502, 503, 504])
@asks
def test_html_page_of_a_proxy(scene: Scene, status: int, ask: Callable[[Any], Any]) -> None:
    """The sender is unknown, but a 200 claims to be an answer."""
    page = httpx.Response(status, content=b"<html>Bad Gateway</html>", headers={"location": "http://elsewhere.test/"})
    scene.node.wire = lambda request, response: page
    if status == 200:
        scene.caught(Forgery, lambda: ask(scene.enclave))
    else:
        unreachable(scene, ask)


def unreachable(scene: Scene, ask: Callable[[Any], Any]) -> None:
    before = scene.stage.pin(scene.enclave)
    with pytest.raises(Unreachable):
        drain(ask(scene.enclave))
    assert scene.stage.pin(scene.enclave) == before


@asks
def test_redirect(scene: Scene, ask: Callable[[Any], Any]) -> None:
    """A redirect is not followed: it would send a commit or a session elsewhere."""
    asked = list[str]()

    def redirect(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(307, headers={"location": "http://elsewhere.test" + request.url.path})

    scene.node.wire = redirect
    unreachable(scene, ask)
    assert asked == ["node.test"]


class Endless(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body without an end."""

    is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield b" " * 1000

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield b" " * 1000

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.is_closed = True


@asks
def test_endless_answer(scene: Scene, ask: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MAX_ANSWER", 10_000)
    body = Endless()
    scene.node.wire = lambda request, response: httpx.Response(200, stream=body)
    unreachable(scene, ask)
    assert body.is_closed


@asks
def test_answer_that_is_not_compressed_as_it_says(scene: Scene, ask: Callable[[Any], Any]) -> None:
    class Plain(Endless):
        def __iter__(self) -> Iterator[bytes]:
            yield b"not gzip"

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"not gzip"

    scene.node.wire = lambda request, response: httpx.Response(
        200, stream=Plain(), headers={"content-encoding": "gzip"}
    )
    unreachable(scene, ask)


def test_refusal_that_is_a_lie_brings_nothing_back(scene: Scene) -> None:
    """That the event does not exist is only the node's statement, and is reported as such."""
    scene.lie("Bundle_Proof", instead(EventNotFound("no such event")))
    with pytest.raises(EventNotFound):
        scene.enclave.proof(scene.id("one"))


@pytest.mark.parametrize("after", [10**400, -1, 1.5e308, True, "soon", None, []], ids=lambda after: str(after)[:8])
def test_refusal_with_a_false_time_to_wait(scene: Scene, after: Any) -> None:
    text = encode({"type": "Error", "code": "UNAVAILABLE", "message": "later"})[:-1]
    wait = str(after).encode() if isinstance(after, int) and not isinstance(after, bool) else encode(after)
    body = text + b',"retry_after_ms":' + wait + b"}"
    scene.node.wire = lambda request, response: httpx.Response(503, content=body)
    with pytest.raises(EncError):
        scene.stage.client("bob", patience=1.0).enclave(scene.enclave.id).head()
    assert sum(scene.stage.naps) <= 1.0
