"""Which pushes a receiver accepts: from whom, to whom, and with which events."""

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

from enc.client import Equivocation, ForeignSequencer, Forgery, SplitBrain
from enc.client.enclave.push_body import parse_batch
from enc.client.receive.inbox import PushInbox
from enc.client.receive.inbox_file import InboxFile
from enc.client.verify.pins import FilePins, Pin
from enc.core.errors import DecryptFailed, PeerError, Unauthorized, Unavailable
from enc.core.log.commit import build_commit
from enc.core.log.event import erase, finalize, wire_event
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.sealing import push_key
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Event
from enc.core.session.envelope import is_challenge_answer, seal_challenge, seal_push
from tests.client.pushing import (
    HOOK,
    OTHER,
    Post,
    body,
    fails,
    note,
    push,
    refused,
    sealed,
    settle,
)
from tests.client.scene import flip
from tests.client.stage import URL
from tests.core.world import person, withheld
from tests.node.served import NODE

# Who may push, to whom


def test_a_push_is_handed_over(post: Post) -> None:
    events = post.enclave(["one", "two"])
    receiver = post.started()
    receiver.take(push(1, *events))
    assert post.seen(receiver) == [(event.enclave.hex(), event.seq) for event in events]
    assert post.lies == []


def challenge(key: PrivateKey = NODE, to: str = "bob", url: str = HOOK, inside: str = HOOK) -> bytes:
    sealed_by = push_key(key, person(to).public)
    wire = seal_challenge(sealed_by, key.public, person(to).public, inside, bytes(range(32)), os.urandom(24))
    return encode({**wire, "url": url})


def test_a_challenge_is_answered_and_changes_nothing(post: Post) -> None:
    receiver = post.started()
    assert is_challenge_answer(bytes(range(32)), encode(receiver.take(challenge())))
    assert post.seen(receiver) == []
    assert receiver.take(push(1, *post.enclave())) == {"type": "Taken"}


@pytest.mark.parametrize(
    ("error", "changes"),
    [
        (Unauthorized, {"key": OTHER}),
        (DecryptFailed, {"key": person("bob")}),
        (DecryptFailed, {"to": "carol"}),
        (Unauthorized, {"url": HOOK + "/2"}),
        (Unauthorized, {"inside": HOOK + "/2"}),
    ],
)
def test_a_challenge_of_another_node_or_for_another_place_is_not_answered(
    post: Post, error: type[PeerError], changes: dict[str, Any]
) -> None:
    refused(post, post.started(), error, challenge(**changes))


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
    """Return the event with one field changed."""
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
    """It may have moved, so the node is asked to try again."""
    first, *_ = post.enclave()
    pins = FilePins(post.stage.pins)
    pins.remove(first.enclave)
    pins.store(first.enclave, Pin(OTHER.public, None))
    receiver = post.started()
    with pytest.raises(Unavailable):
        receiver.take(push(1, first))
    assert post.seen(receiver) == post.lies == []


def test_an_enclave_is_its_first_node_s(post: Post) -> None:
    first, *_ = post.enclave()
    receiver = post.started(nodes={NODE.public: URL, OTHER.public: "http://other.test"}, pins=None)
    receiver.take(push(1, first))
    with pytest.raises(Unavailable):
        receiver.take(push(1, post.message(first, "mine", 1, by=OTHER), key=OTHER))
    with pytest.raises(ForeignSequencer):
        receiver.inbox._check_sequencer(first.enclave, OTHER.public)


def test_an_enclave_that_has_moved_is_its_new_node_s(post: Post) -> None:
    """The move is known by a Migrate that the old node pushed."""
    first, one = post.enclave(["one"])
    receiver = post.started(nodes={NODE.public: URL, OTHER.public: "http://other.test"}, pins=None)
    receiver.take(push(1, first, one))
    later = post.message(first, "there", one.seq + 2, by=OTHER)
    with pytest.raises(Unavailable):
        receiver.take(push(1, later, key=OTHER))
    content = {"new_sequencer": OTHER.public.hex(), "prev_seq": one.seq, "ct_root": "00" * 32}
    commit = build_commit(person("alice"), first.enclave, "Migrate", compact_json(content), one.exp)
    receiver.take(push(2, finalize(commit, NODE, one.timestamp, one.seq + 1)))
    receiver.take(push(1, later, key=OTHER))
    assert post.seqs(receiver) == [0, 1, 2, 3]
    with pytest.raises(SplitBrain):
        receiver.take(push(3, post.message(first, "still here", one.seq + 3)))


def test_what_the_old_node_still_has_comes_before_what_the_new_one_brings(post: Post, tmp_path: Path) -> None:
    """The old node's batches come out of order, after the new node's: nothing is delivered too early."""
    first, one, two = post.enclave(["one", "two"])
    there = post.message(first, "there", two.seq + 1, by=OTHER)
    file = InboxFile(tmp_path / "apart.db", person("bob").public, HOOK, "")
    inbox = PushInbox(
        file.db, wants_notices=False, is_new_node=lambda *_: True, is_former_node=lambda _, key: key == NODE.public
    )
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


def test_a_pushed_event_has_the_statement_of_a_known_node_only(post: Post) -> None:
    _, one, two = post.enclave(["one", "two"])
    shown: list[Event] = []
    receiver = post.started(lambda event, db: shown.append(event))
    receiver.take(push(1, withheld(one), withheld(two, "bob")))
    settle(receiver)
    assert shown == [withheld(one), erase(two)]


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
