"""Manifests of version 1: every rule of validation broken alone, the bits of roles, values just inside each limit."""

import re
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enc.core.errors import InvalidCommit, PeerError
from enc.core.log.commit import build_manifest
from enc.core.machine.enclave import judge_manifest
from enc.core.primitives.encoding import compact_json
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import EndpointChange
from enc.core.rules.v1.access import PolicyV1
from enc.core.rules.v2.access import PolicyV2
from enc.core.trees.bundle import BundleConfig
from tests.core.damage import damage
from tests.core.strategies import anything, examples
from tests.core.world import DM, NO_POINT, Json, World, person, pub
from tests.core.world_v1 import ENDPOINT, EXAMPLE, OWNER, PERSONAL_V1, REGISTRY, initial, manifest, row

VALID: Json = manifest(
    [*EXAMPLE, row("*", "DataView", "P"), row("Move", "Owner", "C", "Admin", "Member", "DataView")],
    initial(olga="Owner", adam="Admin Member", mark="Member"),
    bundle={"size": 4, "timeout": 5000},
)

GONE = object()


def with_(where: str, value: Any) -> Json:
    """Return VALID with another value at a path such as `RBAC.schema[1].ops`; GONE removes it."""
    changed = deepcopy(VALID)
    *above, last = [int(word) if word.isdigit() else word for word in re.findall(r"\w+", where)]
    place: Any = changed
    for step in above:
        place = place[step]
    if value is GONE:
        del place[last]
    elif isinstance(place, list) and last == len(place):
        place.append(value)
    else:
        place[last] = value
    return changed


def parse(content: Json) -> PolicyV1:
    policy = parse_manifest(compact_json(content))
    assert isinstance(policy, PolicyV1)
    return policy


def refusal(content: Json) -> str:
    with pytest.raises(InvalidCommit) as caught:
        parse_manifest(compact_json(content))
    return caught.value.message


def test_enc_v_picks_the_reader() -> None:
    assert type(parse_manifest(compact_json(VALID))) is PolicyV1
    assert type(parse_manifest(compact_json(DM))) is PolicyV2
    assert parse(VALID).enc_v == 1


@pytest.mark.parametrize("schema", [EXAMPLE, REGISTRY, PERSONAL_V1])
def test_the_schemas_of_the_document_are_valid(schema: list[Json]) -> None:
    assert parse(manifest(schema, initial(olga="Owner"))).rows


# The rules of the document, by their numbers there

SCHEMA, STATE = "RBAC.schema", "RBAC.initial_state"
ANY_KIND: list[Any] = [None, True, 7, "text", [], {}]

RULES: list[tuple[int, str, Any, str]] = [
    # (rule, what changes, to what, the path that the message names)
    *((1, "enc_v", wrong, "enc_v") for wrong in (0, 3, -1, "1", 1.0, True, None, [1], GONE)),
    *((2, "RBAC.use_temp", wrong, "use_temp") for wrong in anything("chat", "personal", "", "None", None, {}, False)),
    *((2, "use_temp", wrong, "use_temp") for wrong in ("chat", None)),
    *((3, SCHEMA, wrong, SCHEMA) for wrong in ({}, "text", None, 7, GONE)),
    *((3, f"{SCHEMA}[0]", wrong, f"{SCHEMA}[0]") for wrong in (None, "Grant", 7, ["Grant"])),
    *(
        (3, f"{SCHEMA}[2].{field}", wrong, f"{SCHEMA}[2].{field}")
        for field in ("event", "role")
        for wrong in (*(kind for kind in ANY_KIND if kind != "text"), "", GONE)
    ),
    *((3, f"{SCHEMA}[2].ops", wrong, f"{SCHEMA}[2].ops") for wrong in (None, True, 7, "R", {}, GONE)),
    *(
        (3, f"{SCHEMA}[2].ops", ["R", wrong], f"{SCHEMA}[2].ops")
        for wrong in anything("X", "r", "", "_R", "_C", "CR", None, 7, ["R"], {})
    ),
    *((4, f"{STATE}.Owner", wrong, f"{STATE}.Owner") for wrong in ([], [pub("olga"), pub("bob")], GONE)),
    *((4, STATE, wrong, f"{STATE}") for wrong in (None, [], "text", 7, GONE)),
    (4, STATE, {}, f"{STATE}.Owner"),
    *((4, f"{STATE}.Owner", wrong, f"{STATE}.Owner") for wrong in anything(None, pub("olga"), {}, 7)),
    *(
        (5, f"{STATE}.Member[1]", wrong, f"{STATE}.Member[1]")
        for wrong in anything(
            NO_POINT, "00" * 32, pub("bob").upper(), pub("bob")[2:], f"0x{pub('bob')}", "", 7, None, []
        )
    ),
    *((5, f"{STATE}.Owner[0]", wrong, f"{STATE}.Owner[0]") for wrong in (NO_POINT, "", None)),
    *(
        (5, f"{STATE}.Member[1]", {"identity": wrong, "endpoint": ENDPOINT}, f"{STATE}.Member[1].identity")
        for wrong in (NO_POINT, "", None, 7)
    ),
    *((6, f"{STATE}.{role}", [pub("bob")], STATE) for role in ("Guest", "admin", "owner", "Chat_Message")),
    *(
        (7, f"{SCHEMA}[0].target_roles", ["Member", role], f"{SCHEMA}[0].target_roles")
        for role in ("Owner", "Self", "Node", "Any")
    ),
    *((8, f"{STATE}.{role}", wrong, STATE) for role in ("Self", "Node", "Any") for wrong in ([pub("bob")], [], None)),
]


@pytest.mark.parametrize(("rule", "where", "value", "named"), RULES)
def test_a_broken_rule_of_the_document_is_refused_with_its_path(rule: int, where: str, value: Any, named: str) -> None:
    assert refusal(with_(where, value)).startswith(f"{named}: ")


def test_every_rule_of_the_document_is_broken() -> None:
    assert {rule for rule, *_ in RULES} == set(range(1, 9))


@pytest.mark.parametrize(
    ("where", "value", "named"),
    [
        *(("RBAC", wrong, "RBAC") for wrong in (None, [], "text", 7, GONE)),
        *(
            (f"{SCHEMA}[0].target_roles", wrong, f"{SCHEMA}[0].target_roles")
            for wrong in anything(None, "Member", {}, 7)
        ),
        *((f"{SCHEMA}[0].target_roles", [wrong], f"{SCHEMA}[0].target_roles") for wrong in (None, "", 7, ["Member"])),
        (f"{SCHEMA}[9].target_roles", ["Owner"], f"{SCHEMA}[9].target_roles"),
        (f"{SCHEMA}[9].target_roles", "Member", f"{SCHEMA}[9].target_roles"),
        (f"{STATE}.Member[2]", pub("mark"), f"{STATE}.Member[2]"),
        (f"{STATE}.Member[2]", {"identity": pub("mark"), "endpoint": ENDPOINT}, f"{STATE}.Member[2]"),
        (f"{STATE}.Owner", [pub("olga"), pub("olga")], f"{STATE}.Owner[1]"),
        *(
            (f"{STATE}.{role}", wrong, f"{STATE}.{role}")
            for role in ("Admin", "Member")
            for wrong in anything(None, {}, "x")
        ),
        *(("meta", wrong, "meta") for wrong in anything(None, "text", [], 7, {"d": "x" * 4089})),
        *(("bundle", wrong, "bundle") for wrong in anything(None, [], 4)),
        *(("bundle.size", wrong, "bundle.size") for wrong in (0, 65_537, 4.0, "4", True, None)),
        *(("bundle.timeout", wrong, "bundle.timeout") for wrong in (0, 3_600_001, 5000.0, "5000", None)),
    ],
)
def test_another_malformed_place_is_refused_with_its_path(where: str, value: Any, named: str) -> None:
    assert refusal(with_(where, value)).startswith(f"{named}: ")


@pytest.mark.parametrize("endpoint", ["", "x" * 2049, 7, True, None, [], {}, GONE])
def test_an_initial_member_s_endpoint_has_the_form_of_an_endpoint(endpoint: Any) -> None:
    member = {"identity": pub("bob"), **({} if endpoint is GONE else {"endpoint": endpoint})}
    assert refusal(with_(f"{STATE}.Member[2]", member)).startswith(f"{STATE}.Member[2].endpoint: ")


@pytest.mark.parametrize("type_", ["Grant", "Grant_Push", "Revoke", "Revoke_Self", "Move"])
def test_target_roles_are_required_beside_c_for_the_types_that_have_them(type_: str) -> None:
    at = len(VALID["RBAC"]["schema"])
    for ops in ("C", "RC", "CRUDPN"):
        named = f"{SCHEMA}[{at}].target_roles: "
        assert refusal(with_(f"{SCHEMA}[{at}]", row(type_, "Admin", ops))).startswith(named)
        parse(with_(f"{SCHEMA}[{at}]", row(type_, "Admin", ops, "Member")))
        parse(with_(f"{SCHEMA}[{at}]", row(type_, "Admin", ops, target_roles=[])))
    parse(with_(f"{SCHEMA}[{at}]", row(type_, "Admin", "RUDPN")))


@pytest.mark.parametrize("type_", ["Force_Move", "Transfer_Owner", "AC_Bundle", "Pause", "Chat_Message", "*"])
def test_target_roles_may_be_absent_for_every_other_type(type_: str) -> None:
    parse(manifest([row(type_, "Owner", "C")], initial(olga="Owner")))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(compact_json(VALID)[:-1] + ',"enc_v":1}', id="a key twice"),
        pytest.param(compact_json(VALID)[:-1] + ',"x":"\\ud800"}', id="half a surrogate pair"),
        pytest.param(compact_json(VALID)[:-1] + ',"x":9007199254740992}', id="2^53"),
        pytest.param(compact_json(VALID)[:-1] + ',"x":NaN}', id="NaN"),
        pytest.param(compact_json(VALID)[:-1] + ',"x":' + "[" * 65 + "]" * 65 + "}", id="too deep"),
        pytest.param(compact_json(VALID)[:-1], id="cut off"),
    ],
)
def test_content_that_two_readers_could_read_differently_is_refused(content: str) -> None:
    with pytest.raises(InvalidCommit, match=r"^content: "):
        parse_manifest(content)


def test_a_role_twice_in_the_initial_state_is_a_key_twice() -> None:
    content = compact_json(VALID).replace('"initial_state":{', f'"initial_state":{{"Owner":["{pub("bob")}"],')
    with pytest.raises(InvalidCommit, match="repeated"):
        parse_manifest(content)


# Roles and bits


def test_the_bits_of_the_document_s_example() -> None:
    schema = [row("m", "Admin", "C"), row("m", "Member", "C"), row("m", "Moderator", "C")]
    policy = parse(manifest(schema, initial(olga="Owner")))
    assert policy.roles == {"Admin": 1 << 32, "Member": 1 << 33, "Moderator": 1 << 34}
    world = World(manifest(schema, initial(olga="Owner Admin Member")))
    assert world.bitmask("olga") == 2**1 + 2**32 + 2**33


def test_reserved_roles_take_no_custom_bit() -> None:
    schema = [row("m", role, "C") for role in ("Self", "Any", "Node", "Owner", "First")]
    policy = parse(manifest(schema, initial(olga="Owner")))
    assert policy.roles == {"First": 1 << 32}
    assert [entry.role for entry in policy.rows] == [1 << 0, 1 << 3, 1 << 2, 1 << 1, 1 << 32]


def test_bits_follow_the_first_appearance_role_before_target_roles() -> None:
    schema = [
        row("Grant", "Owner", "C", "B", "A"),
        row("m", "A", "C"),
        row("Grant", "C", "C", "E", "B", "D"),
        row("m", "F", "C", "G"),
        row("Move", "Any", "R", "H"),
    ]
    assert list(parse(manifest(schema, initial(olga="Owner"))).roles.items()) == [
        (name, 1 << 32 + i) for i, name in enumerate("BACEDFGH")
    ]


def test_224_roles_whose_last_is_the_highest_bit_and_no_more() -> None:
    schema = [row("m", f"r{i}", "C") for i in range(224)]
    policy = parse(manifest(schema, initial(olga="Owner r223")))
    assert policy.traits_of(1 << 255) == ["r223"]
    assert refusal(manifest([*schema, row("m", "one_more", "C")], initial(olga="Owner"))).startswith(f"{SCHEMA}: ")
    targets = [row("Grant", "Owner", "C", *(f"r{i}" for i in range(225)))]
    assert refusal(manifest(targets, initial(olga="Owner"))).startswith(f"{SCHEMA}: ")


def test_names_are_any_text() -> None:
    schema = [row("chat message", "数据 View", "C"), row("é", "owner", "R"), row("é", "*", "R")]
    state = {**initial(olga="Owner"), "数据 View": [pub("mark")]}
    world = World(manifest(schema, state))
    assert world.policy.traits_of(world.bitmask("mark")) == ["数据 View"]
    assert world.code("mark", "chat message") == ""


# Initial state


def test_the_initial_state_sets_one_bit_a_role() -> None:
    world = World(VALID, by="someone")
    admin, member = world.policy.roles["Admin"], world.policy.roles["Member"]
    people = ("olga", "adam", "mark", "someone")
    assert [world.bitmask(name) for name in people] == [OWNER, admin | member, member, 0]
    assert [world.policy.traits_of(world.bitmask(name)) for name in people] == [
        ["Owner"],
        ["Admin", "Member"],
        ["Member"],
        [],
    ]


def test_an_initial_state_of_the_owner_alone() -> None:
    world = World(manifest([], initial(olga="Owner")))
    assert world.bitmask("olga") == OWNER
    assert world.effects.endpoints == ()


def test_roles_that_nobody_starts_with_are_valid() -> None:
    world = World(manifest(EXAMPLE, {**initial(olga="Owner"), "Admin": []}))
    assert world.bitmask("olga") == OWNER


def test_initial_members_may_bring_an_endpoint() -> None:
    other = "https://example.org/other"
    state: dict[str, list[Any]] = {
        "Owner": [{"identity": pub("olga"), "endpoint": other}],
        "DataView": [{"identity": pub("dave"), "endpoint": ENDPOINT}, pub("dora")],
        "Member": [pub("dave")],
    }
    world = World(manifest([row("*", "DataView", "P"), row("m", "Member", "C")], state))
    assert world.bitmask("dave") == 1 << 32 | 1 << 33
    assert world.bitmask("dora") == 1 << 32
    assert set(world.effects.endpoints) == {
        EndpointChange(person("olga").public, ("Owner",), other),
        EndpointChange(person("dave").public, ("DataView",), ENDPOINT),
    }


def test_no_right_comes_of_having_written_the_manifest() -> None:
    world = World(manifest([row("m", "Owner", "C")], initial(olga="Owner")), by="adam")
    assert world.code("adam", "m") == "UNAUTHORIZED"


# Just inside


def test_defaults_of_what_may_be_absent() -> None:
    rbac = {"schema": [], "initial_state": initial(olga="Owner")}
    policy = parse({"enc_v": 1, "RBAC": rbac})
    assert (policy.bundle, policy.registry, policy.rows) == (BundleConfig(256, 5000), False, ())
    assert parse(VALID).bundle == BundleConfig(4, 5000)
    assert parse({**VALID, "bundle": {"size": 9}}).bundle == BundleConfig(9, 5000)
    assert parse({**VALID, "bundle": {"timeout": 9}}).bundle == BundleConfig(256, 9)


def test_unknown_extra_keys_are_kept() -> None:
    extra = {**VALID, "states": ["x"], "more": 1, "RBAC": {**VALID["RBAC"], "init": 7}}
    extra["RBAC"]["schema"] = [*EXAMPLE, row("m", "Member", "C", note="why", alias=7, gate=None)]
    assert parse(extra).manifest == extra


def test_an_entry_without_ops_gives_nothing_but_names_its_role() -> None:
    world = World(manifest([row("m", "Quiet", "")], initial(olga="Owner", mark="Quiet")))
    assert world.policy.traits_of(world.bitmask("mark")) == ["Quiet"]
    assert world.code("mark", "m") == "UNAUTHORIZED"


def test_a_message_shows_a_peer_s_value_only_in_part() -> None:
    long = "Z" * 100_000
    for wrong in (
        with_(f"{STATE}.{long}", []),
        with_(f"{SCHEMA}[0].ops", [long]),
        manifest([row("m", long, "C")], {**initial(olga="Owner"), long: [7]}),
    ):
        assert len(refusal(wrong)) < 200


# Properties

NAMES = st.sampled_from(["Self", "Owner", "Node", "Any", "Admin", "Member", "DataView", "x"])
CUSTOM = st.sampled_from(["Admin", "Member", "DataView", "x", "y", "z"])
ENTRIES = st.builds(
    lambda event, role, ops, targets: row(event, role, "".join(ops), target_roles=targets),
    st.sampled_from(["Grant", "Move", "m", "*"]),
    NAMES,
    st.sets(st.sampled_from("CRUDPN")),
    st.lists(CUSTOM, max_size=3),
)


@examples()
@given(st.lists(ENTRIES, max_size=8))
def test_every_custom_role_has_one_bit_from_32_on_in_order_of_appearance(schema: list[Json]) -> None:
    policy = parse(manifest(schema, initial(olga="Owner")))
    named = [name for entry in schema for name in (entry["role"], *entry["target_roles"])]
    expected = [name for name in dict.fromkeys(named) if name not in ("Self", "Owner", "Node", "Any")]
    assert policy.roles == {name: 1 << 32 + i for i, name in enumerate(expected)}


@pytest.mark.sweep
def test_damaged_manifests_are_taken_or_refused_and_nothing_else() -> None:
    random, taken = Random(21), 0
    for _ in range(20_000):
        damaged = deepcopy(VALID)
        damaged["enc_v"] = 1
        damage(random, damaged)
        try:
            policy, _ = judge_manifest(build_manifest(person("olga"), compact_json(damaged), 0, enc_v=1))
        except PeerError:
            continue
        taken += policy.enc_v == 1
    assert 200 < taken < 19_000
