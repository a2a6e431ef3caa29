"""A receiver takes what an expected node pushed to it and nothing else, hands over once and in order, loses nothing."""

import asyncio
import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from enc.client import Distrust, Equivocation, ForeignSequencer, Forgery, PushReceiver, SplitBrain
from enc.client.enclave.push_body import parse_batch
from enc.client.errors import Unreachable
from enc.client.receive.delivery_worker import MIN_INTERVAL_S
from enc.client.receive.inbox import Inbox
from enc.client.receive.inbox_file import Db, InboxFile
from enc.client.verify.pins import FilePins, Pin
from enc.core.errors import DecryptFailed, EncError, InternalError, MisuseError, PeerError, Unauthorized, Unavailable
from enc.core.log.commit import build_commit
from enc.core.log.event import erase, finalize, wire_event
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Event
from enc.core.session.envelope import seal_push
from enc.runtime.backoff import RetryPauses
from tests.client.pushing import HOOK, SCHEMA, Post, body, note, push, rows_of, sealed, settle, until
from tests.client.scene import flip
from tests.client.stage import URL
from tests.core.world import person
from tests.node.served import NODE

OTHER = person("node2")


@pytest.fixture
def post(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    post = Post(tmp_path, monkeypatch)
    yield post
    post.close()


def refused(post: Post, receiver: PushReceiver, error: type[EncError], what: bytes) -> EncError:
    """It is refused, and nothing has changed: the same number is still free for a true batch."""
    with pytest.raises(error) as found:
        receiver.take(what)
    assert type(found.value) is error
    assert receiver.worker.submit(lambda: receiver.inbox.position(NODE.public)).result().next == 1
    assert post.seen(receiver) == []
    return found.value


# Who may push, to whom


def test_a_push_is_handed_over(post: Post) -> None:
    events = post.enclave(["one", "two"])
    receiver = post.started()
    receiver.take(push(1, *events))
    assert post.seen(receiver) == [(event.enclave.hex(), event.seq) for event in events]
    assert post.lies == []


def test_a_foreign_node_is_refused(post: Post) -> None:
    error = refused(post, post.started(), Unauthorized, push(1, *post.enclave(), key=OTHER))
    assert error.status == 403


def test_a_push_to_another_url_is_refused(post: Post) -> None:
    refused(post, post.started(), Unauthorized, push(1, *post.enclave(), url=HOOK + "/2"))


def test_a_push_to_another_identity_is_refused(post: Post) -> None:
    refused(post, post.started(), DecryptFailed, push(1, *post.enclave(), to="carol"))


def test_a_push_from_oneself_is_refused(post: Post) -> None:
    refused(post, post.started(), DecryptFailed, push(1, *post.enclave(), key=person("bob")))


def test_a_push_that_says_it_is_from_a_node_and_is_not_does_not_open(post: Post) -> None:
    wire = seal_push(person("mallory"), person("bob").public, HOOK, body(1), os.urandom(24))
    refused(post, post.started(), DecryptFailed, repr({**wire, "from": NODE.public.hex()}).replace("'", '"').encode())


@pytest.mark.parametrize(
    "what",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"[]",
        b"null",
        b'{"type": "Push"}',
        b"[" * 100_000,
        sealed({}),
        sealed({"push_seq": 0}),
        sealed({"push_seq": -1}),
        sealed({"push_seq": 2**53}),
        sealed({"push_seq": "1"}),
        sealed({"push_seq": 1, "push": []}),
        sealed({"push_seq": 1, "push": {"enclaves": [{"enclave": "00", "events": []}]}}),
        sealed({"push_seq": 1, "push": {"enclaves": [{"enclave": "0" * 64, "events": [{}]}]}}),
        sealed({"push_seq": 1, "notify": {"enclaves": [{"enclave": "0" * 64, "seq": 1}]}}),
    ],
)
def test_garbage_is_the_peer_s_fault(post: Post, what: bytes) -> None:
    receiver = post.started()
    with pytest.raises(PeerError) as found:
        receiver.take(what)
    assert found.value.status == 400
    assert post.seen(receiver) == []


# What may be pushed


def forged(event: Event) -> dict[str, dict[str, Any]]:
    """The event with another of one thing."""
    good = wire_event(event)
    return {
        "content": {**good, "content": "never said"},
        "author's signature": {**good, "sig": flip(good["sig"])},
        "sequencer's signature": {**good, "seq_sig": flip(good["seq_sig"])},
        "id": {**good, "id": flip(good["id"])},
        "place": {**good, "seq": 2},
        "time": {**good, "timestamp": good["timestamp"] + 1},
        "enclave": {**good, "enclave": "0" * 64},
    }


FORGERIES = ("content", "author's signature", "sequencer's signature", "id", "place", "time", "enclave")


@pytest.mark.parametrize("how", FORGERIES)
def test_a_forged_event_is_refused_and_told_of(post: Post, how: str) -> None:
    events = post.enclave(["one"])
    wire = body(1, *events)
    wire["push"]["enclaves"][0]["events"][1] = forged(events[1])[how]
    error = refused(post, post.started(), Forgery, sealed(wire))
    assert post.lies == [error]
    assert error.status == 400


def test_an_event_of_another_sequencer_is_refused(post: Post) -> None:
    first, *_ = post.enclave()
    refused(post, post.started(), ForeignSequencer, push(1, post.message(first, "mine", 1, by=OTHER)))


def test_an_enclave_that_is_pinned_to_another_sequencer_is_refused(post: Post) -> None:
    first, *_ = post.enclave()
    pins = FilePins(post.stage.pins)
    pins.remove(first.enclave)
    pins.store(first.enclave, Pin(OTHER.public, None))
    refused(post, post.started(), ForeignSequencer, push(1, first))


def test_an_enclave_is_its_first_node_s(post: Post) -> None:
    first, *_ = post.enclave()
    receiver = post.started(nodes={NODE.public: URL, OTHER.public: "http://other.test"}, pins=None)
    receiver.take(push(1, first))
    with pytest.raises(ForeignSequencer):
        receiver.take(push(1, post.message(first, "mine", 1, by=OTHER), key=OTHER))
    with pytest.raises(ForeignSequencer):
        receiver.inbox._check_sequencer(first.enclave, OTHER.public)


def test_an_enclave_that_has_moved_is_its_new_node_s(post: Post) -> None:
    """Once that is known: by a Migrate that the old node pushed."""
    first, one = post.enclave(["one"])
    receiver = post.started(nodes={NODE.public: URL, OTHER.public: "http://other.test"}, pins=None)
    receiver.take(push(1, first, one))
    later = post.message(first, "there", one.seq + 2, by=OTHER)
    with pytest.raises(ForeignSequencer):
        receiver.take(push(1, later, key=OTHER))
    content = {"new_sequencer": OTHER.public.hex(), "prev_seq": one.seq, "ct_root": "00" * 32}
    commit = build_commit(person("alice"), first.enclave, "Migrate", compact_json(content), one.exp)
    receiver.take(push(2, finalize(commit, NODE, one.timestamp, one.seq + 1)))
    receiver.take(push(1, later, key=OTHER))
    assert post.seqs(receiver) == [0, 1, 2, 3]
    with pytest.raises(SplitBrain):
        receiver.take(push(3, post.message(first, "still here", one.seq + 3)))


def test_what_the_old_node_still_has_comes_before_what_the_new_one_brings(post: Post, tmp_path: Path) -> None:
    """Its batches come out of order, and after the new node's: nothing is ready too early."""
    first, one, two = post.enclave(["one", "two"])
    there = post.message(first, "there", two.seq + 1, by=OTHER)
    file = InboxFile(tmp_path / "apart.db", person("bob").public, HOOK, "")
    inbox = Inbox(file.db, wants_notices=False, moved=lambda *_: True, left=lambda _, key: key == NODE.public)
    try:
        for key, push_seq, event in ((NODE, 1, first), (NODE, 3, two), (OTHER, 1, there)):
            inbox.file(key.public, parse_batch(body(push_seq, event)))
        assert [event.seq for event in inbox.ready(first.enclave, 10)] == [0]
        inbox._is_new_node = lambda *_: False
        inbox.file(NODE.public, parse_batch(body(2, one)))
        assert [event.seq for event in inbox.ready(first.enclave, 10)] == [0, 1, 2, 3]
    finally:
        file.close()


def test_content_that_may_be_erased_is_missing_and_any_other_is_withheld(post: Post) -> None:
    first, one = post.enclave(["one"])
    receiver = post.started()
    refused(post, receiver, Forgery, push(1, erase(first)))
    receiver.take(push(1, erase(one)))
    assert post.seqs(receiver) == [1]


def test_a_content_that_is_too_old_to_be_true_is_refused(post: Post) -> None:
    first, *_ = post.enclave()
    refused(post, post.started(), Forgery, push(1, post.message(first, "late", 1, timestamp=1)))


@pytest.mark.parametrize("is_handed", [False, True])
def test_two_events_in_one_place_are_caught(post: Post, is_handed: bool) -> None:
    first, one = post.enclave(["one"])
    receiver = post.started(note if is_handed else fails)
    receiver.take(push(1, one))
    if is_handed:
        settle(receiver)
    with pytest.raises(Forgery if is_handed else Equivocation):
        receiver.take(push(2, post.message(first, "two", 1)))
    assert [type(lie) for lie in post.lies] == [Forgery if is_handed else Equivocation]


def fails(event: Event, db: Db) -> None:
    raise RuntimeError("not now")


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


def unreachable(request: Any) -> None:
    raise httpx.ConnectError("cut")


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
    """Start with this to be handed over, and with nothing else to do."""
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
    assert "the receiver stops: KeyboardInterrupt" in said(caplog)


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


# The state file


def test_two_receivers_cannot_share_a_state_file(post: Post) -> None:
    post.receiver()
    with pytest.raises(MisuseError, match="another receiver is using it"):
        post.receiver()


def test_a_state_file_is_its_owner_s_alone(post: Post) -> None:
    receiver = post.started()
    receiver.take(push(1, *post.enclave()))
    for path in post.state.parent.glob("inbox.db*"):
        assert path.stat().st_mode & 0o777 == 0o600, path
    receiver.close()
    post.state.chmod(0o644)
    with pytest.raises(MisuseError, match="open to others"):
        post.receiver()


@pytest.mark.parametrize("other", [{"identity": "carol"}, {"url": HOOK + "/2"}])
def test_a_state_file_is_one_identity_s_at_one_url(post: Post, other: dict[str, Any]) -> None:
    post.receiver().close()
    with pytest.raises(MisuseError, match="is the inbox of"):
        post.receiver(**other)


def test_what_is_no_inbox_is_refused_and_left_as_it_is(post: Post) -> None:
    post.state.write_bytes(b"my diary, " * 100)
    post.state.chmod(0o600)
    with pytest.raises(MisuseError, match="is not an inbox"):
        post.receiver()
    assert post.state.read_bytes() == b"my diary, " * 100
    post.state.unlink()
    with closing(sqlite3.connect(post.state)) as db:
        db.execute("CREATE TABLE diary (day)")
    post.state.chmod(0o600)
    with pytest.raises(MisuseError, match="is not an inbox"):
        post.receiver()


@pytest.mark.parametrize(("schema", "what"), [("CREATE", "schema"), ("BEGIN", "leaves a transaction open")])
def test_a_wrong_schema_is_refused(post: Post, schema: str, what: str) -> None:
    with pytest.raises(MisuseError, match=what):
        post.receiver(schema=schema)
    post.receiver(schema=SCHEMA)


def test_a_disk_that_takes_nothing_loses_nothing(post: Post) -> None:
    events = post.enclave(["one"])
    receiver = post.started()
    receiver.worker.submit(lambda: receiver.inbox.db.execute("PRAGMA query_only = 1")).result()
    with pytest.raises(Unavailable) as found:
        receiver.take(push(1, *events))
    assert str(post.state) not in found.value.message
    receiver.worker.submit(lambda: receiver.inbox.db.execute("PRAGMA query_only = 0")).result()
    receiver.take(push(1, *events))
    assert post.seqs(receiver) == [0, 1]


def test_what_nobody_foresaw_is_told_to_no_peer(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = post.started()
    monkeypatch.setattr("enc.client.receive.receiver.parse_batch", lambda _: 1 // 0)
    with pytest.raises(InternalError) as found:
        receiver.take(push(1))
    assert found.value.message == "the push could not be processed"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "enc.client.receiver"]


def test_a_push_that_is_refused_is_told_of_once_in_a_while_for_each_reason(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = post.started(nodes={OTHER.public: URL})
    for _ in range(3):
        for what in (b"{", push(1, to="carol"), push(1), push(1, key=OTHER, url=HOOK + "/2")):
            with pytest.raises(PeerError):
                receiver.take(what)
    lines = [line for line in said(caplog) if line.startswith("a push was rejected")]
    assert lines.pop(0).startswith("a push was rejected: DECRYPT_FAILED: ")
    assert lines == [
        "a push was rejected: DECRYPT_FAILED: to: addressed to another identity; "
        f"this receiver's is {person('bob').public.hex()}",
        "a push was rejected: UNAUTHORIZED: from: not a node that may push here",
        "a push was rejected: UNAUTHORIZED: url: not the URL of this receiver",
    ]
    post.now += MIN_INTERVAL_S
    with pytest.raises(Unauthorized):
        receiver.take(push(1))
    assert said(caplog)[-1] == f"{lines[1]} (2 more times since the last report)"


def test_a_disk_that_takes_nothing_is_told_of(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    receiver = post.started()
    receiver.worker.submit(lambda: receiver.inbox.db.execute("PRAGMA query_only = 1")).result()
    for _ in range(2):
        with pytest.raises(Unavailable):
            receiver.take(push(1, *post.enclave(["one"])))
    (line,) = [line for line in said(caplog) if line.startswith("a push was rejected")]
    assert "the inbox cannot be written" in line
    assert line.endswith("attempt to write a readonly database")


def test_a_node_whose_key_cannot_be_had_is_told_of(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    post.node.arrives = unreachable
    receiver = post.started(nodes=[URL])
    with pytest.raises(Unavailable):
        receiver.take(push(1))
    (catch_up,) = receiver._catch_ups.values()
    until(receiver, lambda: catch_up._is_down)
    catch_up._log_failure(Unreachable("cut"))
    lines = said(caplog)
    assert "a push was rejected: UNAVAILABLE: from: not every node's key is known yet" in lines
    assert len([line for line in lines if line.startswith(f"{URL} cannot be asked")]) == 1


def test_what_is_refused_while_it_closes_is_no_news(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    receiver = post.started()
    receiver.close()
    with pytest.raises(Unavailable):
        receiver.take(push(1))
    assert not [line for line in said(caplog) if "refused" in line]


# Making one


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": {}},
        {"nodes": URL},
        {"nodes": ["ftp://node.test"]},
        {"nodes": {b"short": URL}},
        {"url": "bob.test/hook"},
        {"group": 0},
        {"group": 1001},
        {"handle": None},
        {"enclave": "general"},
        {"enclave": [b"short"]},
        {"url": "https://b\u00f6b.test/hook"},
        {"url": "https://bob.test/h ook"},
        {"url": "https://bob.test/hook#2"},
        {"url": "https://bob.test/hook\\2"},
        {"url": "https://[bob.test/hook"},
    ],
)
def test_a_wrong_call_is_misuse(post: Post, wrong: dict[str, Any]) -> None:
    with pytest.raises(MisuseError):
        post.receiver(**wrong)
    assert not list(post.state.parent.glob("inbox.db*"))


@pytest.mark.parametrize("state", ["", ".", "/", "missing/inbox.db"])
def test_a_state_file_is_a_file_in_a_directory_that_is_there(
    post: Post, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(post.state.parent)
    with pytest.raises(MisuseError, match=r"expected the path of a file|there is no directory missing"):
        post.receiver(state=state)
    assert not Path("missing").exists()


def test_an_identity_is_one(post: Post) -> None:
    with pytest.raises(MisuseError):
        PushReceiver(b"key", HOOK, [URL], post.state, note)  # type: ignore[arg-type]


def test_a_node_s_key_is_asked_for_once_and_kept(post: Post) -> None:
    first, *_ = post.enclave()
    post.node.arrives = unreachable
    receiver = post.started(nodes=[URL])
    with pytest.raises(Unavailable):
        receiver.take(push(1, first))
    post.node.arrives = lambda request: None
    until(receiver, lambda: not receiver._nodes_without_key)
    receiver.take(push(1, first))
    assert post.seqs(receiver) == [0]
    with pytest.raises(Unauthorized):
        receiver.take(push(1, key=OTHER))
    receiver.close()

    post.node.calls.clear()
    post.node.lie("info", lambda _: {"seq_pub": OTHER.public.hex()})
    again = post.started(nodes=[URL])
    again.take(push(2))
    with pytest.raises(Unauthorized):
        again.take(push(1, key=OTHER))
    until(again, lambda: post.lies)
    assert isinstance(post.lies[0], ForeignSequencer)
    assert isinstance(post.lies[0], Distrust)
