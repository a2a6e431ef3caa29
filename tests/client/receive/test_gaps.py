"""Gaps: missed pushes are pulled, expired batches are queried, and lost events are reported."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from enc.client import Forgery, Gap, PushReceiver
from enc.client.receive.catch_up import ROUND_S
from enc.client.verify.pins import FilePins, Pin
from enc.core.errors import EnclaveNotFound, PeerError, RateLimited, Unauthorized, Unavailable
from enc.core.primitives.types import Event
from enc.runtime.backoff import RetryPauses
from enc.testing.lying_node import Json
from tests.client.pushing import (
    HOOK,
    Post,
    body,
    fails,
    handed,
    keeps,
    note,
    push,
    rows_of,
    unreachable,
    until,
)
from tests.client.scene import flip, instead
from tests.client.stage import URL
from tests.core.world import person
from tests.node.served import NODE


def test_a_gap_is_pulled(post: Post) -> None:
    events = post.enclave(["one", "two", "three"])
    asked = keeps(post, *(body(n + 1, event) for n, event in enumerate(events)))
    receiver = post.started()
    receiver.take(push(1, events[0]))
    receiver.take(push(4, events[3]))
    handed(receiver, 0, 1, 2, 3)
    assert {"start_after": 1, "end_at": 3} in asked
    assert post.node.asked["url"] == HOOK
    assert post.gaps == []


def test_a_gap_is_pulled_page_by_page(post: Post) -> None:
    events = post.enclave(["one", "two", "three"])
    keeps(post, *(body(n + 1, event) for n, event in enumerate(events)), page=1)
    receiver = post.started()
    receiver.take(push(4, events[3]))
    handed(receiver, 0, 1, 2, 3)
    assert post.gaps == []


def test_a_batch_whose_contents_are_withheld_is_no_gap(post: Post) -> None:
    events = post.enclave(["one", "two"])
    keeps(post, body(2))
    receiver = post.started()
    receiver.take(push(1, events[0]))
    receiver.take(push(3, events[2]))
    handed(receiver, 0, 2)
    assert post.gaps == []


def test_what_a_pull_brings_is_checked(post: Post) -> None:
    events = post.enclave(["one", "two"])
    lie = body(2, events[1])
    lie["push"]["enclaves"][0]["events"][0]["sig"] = flip(lie["push"]["enclaves"][0]["events"][0]["sig"])
    keeps(post, lie)
    receiver = post.started()
    receiver.take(push(1, events[0]))
    receiver.take(push(3, events[2]))
    until(receiver, lambda: post.lies)
    assert isinstance(post.lies[0], Forgery)
    handed(receiver, 0)
    receiver.take(push(2, events[1]))  # the answer that the node should have given
    handed(receiver, 0, 1, 2)


def test_a_pull_that_fails_is_tried_again(post: Post) -> None:
    events = post.enclave(["one", "two"])
    receiver, calls = post.started(), 0

    def pull(_: Any) -> list[Json]:
        nonlocal calls
        calls += 1
        if calls < 4:
            raise (Unavailable("busy"), RateLimited("slower"), Unauthorized("not now"))[calls - 1]
        return [body(2, events[1])]

    post.node.lie("Pull", pull)
    receiver.take(push(1, events[0]))
    receiver.take(push(3, events[2]))
    handed(receiver, 0, 1, 2)
    assert post.gaps == []


def test_an_enclave_that_the_node_does_not_know_any_more_is_not_the_only_one_to_ask_by(post: Post) -> None:
    gone, here = sorted((post.enclave(["one"]), post.enclave(["one"])), key=lambda events: events[0].enclave)
    receiver = post.started()

    def pull(answer: Any) -> list[Json]:
        if post.gone_is_asked:  # type: ignore[attr-defined]
            raise EnclaveNotFound("purged")
        return [body(2, here[1])]

    post.node.arrives = lambda request: setattr(post, "gone_is_asked", gone[0].enclave.hex().encode() in request.read())
    post.node.lie("Pull", pull)
    receiver.take(push(1, gone[0], here[0]))
    receiver.take(push(3))
    until(receiver, lambda: len(rows_of(receiver)) == 3)


def test_what_is_missing_is_asked_for_when_it_starts(post: Post) -> None:
    events = post.enclave(["one", "two"])
    with post.receiver() as receiver:
        receiver.take(push(1, events[0]))
    asked = keeps(post, body(2, events[1]), body(3, events[2]))
    receiver = post.started()
    handed(receiver, 0, 1, 2)
    assert asked[0] == {"start_after": 1}


def test_a_new_receiver_that_is_told_an_enclave_asks_by_it_when_it_starts(post: Post) -> None:
    events, other = post.enclave(["one", "two"]), post.enclave()
    asked = keeps(post, body(1, events[0]), body(2, *events[1:]))
    receiver = post.started(enclave=other[0].enclave.hex())
    handed(receiver, 0, 1, 2)
    assert asked[0] == {"start_after": 0}
    assert post.gaps == []


def test_one_that_is_told_none_says_that_it_waits(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "enc.client.receiver")
    asked = keeps(post, body(1, *post.enclave(["one"])))
    receiver = post.started()
    (catch_up,) = receiver._catch_ups.values()
    until(receiver, lambda: catch_up._due == post.now + ROUND_S)
    assert f"{URL}: no enclave on that node is known, so" in caplog.text
    assert asked == []


def test_an_enclave_is_asked_by_only_at_the_node_that_it_is_pinned_to(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    mine, foreign = post.enclave(["one"]), post.enclave()
    FilePins(post.stage.pins).remove(foreign[0].enclave)
    FilePins(post.stage.pins).store(foreign[0].enclave, Pin(person("node2").public, None))
    keeps(post, body(1, *mine))
    receiver = post.started(enclave=[foreign[0].enclave, mine[0].enclave])
    handed(receiver, 0, 1)
    assert post.lies == []


def test_a_named_enclave_that_a_node_does_not_answer_for_is_told_of(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    post.node.lie("Pull", instead(EnclaveNotFound("no such enclave")))
    first, *_ = post.enclave()
    receiver = post.started(enclave=first.enclave)
    (catch_up,) = receiver._catch_ups.values()
    until(receiver, lambda: catch_up._due == post.now + ROUND_S)
    assert f"{URL} refuses a Pull by {first.enclave.hex()}: ENCLAVE_NOT_FOUND" in caplog.text


def test_a_node_that_is_down_when_it_starts_is_told_of(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    with post.receiver() as receiver:
        receiver.take(push(1, *post.enclave()))
    post.node.arrives = unreachable
    receiver = post.started(retries=RetryPauses(first_s=1.0))
    (catch_up,) = receiver._catch_ups.values()
    until(receiver, lambda: catch_up._is_down)
    assert f"{URL} cannot be asked for missing batches; retrying: UNREACHABLE" in caplog.text


@pytest.mark.parametrize("is_gap", [True, False])
def test_a_push_shows_that_its_node_is_up_and_may_be_asked_again(post: Post, is_gap: bool) -> None:
    events = post.enclave(["one", "two", "three"])
    with post.receiver() as receiver:
        receiver.take(push(1, events[0]))
    post.node.arrives = unreachable
    receiver = post.started(retries=RetryPauses(first_s=7.0))
    (catch_up,) = receiver._catch_ups.values()
    until(receiver, lambda: catch_up._is_down)
    keeps(post, body(2, events[1]), body(3, events[2]), body(4, events[3]))
    post.node.arrives = lambda request: None
    receiver.take(push(3 if is_gap else 2, events[2 if is_gap else 1]))
    handed(receiver, 0, 1, 2, *([] if is_gap else [3]))


@pytest.mark.parametrize("refusal", [Unauthorized, RateLimited])
def test_a_node_that_refuses_is_not_asked_again_by_every_push(post: Post, refusal: type[PeerError]) -> None:
    events = post.enclave(["one", "two", "three"])
    receiver = post.started(retries=RetryPauses(first_s=7.0))
    post.node.lie("Pull", instead(refusal("not now")))
    receiver.take(push(1, events[0]))
    receiver.take(push(3, events[2]))
    (catch_up,) = receiver._catch_ups.values()
    until(receiver, lambda: catch_up._pause)
    receiver.take(push(4, events[3]))
    assert (catch_up._pause, catch_up._due) == (7.0, post.now + 7.0)


def test_what_a_node_has_given_up_to_push_is_asked_for_once_in_a_while(post: Post) -> None:
    events = post.enclave(["one", "two"])
    receiver = post.started()
    receiver.take(push(1, events[0]))
    (catch_up,) = receiver._catch_ups.values()
    until(receiver, lambda: catch_up._due == post.now + ROUND_S)
    keeps(post, body(2, events[1]))
    post.now += ROUND_S
    with catch_up._wake:
        catch_up._wake.notify()
    handed(receiver, 0, 1)


# Lost


def test_lost_batches_are_made_good_by_query(post: Post) -> None:
    events, others = post.enclave(["one", "two", "three"]), post.enclave(["one"])
    keeps(post, body(3, events[2]))
    receiver = post.started()
    receiver.take(push(1, events[0], others[0]))
    receiver.take(push(5, events[3]))
    until(receiver, lambda: len(rows_of(receiver)) == 6)
    rows = rows_of_now(receiver)
    for log in (events, others):
        assert [seq for enclave, seq in rows if enclave == log[0].enclave.hex()] == [event.seq for event in log]
    assert post.gaps == [Gap(NODE.public, HOOK, 2, 2), Gap(NODE.public, HOOK, 4, 4)]
    receiver.take(push(6, others[1]))
    assert len(post.seen(receiver)) == 6


def rows_of_now(receiver: PushReceiver) -> list[tuple[str, int]]:
    return receiver.worker.submit(lambda: rows_of(receiver)).result()


def test_a_new_receiver_asks_for_all_that_came_before(post: Post) -> None:
    events = post.enclave(["one", "two", "three"])
    keeps(post, body(8, events[2]))
    receiver = post.started()
    receiver.take(push(9, events[3]))
    handed(receiver, 0, 1, 2, 3)
    assert post.gaps == [Gap(NODE.public, HOOK, 1, 7)]


def test_a_query_asks_for_no_more_than_the_gap_can_have_held(post: Post) -> None:
    """Undelivered events count as received; early ones are not requested again."""
    events = post.enclave(["one", "two", "three"])
    keeps(post)
    receiver = post.started(fails)
    receiver.take(push(1, *events[:2]))
    receiver.take(push(3, events[3]))
    until(receiver, lambda: post.gaps)
    assert post.node.asked["filter"]["seq"] == {"start_after": 1, "end_before": 3}


def may_not_read(post: Post, receiver: PushReceiver, events: tuple[Event, ...]) -> None:
    """Lose batch 2, and reject the receiver's Query."""
    keeps(post)
    post.node.lie("Query", instead(Unauthorized("no")))
    receiver.take(push(1, events[0]))
    receiver.take(push(3, events[2]))


def test_what_may_not_be_read_holds_everything_up(post: Post) -> None:
    events = post.enclave(["one", "two", "three"])
    receiver = post.started()
    may_not_read(post, receiver, events)
    until(receiver, lambda: post.gaps)
    assert post.gaps == [Gap(NODE.public, HOOK, 2, 2, (events[0].enclave,))]
    receiver.take(push(4, events[3]))
    handed(receiver, 0)
    tries = post.node.calls.count("/")
    until(receiver, lambda: post.node.calls.count("/") > tries + 10)  # it is requested again, and reported once
    receiver.take(push(2, events[1]))  # it was found after all
    handed(receiver, 0, 1, 2, 3)
    assert len(post.gaps) == 1


def test_it_goes_on_without_what_may_not_be_read_if_it_is_told_so(post: Post) -> None:
    events = post.enclave(["one", "two", "three"])

    def on_gap(gap: Gap) -> bool:
        post.gaps.append(gap)
        return True

    receiver = post.started(on_gap=on_gap)
    may_not_read(post, receiver, events)
    handed(receiver, 0, 2)
    assert post.gaps == [Gap(NODE.public, HOOK, 2, 2, (events[0].enclave,))]


def test_without_an_owner_to_tell_it_waits(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    events = post.enclave(["one", "two", "three"])
    receiver = post.started(on_gap=None)
    may_not_read(post, receiver, events)
    until(receiver, lambda: "delivery stops" in caplog.text)
    handed(receiver, 0)


def test_a_gap_that_is_newer_than_the_question_is_not_lost(post: Post) -> None:
    """A batch comes early while the node is asked for everything."""
    events = post.enclave(["one", "two", "three"])
    with post.receiver() as receiver:
        receiver.take(push(1, events[0]))
    receiver, answers = post.receiver(), list[Callable[[], list[Json]]]()

    def first() -> list[Json]:
        receiver.take(push(3, events[2]))
        return []

    answers += [first, lambda: [body(2, events[1])]]
    post.node.lie("Pull", lambda _: answers.pop(0)() if answers else [])
    receiver.start()
    handed(receiver, 0, 1, 2)
    assert post.gaps == []


def test_a_node_that_cannot_be_reached_holds_up_nothing_else(post: Post) -> None:
    events = post.enclave(["one", "two"])
    post.node.arrives = unreachable
    receiver = post.started()
    receiver.take(push(1, events[0]))
    receiver.take(push(3, events[2]))
    handed(receiver, 0)
    receiver.take(push(2, events[1]))
    handed(receiver, 0, 1, 2)
    assert person("bob").public == receiver.identity.public


def test_a_query_in_many_parts_goes_on_where_it_broke_off(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.client.receive.catch_up.PAGE", 2)
    events = post.enclave(["one", "two", "three", "four", "five"])
    keeps(post)
    receiver, fills = post.started(note), 0
    fill = receiver.inbox.fill

    def broken(*what: Any) -> None:
        nonlocal fills
        fills += 1
        if fills == 2:
            raise Unavailable("too many events wait for delivery")
        fill(*what)

    monkeypatch.setattr(receiver.inbox, "fill", broken)
    receiver.take(push(2, events[5]))
    handed(receiver, 0, 1, 2, 3, 4, 5)
    assert fills > 3
