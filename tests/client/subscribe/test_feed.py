"""The feed: each event once and in order, over as many connections, sessions and Queries as it takes."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

from enc.client import AsyncClient, Client, Forgery, Identity, Unreachable
from enc.client.enclave.search import as_filter
from enc.client.link.enclave_session import RENEW_S, SESSION_S
from enc.client.subscribe import feed as module
from enc.client.subscribe.feed import Feed
from enc.client.verify.log_verifier import LogVerifier
from enc.client.verify.pins import MemoryPins
from enc.core.errors import (
    EncError,
    EnclaveMigrated,
    EnclaveTerminated,
    EventNotFound,
    InternalError,
    InvalidQuery,
    RateLimited,
    SessionExpired,
    Unauthorized,
    Unavailable,
)
from enc.core.log.event import wire_event
from enc.runtime.backoff import RetryPauses
from tests.client.relay import Relay
from tests.client.scene import Scene
from tests.client.stage import FACES, TURNS, Face, Stage
from tests.core.world import person
from tests.node.served import SMALL, Served
from tests.simulator import Json, Socket


class Driver:
    """A feed on a simulated node, message by message. `seqs` is what it handed out."""

    def __init__(self, scene: Scene, after: int | None = -1, **search: Any) -> None:
        self.scene, self.seqs = scene, list[int]()
        reader = scene.enclave._reader
        self.feed = Feed(reader, scene.enclave._run(reader.session.verifier()), as_filter(search), after)

    def connect(self) -> None:
        self.socket = Socket(self.scene.node)
        self.send(*self.feed.connected())

    def send(self, *messages: str) -> None:
        for message in messages:
            self.socket.take(message)

    def lose(self) -> None:
        self.socket.close()

    def take(self, message: Json) -> None:
        turn = self.feed.receive(encode(message).decode())
        self.seqs += [item.seq for item in turn.items]
        self.send(*turn.send)

    def step(self) -> None:
        self.take(self.socket.waiting.popleft())

    def pump(self) -> list[int]:
        """Take everything that has come; what was handed out so far."""
        for _ in range(TURNS):
            if not self.socket.waiting:
                return self.seqs
            self.step()
        raise AssertionError("it asks without end")

    @property
    def asked(self) -> list[str]:
        """The Queries of this connection, and the Closes."""
        return [f"{message['type']} {message['sub_id']}" for message in self.socket.heard]

    def write(self, *texts: str) -> None:
        for text in texts:
            self.scene.enclave.commit("message", text)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    stage = Stage("sync", tmp_path, monkeypatch)
    yield Scene(stage)
    stage.close()


def test_stored_events_come_first_then_live_ones(scene: Scene) -> None:
    driver = Driver(scene)
    driver.connect()
    assert driver.pump() == list(range(8))
    driver.write("live", "and more")
    assert driver.pump() == list(range(10))
    assert driver.asked == ["Query feed-1"]


def test_after_a_seq(scene: Scene) -> None:
    driver = Driver(scene, after=5)
    driver.connect()
    driver.write("live")
    assert driver.pump() == [6, 7, 8]


@pytest.mark.parametrize("cut", range(12))
def test_a_lost_connection_leaves_no_gap_and_no_repeat(scene: Scene, cut: int) -> None:
    """Wherever it is lost: among the stored events, before or after their end, among the live ones."""
    driver = Driver(scene)
    driver.connect()
    driver.write("live", "and more")
    for _ in range(min(cut, len(driver.socket.waiting))):
        driver.step()
    driver.lose()
    driver.write("meanwhile")
    driver.connect()
    driver.write("at last")
    assert driver.pump() == list(range(12))


def test_a_connection_that_is_lost_again_and_again(scene: Scene) -> None:
    driver = Driver(scene)
    for _ in range(13):
        driver.connect()
        driver.step()
        driver.write("more")
        driver.lose()
    driver.connect()
    assert driver.pump() == list(range(8 + 13))


# More than one page


def test_more_is_stored_than_one_query_gives(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LIMIT", 3)
    driver = Driver(scene)
    driver.connect()
    assert driver.pump() == list(range(8))
    assert driver.asked == ["Query feed-1", "Query feed-2", "Query feed-3", "Close feed-1", "Close feed-2"]
    driver.write("live")
    assert driver.pump() == list(range(9))


def test_events_that_come_between_two_pages(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first Query goes on with them before the second has brought what lies between."""
    monkeypatch.setattr(module, "MAX_LIMIT", 3)
    driver = Driver(scene)
    driver.connect()
    for i in range(20):
        if driver.socket.waiting:
            driver.step()
        if i % 2:
            driver.write(f"{i}")
    assert driver.pump() == list(range(18))


@pytest.mark.parametrize("cut", range(1, 16))
def test_a_connection_lost_between_two_pages(scene: Scene, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    monkeypatch.setattr(module, "MAX_LIMIT", 3)
    driver = Driver(scene)
    driver.connect()
    for _ in range(cut):
        if driver.socket.waiting:
            driver.step()
    driver.lose()
    driver.write("meanwhile")
    driver.connect()
    assert driver.pump() == list(range(9))


def test_time_does_not_fall_from_one_connection_to_the_next(scene: Scene) -> None:
    driver = Driver(scene)
    driver.connect()
    driver.pump()
    driver.lose()
    driver.write("later")
    early = scene.node.event(scene.commit("early"), 8, scene.sent["three"].timestamp)
    scene.lie("Event", lambda item: {**item, "event": wire_event(early)})
    scene.stage.reader(scene.enclave).session._verifier = None
    driver = replaced(driver)
    driver.connect()
    with pytest.raises(Forgery, match="dated before"):
        driver.pump()


def replaced(driver: Driver) -> Driver:
    """The same feed, with a sceptic that has not seen the receipts."""
    feed = driver.feed
    feed._verifier = LogVerifier(feed._verifier.enclave, feed._verifier.sequencer, MemoryPins())
    return driver


# Sessions


def test_the_session_is_renewed_before_its_end(scene: Scene) -> None:
    driver = Driver(scene)
    driver.connect()
    driver.pump()
    due = driver.feed.due_in
    assert SESSION_S - RENEW_S <= due <= SESSION_S - RENEW_S + 1
    assert driver.feed.tick() == (), "not yet"
    scene.stage.clock.tick(round(due * 1000))
    assert driver.feed.due_in == 0
    driver.send(*driver.feed.tick())
    assert driver.feed.due_in > SESSION_S - RENEW_S - 1
    assert len({message["session"] for message in driver.socket.heard}) == 2
    driver.pump()
    assert driver.asked == ["Query feed-1", "Query feed-2", "Close feed-1"]


@pytest.mark.parametrize("heard", range(6))
def test_two_queries_at_a_renewal_bring_each_event_once(scene: Scene, heard: int) -> None:
    """The old one is closed when the new one has caught up; until then both bring what comes."""
    driver = Driver(scene)
    driver.connect()
    driver.pump()
    scene.stage.clock.tick(round(driver.feed.due_in * 1000))
    driver.write("before")
    driver.send(*driver.feed.tick())
    driver.write("during", "and more")
    for _ in range(heard):
        driver.step()
    driver.write("after")
    assert driver.pump() == list(range(12))
    driver.write("at last")
    assert driver.pump() == list(range(13))


def test_a_renewal_while_more_is_stored(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LIMIT", 3)
    driver = Driver(scene)
    driver.connect()
    for _ in range(5):
        driver.step()
    scene.stage.clock.tick(round(driver.feed.due_in * 1000))
    driver.send(*driver.feed.tick())
    driver.write("live")
    assert driver.pump() == list(range(9))
    driver.write("and more")
    assert driver.pump() == list(range(10))


def test_a_session_that_the_node_ends(scene: Scene) -> None:
    """By its own clock: then a new one is asked in, not the same again."""
    driver = Driver(scene)
    driver.connect()
    driver.pump()
    driver.take({"type": "Closed", "sub_id": "feed-1", "reason": "session_expired"})
    scene.stage.clock.tick(1000)
    driver.write("more")
    assert driver.pump() == list(range(9))
    scene.stage.clock.tick(1000)
    driver.take({"type": "Closed", "sub_id": "feed-2", "reason": "session_expired"})
    assert len({message["session"] for message in driver.socket.heard}) == 2
    assert driver.pump() == list(range(9))


def expired(sub_id: str) -> Json:
    return {**SessionExpired("over").to_wire(), "sub_id": sub_id}


def test_a_session_that_the_node_does_not_take_is_renewed_once(scene: Scene) -> None:
    """A second refusal of a new session is an error: the clocks are too far apart."""
    driver = Driver(scene)
    driver.connect()
    driver.take(expired("feed-1"))
    assert driver.asked[-1] == "Query feed-2"
    with pytest.raises(SessionExpired):
        driver.take(expired("feed-2"))


def test_a_session_is_renewed_again_once_something_has_come(scene: Scene) -> None:
    driver = Driver(scene)
    driver.connect()
    driver.socket.waiting.clear()
    driver.take(expired("feed-1"))
    driver.step()
    driver.socket.waiting.clear()
    driver.take(expired("feed-2"))
    assert driver.pump() == list(range(8))


# How a subscription ends


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("access_revoked", Unauthorized),
        ("enclave_terminated", EnclaveTerminated),
        ("enclave_migrated", EnclaveMigrated),
        ("shutting_down", Unavailable),
    ],
)
def test_a_reason_that_ends_the_feed_or_the_connection(scene: Scene, reason: str, error: type[EncError]) -> None:
    driver = Driver(scene)
    driver.connect()
    driver.pump()
    with pytest.raises(error):
        driver.take({"type": "Closed", "sub_id": "feed-1", "reason": reason})


@pytest.mark.parametrize("reason", ["enclave_paused", "too_slow", "session_expired", "whatever may come"])
def test_a_reason_after_which_it_asks_again(scene: Scene, reason: str) -> None:
    driver = Driver(scene)
    driver.connect()
    driver.pump()
    driver.write("unheard")
    driver.socket.waiting.clear()
    driver.take({"type": "Closed", "sub_id": "feed-1", "reason": reason})
    assert driver.pump() == list(range(9))


@pytest.mark.parametrize("reason", ["enclave_paused", "too_slow", "session_expired", "whatever may come"])
def test_a_query_that_is_closed_before_it_brought_anything_is_not_asked_again_at_once(
    scene: Scene, reason: str
) -> None:
    """Else a node could have it ask without end: whoever drives it waits first."""
    driver = Driver(scene)
    driver.connect()
    with pytest.raises(Unavailable, match=reason):
        driver.take({"type": "Closed", "sub_id": "feed-1", "reason": reason})


def test_an_old_query_that_is_closed_while_a_new_one_is_there(scene: Scene) -> None:
    driver = Driver(scene)
    driver.connect()
    driver.pump()
    scene.stage.clock.tick(round(driver.feed.due_in * 1000))
    driver.send(*driver.feed.tick())
    driver.take({"type": "Closed", "sub_id": "feed-1", "reason": "session_expired"})
    driver.write("more")
    assert driver.pump() == list(range(9))
    assert driver.asked == ["Query feed-1", "Query feed-2"]


def test_what_still_comes_for_a_closed_query_is_passed_over(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LIMIT", 3)
    driver = Driver(scene)
    driver.connect()
    late = driver.socket.waiting[0]
    driver.pump()
    driver.take(late)
    driver.take({"type": "EOSE", "sub_id": "feed-1"})
    driver.take({"type": "Closed", "sub_id": "feed-1", "reason": "enclave_terminated"})
    assert driver.pump() == list(range(8))


def test_what_was_asked_on_a_lost_connection_is_not_answered_on_the_next(scene: Scene) -> None:
    driver = Driver(scene)
    driver.connect()
    late = driver.socket.waiting[0]
    driver.lose()
    driver.connect()
    with pytest.raises(Forgery):
        driver.take(late)


@pytest.mark.parametrize("error", [RateLimited("slow"), Unavailable("full"), InternalError("oh")], ids=str)
def test_a_refusal_that_passes_is_raised_to_who_connects_again(scene: Scene, error: EncError) -> None:
    driver = Driver(scene)
    driver.connect()
    with pytest.raises(type(error)):
        driver.take({**error.to_wire(), "sub_id": "feed-1"})
    driver.connect()
    assert driver.pump() == list(range(8))


@pytest.mark.parametrize("error", [Unauthorized("no"), EventNotFound("no"), InvalidQuery("no")], ids=str)
def test_a_refusal_that_stays_is_raised(scene: Scene, error: EncError) -> None:
    driver = Driver(scene)
    driver.connect()
    with pytest.raises(type(error)):
        driver.take({**error.to_wire(), "sub_id": "feed-1"})


def test_a_refusal_of_an_unknown_code_keeps_it(scene: Scene) -> None:
    driver = Driver(scene)
    driver.connect()
    with pytest.raises(EncError) as caught:
        driver.take({"type": "Error", "code": "NEW_CODE", "message": "later versions", "sub_id": "feed-1"})
    assert caught.value.code == "NEW_CODE"


def test_a_close_that_crossed_the_end_of_its_query_is_no_error(scene: Scene) -> None:
    """The node knows no such subscription then, and its Error names none."""
    driver = Driver(scene)
    driver.connect()
    driver.pump()
    driver.take(InvalidQuery("sub_id: no such subscription on this connection").to_wire())
    driver.write("more")
    assert driver.pump() == list(range(9))


def test_a_node_that_has_no_room_for_the_connection(scene: Scene) -> None:
    driver = Driver(scene)
    driver.connect()
    with pytest.raises(Unavailable):
        driver.take(Unavailable("too many WebSockets").to_wire())


@pytest.mark.parametrize(
    "message",
    [{"type": "Notice", "message": "for people"}, {"type": "New", "sub_id": "feed-1"}, {"type": "Receipt"}, {}],
    ids=str,
)
def test_messages_that_are_not_for_a_feed_are_passed_over(scene: Scene, message: Json) -> None:
    driver = Driver(scene)
    driver.connect()
    driver.take(message)
    assert driver.pump() == list(range(8))


def test_the_end_of_the_stored_events_comes_once(scene: Scene) -> None:
    driver = Driver(scene)
    driver.connect()
    driver.pump()
    with pytest.raises(Forgery):
        driver.take({"type": "EOSE", "sub_id": "feed-1"})


# From now on


def test_from_now_on(scene: Scene) -> None:
    driver = Driver(scene, after=None)
    driver.connect()
    assert driver.pump() == []
    driver.write("live", "and more")
    assert driver.pump() == [8, 9]


def test_from_now_on_where_nothing_matched_yet(scene: Scene) -> None:
    driver = Driver(scene, after=None, type="Pause")
    driver.connect()
    assert driver.pump() == []
    driver.lose()
    scene.enclave.pause()
    driver.connect()
    assert driver.pump() == [8]


def test_from_now_on_is_where_it_was_when_the_connection_was_lost(scene: Scene) -> None:
    driver = Driver(scene, after=None)
    driver.connect()
    driver.pump()
    driver.lose()
    driver.write("meanwhile")
    driver.connect()
    driver.write("live")
    assert driver.pump() == [8, 9]


@pytest.mark.parametrize("heard", [0, 1])
def test_from_now_on_begins_when_the_node_has_said_where_now_is(scene: Scene, heard: int) -> None:
    driver = Driver(scene, after=None)
    driver.connect()
    for _ in range(heard):
        driver.step()
    driver.lose()
    driver.write("too early")
    driver.connect()
    driver.write("live")
    assert driver.pump() == [9]


# Filters


def test_a_filter_holds_over_all_connections(scene: Scene) -> None:
    driver = Driver(scene, type="message")
    driver.connect()
    driver.step()
    driver.lose()
    driver.connect()
    scene.enclave.shared("topic", "more")
    driver.write("live")
    assert driver.pump() == [1, 2, 4, 7, 9]


@pytest.mark.parametrize(
    ("after", "seq", "seqs"),
    [
        (-1, {"start_at": 3}, [3, 4, 5, 6, 7, 8]),
        (4, {"start_at": 3}, [5, 6, 7, 8]),
        (1, {"start_after": 3}, [4, 5, 6, 7, 8]),
        (5, {"start_after": 3}, [6, 7, 8]),
        (2, {"end_at": 4}, [3, 4]),
        (-1, {"start_at": 2, "end_before": 5}, [2, 3, 4]),
        (-1, [1, 8, 9], [1, 8]),
        (1, [1, 8, 9], [8]),
        (-1, 8, [8]),
    ],
    ids=str,
)
def test_the_seqs_that_are_asked_for_are_kept(scene: Scene, after: int, seq: Any, seqs: list[int]) -> None:
    driver = Driver(scene, after=after, seq=seq)
    driver.connect()
    driver.step()
    driver.lose()
    driver.connect()
    driver.write("live")
    assert driver.pump() == seqs


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
    """And the node is asked again when it said it may be."""
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
    """The connection is quiet until the renewal is due: then it is done, and events go on."""
    feed = staged.enclave.subscribe(after=6)
    assert next(feed).seq == 7
    (socket,) = staged.node.sockets
    socket.waiting.clear()
    quiet = [True]

    def recv(self: Any, timeout: float | None = None) -> str:
        if not socket.waiting and quiet.pop():
            staged.stage.clock.tick((SESSION_S - RENEW_S + 1) * 1000)
            raise TimeoutError
        if len(socket.heard) == 2 and len(socket.waiting) == 1:
            staged.node.take(staged.commit("live"))
        return encode(socket.waiting.popleft()).decode()

    monkeypatch.setattr("tests.client.stage.Connection.recv", recv)
    assert next(feed).seq == 8
    assert len({message["session"] for message in socket.heard if message["type"] == "Query"}) == 2


# A real node

EVENTS = 60


@pytest.mark.parametrize("face", FACES)
def test_a_real_connection_that_is_cut_while_events_are_written(
    face: Face, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enc.client.wire.retrying_caller.PAUSES", RetryPauses(first_s=0.0))
    with Served() as node, Relay(node.url) as relay:
        monkeypatch.setattr("enc.client.faces.setup.now_ms", lambda: node.clock.now)
        enclave = node.found(SMALL)

        def heard(seq: int) -> bool:
            """Now and then the wire is cut; three more events come when all are heard. Whether to go on."""
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


def follow_sync(url: str, enclave: bytes, pins: Path, heard: Heard) -> list[int]:
    seqs = []
    with Client(url, Identity(person("bob")), pins=pins) as client, client.enclave(enclave).subscribe() as feed:
        for item in feed:
            seqs.append(item.seq)
            if not heard(item.seq):
                break
    return seqs


def follow_async(url: str, enclave: bytes, pins: Path, heard: Heard) -> list[int]:
    async def follow() -> list[int]:
        seqs, client = [], AsyncClient(url, Identity(person("bob")), pins=pins)
        async with client, client.enclave(enclave).subscribe() as feed:
            async for item in feed:
                seqs.append(item.seq)
                if not heard(item.seq):
                    break
        return seqs

    return asyncio.run(follow())


def test_a_query_that_is_closed_when_only_a_cut_one_is_left(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut Query brings nothing any more: it is no reason not to ask again."""
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
