"""A Pull returns the caller's own batches as they were pushed, with the events that the caller may read now."""

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.json import decode, encode

from enc.core.log.event import check_event, parse_event
from enc.node.config import LimitSettings as NodeLimits
from enc.node.push.body import render
from enc.node.read import pulls
from enc.node.read.access import Access
from enc.node.store.push_interface import DeliveryResult
from tests.core.world import person
from tests.node.pushing import (
    CONFIG,
    OTHER_URL,
    PUSHED,
    URL,
    grant,
    numbers,
    pull,
    register,
    report,
    revoke,
    room,
    say,
    seqs,
    settle,
    spread,
)
from tests.node.served import Enclave, Json, Served, about, sqlite


@pytest.fixture
def node() -> Iterator[Served]:
    with Served(CONFIG) as node:
        yield node


@pytest.fixture
def enclave(node: Served) -> Enclave:
    return room(node)


def batches_of(enclave: Enclave, count: int) -> list[list[int]]:
    """Make this many batches of two events for vera; return their seqs."""
    return [say(enclave, f"{i} one", f"{i} two") for i in range(count)]


# Requests


def test_one_by_its_number(enclave: Enclave) -> None:
    made = batches_of(enclave, 3)
    (batch,) = pull(enclave, "vera", 2)
    assert (batch["push_seq"], seqs(batch, enclave)) == (2, made[1])
    assert list(batch) == ["push_seq", "push"]


def test_several_by_their_numbers(enclave: Enclave) -> None:
    made = batches_of(enclave, 5)
    found = pull(enclave, "vera", [5, 2, 1, 2, 99])
    assert [(batch["push_seq"], seqs(batch, enclave)) for batch in found] == [
        (1, made[0]),
        (2, made[1]),
        (5, made[4]),
    ]


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ({"start_after": 1, "end_at": 3}, [2, 3]),
        ({"start_after": 0, "end_at": 1}, [1]),
        ({"start_after": 3}, [4, 5]),
        ({"end_at": 2}, [1, 2]),
        ({}, [1, 2, 3, 4, 5]),
        ({"start_after": 3, "end_at": 3}, []),
        ({"start_after": 4, "end_at": 2}, []),
        ({"start_after": 5}, []),
        ({"start_after": 2**53 - 1, "end_at": 2**53 - 1}, []),
        ({"start_after": 4, "end_at": 2**53 - 1}, [5]),
        (0, []),
        (6, []),
        ([0], []),
        (2**53 - 1, []),
        (list(range(1, 101)), [1, 2, 3, 4, 5]),
    ],
)
def test_what_is_asked_for(asked: Any, given: list[int]) -> None:
    with Served(CONFIG) as node:
        enclave = room(node)
        batches_of(enclave, 5)
        assert numbers(pull(enclave, "vera", asked)) == given


def test_numbers_that_follow_each_other_are_read_at_once() -> None:
    assert pulls._spans([100, 34, 5, 33, 64, 33]) == [(5, 5), (33, 34), (64, 64), (100, 100)]


def test_a_long_queue_is_read_in_steps(enclave: Enclave, monkeypatch: pytest.MonkeyPatch) -> None:
    batches_of(enclave, 5)
    for step in (1, 2, 5, 6):
        monkeypatch.setattr(pulls, "READ_BATCH", step)
        assert numbers(pull(enclave, "vera", {})) == [1, 2, 3, 4, 5]
        assert numbers(pull(enclave, "vera", [1, 2, 3, 5])) == [1, 2, 3, 5]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"url": URL},
        {"push_seq": 1},
        {"url": None, "push_seq": 1},
        {"url": 1, "push_seq": 1},
        *(
            {"url": URL, "push_seq": push_seq}
            for push_seq in (
                None,
                "1",
                True,
                1.5,
                -1,
                2**53,
                10**40,
                [],
                [-1, 1],
                [1, 2**53],
                ["1"],
                [None],
                [True],
                [[1]],
                [1] * 101,
                list(range(101)),
                {"start_after": -1},
                {"end_at": -1},
                {"end_at": 2**53},
                {"start_after": "1"},
                {"start_after": None},
                {"start_at": 1},
                {"start_after": 1, "end_before": 3},
            )
        ),
        *({"url": URL, "push_seq": 1, "enclave": enclave} for enclave in (None, 1, "", "ab", "AB" * 32, "ab" * 33)),
    ],
)
def test_what_is_malformed(node: Served, body: Json) -> None:
    error = node.create(CLOSED).denied("vera", "Pull", **body)
    assert (error.status, error.code) == (400, "INVALID_QUERY")


CLOSED: Json = {
    "enc_v": 2,
    "states": [],
    "traits": ["owner(0)"],
    "readers": [],
    "moves": [],
    "grants": [],
    "transfers": [],
    "slots": [],
    "lifecycle": [],
    "customs": [],
    "init": [{"identity": person("alice").public.hex(), "state": "OUTSIDER", "traits": ["owner"]}],
}


# Answers


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_batch_is_what_is_pushed(kind: str, tmp_path: Path) -> None:
    store = sqlite(tmp_path) if kind == "sqlite" else None
    with Served(CONFIG, store) as node:
        one, two = room(node), room(node)
        for enclave in (one, two):
            enclave.send("bob", "message", "x")
            enclave.send("bob", "Shared", {"key": "topic", "value": "v"})
            enclave.send("bob", "note", "not pushed")
        spread(node)
        for name in ("vera", "nick"):
            (stored,) = node.store.list_batches(person(name).public, URL, 1, 9, 9)
            assert pull(one, name, 1) == [decode(render(node.store, stored))]
        (batch,) = pull(one, "vera", 1)
        assert [(len(seqs(batch, enclave)), "notify" in batch) for enclave in (one, two)] == [(2, False)] * 2
        (told,) = pull(two, "nick", 1)
        assert list(told) == ["push_seq", "notify"]
        assert {each["enclave"]: each["type_seq"] for each in told["notify"]["enclaves"]} == {
            enclave.id.hex(): {"message": 1, "note": 1} for enclave in (one, two)
        }
        for event in batch["push"]["enclaves"][0]["events"]:
            check_event(parse_event(encode(event)), 2)


def test_of_one_enclave(node: Served, enclave: Enclave) -> None:
    other = room(node)
    first = enclave.send("bob", "message", "here").seq
    other.send("bob", "message", "there")
    spread(node)
    (batch,) = pull(other, "vera", 1, enclave=enclave.id.hex())
    assert seqs(batch, enclave) == [first]
    assert [each["enclave"] for each in batch["push"]["enclaves"]] == [enclave.id.hex()]
    (told,) = pull(other, "nick", 1, enclave=other.id.hex())
    assert [each["enclave"] for each in told["notify"]["enclaves"]] == [other.id.hex()]
    assert pull(enclave, "vera", 1, enclave="00" * 32) == [{"push_seq": 1}]


def test_whatever_became_of_it_while_it_is_kept(node: Served, enclave: Enclave) -> None:
    batches_of(enclave, 3)
    queue, now = report(node, "vera").queue, node.clock.now
    settle(node, DeliveryResult(queue, 1, now), DeliveryResult(queue, 2, now, "status 500"))
    assert numbers(pull(enclave, "vera", {})) == [1, 2, 3]


def test_what_is_kept_no_more_is_absent(node: Served, enclave: Enclave) -> None:
    batches_of(enclave, 4)
    queue, now = report(node, "vera").queue, node.clock.now
    settle(
        node,
        DeliveryResult(queue, 1, now),
        DeliveryResult(queue, 2, now, "status 500"),
        DeliveryResult(queue, 3, now + 9),
    )
    retire = node.store.delete_settled
    node.node.sequencer.call(lambda: retire(now, now - 1)).result()
    assert numbers(pull(enclave, "vera", {})) == [2, 3, 4]
    node.node.sequencer.call(lambda: retire(now + 9, now)).result()
    assert numbers(pull(enclave, "vera", [1, 2, 3, 4])) == [4]


def test_by_any_enclave_of_the_node(node: Served, enclave: Enclave) -> None:
    made = batches_of(enclave, 1)
    foreign = node.create(CLOSED)
    (batch,) = pull(foreign, "vera", 1)
    assert seqs(batch, enclave) == made[0]
    assert foreign.denied("vera", "Query", filter={}).code == "UNAUTHORIZED"


def test_a_queue_is_one_identity_s_at_one_url(node: Served, enclave: Enclave) -> None:
    batches_of(enclave, 2)
    for name, url in (("alice", URL), ("mallory", URL), ("vera", OTHER_URL), ("vera", ""), ("vera", URL.upper())):
        assert pull(enclave, name, {}, url) == []
    assert "push" not in pull(enclave, "nick", 1)[0]


def test_each_url_has_numbers_of_its_own(node: Served, enclave: Enclave) -> None:
    first = say(enclave, "to the first")
    register(enclave, "vera", "dataview", OTHER_URL)
    second, third = say(enclave, "to the second"), say(enclave, "to the second again")
    assert [seqs(batch, enclave) for batch in pull(enclave, "vera", {})] == [first]
    assert [seqs(batch, enclave) for batch in pull(enclave, "vera", {}, OTHER_URL)] == [second, third]


def test_an_enclave_that_is_not_here(node: Served, enclave: Enclave) -> None:
    request = enclave.request("vera", "Pull", url=URL, push_seq=1)
    assert node.post({**request, "enclave": "00" * 32}).json()["code"] == "ENCLAVE_NOT_FOUND"


# Rights, as of now


def test_what_was_lost_with_a_trait_is_withheld_and_its_batch_is_not(enclave: Enclave) -> None:
    made = batches_of(enclave, 2)
    revoke(enclave, "vera", "dataview")
    assert pull(enclave, "vera", {}) == [{"push_seq": 1}, {"push_seq": 2}]
    grant(enclave, "vera", "dataview")
    assert [seqs(batch, enclave) for batch in pull(enclave, "vera", {})] == made


def test_a_queue_outlives_its_endpoint(enclave: Enclave) -> None:
    """Another trait gives the right; the endpoint's own trait was revoked."""
    grant(enclave, "vera", "helper")
    enclave.send("bob", "Shared", {"key": "plans", "value": "p"})
    made = say(enclave, "x")
    revoke(enclave, "vera", "dataview")
    assert enclave.node.store.endpoints(enclave.id).keys() == {(person("nick").public, "watcher")}
    (batch,) = pull(enclave, "vera", 1)
    assert seqs(batch, enclave) == [made[0] - 1]


def test_a_closed_gate_withholds(enclave: Enclave) -> None:
    enclave.send("bob", "Shared", {"key": "topic", "value": "t"})
    (message,) = say(enclave, "x")
    assert seqs(pull(enclave, "vera", 1)[0], enclave) == [message - 1, message]
    enclave.send("alice", "Gate", {"alias": "feed", "state": "closed"})
    assert seqs(pull(enclave, "vera", 1)[0], enclave) == [message - 1]
    enclave.send("alice", "Gate", {"alias": "feed", "state": "open"})
    assert seqs(pull(enclave, "vera", 1)[0], enclave) == [message - 1, message]


def test_slots_are_judged_one_by_one(enclave: Enclave) -> None:
    grant(enclave, "vera", "helper")
    first = enclave.send("bob", "Shared", {"key": "topic", "value": "t"}).seq
    enclave.send("bob", "Shared", {"key": "plans", "value": "p"})
    spread(enclave.node)
    assert seqs(pull(enclave, "vera", 1)[0], enclave) == [first, first + 1]
    revoke(enclave, "vera", "helper")
    assert seqs(pull(enclave, "vera", 1)[0], enclave) == [first]


def test_an_update_counts_as_what_it_updates(enclave: Enclave) -> None:
    sent = enclave.send("bob", "message", "x")
    update = enclave.send("bob", "Update", "y", about(sent))
    spread(enclave.node)
    assert seqs(pull(enclave, "vera", 1)[0], enclave) == [sent.seq, update.seq]
    enclave.send("alice", "Gate", {"alias": "feed", "state": "closed"})
    assert pull(enclave, "vera", 1) == [{"push_seq": 1}]


def test_authors_are_told_apart(node: Served) -> None:
    """Only the author has P: of two events of one type, each is shown to its author."""
    customs: list[Json] = [
        {"event": "message", "operator": "MEMBER", "ops": ["C"]},
        {"event": "message", "operator": "Sender", "ops": ["P"]},
        {"event": "message", "operator": "dataview", "ops": ["P"]},
    ]
    enclave = node.create({**PUSHED, "customs": customs})
    register(enclave, "bob", "dataview")
    own = enclave.send("bob", "message", "mine").seq
    other = enclave.send("carol", "message", "hers").seq
    spread(node)
    assert seqs(pull(enclave, "bob", 1)[0], enclave) == [own, other]
    revoke(enclave, "bob", "dataview")
    assert seqs(pull(enclave, "bob", 1)[0], enclave) == [own]


def test_a_notice_needs_p_or_n_on_what_it_names(enclave: Enclave) -> None:
    (seq,) = say(enclave, "x")
    (told,) = pull(enclave, "nick", 1)
    assert told["notify"]["enclaves"][0]["seq"] == seq
    revoke(enclave, "nick", "watcher")
    assert pull(enclave, "nick", 1) == [{"push_seq": 1}]
    grant(enclave, "nick", "dataview")
    assert pull(enclave, "nick", 1) == [told]
    enclave.send("alice", "Gate", {"alias": "feed", "state": "closed"})
    assert pull(enclave, "nick", 1) == [{"push_seq": 1}]


def test_of_other_types_a_notice_counts_those_that_can_be_told_of(enclave: Enclave) -> None:
    enclave.send("bob", "message", "x")
    say(enclave, "y", type_="note")
    (told,) = pull(enclave, "nick", 1)
    assert told["notify"]["enclaves"][0]["type_seq"] == {"message": 1, "note": 1}
    revoke(enclave, "nick", "watcher")
    grant(enclave, "nick", "helper")
    (told,) = pull(enclave, "nick", 1)
    assert told["notify"]["enclaves"][0]["type_seq"] == {"note": 1}


def test_a_notice_of_an_update_counts_it(enclave: Enclave) -> None:
    sent = enclave.send("bob", "message", "x")
    enclave.send("bob", "Update", "y", about(sent))
    spread(enclave.node)
    (told,) = pull(enclave, "nick", 1)
    assert told["notify"]["enclaves"][0]["type"] == "Update"
    assert told["notify"]["enclaves"][0]["type_seq"] == {"message": 1, "Update": 1}


def test_who_has_only_n_now_is_shown_no_event(enclave: Enclave) -> None:
    batches_of(enclave, 1)
    revoke(enclave, "vera", "dataview")
    grant(enclave, "vera", "watcher")
    assert pull(enclave, "vera", 1) == [{"push_seq": 1}]


# Purged and terminated enclaves


def test_contents_that_are_gone(enclave: Enclave) -> None:
    edited, deleted = enclave.send("bob", "message", "x"), enclave.send("bob", "message", "y")
    spread(enclave.node)
    enclave.send("bob", "Update", "z", about(edited))
    enclave.send("bob", "Delete", {"reason": "author"}, about(deleted))
    (batch,) = pull(enclave, "vera", 1)
    events = batch["push"]["enclaves"][0]["events"]
    assert [event["seq"] for event in events] == [edited.seq, deleted.seq]
    for event in events:
        assert event["content"] is None
        assert event["content_hash"]
        check_event(parse_event(encode(event)), 2)


def test_a_purged_enclave(node: Served) -> None:
    enclave, other = room(node), room(node)
    enclave.send("bob", "message", "x")
    seq = other.send("bob", "message", "y").seq
    spread(node)
    enclave.send("alice", "Terminate")
    spread(node)
    assert seqs(pull(other, "vera", 1)[0], enclave) != []
    node.clock.tick(CONFIG.retention.purge_after_s * 1000 + 1)
    node.settle()
    assert node.store.is_purged(enclave.id)
    (batch,) = pull(other, "vera", 1)
    assert [each["enclave"] for each in batch["push"]["enclaves"]] == [other.id.hex()]
    assert seqs(batch, other) == [seq]
    assert enclave.denied("vera", "Pull", url=URL, push_seq=1).code == "ENCLAVE_TERMINATED"


def test_an_enclave_whose_data_goes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sqlite(tmp_path)
    with Served(CONFIG, store) as node:
        enclave, other = room(node), node.create(CLOSED)
        say(enclave, "x")
        before = {seq: store.items(enclave.id, seq, 1) for seq in range(9)}
        enclave.send("alice", "Terminate")
        node.clock.tick(CONFIG.retention.purge_after_s * 1000 + 1)
        node.settle()
        monkeypatch.setattr(store, "items", lambda found, seq, count: before[seq])  # as it was just before
        assert pull(other, "vera", 1) == [{"push_seq": 1}]
        is_purged, seen = store.is_purged, [False]  # and as it was when the answer began
        monkeypatch.setattr(store, "is_purged", lambda found: seen.pop() if seen else is_purged(found))
        assert pull(other, "vera", 1) == [{"push_seq": 1}]
        assert seen == []
        monkeypatch.setattr(store, "is_purged", lambda found: False)
        assert other.denied("vera", "Pull", url=URL, push_seq=1).code == "INTERNAL_ERROR"


# Bounds


def test_an_answer_ends_with_its_page_and_has_one_batch_at_least() -> None:
    config = structs.replace(CONFIG, limits=NodeLimits(page_bytes=64 << 10))
    with Served(config) as node:
        enclave, text = room(node), "x" * (30 << 10)
        for _ in range(5):
            say(enclave, text)
        say(enclave, *[text] * 4)
        found, given = list[list[int]](), {"start_after": 0}
        while page := pull(enclave, "vera", given):
            found.append(numbers(page))
            given = {"start_after": found[-1][-1]}
        assert found == [[1, 2], [3, 4], [5], [6]]
        assert numbers(pull(enclave, "vera", [1, 3, 5])) == [1, 3]


def test_what_is_withheld_counts_as_if_it_were_shown() -> None:
    config = structs.replace(CONFIG, limits=NodeLimits(page_bytes=64 << 10))
    with Served(config) as node:
        enclave = room(node)
        for _ in range(3):
            say(enclave, "x" * (30 << 10))
        revoke(enclave, "vera", "dataview")
        revoke(enclave, "nick", "watcher")
        for name in ("vera", "nick"):
            assert pull(enclave, name, {}) == [{"push_seq": 1}, {"push_seq": 2}]


def test_looking_for_events_counts_even_where_none_are_left(enclave: Enclave, monkeypatch: pytest.MonkeyPatch) -> None:
    batches_of(enclave, 4)
    monkeypatch.setattr(pulls, "LOOKUP_COST", CONFIG.limits.page_bytes // 2)
    for name in ("vera", "nick"):
        assert numbers(pull(enclave, name, {})) == [1, 2]
        assert numbers(pull(enclave, name, {}, enclave="00" * 32)) == [1, 2, 3, 4]


def test_an_answer_has_so_many_batches(enclave: Enclave, monkeypatch: pytest.MonkeyPatch) -> None:
    batches_of(enclave, 4)
    monkeypatch.setattr(pulls, "MAX_BATCHES", 3)
    assert numbers(pull(enclave, "vera", {})) == [1, 2, 3]


def test_rights_are_asked_for_once_for_each_kind(enclave: Enclave, monkeypatch: pytest.MonkeyPatch) -> None:
    say(enclave, *map(str, range(20)))
    asked, real = list[Any](), Access.rights

    def counted(self: Access, subject: Any, *, is_author: bool) -> frozenset[str]:
        asked.append(subject)
        return real(self, subject, is_author=is_author)

    monkeypatch.setattr(Access, "rights", counted)
    assert len(seqs(pull(enclave, "vera", 1)[0], enclave)) == 20
    assert len(asked) == 1


def test_of_many_enclaves_one_is_held_at_a_time(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy may take megabytes, and a page may cover thousands of them."""
    for _ in range(3):
        room(node).send("bob", "message", "x")
    spread(node)
    alive, real, most = set[int](), Access.__init__, list[int]()

    def made(self: Access, *what: Any) -> None:
        real(self, *what)
        alive.add(id(self))
        weakref.finalize(self, alive.discard, id(self))
        most.append(len(alive))

    monkeypatch.setattr(Access, "__init__", made)
    (batch,) = pull(node.create(CLOSED), "vera", 1)
    assert len(batch["push"]["enclaves"]) == 3
    assert len(most) == 4
    assert max(most) <= 3  # the policies of the caller's, the previous and the current enclave
