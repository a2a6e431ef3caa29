"""Filters: parsing with every documented maximum, and matching."""

from typing import Any

import pytest

from enc.core.errors import InvalidFilter
from enc.core.log.filter import Range, parse_filter
from tests.core.world import World, person, pub

MANIFEST = {
    "enc_v": 2,
    "states": ["OWNER"],
    "customs": [
        {"event": "*", "operator": "OWNER", "ops": ["R"]},
        {"event": "note", "operator": "Public", "ops": ["C"]},
    ],
    "init": [{"identity": pub("alice"), "state": "OWNER", "traits": []}],
}


@pytest.fixture(scope="module")
def world() -> World:
    world = World(MANIFEST)
    world.send("alice", "note", "0", tags=(("r", "ab", "reply"), ("k",)), at=10)
    world.send("bob", "note", "1", tags=(("r", "cd"),), at=20)
    world.send("bob", "note", "2", at=30)
    return world


def seqs(world: World, **filter_: Any) -> list[int]:
    parsed = parse_filter({name.rstrip("_"): value for name, value in filter_.items()})
    return [event.seq for event in world.events if parsed.matches(event)]


def test_an_empty_filter_matches_all(world: World) -> None:
    assert seqs(world) == [0, 1, 2, 3]


def test_fields(world: World) -> None:
    ids = [event.id.hex() for event in world.events]
    assert seqs(world, id=ids[1]) == [1]
    assert seqs(world, id=[ids[1], ids[3]]) == [1, 3]
    assert seqs(world, id=[]) == []
    assert seqs(world, seq=2) == [2]
    assert seqs(world, seq=[0, 2, 99]) == [0, 2]
    assert seqs(world, type="note") == [1, 2, 3]
    assert seqs(world, type=["Manifest", "x"]) == [0]
    assert seqs(world, from_=pub("bob")) == [2, 3]
    assert seqs(world, type="note", from_=[pub("alice")]) == [1]


@pytest.mark.parametrize(
    ("wire", "low", "high"),
    [
        ({}, 0, 2**53 - 1),
        ({"start_at": 5}, 5, 2**53 - 1),
        ({"start_after": 5}, 6, 2**53 - 1),
        ({"end_at": 5}, 0, 5),
        ({"end_before": 5}, 0, 4),
        ({"start_at": 5, "start_after": 5, "end_at": 9, "end_before": 9}, 6, 8),
        ({"end_before": 0}, 0, -1),
    ],
)
def test_ranges(wire: dict[str, int], low: int, high: int) -> None:
    assert parse_filter({"seq": wire}).seqs == Range(low, high)
    assert parse_filter({"timestamp": wire}).timestamps == Range(low, high)


def test_times(world: World) -> None:
    start = world.events[0].timestamp
    assert seqs(world, timestamp={"start_at": start + 10, "end_before": start + 30}) == [1, 2]


def test_tags(world: World) -> None:
    assert seqs(world, tags={"r": "ab"}) == [1]
    assert seqs(world, tags={"r": ["ab", "cd"]}) == [1, 2]
    assert seqs(world, tags={"r": True}) == [1, 2]
    assert seqs(world, tags={"k": True}) == [1]
    assert seqs(world, tags={"k": ""}) == []
    assert seqs(world, tags={"r": "ab", "k": True}) == [1]
    assert seqs(world, tags={"r": "cd", "k": True}) == []


def test_paging_fields() -> None:
    assert (parse_filter({}).limit, parse_filter({}).reverse) == (100, False)
    assert (parse_filter({"limit": 1000, "reverse": True}).limit, parse_filter({"reverse": True}).reverse) == (
        1000,
        True,
    )


HEX = person("alice").public.hex()
MAXIMA = {
    "id": ([HEX] * 100, [HEX] * 101),
    "seq": ([1] * 100, [1] * 101),
    "type": (["a"] * 20, ["a"] * 21),
    "from": ([HEX] * 100, [HEX] * 101),
    "tags": ({str(i): True for i in range(10)}, {str(i): True for i in range(11)}),
    "limit": (1000, 1001),
}


@pytest.mark.parametrize("name", MAXIMA)
def test_each_maximum_at_and_past_it(name: str) -> None:
    most, too_many = MAXIMA[name]
    parse_filter({name: most})
    with pytest.raises(InvalidFilter, match=f"^{name}"):
        parse_filter({name: too_many})


def test_the_maximum_of_a_tag_s_values() -> None:
    parse_filter({"tags": {"r": ["a"] * 20}})
    with pytest.raises(InvalidFilter, match=r"^tags\.r"):
        parse_filter({"tags": {"r": ["a"] * 21}})


@pytest.mark.parametrize(
    "wire",
    [
        None,
        [],
        "x",
        {"unknown": 1},
        {"id": 5},
        {"id": HEX.upper()},
        {"id": HEX[:-1]},
        {"seq": "1"},
        {"seq": True},
        {"seq": -1},
        {"seq": 2**53},
        {"seq": 1.0},
        {"seq": {"from": 1}},
        {"seq": {"start_at": -1}},
        {"seq": {"start_at": None}},
        {"type": 1},
        {"from": "alice"},
        {"tags": []},
        {"tags": {"r": False}},
        {"tags": {"r": 1}},
        {"tags": {"r": [1]}},
        {"timestamp": 5},
        {"limit": 0},
        {"limit": "1"},
        {"reverse": 1},
    ],
)
def test_what_is_malformed_is_refused(wire: Any) -> None:
    with pytest.raises(InvalidFilter):
        parse_filter(wire)
