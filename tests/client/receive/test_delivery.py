"""Delivery: each event once and in order, handlers that fail, and notices."""

import asyncio
import sqlite3
import sys
import threading
from contextlib import closing
from itertools import pairwise
from typing import Any

import pytest

from enc.client import PushReceiver
from enc.client.enclave.push_body import parse_batch
from enc.client.receive.inbox_file import Db
from enc.core.errors import MisuseError, Unavailable
from enc.core.primitives.types import Event
from enc.runtime.backoff import RetryPauses
from tests.client.pushing import (
    OTHER,
    Post,
    body,
    fails,
    log_lines,
    note,
    push,
    rows_of,
    settle,
    unreachable,
    until,
)
from tests.client.stage import URL
from tests.node.served import NODE

# Once, and in order


def test_a_repeated_batch_is_taken_once(post: Post) -> None:
    events = post.enclave(["one"])
    receiver = post.started()
    for _ in range(3):
        receiver.take(push(1, *events))
        settle(receiver)
    receiver.take(push(2))
    receiver.take(push(2, *post.enclave(["never"])))
    assert post.seqs(receiver) == [0, 1]


def test_a_repeated_event_is_handed_over_once(post: Post) -> None:
    events = post.enclave(["one", "two", "three"])
    receiver = post.started()
    receiver.take(push(1, *events[:3]))
    settle(receiver)
    receiver.take(push(2, *events))
    receiver.take(push(3, *events[1:]))
    assert post.seqs(receiver) == [0, 1, 2, 3]


def test_batches_out_of_order_wait_for_those_before_them(post: Post) -> None:
    events = post.enclave(["one", "two"])
    post.node.arrives = unreachable
    receiver = post.started()
    receiver.take(push(3, events[2]))
    receiver.take(push(2, events[1]))
    receiver.take(push(3, events[2]))
    assert post.seen(receiver) == []
    receiver.take(push(1, events[0]))
    assert post.seqs(receiver) == [0, 1, 2]


def test_each_node_has_a_queue_of_its_own(post: Post) -> None:
    first, *_ = post.enclave()
    receiver = post.started(nodes={NODE.public: URL, OTHER.public: "http://other.test"})
    post.node.arrives = unreachable
    receiver.take(push(2, key=OTHER))
    receiver.take(push(1, first))
    assert post.seqs(receiver) == [0]
    assert receiver.worker.submit(lambda: receiver.inbox.position(OTHER.public)).result().until == 1


def test_what_waits_is_bounded(post: Post) -> None:
    events = post.enclave(["x" * 1000] * 4)
    post.node.arrives = unreachable
    receiver = post.started(max_early=2)
    receiver.take(push(3, events[2]))
    receiver.take(push(4, events[3]))
    with pytest.raises(Unavailable) as found:
        receiver.take(push(5, events[4]))
    assert found.value.context == {"retry_after_ms": 1000}
    receiver.take(push(1, events[0]))
    receiver.take(push(2, events[1]))
    receiver.take(push(5, events[4]))
    assert post.seqs(receiver) == [0, 1, 2, 3, 4]


def test_what_waits_is_bounded_in_bytes_and_what_came_early_leaves_room_for_what_it_waits_for(post: Post) -> None:
    events = post.enclave(["x" * 1000] * 4)
    post.node.arrives = unreachable
    receiver = post.started(max_waiting=3000)
    receiver.take(push(2, events[1]))
    with pytest.raises(Unavailable):
        receiver.take(push(3, events[2]))
    receiver.take(push(1, events[0]))
    assert post.seqs(receiver) == [0, 1]
    assert receiver.inbox.bytes == 0
    receiver.close()

    full = post.started(fails, max_waiting=3000, state=post.state.with_name("full.db"))
    full.take(push(1, *events[:3]))
    with pytest.raises(Unavailable):
        full.take(push(2, events[3]))


def test_it_goes_on_where_it_was(post: Post) -> None:
    events = post.enclave(["one", "two", "three"])
    with post.receiver(fails) as receiver:
        receiver.take(push(1, *events[:2]))
        post.node.arrives = unreachable
        receiver.take(push(3, events[3]))
    with post.receiver() as receiver:
        assert post.seqs(receiver) == [0, 1]
        receiver.take(push(1, *events[:2]))
        receiver.take(push(2, events[2]))
        assert post.seqs(receiver) == [0, 1, 2, 3]
    with post.receiver() as receiver:
        receiver.take(push(2, events[2]))
        receiver.take(push(4, *events))
        assert post.seqs(receiver) == [0, 1, 2, 3]


# Handlers


def test_a_handler_that_raises_is_called_again_in_order_while_other_enclaves_go_on(post: Post) -> None:
    ill, well = post.enclave(["one", "two"]), post.enclave(["one", "two"])
    is_ill, tried = True, list[int]()

    def handle(event: Event, db: Db) -> None:
        note(event, db)
        if event.enclave == ill[0].enclave:
            tried.append(event.seq)
            if is_ill and event.seq == 1:
                raise RuntimeError("not now")

    receiver = post.started(handle, group=100)
    receiver.take(push(1, *ill, *well))
    until(receiver, lambda: len(tried) > 5)
    assert set(tried[1:]) == {1}
    rows = receiver.worker.submit(lambda: rows_of(receiver)).result()
    assert [seq for enclave, seq in rows if enclave == well[0].enclave.hex()] == [0, 1, 2]
    assert [seq for enclave, seq in rows if enclave == ill[0].enclave.hex()] == [0]
    is_ill = False
    rows = post.seen(receiver)
    assert [seq for enclave, seq in rows if enclave == ill[0].enclave.hex()] == [0, 1, 2]
    assert len(rows) == 6


def test_a_handler_that_raises_is_left_alone_for_longer_each_time(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    tried = list[float]()

    def handle(event: Event, db: Db) -> None:
        tried.append(post.now)
        raise RuntimeError("not now")

    (first,) = post.enclave()
    receiver = post.started(handle, retries=RetryPauses(first_s=1.0, max_s=4.0))
    receiver.take(push(1, first))
    until(receiver, lambda: tried)
    for _ in range(64):
        post.now += 0.25
        for _ in range(3):
            receiver.worker.submit(lambda: None).result()
    assert [after - before for before, after in pairwise(tried)] == [1.0, 2.0, 4.0, 4.0, 4.0]
    assert f"the handler failed on event 0 of {first.enclave.hex()}; retrying in 1 s" in caplog.text


def test_a_handler_may_be_async(post: Post) -> None:
    events = post.enclave(["one"])

    async def handle(event: Event, db: Db) -> None:
        await asyncio.sleep(0)
        note(event, db)

    receiver = post.started(handle)
    receiver.take(push(1, *events))
    assert post.seqs(receiver) == [0, 1]


def test_events_share_a_transaction_as_far_as_they_may(post: Post) -> None:
    events, final, is_over = post.enclave(["text"] * 9), list[int](), threading.Event()

    def handle(event: Event, db: Db) -> None:
        note(event, db)
        with closing(sqlite3.connect(post.state)) as other:
            final.append(other.execute("SELECT count(*) FROM seen").fetchone()[0])
        if event == events[-1]:
            is_over.set()

    filed(post.receiver(handle, group=4), *events)
    assert is_over.wait(30)
    assert final == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8]


def filed(receiver: PushReceiver, *events: Event) -> None:
    """Start with these events to deliver and nothing else."""
    receiver._is_started = True
    receiver.worker.submit(lambda: receiver.inbox.file(NODE.public, parse_batch(body(1, *events))))
    receiver.worker.start()


@pytest.mark.parametrize("end", ["db.commit()", "db.rollback()", "db.executescript('')"])
def test_a_handler_cannot_end_the_transaction(post: Post, end: str) -> None:
    refusals = list[MisuseError]()

    def handle(event: Event, db: Db) -> None:
        try:
            eval(end)  # noqa: S307
        except MisuseError as e:
            refusals.append(e)
        note(event, db)

    receiver = post.started(handle)
    receiver.take(push(1, *post.enclave()))
    assert post.seqs(receiver) == [0]
    assert len(refusals) == 1


def test_a_handler_that_ends_the_transaction_ends_the_receiver(post: Post) -> None:
    def handle(event: Event, db: Db) -> None:
        with db:
            pass

    receiver = post.started(handle)
    receiver.take(push(1, *post.enclave()))
    receiver.worker._thread.join()
    assert isinstance(receiver.worker.error, MisuseError)
    with pytest.raises(Unavailable):
        receiver.take(push(2))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_that_calls_for_an_end_has_failed(
    post: Post, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    def handle(event: Event, db: Db) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            sys.exit(3)
        note(event, db)

    async def handle_async(event: Event, db: Db) -> None:
        handle(event, db)

    receiver = post.started(handle_async if is_async else handle)
    receiver.take(push(1, *post.enclave()))
    assert post.seqs(receiver) == [0]
    assert "SystemExit(3)" in caplog.text


def test_whatever_ends_the_receiver_is_told_of(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    def handle(event: Event, db: Db) -> None:
        raise KeyboardInterrupt

    receiver = post.started(handle)
    receiver.take(push(1, *post.enclave()))
    receiver.worker._thread.join()
    assert isinstance(receiver.worker.error, KeyboardInterrupt)
    assert "the receiver stops: KeyboardInterrupt" in log_lines(caplog)


def test_enclaves_take_turns(post: Post) -> None:
    many, few = sorted((post.enclave(["text"] * 6) for _ in range(2)), key=lambda events: events[0].enclave)
    receiver = post.receiver(group=2)
    filed(receiver, *many, *few[:2])
    place = [enclave for enclave, _ in post.seen(receiver)].index(few[0].enclave.hex())
    assert place <= 2


def test_it_stops_when_it_is_asked_to_after_the_call_under_way(post: Post) -> None:
    called, go_on = threading.Event(), threading.Event()

    def handle(event: Event, db: Db) -> None:
        called.set()
        assert go_on.wait(30)
        note(event, db)

    events = post.enclave(["one"])
    receiver = post.started(handle)
    receiver.take(push(1, *events))
    assert called.wait(30)
    ending = threading.Thread(target=receiver.close)
    ending.start()
    while not receiver.worker._is_closed:
        pass
    go_on.set()
    ending.join(30)
    with pytest.raises(Unavailable):
        receiver.take(push(2))
    with pytest.raises(MisuseError):
        receiver.start()
    with closing(sqlite3.connect(post.state)) as db:
        assert db.execute("SELECT seq FROM seen").fetchall() == [(0,)]


# Notices


def notice(event: Event, **type_seq: int) -> dict[str, Any]:
    return {
        "enclave": event.enclave.hex(),
        "seq": event.seq,
        "event_id": event.id.hex(),
        "type": event.type,
        "timestamp": event.timestamp,
        "type_seq": type_seq,
    }


def test_a_notice_is_told_of_once(post: Post) -> None:
    events, told = post.enclave(["one", "two"]), list[Any]()
    receiver = post.started(on_notice=told.append)
    receiver.take(push(1, notices=[notice(events[1], message=1)]))
    until(receiver, lambda: told)
    receiver.take(push(2, notices=[notice(events[1], message=1)]))
    receiver.take(push(3, notices=[notice(events[2], message=2)]))
    until(receiver, lambda: len(told) == 2)
    assert [(each.seq, each.type_seq) for each in told] == [(1, {"message": 1}), (2, {"message": 2})]
    assert post.seen(receiver) == []


def test_of_notices_that_wait_the_latest_counts_for_all(post: Post) -> None:
    events, told, is_ill = post.enclave(["one", "two"]), list[Any](), True

    def on_notice(each: Any) -> None:
        if is_ill:
            raise RuntimeError("not now")
        told.append(each)

    receiver = post.started(on_notice=on_notice)
    receiver.take(push(1, notices=[notice(events[0], Manifest=1, message=1)]))
    receiver.take(push(2, notices=[notice(events[2], message=2)]))
    is_ill = False
    until(receiver, lambda: told)
    assert [(each.seq, each.type_seq) for each in told] == [(2, {"Manifest": 1, "message": 2})]


def test_notices_that_nobody_wants_are_let_go(post: Post) -> None:
    receiver = post.started()
    receiver.take(push(1, notices=[notice(post.enclave()[0], Manifest=1)]))
    assert receiver.worker.submit(receiver.inbox.notices).result() == []
