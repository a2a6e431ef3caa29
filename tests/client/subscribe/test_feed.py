"""The feed: each event once and in order, over any number of connections, sessions and Queries."""

from typing import Any

import pytest

from enc.client import Forgery
from enc.client.link.enclave_session import RENEW_S, SESSION_S
from enc.client.subscribe import feed as module
from enc.client.verify.log_verifier import LogVerifier
from enc.client.verify.pins import MemoryPins
from enc.core.errors import (
    SessionExpired,
)
from enc.core.log.event import wire_event
from enc.testing.lying_node import Json
from tests.client.scene import Scene
from tests.client.subscribe.driver import Driver


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
    """The connection may be lost at any point: in the stored events, around their end, in the live ones."""
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
    """The first Query brings live events before the second has filled the gap."""
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
    """Return the same feed, with a verifier that has not seen the receipts."""
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
    assert len({message["session"] for message in driver.socket.received}) == 2
    driver.pump()
    assert driver.asked == ["Query feed-1", "Query feed-2", "Close feed-1"]


@pytest.mark.parametrize("heard", range(6))
def test_two_queries_at_a_renewal_bring_each_event_once(scene: Scene, heard: int) -> None:
    """The old Query is closed when the new one has caught up; until then both bring events."""
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
    """The node's clock decides: the feed asks again in a new session."""
    driver = Driver(scene)
    driver.connect()
    driver.pump()
    driver.take({"type": "Closed", "sub_id": "feed-1", "reason": "session_expired"})
    scene.stage.clock.tick(1000)
    driver.write("more")
    assert driver.pump() == list(range(9))
    scene.stage.clock.tick(1000)
    driver.take({"type": "Closed", "sub_id": "feed-2", "reason": "session_expired"})
    assert len({message["session"] for message in driver.socket.received}) == 2
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
