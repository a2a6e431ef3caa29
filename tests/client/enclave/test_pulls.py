"""Batches pulled by a client: all of them, in order, each event verified, and lies detected."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from enc.client import Distrust, Equivocation, ForeignSequencer, Forgery, Notice, PushedBatch
from enc.client.enclave import pulls
from enc.client.enclave.push_body import parse_batch, parse_batches
from enc.client.verify.pins import FilePins, Pin
from enc.core.errors import InvalidProof, MisuseError
from enc.core.log.commit import build_commit
from enc.core.log.event import erase, finalize, wire_event
from tests.client.scene import flip
from tests.client.stage import Stage
from tests.core.world import LIFETIME, person, pub, withheld
from tests.node.pushing import PUSHED, URL

Json = dict[str, Any]


class Pushed:
    """alice's enclave: two batches for vera, of two messages each, and two for nick, who gets notices of them."""

    def __init__(self, stage: Stage, count: int = 2) -> None:
        self.stage, self.enclave = stage, stage.client().create({**PUSHED, "meta": {"n": 1}})
        self.enclave.grant(pub("vera"), "dataview", endpoint=URL)
        self.enclave.grant(pub("nick"), "watcher", endpoint=URL)
        self.sent = [self.say(f"{i} one", f"{i} two") for i in range(count)]

    def say(self, *texts: str) -> list[int]:
        seqs = [self.enclave.commit("message", text).seq for text in texts]
        self.stage.node.store.fan_out(self.stage.clock.now)
        return seqs

    def by(self, name: str = "vera") -> Any:
        return self.stage.client(name).enclave(self.enclave.id)

    def pull(self, *what: Any, name: str = "vera", **more: Any) -> list[PushedBatch]:
        return list(self.by(name).pull(URL, *what, **more))

    def seqs(self, batches: list[PushedBatch]) -> list[tuple[int, list[int]]]:
        return [(batch.push_seq, [e.seq for e in batch.events.get(self.enclave.id, ())]) for batch in batches]


@pytest.fixture
def pushed(stage: Stage) -> Pushed:
    return Pushed(stage)


def test_by_number_by_numbers_and_by_range(pushed: Pushed) -> None:
    one, two = (1, pushed.sent[0]), (2, pushed.sent[1])
    assert pushed.seqs(pushed.pull(2)) == [two]
    assert pushed.seqs(pushed.pull([2, 1, 2])) == [one, two]
    assert pushed.seqs(pushed.pull()) == [one, two]
    assert pushed.seqs(pushed.pull(after=1)) == [two]
    assert pushed.seqs(pushed.pull(until=1)) == [one]
    assert pushed.seqs(pushed.pull(after=0, until=9)) == [one, two]
    assert pushed.pull(3) == []
    assert pushed.pull(after=2, until=2) == []


def test_events_are_the_log_s(pushed: Pushed) -> None:
    (batch,) = pushed.pull(1)
    first = pushed.sent[0][0]
    assert list(batch.events[pushed.enclave.id]) == pushed.stage.node.store.events(pushed.enclave.id, first, 2)
    assert batch.notices == ()


def test_notices(pushed: Pushed) -> None:
    (batch,) = pushed.pull(2, name="nick")
    (event,) = pushed.stage.node.store.events(pushed.enclave.id, pushed.sent[1][1], 1)
    told = Notice(pushed.enclave.id, event.seq, event.id, "message", event.timestamp, {"message": 4})
    assert (batch.events, batch.notices) == ({}, (told,))


def test_of_one_enclave(stage: Stage, pushed: Pushed) -> None:
    other = stage.client().create({**PUSHED, "meta": {"n": 2}})
    other.grant(pub("vera"), "dataview", endpoint=URL)
    other.commit("message", "there")
    seqs = pushed.say("here")
    (both,) = pushed.pull(3)
    assert set(both.events) == {pushed.enclave.id, other.id}
    (batch,) = pushed.pull(3, enclave=pushed.enclave.id)
    assert [[event.seq for event in events] for events in batch.events.values()] == [seqs]
    assert pushed.pull(3, enclave=bytes(32)) == [PushedBatch(3)]


def test_what_is_withheld_is_an_empty_batch(pushed: Pushed) -> None:
    pushed.enclave.revoke(pub("vera"), "dataview")
    assert pushed.pull() == [PushedBatch(1), PushedBatch(2)]


def test_contents_that_are_gone(stage: Stage, pushed: Pushed) -> None:
    event = pushed.enclave.commit("message", "short")
    pushed.enclave.update(event.id, "long")
    stage.node.store.fan_out(stage.clock.now)
    (batch,) = pushed.pull(3)
    assert [event.content for event in batch.events[pushed.enclave.id]] == [None, "long"]


def test_page_by_page(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed = Pushed(stage, 5)
    monkeypatch.setattr("enc.node.read.pulls.MAX_BATCHES", 2)
    assert [batch.push_seq for batch in pushed.pull()] == [1, 2, 3, 4, 5]
    assert stage.node.asked["push_seq"] == {"start_after": 5}
    assert [batch.push_seq for batch in pushed.pull(after=1, until=4)] == [2, 3, 4]
    assert stage.node.asked["push_seq"] == {"start_after": 3, "end_at": 4}
    monkeypatch.setattr(pulls, "MAX_NUMBERS", 3)
    assert [batch.push_seq for batch in pushed.pull([1, 2, 3, 4, 5, 7, 8, 9, 10])] == [1, 2, 3, 4, 5]
    assert [batch.push_seq for batch in pushed.pull([7, 8, 9, 5, 3])] == [3, 5]


def test_an_endless_answer_is_asked_for_as_it_is_taken(pushed: Pushed) -> None:
    before = len(pushed.stage.node.calls)
    assert next(iter(pushed.by().pull(URL))).push_seq == 1
    assert pushed.stage.node.calls[before:].count("/") == 1


@pytest.mark.parametrize(
    ("what", "more"),
    [
        ([0], {}),
        ([-1], {}),
        ([2**53], {}),
        ([[]], {}),
        ([[1, 0]], {}),
        ([1], {"after": 1}),
        ([1], {"until": 1}),
        ([], {"after": -1}),
        ([], {"after": 3, "until": 2}),
        ([], {"until": 2**53}),
        ([], {"until": -1}),
        ([1], {"enclave": "x"}),
    ],
)
def test_misuse(pushed: Pushed, what: list[Any], more: Json) -> None:
    with pytest.raises(MisuseError):
        pushed.pull(*what, **more)


def test_what_was_asked_for_is_known() -> None:
    some = pulls.select_batches(after=2, until=4)
    assert [n for n in range(1, 7) if some.holds(n)] == [3, 4]
    assert [n for n in range(1, 7) if pulls.select_batches(after=2).holds(n)] == [3, 4, 5, 6]
    assert [n for n in range(1, 7) if pulls.select_batches([5, 1]).holds(n)] == [1, 5]


# Lies


def lie(pushed: Pushed, alter: Callable[[Any], Any], error: type[Distrust] = Forgery, *what: Any) -> Distrust:
    pushed.stage.node.lie("Pull", alter)
    with pytest.raises(Distrust) as found:
        pushed.pull(*what)
    assert type(found.value) is error, repr(found.value)
    assert found.value.evidence.message == found.value.message
    return found.value


def events(answer: Any, batch: int = 0) -> list[Json]:
    found: list[Json] = answer[batch]["push"]["enclaves"][0]["events"]
    return found


@pytest.mark.parametrize("field", ["content", "sig", "seq_sig", "id", "hash", "timestamp", "exp", "type"])
def test_an_altered_event(pushed: Pushed, field: str) -> None:
    def alter(answer: Any) -> None:
        value = events(answer)[1][field]
        events(answer)[1][field] = value + 1 if isinstance(value, int) else flip(value)

    lie(pushed, alter)


def test_an_event_of_another_sequencer(pushed: Pushed) -> None:
    commit = build_commit(person("bob"), pushed.enclave.id, "message", "x", pushed.stage.clock.now + LIFETIME)
    other = wire_event(finalize(commit, person("mallory"), pushed.stage.clock.now, 9))
    lie(pushed, lambda answer: events(answer).append(other), ForeignSequencer)


def test_an_event_under_another_enclave(pushed: Pushed) -> None:
    def alter(answer: Any) -> None:
        answer[0]["push"]["enclaves"][0]["enclave"] = "ab" * 32

    assert "another enclave" in lie(pushed, alter).message


def test_two_events_in_one_place(pushed: Pushed) -> None:
    """One reader gets both, in two pulls."""
    first = pushed.sent[0][0]
    reader = pushed.by()
    assert len(list(reader.pull(URL, 1))) == 1
    commit = build_commit(person("bob"), pushed.enclave.id, "message", "x", pushed.stage.clock.now + LIFETIME)
    twin = wire_event(pushed.stage.node.event(commit, first))

    def alter(answer: Any) -> None:
        answer[0]["push"]["enclaves"][0]["events"] = [twin]

    pushed.stage.node.lie("Pull", alter)
    with pytest.raises(Equivocation):
        list(reader.pull(URL, 1))


def test_a_neighbour_that_is_pinned_to_another_sequencer(stage: Stage, pushed: Pushed) -> None:
    other = stage.client("bob").create({**PUSHED, "meta": {"n": 3}})
    stage.client("alice").enclave(other.id).grant(pub("vera"), "dataview", endpoint=URL)
    other.commit("message", "there")
    stage.node.store.fan_out(stage.clock.now)
    pins = FilePins(stage.pins)
    pins.remove(other.id)
    pins.store(other.id, Pin(person("mallory").public, None))
    with pytest.raises(ForeignSequencer):
        pushed.pull(3)


@pytest.mark.parametrize(
    "alter",
    [
        lambda answer: answer[::-1],
        lambda answer: [answer[0], answer[0]],
        lambda answer: [{**answer[0], "push_seq": 0}],
        lambda answer: [{**answer[0], "push_seq": -1}],
        lambda answer: [{**answer[0], "push_seq": "1"}],
        lambda answer: [{"push": {}}],
        lambda answer: {"push_seq": 1},
        lambda answer: events(answer).reverse(),
        lambda answer: events(answer).append(events(answer)[1]),
        lambda answer: events(answer).clear(),
        lambda answer: answer[0]["push"]["enclaves"].append(answer[0]["push"]["enclaves"][0]),
        lambda answer: answer[0]["push"]["enclaves"][0].update(enclave="AB" * 32),
        lambda answer: answer[0]["push"]["enclaves"][0].update(events=[{}]),
        lambda answer: answer[0].update(notify={"enclaves": [{}]}),
    ],
)
def test_an_answer_that_no_node_gives(pushed: Pushed, alter: Callable[[Any], Any]) -> None:
    lie(pushed, alter)


def test_more_than_was_asked_for(pushed: Pushed) -> None:
    lie(pushed, lambda answer: [{**answer[0], "push_seq": 2}], Forgery, 1)
    lie(pushed, lambda answer: [{**answer[0], "push_seq": 3}], Forgery, [1, 2])
    pushed.stage.node.lie("Pull", lambda answer: [{"push_seq": 3}])
    for more in ({"after": 3}, {"until": 2}):
        with pytest.raises(Forgery):
            pushed.pull(**more)  # type: ignore[arg-type]


def test_another_enclave_than_was_asked_for(pushed: Pushed) -> None:
    honest = pushed.stage.node
    whole: list[Json] = []
    honest.lie("Pull", lambda answer: whole.extend(answer))
    pushed.pull(1)
    honest.lie("Pull", lambda answer: whole)
    with pytest.raises(Forgery, match="another enclave"):
        pushed.pull(1, enclave="ab" * 32)


# The form of a batch

NOTICE: Json = {
    "enclave": "ab" * 32,
    "seq": 3,
    "event_id": "cd" * 32,
    "type": "message",
    "timestamp": 5,
    "type_seq": {"message": 2, "note": 1},
}


def test_a_batch_of_notices() -> None:
    wire = {"push_seq": 4, "notify": {"enclaves": [NOTICE]}}
    notice = Notice(b"\xab" * 32, 3, b"\xcd" * 32, "message", 5, {"message": 2, "note": 1})
    assert parse_batch(wire) == PushedBatch(4, {}, (notice,))
    assert parse_batch(b'{"push_seq":4}') == PushedBatch(4)
    assert parse_batches(b"[]") == []


@pytest.mark.parametrize(
    "change",
    [
        {"enclave": "ab"},
        {"seq": -1},
        {"seq": 2**53},
        {"event_id": ""},
        {"type": 1},
        {"timestamp": -1},
        {"type_seq": {"message": 0}},
        {"type_seq": {"message": -1}},
        {"type_seq": {"message": 2**53}},
        {"type_seq": 2},
        {"type_seq": None},
    ],
)
def test_a_notice_that_is_none(change: Json) -> None:
    with pytest.raises(InvalidProof):
        parse_batch({"push_seq": 4, "notify": {"enclaves": [{**NOTICE, **change}]}})


def test_two_notices_of_one_enclave() -> None:
    with pytest.raises(InvalidProof, match="twice"):
        parse_batch({"push_seq": 4, "notify": {"enclaves": [NOTICE, NOTICE]}})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"push_seq":1.5}',
        b"[" * 100_000,
        {},
        {"push_seq": True},
        {"push_seq": 0},
        {"push_seq": -1},
        {"push_seq": 2**53},
    ],
)
def test_what_is_no_batch(body: Any) -> None:
    with pytest.raises(InvalidProof):
        parse_batch(body)


def test_a_content_that_may_not_be_gone_is_withheld(pushed: Pushed) -> None:
    for seq, type_ in enumerate(("Manifest", "Grant")):
        (event,) = pushed.stage.node.store.events(pushed.enclave.id, seq, 1)
        assert event.type == type_
        wire = wire_event(replace(event, content=None))
        lie(pushed, lambda answer, wire=wire: events(answer).insert(0, wire))  # type: ignore[misc]


def test_a_pulled_event_has_the_statement_of_a_known_node_only(pushed: Pushed) -> None:
    seq = pushed.sent[0][0]
    (event,) = pushed.stage.node.store.events(pushed.enclave.id, seq, 1)
    for shown, expected in ((withheld(event), withheld(event)), (withheld(event, "bob"), erase(event))):
        wire = wire_event(shown)

        def show(answer: Any, wire: Json = wire) -> None:
            events(answer)[0] = wire

        pushed.stage.node.lie("Pull", show)
        assert pushed.pull(1)[0].events[pushed.enclave.id][0] == expected


def test_an_event_stands_under_its_own_enclave(pushed: Pushed) -> None:
    (event,) = pushed.stage.node.store.events(pushed.enclave.id, pushed.sent[0][0], 1)
    wire = {"enclave": "ab" * 32, "events": [wire_event(event)]}
    with pytest.raises(InvalidProof, match="another enclave"):
        parse_batch({"push_seq": 1, "push": {"enclaves": [wire]}})


def test_an_event_that_is_none(pushed: Pushed) -> None:
    (event,) = pushed.stage.node.store.events(pushed.enclave.id, pushed.sent[0][0], 1)
    wire = {"enclave": pushed.enclave.hex, "events": [{**wire_event(event), "id": "no id"}]}
    with pytest.raises(InvalidProof, match="id"):
        parse_batch({"push_seq": 1, "push": {"enclaves": [wire]}})


# Deliveries


def test_deliveries_of_the_owner_and_of_others(pushed: Pushed) -> None:
    found = pushed.enclave.deliveries()
    assert [(each.identity.hex(), each.trait) for each in found] == sorted(
        [(pub("vera"), "dataview"), (pub("nick"), "watcher")]
    )
    (own,) = pushed.by("vera").deliveries()
    assert replace(own, queue=None) in found
    queue = own.queue
    assert queue is not None
    assert (queue.push_seq, queue.waiting, queue.delivered, queue.dead) == (2, 2, 0, 0)
    assert queue.oldest is not None
    assert (own.url, own.has_dead, own.last_error, own.last_error_at) == (URL, False, "", None)
    assert pushed.by("bob").deliveries() == []


QUEUE = {"push_seq": 1, "waiting": 0, "oldest": None, "delivered": 1, "dead": 0}


def test_deliveries_page_by_page(pushed: Pushed, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pushed.enclave.deliveries()
    monkeypatch.setattr("enc.node.read.deliveries.MAX_ENDPOINTS", 1)
    assert pushed.enclave.deliveries() == whole
    assert pushed.stage.node.asked["after"] == {"identity": whole[0].identity.hex(), "trait": whole[0].trait}


@pytest.mark.parametrize(
    "alter",
    [
        lambda answer: answer["endpoints"].reverse(),
        lambda answer: answer["endpoints"].append(answer["endpoints"][0]),
        lambda answer: {"endpoints": [], "more": True},
        lambda answer: {**answer, "more": True},
        lambda answer: answer["endpoints"][0].update(queue={**QUEUE, "push_seq": -1}),
        lambda answer: answer["endpoints"][0].update(queue={**QUEUE, "oldest": -1}),
        lambda answer: answer["endpoints"][0].update(last_error_at=-1),
        lambda answer: answer["endpoints"][0].update(identity="ab"),
        lambda answer: answer["endpoints"][0].pop("url"),
        lambda answer: [],
    ],
)
def test_deliveries_that_no_node_tells(pushed: Pushed, alter: Callable[[Any], Any]) -> None:
    def altered(answer: Any) -> Any:
        found = alter(answer)
        return found if isinstance(found, dict | list) else None

    pushed.stage.node.lie("Deliveries", altered)
    with pytest.raises(Forgery):
        pushed.enclave.deliveries()
