"""Input that is nearly valid and made to be expensive: the tests count the work that it causes, and measure no time."""

import json
from collections.abc import Iterable
from itertools import islice, product
from string import ascii_uppercase

import pytest

from enc.core.errors import InvalidCommit
from enc.core.log.commit import build_commit
from enc.core.primitives.types import KeyRecord, RecordKind, Target
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import Draft, EndpointChange, Policy, Subject
from enc.core.rules.v2 import rule_table
from enc.core.trees.state_key import identity_key
from tests.core import world_v1
from tests.core.world import person, pub
from tests.core.world_v1 import row

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


def gated_grants(count: int) -> list[dict[str, object]]:
    return [
        {
            "event": "Grant",
            "operator": ["MEMBER", "lead"],
            "trait": "t",
            "scope": "OUTSIDER",
            "alias": f"g{i}",
            "gate": {"operator": "MEMBER"},
        }
        for i in range(count)
    ]


class Counting:
    """A state in which everybody who is asked for is a MEMBER; counts what is read."""

    def __init__(self, members: set[bytes]) -> None:
        self.members, self.reads = {identity_key(each) for each in members}, 0
        self.closed_gates = frozenset[str]()

    def leaf(self, key: bytes) -> bytes | None:
        self.reads += 1
        return (1).to_bytes(32, "big") if key in self.members else None

    def target(self, event_id: bytes) -> Target | None:
        return None

    def record(self, kind: RecordKind, key: bytes) -> KeyRecord | None:
        return None

    def record_of(self, event_id: bytes) -> KeyRecord | None:
        return None


@pytest.fixture
def rows_put(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the entries of a manifest that decisions visit one by one."""
    visited = list[int]()

    def rows_at(positions: Iterable[int]) -> int:
        found = list(positions)
        visited.extend(found)
        return plain(found)

    plain = rule_table.rows_at
    monkeypatch.setattr(rule_table, "rows_at", rows_at)
    return visited


@pytest.mark.parametrize("toggles", [False, True])
def test_the_work_for_a_bundle_is_its_operations_plus_the_gates_not_their_product(
    toggles: bool, rows_put: list[int]
) -> None:
    owner, count = person("alice").public, 2_000
    policy = manifest(
        states=["MEMBER"],
        traits=["t(1)", "lead(0)"],
        init=[{"identity": owner.hex(), "state": "MEMBER", "traits": ["lead"]}],
        grants=gated_grants(count),
    )
    operations = [{"type": "Grant", "target": person(f"p{i % 20}").public.hex(), "trait": "t"} for i in range(1_000)]
    if toggles:
        turns = [{"type": "Gate", "alias": f"g{i}", "state": "closed"} for i in range(500)]
        operations = [each for pair in zip(turns, operations[:500], strict=True) for each in pair]
    state = Counting({owner})
    draft = Draft(state)
    content = json.dumps({"operations": operations})
    policy.judge(build_commit(person("alice"), bytes(32), "AC_Bundle", content, 0), draft)
    assert len(draft.closed_gates) == 500 * toggles
    assert state.reads <= 4 * 1_000
    assert len(rows_put) <= 10 * count


def test_a_right_is_looked_up_and_not_searched_for(rows_put: list[int]) -> None:
    gated = [
        {"event": f"e{i}", "operator": "Public", "ops": ["R"], "alias": f"g{i}", "gate": {"operator": "OUTSIDER"}}
        for i in range(2_000)
    ]
    policy = manifest(customs=gated)
    assert policy.rights(Subject("e7"), 0, is_author=False, closed=frozenset()) == {"R"}
    rows_put.clear()
    assert policy.rights(Subject("e8"), 0, is_author=False, closed=frozenset(["g7"])) == {"R"}
    assert policy.rights(Subject("e7"), 0, is_author=False, closed=frozenset(["g7"])) == set()
    assert rows_put == [7, 8]


def test_a_scope_is_found_once_for_all_who_have_the_same_rights(rows_put: list[int]) -> None:
    reads = [f"e{i}" for i in range(2_000)]
    policy = manifest(readers=[{"type": "Public", "reads": reads, "alias": "g", "gate": {"operator": "OUTSIDER"}}])
    assert not policy.read_scope(0, frozenset(["g"]))
    scope = policy.read_scope(0, frozenset())
    rows_put.clear()
    assert policy.read_scope(0, frozenset()) is scope
    assert not rows_put


def test_an_operation_that_takes_many_traits_away_is_one_change_of_endpoints() -> None:
    traits = [f"t{i}" for i in range(248)]
    policy = manifest(
        states=["MEMBER"],
        traits=[f"{name}(0)" for name in traits],
        moves=[{"event": "Move", "operator": "Public", "ops": ["C"], "from": "OUTSIDER", "to": "MEMBER"}],
        init=[{"identity": pub("alice"), "state": "OUTSIDER", "traits": traits}],
    )
    draft = Draft(Counting(set()))
    policy.write_initial_state(draft)
    content = json.dumps({"target": pub("alice"), "from": "OUTSIDER", "to": "MEMBER"})
    policy.judge(build_commit(person("bob"), bytes(32), "Move", content, 0), draft)
    assert draft.endpoints == [EndpointChange(person("alice").public, tuple(traits), None)]


def test_an_operation_that_takes_many_roles_away_is_one_change_of_endpoints() -> None:
    roles = [f"R{i}" for i in range(200)]
    everything, one = sum(1 << 32 + i for i in range(200)), 1 << 32
    state = {"Owner": [pub("alice")], **{role: [pub("bob")] for role in roles}}
    schema = [row("Force_Move", "Any", "C"), *(row("note", role, "C") for role in roles)]
    policy = parse_manifest(json.dumps(world_v1.manifest(schema, state)))
    draft = Draft(Counting(set()))
    policy.write_initial_state(draft)
    content = json.dumps({"identity": pub("bob"), "from": hex(everything), "to": hex(one)})
    policy.judge(build_commit(person("carol"), bytes(32), "Force_Move", content, 0, enc_v=1), draft)
    assert draft.endpoints == [EndpointChange(person("bob").public, tuple(roles[1:]), None)]
