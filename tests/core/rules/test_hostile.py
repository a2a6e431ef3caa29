"""Input that is nearly valid and made to be expensive: the tests count the work that it causes, and measure no time."""

import json
from itertools import islice, product
from string import ascii_uppercase

import pytest

from enc.core.errors import InvalidCommit
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import Policy, Subject
from tests.core.world import pub

INIT = [{"identity": pub("alice"), "state": "OUTSIDER", "traits": []}]


def manifest(**sections: object) -> Policy:
    return parse_manifest(json.dumps({"enc_v": 2, "init": INIT, **sections}))


def test_repeated_words_count_once() -> None:
    policy = manifest(
        traits=["o(0)"],
        readers=[{"type": "Public", "reads": ["*"] * 100_000}],
        transfers=[{"trait": ["o"] * 50_000, "scope": ["OUTSIDER"] * 50_000}],
    )
    assert len(policy.entries) == 2  # type: ignore[attr-defined]


def test_too_many_states_are_refused_whatever_their_number() -> None:
    names = ["".join(letters) for letters in islice(product(ascii_uppercase, repeat=4), 100_000)]
    with pytest.raises(InvalidCommit, match=r"^states: more than 255"):
        manifest(states=names)


def test_a_message_shows_a_peer_s_value_only_in_part() -> None:
    for wrong in ("Z" * 100_000, ["Z"] * 100_000, {"Z": 1}):
        with pytest.raises(InvalidCommit) as caught:
            manifest(moves=[{"event": "Move", "from": wrong, "to": "OUTSIDER", "operator": "Self", "ops": ["C"]}])
        assert len(caught.value.message) < 200


def test_a_right_is_looked_up_and_not_searched_for() -> None:
    gated = [
        {
            "event": f"e{i}",
            "operator": "Public",
            "ops": ["R"],
            "alias": f"g{i}",
            "gate": {"operator": "OUTSIDER"},
        }
        for i in range(2_000)
    ]
    policy, asked = manifest(customs=gated), list[str]()

    def is_closed(alias: str) -> bool:
        asked.append(alias)
        return False

    assert policy.rights(Subject("e7"), 0, is_author=False, is_closed=is_closed) == {"R"}
    assert asked == ["g7"]


def test_a_gate_is_asked_once_however_many_events_its_entry_names() -> None:
    reads = [f"e{i}" for i in range(2_000)]
    policy = manifest(readers=[{"type": "Public", "reads": reads, "alias": "g", "gate": {"operator": "OUTSIDER"}}])
    asked: list[str] = []

    def is_closed(alias: str) -> bool:
        asked.append(alias)
        return True

    assert not policy.read_scope(0, is_closed)
    assert asked == ["g"] * 2  # once as an author, once as anyone
