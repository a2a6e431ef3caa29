"""Searching: a caller's terms, the wire filter, and the pages that a search needs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enc.client.enclave.search import PagedSearch, as_filter, beyond
from enc.client.link.enclave_reader import ItemPage
from enc.core.errors import MisuseError
from enc.core.log.filter import MAX_LIMIT, parse_filter
from tests.client.scene import Scene
from tests.core.world import person, pub


@pytest.mark.parametrize(
    ("search", "wire"),
    [
        ({}, {}),
        ({"type": "message"}, {"type": "message"}),
        ({"type": ["message", "notice"]}, {"type": ["message", "notice"]}),
        ({"author": person("bob").public}, {"from": pub("bob")}),
        ({"author": pub("bob")}, {"from": pub("bob")}),
        ({"author": [person("bob").public, pub("alice")]}, {"from": [pub("bob"), pub("alice")]}),
        ({"id": b"\x07" * 32}, {"id": "07" * 32}),
        ({"seq": 3, "type": None}, {"seq": 3}),
        ({"seq": (1, 2)}, {"seq": [1, 2]}),
        ({"tags": {"r": "ab"}}, {"tags": {"r": "ab"}}),
        ({"timestamp": {"start_at": 5}}, {"timestamp": {"start_at": 5}}),
    ],
    ids=str,
)
def test_a_search_in_the_wire_s_words(search: Any, wire: Any) -> None:
    assert as_filter(search) == wire


@pytest.mark.parametrize(
    "search",
    [
        {"from": pub("bob")},
        {"kind": "message"},
        {"limit": 5},
        {"type": 5},
        {"author": "bob"},
        {"id": b"short"},
        {"seq": -1},
        {"seq": {"from": 1}},
        {"tags": {"r": False}},
        {"timestamp": 5},
        {"type": ["x"] * 21},
    ],
    ids=str,
)
def test_what_cannot_be_searched_for_is_misuse(search: Any) -> None:
    with pytest.raises(MisuseError, match="search"):
        as_filter(search)


def test_a_limit_is_a_number_of_events() -> None:
    with pytest.raises(MisuseError, match="limit"):
        PagedSearch({}, -1, False)
    assert PagedSearch({}, 0, False).wire is None


seqs = st.integers(0, 30)
filters = (
    seqs
    | st.lists(seqs, max_size=5)
    | st.dictionaries(st.sampled_from(["start_at", "start_after", "end_at", "end_before"]), seqs)
)


@given(seq=filters, last=seqs, reverse=st.booleans())
def test_beyond_a_seq_is_what_the_filter_still_finds(seq: Any, last: int, reverse: bool) -> None:
    """Among those that match, exactly the ones after it, or, in reverse, before it."""

    def found(seq: Any) -> set[int]:
        wanted = parse_filter({"seq": seq}).seqs
        assert wanted is not None
        return {each for each in range(40) if each in wanted}

    after = {each for each in range(40) if (each < last if reverse else each > last)}
    assert found(beyond(seq, last, reverse)) == found(seq) & after


# Pages


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.client.enclave.search.MAX_LIMIT", 3)


@pytest.mark.parametrize(
    ("search", "seqs"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"reverse": True}, [7, 6, 5, 4, 3, 2, 1, 0]),
        ({"limit": 4}, [0, 1, 2, 3]),
        ({"limit": 5, "reverse": True}, [7, 6, 5, 4, 3]),
        ({"limit": 3}, [0, 1, 2]),
        ({"limit": 0}, []),
        ({"limit": 100}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"seq": {"start_at": 2, "end_at": 6}}, [2, 3, 4, 5, 6]),
        ({"seq": {"start_at": 2, "end_at": 6}, "reverse": True}, [6, 5, 4, 3, 2]),
        ({"seq": [7, 1, 3, 5]}, [1, 3, 5, 7]),
        ({"seq": [7, 1, 3, 5], "reverse": True}, [7, 5, 3, 1]),
        ({"type": ["message", "Update"]}, [1, 2, 4, 5, 7]),
        ({"type": "Pause"}, []),
        ({"proof": True}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"proof": True, "reverse": True}, [7, 6, 5, 4, 3, 2, 1, 0]),
    ],
    ids=str,
)
@pytest.mark.usefixtures("small")
def test_a_search_takes_as_many_pages_as_it_needs(scene: Scene, search: Any, seqs: list[int]) -> None:
    assert [item.seq for item in scene.enclave.query(**search)] == seqs


@pytest.mark.usefixtures("small")
def test_pages_are_asked_for_as_they_are_taken(scene: Scene) -> None:
    found = scene.enclave.query()
    assert asked(scene) == 0
    for _ in range(3):
        next(found)
    assert asked(scene) == 1
    next(found)
    assert asked(scene) == 2


def asked(scene: Scene) -> int:
    """Return the Queries since the scene was set: before them came seven commits and the Manifest."""
    return scene.node.calls.count("/") - 8


def test_a_search_whose_limit_is_reached_asks_no_more(scene: Scene) -> None:
    assert len(list(scene.enclave.query(limit=2))) == 2
    assert asked(scene) == 1
    assert scene.node.asked["filter"] == {"limit": 2, "reverse": False}


def test_the_first_page_is_as_large_as_it_may_be() -> None:
    assert PagedSearch({}, None, False).wire == {"limit": MAX_LIMIT, "reverse": False}
    assert PagedSearch({}, 5000, False).wire == {"limit": MAX_LIMIT, "reverse": False}


def test_a_page_without_more_is_the_last() -> None:
    search = PagedSearch({}, None, False)
    assert list(search.advance(ItemPage([], False))) == []
    assert search.wire is None


def test_one_event(scene: Scene) -> None:
    item = scene.enclave.event(scene.id("one"))
    assert (item.seq, item.type, item.author, item.content) == (1, "message", person("alice").public, "one")
    assert scene.enclave.event(scene.id("one").hex()) == item
    assert scene.enclave.event(bytes(32)) is None
    with pytest.raises(MisuseError, match="event"):
        scene.enclave.event("one")
