"""Gaps across a move: the old node is asked for its batches, though the enclave has moved."""

from pathlib import Path
from typing import Any

import pytest

from enc.client import Gap, PushReceiver
from enc.client.enclave.push_body import parse_batch
from enc.client.receive.inbox import PushInbox
from enc.client.receive.inbox_file import InboxFile
from enc.core.errors import Unauthorized, Unavailable
from enc.core.log.commit import build_commit
from enc.core.log.event import finalize
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Event, Receipt
from enc.runtime.backoff import RetryPauses
from tests.client.pushing import HOOK, OTHER, Post, body, handed, keeps, push, rows_of, unreachable, until
from tests.client.stage import URL
from tests.core.world import LIFETIME, person
from tests.node.served import NODE


def migrate_after(last: Event) -> Event:
    content = {"new_sequencer": OTHER.public.hex(), "prev_seq": last.seq, "ct_root": "00" * 32}
    commit = build_commit(person("alice"), last.enclave, "Migrate", compact_json(content), last.exp)
    return finalize(commit, NODE, last.timestamp, last.seq + 1)


def moved(post: Post) -> tuple[PushReceiver, tuple[Event, ...]]:
    """Move the enclave: the old node's second batch is missing and not requested yet; the new node has pushed."""
    first, one, two = post.enclave(["one", "two"])
    away = migrate_after(two)
    there = post.message(first, "there", away.seq + 1, by=OTHER)
    receiver = post.receiver(nodes={NODE.public: URL, OTHER.public: "http://other.test"}, pins=None)
    receiver.worker.start()
    receiver.take(push(1, first))
    receiver.take(push(3, two, away))
    receiver.take(push(1, there, key=OTHER))
    return receiver, (first, one, two, away, there)


def test_a_gap_of_the_old_node_is_pulled_when_the_enclave_is_the_new_one_s(post: Post) -> None:
    receiver, events = moved(post)
    keeps(post, body(2, events[1]))
    receiver._catch_ups[URL].start()
    handed(receiver, 0, 1, 2, 3, 4)
    assert post.gaps == []


def test_what_the_old_node_keeps_no_more_is_asked_for_there(post: Post) -> None:
    """The two nodes' queues are numbered separately: number 1 of the new is not before 2 of the old."""
    receiver, _ = moved(post)
    keeps(post)
    receiver._catch_ups[URL].start()
    handed(receiver, 0, 1, 2, 3, 4)
    assert post.gaps == [Gap(NODE.public, HOOK, 2, 2)]


def test_a_hole_is_one_queue_s(post: Post, tmp_path: Path) -> None:
    first, _, two = post.enclave(["one", "two"])
    there = [post.message(first, f"{n}", two.seq + n, by=OTHER) for n in (1, 2, 3)]
    file = InboxFile(tmp_path / "apart.db", person("bob").public, HOOK, "")
    inbox = PushInbox(
        file.db, wants_notices=False, is_new_node=lambda _, key: key == OTHER.public, is_former_node=lambda *_: True
    )
    try:
        for key, push_seq, event in (
            (NODE, 1, first),
            (NODE, 3, two),
            (OTHER, 1, there[0]),
            (OTHER, 2, there[1]),
            (OTHER, 4, there[2]),
        ):
            inbox.file(key.public, parse_batch(body(push_seq, event)))
        assert inbox.missing_range(first.enclave, NODE.public) == (0, 2)
        assert inbox.missing_range(first.enclave, OTHER.public) == (4, 5)
        assert inbox.position(NODE.public).enclaves == inbox.position(OTHER.public).enclaves == (first.enclave,)
    finally:
        file.close()


def test_the_next_event_costs_no_more_however_many_wait_behind_it(post: Post, tmp_path: Path) -> None:
    events = post.enclave(map(str, range(300)))
    file = InboxFile(tmp_path / "apart.db", person("bob").public, HOOK, "")
    inbox = PushInbox(file.db, wants_notices=False)
    steps = list[None]()

    def cost() -> int:
        """Return the number of SQLite instructions that a look for deliverable events takes."""
        steps.clear()
        assert [event.seq for event in inbox.ready(events[0].enclave, 1)] == [0]
        return len(steps)

    try:
        file.db.set_progress_handler(lambda: steps.append(None), 1)
        inbox.file(NODE.public, parse_batch(body(1, *events[:3])))
        few = cost()
        inbox.file(NODE.public, parse_batch(body(2, *events[3:])))
        assert cost() == few
    finally:
        file.db.set_progress_handler(None, 0)
        file.close()


# A node that has gone


def left(post: Post, *pushed: int, **more: Any) -> tuple[PushReceiver, tuple[Event, ...]]:
    """Push these events from the old node, one per batch, and its Migrate; then the node is gone."""
    first, *_ = post.enclave(["one", "two", "three", "four"])
    assert isinstance(post.node.take(post.node.migrate(first.enclave, person("alice"), OTHER)), Receipt)
    events = post.log(first.enclave)
    new = post.stage.others["other.test"] = post.node.successor(first.enclave, OTHER)
    commit = build_commit(person("bob"), first.enclave, "message", "there", post.stage.clock.now + LIFETIME)
    assert isinstance(new.take(commit), Receipt)
    there = new.store.events(first.enclave, len(events), 1)[0]
    post.node.arrives = unreachable
    nodes = {NODE.public: URL, OTHER.public: "http://other.test"}
    receiver = post.receiver(**{"nodes": nodes, "pins": None, **more})
    receiver.worker.start()
    for seq in (*pushed, events[-1].seq):
        receiver.take(push(seq + 1, events[seq]))
    receiver.take(push(1, there, key=OTHER))
    return receiver, (*events, there)


def test_what_a_node_that_is_gone_did_not_bring_the_next_one_has(post: Post) -> None:
    """One request closes both gaps in the queue."""
    receiver, events = left(post, 0, 2)
    check_blocked(receiver, events[0])
    receiver._catch_ups[URL].start()
    handed(receiver, 0, 1, 2, 3, 4, 5, 6)
    assert (post.gaps, post.lies) == ([], [])


def test_page_by_page(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.client.receive.successor_backfill.PAGE", 1)
    receiver, _ = left(post, 2)
    receiver._catch_ups[URL].start()
    handed(receiver, 0, 1, 2, 3, 4, 5, 6)


def test_a_node_that_is_gone_and_comes_back_brings_nothing_twice(post: Post) -> None:
    receiver, events = left(post, 0, 2)
    receiver._catch_ups[URL].start()
    handed(receiver, 0, 1, 2, 3, 4, 5, 6)
    receiver.take(push(2, events[1]))
    receiver.take(push(4, events[3]))
    assert post.seqs(receiver) == [0, 1, 2, 3, 4, 5, 6]


def test_what_is_not_to_be_had_there_either_is_told_of_after_some_patience(post: Post) -> None:
    """The receiver continues when its owner allows it."""
    pauses, answers = list[float](), [False, True]

    def on_gap(gap: Gap) -> bool:
        post.gaps.append(gap)
        pauses.append(receiver._catch_ups[URL]._pause)
        return answers.pop(0)

    receiver, events = left(post, 0, 2, on_gap=on_gap, retries=RetryPauses(first_s=1.0, max_s=4.0))
    catch_up = receiver._catch_ups[URL]
    post.stage.others["other.test"].lie("Query", refuses)
    for tries in range(1, 5):
        catch_up._try()
        assert len(post.gaps) == (tries == 4), "the pauses before were 0, 1, 2, then 4"
    assert post.gaps == [Gap(NODE.public, HOOK, 2, 2, (events[0].enclave,))]
    assert pauses == [4.0]
    catch_up._try()
    assert len(post.gaps) == 1, "it is reported once"
    check_blocked(receiver, events[0])
    catch_up._reported_gap = Gap(b"", "", 0, 0)  # as after a restart
    catch_up._try()
    handed(receiver, 0, 2, 5, 6)


def test_what_waits_for_a_gap_never_keeps_out_what_closes_it(post: Post) -> None:
    receiver, _ = crowded(post)
    receiver._catch_ups[URL].start()
    until(receiver, lambda: [seq for _, seq in rows_of(receiver)][:7] == [0, 1, 2, 3, 4, 5, 6])
    receiver.take(push(10, key=OTHER))


def test_nor_does_it_keep_out_a_batch_that_is_waited_for(post: Post) -> None:
    receiver, events = crowded(post)
    receiver.take(push(2, events[1]))
    until(receiver, lambda: [seq for _, seq in rows_of(receiver)] == [0, 1, 2])


def crowded(post: Post) -> tuple[PushReceiver, tuple[Event, ...]]:
    """Push so much from the new node that the receiver accepts no more from it."""
    receiver, events = left(post, 0, 2, max_waiting=5000)
    more = [post.message(events[0], "x" * 3000, events[-1].seq + n, by=OTHER) for n in (1, 2)]
    receiver.take(push(2, more[0], key=OTHER))
    with pytest.raises(Unavailable, match="too many events wait"):
        receiver.take(push(3, more[1], key=OTHER))
    return receiver, events


def check_blocked(receiver: PushReceiver, first: Event) -> None:
    """Check that one event was delivered, and that no other is ready."""
    handed(receiver, first.seq)
    assert receiver.worker.submit(lambda: receiver.inbox.ready(first.enclave, 10)).result() == []


def refuses(_: Any) -> Any:
    raise Unauthorized("not yours")
