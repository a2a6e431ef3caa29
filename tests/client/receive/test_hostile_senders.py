"""What strangers, and the receiver's own callbacks, can do to a receiver."""

import sqlite3
from typing import Any

import msgspec
import pytest

from enc.core.errors import EnclaveTerminated, Unauthorized
from tests.client.pushing import (
    HOOK,
    Post,
    body,
    keeps,
    push,
    rows_of,
    sealed,
    until,
)
from tests.node.served import NODE


def test_a_push_for_another_url_is_not_taken_under_this_one(post: Post) -> None:
    """Someone resends a delivery to another of bob's URLs here, with the plain `url` changed."""
    one, two = post.enclave(["one"]), post.enclave(["two"])
    receiver = post.started()
    elsewhere = msgspec.json.decode(
        sealed({**body(1, *one), "url": "https://bob.test/other"}, url="https://bob.test/other")
    )
    replay = msgspec.json.encode({**elsewhere, "url": HOOK})
    with pytest.raises(Unauthorized):
        receiver.take(replay)
    receiver.take(push(1, *two))  # the true batch 1 of this queue: answered 200
    seen = {enclave for enclave, _ in post.seen(receiver)}
    assert two[0].enclave.hex() in seen, "the true batch was answered 200 and is lost"


def test_a_gap_is_pulled_though_the_first_16_enclaves_are_purged(post: Post) -> None:
    enclaves = sorted((post.enclave(["x", "y"]) for _ in range(17)), key=lambda events: events[0].enclave)
    gone, alive = enclaves[:16], enclaves[16]
    names = [events[0].enclave.hex().encode() for events in gone]
    asked = list[bool]()

    def pull(answer: Any) -> Any:
        if asked[-1]:
            raise EnclaveTerminated("purged")
        return [body(2, alive[1])]

    post.node.arrives = lambda request: asked.append(any(name in request.read() for name in names))
    post.node.lie("Pull", pull)
    receiver = post.started()
    receiver.take(push(1, *(events[0] for events in enclaves)))
    receiver.take(push(3, alive[2]))
    until(receiver, lambda: len(rows_of(receiver)) == 19)


def test_a_notice_that_cannot_be_read_once_does_not_end_the_clerk(post: Post) -> None:
    events = post.enclave(["one"])
    receiver = post.receiver(on_notice=lambda notice: None)
    honest, broken = receiver.inbox.notices, [sqlite3.OperationalError("disk I/O error")]

    def notices() -> Any:
        if broken:
            raise broken.pop()
        return honest()

    receiver.inbox.notices = notices  # type: ignore[method-assign]
    receiver.start()
    until(receiver, lambda: not broken)
    receiver.take(push(1, *events))
    assert receiver.worker.error is None


def test_a_callback_that_raises_does_not_end_catching_up(post: Post) -> None:
    events = post.enclave(["one", "two", "three"])
    lie = body(2, events[1])
    lie["push"]["enclaves"][0]["events"][0]["content"] = "another"
    keeps(post, lie)

    def complain(error: Any) -> None:
        post.lies.append(error)
        raise RuntimeError("a fault in the callback")

    receiver = post.started(on_distrust=complain)
    receiver.take(push(1, events[0]))
    receiver.take(push(3, events[2]))
    until(receiver, lambda: post.lies)
    (catch_up,) = receiver._catch_ups.values()
    keeps(post, body(2, events[1]))
    receiver.take(push(4, events[3]))
    catch_up._thread.join(0.2)
    assert catch_up._thread.is_alive()
    until(receiver, lambda: len(rows_of(receiver)) == 4)


def test_events_of_enclaves_that_are_not_accepted_are_let_go(post: Post) -> None:
    mine, strangers = post.enclave(["one"]), post.enclave(["two"])
    receiver = post.started(accepts=lambda enclave: enclave == mine[0].enclave)
    receiver.take(push(1, *strangers, *mine))
    receiver.take(push(2, *strangers))
    assert post.seen(receiver) == [(mine[0].enclave.hex(), 0), (mine[0].enclave.hex(), 1)]
    assert receiver.worker.submit(lambda: receiver.inbox.position(NODE.public)).result().enclaves == (mine[0].enclave,)
