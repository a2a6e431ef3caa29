"""How a feed ends, and what does not end it."""

import pytest

from enc.client import Forgery
from enc.client.subscribe import feed as module
from enc.core.errors import (
    EncError,
    EnclaveMigrated,
    EnclaveTerminated,
    EventNotFound,
    InternalError,
    InvalidQuery,
    RateLimited,
    Unauthorized,
    Unavailable,
)
from enc.testing.lying_node import Json
from tests.client.scene import Scene
from tests.client.subscribe.driver import Driver


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
    """Otherwise a node could cause endless requests: the driver waits first."""
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
    """The node then has no such subscription, and its Error names none."""
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
