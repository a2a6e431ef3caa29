"""Lies about events and pages: each test is named after the lie."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from enc.client import Equivocation, ForeignSequencer, Forgery, check_evidence
from enc.core.log.event import erase, wire_event
from enc.core.trees.state_key import status_key
from enc.testing.lying_node import Json, LyingNode
from tests.client.scene import Scene, flip, without
from tests.core.world import person

# Events


def test_two_events_in_one_place_by_receipt_and_page(scene: Scene) -> None:
    scene.show(4, scene.node.event(scene.commit("another three"), 4))
    error = scene.caught(Equivocation, scene.enclave.query)
    assert check_evidence(error.evidence).convicts


def test_two_events_in_one_place_by_two_pages(scene: Scene) -> None:
    e = scene.other()
    assert len(list(e.query())) == 8
    scene.show(4, scene.node.event(scene.commit("another three"), 4))
    error = scene.caught(Equivocation, e.query)
    assert check_evidence(error.evidence).convicts


def test_two_events_in_one_place_by_page_and_subscription(scene: Scene) -> None:
    e = scene.other()
    assert len(list(e.query())) == 8
    another = scene.node.event(scene.commit("another three"), 4)
    scene.lie("Event", lambda item: {**item, "event": wire_event(another)} if item["event"]["seq"] == 4 else None)
    scene.caught(Equivocation, e.subscribe)


@pytest.mark.parametrize("seq", range(1, 7))
def test_dropped_event(scene: Scene, seq: int) -> None:
    """A complete read detects it: the bundles' id lists name every event."""
    scene.lie("Query", lambda answer: without(answer, seq))
    scene.caught(Forgery, scene.enclave.complete)


def test_dropped_event_that_a_filtered_read_cannot_miss(scene: Scene) -> None:
    """No proof shows that nothing else matches, as the docs state."""
    scene.lie("Query", lambda answer: without(answer, 4))
    assert [item.seq for item in scene.enclave.query(type="message")] == [1, 2, 7]
    assert "left out" in (scene.stage.kind.query.__doc__ or "")
    assert "**That nothing was withheld**" in (Path(__file__).parents[3] / "docs/client.md").read_text()


def test_event_that_is_not_the_one_of_the_bundle(scene: Scene) -> None:
    scene.show(4, scene.node.event(scene.commit("another three"), 4, scene.event("three").timestamp))
    scene.caught(Forgery, scene.other().complete)


def test_dropped_event_and_its_id(scene: Scene) -> None:
    scene.lie("Query", lambda answer: without(answer, 4))
    scene.lie("Bundle_Proof", lambda answer: {**answer, "ids": answer["ids"][:1]})
    scene.caught(Forgery, scene.enclave.complete)


def test_dropped_event_that_is_said_to_be_deleted(scene: Scene) -> None:
    """With the status of another event that is deleted."""
    e = scene.enclave
    e.delete(scene.id("one"))
    scene.stage.close_bundle()
    e.head()
    scene.lie("Query", lambda answer: without(answer, 4))
    of_one = scene.node.proofs(e.id)
    proof = of_one.state(status_key(scene.id("one")), of_one.root_at(None, False))
    scene.lie("State_Batch", lambda answer: {**answer, "proofs": [proof]})
    scene.caught(Forgery, e.complete)


def test_reordered_events(scene: Scene) -> None:
    scene.lie("Query", lambda answer: {**answer, "events": answer["events"][::-1]})
    scene.caught(Forgery, scene.enclave.query)
    scene.caught(Forgery, lambda: scene.enclave.query(reverse=True))


def test_reordered_ids_of_a_bundle(scene: Scene) -> None:
    scene.lie("Bundle_Proof", lambda answer: {**answer, "ids": answer["ids"][::-1]})
    scene.caught(Forgery, lambda: scene.enclave.bundle(0))


def test_event_that_stands_twice_in_a_page(scene: Scene) -> None:
    scene.lie("Query", lambda answer: {**answer, "events": [*answer["events"], answer["events"][-1]]})
    scene.caught(Forgery, scene.enclave.query)


def test_event_dated_before_the_one_before_it(scene: Scene) -> None:
    scene.show(7, scene.node.event(scene.commit("early"), 7, scene.event("three").timestamp - 1))
    scene.caught(Forgery, lambda: scene.other().query(seq={"start_at": 4}))


OUTSIDE: dict[str, Callable[[Scene], Json]] = {
    "type": lambda scene: {"type": "Shared"},
    "author": lambda scene: {"author": person("bob").public},
    "id": lambda scene: {"id": scene.id("three")},
    "seq": lambda scene: {"seq": 4},
    "range": lambda scene: {"seq": {"start_at": 5}},
    "tags": lambda scene: {"tags": {"r": True}},
    "timestamp": lambda scene: {"timestamp": {"end_before": scene.sent["one"].timestamp}},
}


@pytest.mark.parametrize("outside", OUTSIDE.values(), ids=OUTSIDE)
def test_event_out_of_the_filter(scene: Scene, outside: Callable[[Scene], Json]) -> None:
    item = {"event": wire_event(scene.event("one")), "status": "active"}
    scene.lie("Query", lambda answer: {**answer, "events": [item]})
    scene.caught(Forgery, lambda: scene.enclave.query(**outside(scene)))


def test_more_events_than_the_limit(scene: Scene) -> None:
    page = {"events": [{"event": wire_event(scene.event(text)), "status": "active"} for text in ("one", "three")]}
    scene.lie("Query", lambda _: page)
    scene.caught(Forgery, lambda: scene.enclave.query(limit=1))


ALTERED: dict[str, Callable[[Scene], Any]] = {
    "content": lambda scene: "three, or more",
    "type": lambda scene: "notice",
    "from": lambda scene: person("bob").public.hex(),
    "timestamp": lambda scene: scene.sent["three"].timestamp + 1,
    "exp": lambda scene: scene.event("three").exp + 1,
    "tags": lambda scene: [["k"]],
    "hash": lambda scene: flip(scene.sent["three"].hash.hex()),
    "id": lambda scene: flip(scene.id("three").hex()),
    "sig": lambda scene: flip(scene.sent["three"].sig.hex()),
    "seq_sig": lambda scene: flip(scene.sent["three"].seq_sig.hex()),
    "alg": lambda scene: "ecdsa",
    "content_hash": lambda scene: "00" * 32,
}


@pytest.mark.parametrize("field", ALTERED)
def test_altered_event(scene: Scene, field: str) -> None:
    """Content, author, time, and everything else that a signature covers."""
    scene.alter(4, **{field: ALTERED[field](scene)})
    scene.caught(Forgery, scene.other().query)


def test_event_moved_to_another_place(scene: Scene) -> None:
    def lie(answer: Json) -> Json:
        answer["events"][4]["event"]["seq"] = 5
        del answer["events"][5]
        return answer

    scene.lie("Query", lie)
    scene.caught(Forgery, scene.other().query)


@pytest.mark.parametrize("text", ["one", "plans"])
def test_withheld_content(scene: Scene, text: str) -> None:
    """The event was not erased."""
    scene.show(scene.sent[text].seq, erase(scene.event(text)))
    scene.caught(Forgery, scene.other().query)


def test_event_of_another_enclave(scene: Scene) -> None:
    elsewhere = scene.stage.create(meta={"n": 2})
    receipt = elsewhere.commit("message", "elsewhere")
    found = scene.node.store.event(elsewhere.id, receipt.id)
    assert found is not None
    scene.show(1, found.event)
    scene.caught(Forgery, scene.other().query)


def test_event_of_a_foreign_sequencer(scene: Scene) -> None:
    foreign = LyingNode(scene.stage.clock, person("node2"))
    scene.show(7, foreign.event(scene.commit("foreign"), 7))
    scene.caught(ForeignSequencer, scene.other().query)


def test_event_0_that_is_no_manifest(scene: Scene) -> None:
    """The enclave's id is the hash of its Manifest, and of nothing else that the node may sign as event 0."""
    manifest = scene.node.store.events(scene.enclave.id, 0, 1)[0]
    false = scene.commit((manifest.content or "").replace("message", "massage"))
    scene.show(0, scene.node.event(false, 0, manifest.timestamp))
    for ask in ("manifest", "overview", "members"):
        scene.caught(Forgery, getattr(scene.other(), ask))


def test_manifest_of_another_enclave(scene: Scene) -> None:
    other = scene.stage.create(meta={"n": 2})
    scene.show(0, scene.node.store.events(other.id, 0, 1)[0])
    scene.caught(Forgery, scene.other().manifest)


def test_old_commit_sequenced_again(scene: Scene) -> None:
    """The author signed it for an hour; the node shows it as a year later."""
    scene.stage.clock.tick(365 * 86_400_000)
    again = scene.node.event(scene.event("one"), 8)
    page = {"events": [{"event": wire_event(again), "status": "active"}]}
    scene.lie("Query", lambda _: page)
    scene.caught(Forgery, lambda: scene.other().query(seq=8))


def test_commit_sequenced_twice(scene: Scene) -> None:
    again = scene.node.event(scene.event("one"), 8)
    scene.lie("Query", lambda answer: {"events": [*answer["events"], {"event": wire_event(again), "status": "active"}]})
    scene.caught(Forgery, scene.other().query)


def test_commit_dated_before_it_can_have_been_made(scene: Scene) -> None:
    """A commit holds for an hour at most: its time is within that of `exp`."""
    commit = scene.commit("x", exp=scene.stage.clock.now + 10 * 3_600_000)
    scene.show(7, scene.node.event(commit, 7))
    scene.caught(Forgery, scene.other().query)


@pytest.mark.parametrize("item", [{"updated_by": "00" * 32}, {"status": "updated"}], ids=["by", "status"])
def test_status_that_does_not_fit(scene: Scene, item: Json) -> None:
    scene.lie("Query", lambda answer: answer["events"][1].update(item))
    scene.caught(Forgery, scene.enclave.query)


def test_update_of_another_event(scene: Scene) -> None:
    """An event's current content comes from its own Update."""
    e = scene.enclave
    e.update(scene.id("one"), "uno")
    item = e.event(scene.id("two"))
    of_one = next(each for each in e.query(type="Update", reverse=True) if each.content == "uno")
    scene.lie("Query", lambda answer: answer["events"][0].update(updated_by=of_one.id.hex()))
    item = e.event(scene.id("two"))
    scene.node.be_honest()
    scene.caught(Forgery, lambda: e.content(item))


def test_reply_presented_as_an_update(scene: Scene) -> None:
    """The reply names the event by the same tag as an Update would."""
    e = scene.enclave
    reply = e.commit("message", "I say", tags=[["r", scene.id("two").hex()]])
    scene.lie("Query", lambda answer: answer["events"][0].update(updated_by=reply.id.hex()))
    item = e.event(scene.id("two"))
    scene.node.be_honest()
    scene.caught(Forgery, lambda: e.content(item))


# Pages


def test_repeated_page(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.client.enclave.search.MAX_LIMIT", 3)
    pages = list[Json]()

    def first_again(answer: Json) -> Json:
        pages.append(answer)
        return pages[0]

    scene.lie("Query", first_again)
    scene.caught(Forgery, scene.enclave.query)
    assert len(pages) == 2


def test_truncated_page(scene: Scene) -> None:
    scene.lie("Query", lambda _: {"events": [], "more": True})
    scene.caught(Forgery, scene.enclave.query)


def test_page_that_ends_early(scene: Scene) -> None:
    """The page claims to be the last one. A complete read detects it."""
    scene.lie("Query", lambda answer: {"events": answer["events"][:2]})
    scene.caught(Forgery, scene.enclave.complete)


@pytest.mark.parametrize("page", [b"[]", b"{}", b'{"events": {}}', b'{"events": [{}]}', b"null", b'"events"'], ids=str)
def test_page_of_another_form(scene: Scene, page: bytes) -> None:
    scene.lie("Query", lambda _: Raw(page))
    scene.caught(Forgery, scene.enclave.query)
