"""The policy agrees with the rules entry by entry, for random manifests, members and bundles of operations."""

from hypothesis import given, settings
from hypothesis import strategies as st

from enc.core.errors import ACBundleFailed, EncError
from enc.core.primitives.encoding import compact_json
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import Subject
from enc.core.rules.v2.access import PolicyV2
from tests.core.rules.v2 import plain_rules
from tests.core.world import Json, World, init, pub

NAMES = ["olga", "adam", "mark", "otto"]
STATES, TRAITS, SOMEBODY = ["OUTSIDER", "PENDING", "MEMBER"], ["owner", "admin", "muted"], ["Self", "Public"]

columns = st.one_of(st.just(["Public"]), st.lists(st.sampled_from(STATES + TRAITS + SOMEBODY), min_size=1, max_size=3))
states, traits = st.sampled_from(STATES), st.sampled_from(TRAITS)
some_states, some_traits = st.lists(states, min_size=1, max_size=2), st.lists(traits, min_size=1, max_size=2)
ops = st.sampled_from([["C"], ["C"], ["C"], ["_C"], ["C", "R"], ["R"], ["_R"], ["P", "N"], ["_N"]])
reading = st.sampled_from([["R"], ["R", "P"], ["_R"], ["N", "_P"]])
gates = st.one_of(st.just(["Public"]), st.just(["Public"]), st.none(), columns)

move = st.fixed_dictionaries(
    {"event": st.just("Move"), "from": states, "to": states, "operator": columns, "ops": ops, "preserve": st.booleans()}
)
grant = st.fixed_dictionaries(
    {
        "event": st.sampled_from(["Grant", "Revoke"]),
        "operator": columns,
        "trait": some_traits,
        "scope": some_states,
        "ops": ops,
    }
)
transfer = st.fixed_dictionaries({"trait": some_traits, "scope": some_states})
custom = st.fixed_dictionaries(
    {"event": st.sampled_from(["*", "note", "Move", "Grant"]), "operator": columns, "ops": reading}
)


def with_gates(entries: st.SearchStrategy[Json], prefix: str) -> st.SearchStrategy[list[Json]]:
    def put(found: list[tuple[Json, list[str] | None]]) -> list[Json]:
        return [
            entry | ({"alias": f"{prefix}{i}", "gate": {"operator": gate}} if gate else {})
            for i, (entry, gate) in enumerate(found)
        ]

    return st.lists(st.tuples(entries, gates), max_size=6).map(put)


sections = st.fixed_dictionaries(
    {
        "moves": with_gates(move, "m"),
        "grants": with_gates(grant, "g"),
        "transfers": with_gates(transfer, "t"),
        "customs": with_gates(custom, "c"),
    }
)
members = st.fixed_dictionaries(
    {name: st.tuples(states, st.sets(traits)).map(lambda held: " ".join([held[0], *held[1]])) for name in NAMES}
)
targets = st.sampled_from(NAMES).map(pub)
turns = st.fixed_dictionaries(
    {
        "type": st.just("Gate"),
        "alias": st.sampled_from(["m0", "m1", "g0", "g1", "t0", "c0"]),
        "state": st.sampled_from(["open", "closed"]),
    }
)
of_a_trait = st.sampled_from(["Grant", "Revoke", "Transfer"])
operation = st.one_of(
    turns,
    st.fixed_dictionaries({"type": st.just("Move"), "target": targets, "from": states, "to": states}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["Grant", "Revoke", "Transfer"]), "target": targets, "trait": traits}
    ),
)


aliases = st.sets(st.sampled_from(["m0", "m1", "g0", "g1", "g2", "t0", "c0", "c1"]))
lists = st.builds(
    lambda shut, found: [{"type": "Gate", "alias": alias, "state": "closed"} for alias in sorted(shut)] + found,
    aliases,
    st.lists(operation, min_size=1, max_size=16),
)


def manifest(entries: Json, people: dict[str, str]) -> Json:
    return {
        "enc_v": 2,
        "states": ["PENDING", "MEMBER"],
        "traits": ["owner(0)", "admin(1)", "muted(2)"],
        "init": init(**people),
        **entries,
        "moves": [
            *entries["moves"],
            # so that every State can be reached; nobody has the Context Sender in a Move
            {"event": "Move", "from": "OUTSIDER", "to": "PENDING", "operator": "Sender", "ops": ["C"]},
            {"event": "Move", "from": "OUTSIDER", "to": "MEMBER", "operator": "Sender", "ops": ["C"]},
        ],
    }


def policy_of(found: Json) -> PolicyV2:
    policy = parse_manifest(compact_json(found))
    assert isinstance(policy, PolicyV2)
    return policy


@settings(deadline=None, max_examples=400)
@given(entries=sections, people=members, actor=st.sampled_from(NAMES), listed=lists)
def test_a_bundle_is_judged_as_entry_by_entry(
    entries: Json, people: dict[str, str], actor: str, listed: list[Json]
) -> None:
    world = World(manifest(entries, people))
    policy = world.policy
    assert isinstance(policy, PolicyV2)
    masks, closed = {pub(name): world.bitmask(name) for name in NAMES}, set[str]()
    passed = list[Json]()
    for each in listed:
        before = masks.copy(), closed.copy()
        try:
            plain_rules.operate(policy, pub(actor), each, masks, closed)
        except plain_rules.PlainError as e:
            masks, closed = before
            _check_refused(world.refused(actor, "AC_Bundle", {"operations": [*passed, each]}), len(passed), str(e))
        else:
            passed.append(each)
    if passed:
        world.send(actor, "AC_Bundle", {"operations": passed})
    assert {pub(name): world.bitmask(name) for name in NAMES} == masks
    assert world.state.closed_gates == closed
    assert all((world.gate(alias) is not None) == (alias in closed) for alias in policy.gates)


def _check_refused(error: EncError, index: int, reason: str) -> None:
    code, _, alias = reason.partition(":")
    assert isinstance(error, ACBundleFailed)
    assert error.context == {"failed_index": index, "reason": code}
    assert error.message.endswith(f"the gate {alias} is closed" if alias else "")


subjects = st.one_of(
    st.sampled_from([Subject("note"), Subject("other")]),
    st.builds(lambda a, b: Subject("Move", from_state=a, to_state=b), states, states),
    st.builds(lambda type_, trait: Subject(type_, trait=trait), st.sampled_from(["Grant", "Revoke"]), traits),
)


@settings(deadline=None, max_examples=400)
@given(
    entries=sections,
    mask=st.tuples(st.integers(0, 2), st.integers(0, 7)).map(lambda held: held[0] | held[1] << 8),
    shut=aliases,
    asked=st.lists(st.tuples(subjects, st.booleans()), min_size=1, max_size=10),
)
def test_rights_are_found_as_entry_by_entry(
    entries: Json, mask: int, shut: set[str], asked: list[tuple[Subject, bool]]
) -> None:
    policy = policy_of(manifest(entries, {"olga": "MEMBER owner"}))
    closed = frozenset(shut & policy.gates.keys())
    for subject, is_author in asked:
        found = policy.rights(subject, mask, is_author=is_author, closed=closed)
        assert found == plain_rules.rights(policy, subject, mask, is_author=is_author, closed=closed)
