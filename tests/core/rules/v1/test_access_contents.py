"""Access control, version 1: Update and Delete, malformed contents, reading; properties of all rules."""

from copy import deepcopy
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enc.core.errors import (
    ACBundleFailed,
    EventDeleted,
    EventNotFound,
    InvalidCommit,
    InvalidTarget,
    Unauthorized,
)
from enc.core.primitives.types import PREDEFINED, PREDEFINED_V1, Target
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import EndpointChange, Subject, recipients
from enc.core.rules.v1.content import OPERATIONS
from enc.core.trees.state_key import DELETED
from tests.core.damage import damage
from tests.core.rules.v1.access_people import (
    ADMIN,
    DATAVIEW,
    EVERY_CONTENT,
    EVERYBODY,
    EVERYTHING,
    GUEST,
    MEMBER,
    NAMES,
    ROLES,
    allowed,
    club,
    is_,
    masks,
    operations,
    people,
    roles,
)
from tests.core.strategies import examples
from tests.core.world import NO_POINT, Json, World, about, person, pub
from tests.core.world_v1 import ENDPOINT, OWNER, bundle, change, has, row

BIT = dict(zip(ROLES, (ADMIN, MEMBER, GUEST, DATAVIEW), strict=True))


# Update and Delete


EDITABLE = row("m", "Any", "C"), row("m", "Self", "UD"), row("m", "Admin", "D")


GONE = {"reason": "author"}


def test_an_update_supersedes_its_target_and_erases_it() -> None:
    world = club(*EDITABLE)
    message = world.send("mark", "m", "one")
    first = world.send("mark", "Update", "two", tags=about(message))
    assert (world.status(message), world.effects.erases) == (first.id, (message.id,))
    second = world.send("mark", "Update", "", tags=about(message))
    assert world.status(message) == second.id
    assert set(world.effects.erases) == {message.id, first.id}


def test_a_delete_is_for_good_also_after_an_update() -> None:
    world = club(*EDITABLE)
    message = world.send("mark", "m", "one")
    update = world.send("mark", "Update", "two", tags=about(message))
    world.send("adam", "Delete", {"reason": "moderator", "note": "policy violation"}, tags=about(message))
    assert world.status(message) == DELETED
    assert set(world.effects.erases) == {message.id, update.id}
    for type_ in ("Update", "Delete"):
        assert is_(world.refused("mark", type_, GONE, tags=about(message)), EventDeleted)


@pytest.mark.parametrize(("type_", "op"), [("Update", "U"), ("Delete", "D")])
@pytest.mark.parametrize(
    ("role", "who"), [("Self", "mark"), ("Member", "adam mark"), ("Owner", "olga"), ("Any", " ".join(EVERYBODY))]
)
def test_revising_needs_u_or_d_on_the_target_s_type(type_: str, op: str, role: str, who: str) -> None:
    world = club(row("m", "Any", "C"), row("m", role, op), row(type_, "Any", "C"), row("n", "Any", "UD"))
    message = world.send("mark", "m")
    assert allowed(world, type_, GONE, tags=about(message)) == who
    other = club(row("m", "Any", "C"), row("m", role, {"U": "D", "D": "U"}[op]))
    assert allowed(other, type_, GONE, tags=about(other.send("mark", "m"))) == ""


def test_u_and_d_by_the_star() -> None:
    world = club(row("m", "Any", "C"), row("*", "Admin", "D"), row("*", "Self", "U"))
    message = world.send("mark", "m")
    assert allowed(world, "Delete", GONE, tags=about(message)) == "adam"
    assert allowed(world, "Update", "new", tags=about(message)) == "mark"


@pytest.mark.parametrize("type_", ["Update", "Delete"])
@pytest.mark.parametrize("target", sorted(PREDEFINED_V1))
def test_no_predefined_type_is_a_target(type_: str, target: str) -> None:
    world = club(row("*", "Any", "UD"), row(target, "Any", "UD"))
    world.memory.targets[bytes(32)] = Target(target, person("mark").public)
    assert is_(world.refused("mark", type_, GONE, tags=(("r", "00" * 32),)), InvalidTarget)


@pytest.mark.parametrize("target", sorted(PREDEFINED - PREDEFINED_V1))
def test_what_only_version_2_predefines_is_a_content_event(target: str) -> None:
    world = club(row(target, "Any", "CU"))
    event = world.send("otto", target, "any text, {not json")
    assert (world.effects.writes, world.effects.endpoints) == ({}, ())
    assert world.code("otto", "Update", "new", tags=about(event)) == ""


def test_update_and_delete_are_judged_found_then_type_then_authorised_then_status() -> None:
    world = club(*EDITABLE)
    message = world.send("mark", "m")
    world.send("mark", "Delete", GONE, tags=about(message))
    assert is_(world.refused("mark", "Update", "x", tags=(("r", "00" * 32),)), EventNotFound)
    assert is_(world.refused("otto", "Update", "x", tags=about(world.events[0])), InvalidTarget)
    assert is_(world.refused("otto", "Update", "x", tags=about(message)), Unauthorized)
    assert is_(world.refused("mark", "Update", "x", tags=about(message)), EventDeleted)


@pytest.mark.parametrize("type_", ["Update", "Delete"])
@pytest.mark.parametrize(
    "tags", [(), (("r", "no hex"),), (("r", "00" * 32), ("r", "00" * 32)), (("r", "00" * 32, "reply"),)]
)
def test_update_and_delete_carry_exactly_one_r_tag(type_: str, tags: tuple) -> None:
    assert is_(club(*EDITABLE).refused("mark", type_, GONE, tags=tags), InvalidCommit)


# Contents that are malformed


OF_ANY_KIND: list[Any] = [7, None, True, [], {}]


NO_IDENTITIES = [
    *OF_ANY_KIND,
    "",
    "xyz",
    pub("mark")[:-2],
    pub("mark").upper(),
    f"0x{pub('mark')}",
    NO_POINT,
    "00" * 32,
]


FIELDS = {
    "role": OF_ANY_KIND,
    "identity": NO_IDENTITIES,
    "new_owner": NO_IDENTITIES,
    "from": OF_ANY_KIND,
    "to": OF_ANY_KIND,
    "reason": [*OF_ANY_KIND, "", "spam"],
}


@pytest.mark.parametrize(
    ("type_", "field", "value"),
    [
        (type_, field, value)
        for type_, content in EVERY_CONTENT.items()
        for field in content
        for value in FIELDS.get(field, [])
    ],
)
def test_a_mistyped_field_is_refused_by_name(type_: str, field: str, value: Any) -> None:
    error = club().refused("otto", type_, {**EVERY_CONTENT[type_], field: value}, tags=(("r", "00" * 32),))
    assert is_(error, InvalidCommit)
    assert error.message.startswith(f"content.{field}: ")


@pytest.mark.parametrize(
    ("type_", "field"), [(type_, field) for type_, content in EVERY_CONTENT.items() for field in content]
)
def test_a_missing_field_is_refused_by_name(type_: str, field: str) -> None:
    content = {key: value for key, value in EVERY_CONTENT[type_].items() if key != field}
    error = club().refused("otto", type_, content, tags=(("r", "00" * 32),))
    assert is_(error, InvalidCommit)
    assert error.message.startswith(f"content.{field}: ")


@pytest.mark.parametrize("type_", [*EVERY_CONTENT, "AC_Bundle", "Pause", "Terminate", "Migrate"])
@pytest.mark.parametrize("content", ["[]", "7", "null", "{", '{"a":1,"a":2}', '{"a":9007199254740992}', '{"a":NaN}'])
def test_a_content_that_is_no_strict_json_object_is_refused(type_: str, content: str) -> None:
    error = club().refused("otto", type_, content, tags=(("r", "00" * 32),))
    assert is_(error, InvalidCommit)
    assert error.message.startswith("content: ")


@pytest.mark.parametrize("content", ["", "{}", '{"why":"because"}'])
def test_lifecycle_events_take_an_empty_content_or_an_object(content: str) -> None:
    world = club(row("Pause", "Owner", "C"), row("Terminate", "Owner", "C"))
    assert (world.code("olga", "Pause", content), world.code("olga", "Terminate", content)) == ("", "")


@pytest.mark.parametrize("type_", EVERY_CONTENT)
def test_unknown_extra_fields_are_allowed(type_: str) -> None:
    world = club(*EVERYTHING, *EDITABLE, row("m", "Any", "D"))
    message = world.send("mark", "m")
    assert world.code("olga", type_, {**EVERY_CONTENT[type_], "note": "why", "more": [1]}, tags=about(message)) == ""


def test_the_predefined_types_are_those_of_the_document_s_registry() -> None:
    ac_events = "Manifest Grant Grant_Push Revoke Revoke_Self Move Force_Move Transfer_Owner AC_Bundle".split()
    lifecycle_events, mutation_events = ["Pause", "Resume", "Terminate", "Migrate"], ["Update", "Delete"]
    assert {*ac_events, *lifecycle_events, *mutation_events} == PREDEFINED_V1


def test_every_predefined_type_has_its_rules_and_every_other_is_content() -> None:
    """A content that is not JSON is accepted exactly for the types whose rules do not read it."""
    world = club(row("*", "Any", "CUD", *ROLES))
    message = world.send("olga", "m")
    types = PREDEFINED_V1 | PREDEFINED | {"m", "Reg_Node", "Reg_Enclave", "Reg_Identity"}
    read = {type_ for type_ in types if world.code("olga", type_, "{not json", tags=about(message))}
    assert read == PREDEFINED_V1 - {"Update"}
    assert world.policy.predefined == PREDEFINED_V1


# Reading, push and notify


@pytest.mark.parametrize("op", ["R", "P", "N"])
@pytest.mark.parametrize(
    ("role", "who"),
    [("Owner", "olga"), ("Member", "adam mark"), ("Node", "node"), ("Any", " ".join(EVERYBODY)), ("Self", "mark")],
)
def test_rights_are_for_the_role_named(op: str, role: str, who: str) -> None:
    for event in ("m", "*"):
        world = club(row("m", "Any", "C"), row(event, role, op))
        message = world.send("mark", "m")
        assert " ".join(name for name in EVERYBODY if world.rights(name, message)) == who
        assert {world.rights(name, message) for name in who.split()} == {op}


def test_rights_on_one_type_are_none_on_another() -> None:
    world = club(row("m", "Any", "C"), row("n", "Any", "CRPN"), row("Grant", "Any", "RPN"))
    assert world.rights("olga", world.send("mark", "m")) == ""


def test_access_control_events_are_read_like_others_whatever_role_they_are_about() -> None:
    world = club(row("Grant", "Owner", "C", "Guest"), row("Grant", "Member", "R"), row("*", "DataView", "N"))
    event = world.send("olga", "Grant", has("otto", "Guest"))
    assert (world.rights("mark", event), world.rights("dave", event), world.rights("otto", event)) == ("R", "N", "")
    assert world.rights("mark", world.events[0]) == ""


@pytest.mark.parametrize("type_", ["Update", "Delete"])
def test_an_update_or_delete_counts_as_its_target_s_type(type_: str) -> None:
    world = club(*EDITABLE, row("m", "DataView", "P"), row(type_, "Guest", "RPN"))
    message = world.send("mark", "m")
    event = world.send("mark", type_, GONE, tags=about(message))
    assert (world.rights("dave", event, message), world.rights("gina", event, message)) == ("P", "")
    assert not world.scope("gina")


def test_authors_read_what_they_wrote() -> None:
    world = club(row("m", "Any", "C"), row("m", "Self", "R"), row("*", "Owner", "R"), row("n", "Member", "R"))
    assert [world.scope(name).of("m") for name in ("mark", "otto", "olga")] == ["own", "own", "all"]
    assert [world.scope(name).of("n") for name in ("mark", "otto", "olga")] == ["all", "none", "all"]
    assert [world.scope(name).of("other") for name in ("mark", "otto", "olga")] == ["none", "none", "all"]


def test_own_by_the_star_is_for_every_type() -> None:
    world = club(row("*", "Self", "R"), row("m", "Member", "R"))
    assert (world.scope("otto").others, world.scope("otto").of("m"), world.scope("mark").of("m")) == (
        "own",
        "own",
        "all",
    )


def test_whoever_can_read_no_event_at_all_has_an_empty_scope() -> None:
    world = club(row("m", "Member", "R"), row("m", "DataView", "PN"), row("Update", "Any", "R"))
    assert [name for name in EVERYBODY if world.scope(name)] == ["adam", "mark"]


def test_push_outranks_notify_and_the_node_may_be_among_the_recipients() -> None:
    world = club(row("m", "DataView", "PN"), row("m", "Guest", "N"), row("m", "Node", "N"))
    names = ("dave", "gina", "node", "otto")
    bitmasks = {person(name).public: world.bitmask(name) for name in names}
    author, sequencer = person("mark").public, world.state.sequencer
    found = recipients(world.policy, Subject("m"), author, bitmasks, world.state.closed_gates, sequencer)
    assert [found.get(person(name).public) for name in names] == ["P", "N", "N", None]
    found = recipients(world.policy, Subject("m"), author, bitmasks, world.state.closed_gates)
    assert person("node").public not in found


def test_roles_are_the_names_for_people() -> None:
    policy = club().policy
    assert policy.traits_of(OWNER | GUEST | ADMIN) == ["Owner", "Admin", "Guest"]
    assert (policy.traits_of(0), policy.state_of(0), policy.state_of(OWNER | ADMIN)) == ([], "", "")
    assert (policy.is_owner(OWNER | ADMIN), policy.is_owner(ADMIN)) == (True, False)


# Properties


schemas = st.lists(
    st.builds(
        lambda event, role, targets: row(event, role, "C", target_roles=sorted(targets)),
        st.sampled_from([*sorted(OPERATIONS), "Transfer_Owner", "*"]),
        st.sampled_from([*ROLES, "Owner", "Self", "Any", "Node"]),
        st.sets(st.sampled_from(ROLES)),
    ),
    max_size=12,
)


def filled(operation: tuple[str, Json], world: World) -> tuple[str, Json]:
    type_, content = operation
    if type_ not in ("Move", "Force_Move"):
        return operation
    from_ = world.bitmask(content["name"]) if content["from"] is None else content["from"]
    return type_, change(content["name"], from_, content["to"])


def owners(world: World) -> list[str]:
    return [name for name in NAMES if world.bitmask(name) & OWNER]


@examples(150)
@given(schemas, st.lists(st.tuples(people, operations()), max_size=12), st.lists(people, max_size=2))
def test_there_is_always_one_owner_and_no_bit_that_is_not_a_role(
    schema: list[Json], steps: list[tuple[str, tuple[str, Json]]], heirs: list[str]
) -> None:
    world = club(*schema)
    acts = [(name, *operation) for name, operation in steps]
    acts += [(actor, "Transfer_Owner", {"new_owner": pub(heir)}) for heir in heirs for actor in NAMES]
    for name, type_, content in acts:
        type_, content = filled((type_, content), world) if type_ in OPERATIONS else (type_, content)
        if world.code(name, type_, content):
            continue
        before = owners(world)
        world.send(name, type_, content)
        assert len(owners(world)) == 1
        assert type_ == "Transfer_Owner" or owners(world) == before
    assert not any(world.bitmask(name) & ~(OWNER | ADMIN | MEMBER | GUEST | DATAVIEW) for name in NAMES)


@examples(150)
@given(schemas, people, st.lists(operations(), min_size=1, max_size=6))
def test_an_ac_bundle_equals_its_operations_one_by_one_or_changes_nothing(
    schema: list[Json], actor: str, steps: list[tuple[str, Json]]
) -> None:
    single, world = club(*schema), club(*schema)
    done: list[tuple[str, Json]] = []
    endpoints: list[EndpointChange] = []
    code = ""
    for step in steps:
        operation = filled(step, single)
        done.append(operation)
        if code := single.code(actor, *operation):
            break
        single.send(actor, *operation)
        endpoints += single.effects.endpoints
    before = world.state_hash
    if code:
        error = world.refused(actor, "AC_Bundle", bundle(*done))
        assert is_(error, ACBundleFailed, failed_index=len(done) - 1, reason=code)
        assert world.state_hash == before
    else:
        world.send(actor, "AC_Bundle", bundle(*done))
        assert world.state_hash == single.state_hash
        assert world.effects.endpoints == tuple(endpoints)


@examples(150)
@given(schemas, st.sampled_from(sorted(OPERATIONS)), people, roles, masks, masks)
def test_more_roles_never_take_a_right_away(
    schema: list[Json], type_: str, target: str, role: str, to: int, more: int
) -> None:
    poor = club(*schema, poor="Guest")
    rich = club(*schema, poor=" ".join(["Guest", *(name for name in ROLES if name != "Guest" and BIT[name] & more)]))
    move = type_ in ("Move", "Force_Move")
    content = change(target, poor.bitmask(target), to) if move else has(target, role, endpoint=ENDPOINT)
    if not poor.code("poor", type_, content):
        assert rich.code("poor", type_, content) == ""


rows = st.builds(
    lambda event, role, ops: row(event, role, "".join(sorted(ops)), target_roles=[]),
    st.sampled_from(["m", "n", "Grant", "*"]),
    st.sampled_from([*ROLES, "Owner", "Self", "Any", "Node"]),
    st.sets(st.sampled_from("CRUDPN")),
)


@examples(200)
@given(st.lists(rows, max_size=6), masks, st.booleans(), st.booleans(), st.sampled_from(["m", "n", "Grant", "other"]))
def test_rights_and_scope_are_what_the_entries_say(
    schema: list[Json], mask: int, is_author: bool, is_node: bool, type_: str
) -> None:
    policy = club(*schema).policy
    now = {"Any", *policy.traits_of(mask), *(["Self"] if is_author else []), *(["Node"] if is_node else [])}
    given_ops = {op for e in schema if e["event"] in (type_, "*") and e["role"] in now for op in e["ops"]}
    found = policy.rights(Subject(type_), mask, is_author=is_author, closed=frozenset(), is_node=is_node)
    assert found == given_ops & set("RPN")
    reach = policy.read_scope(mask, frozenset(), is_node=is_node).of(type_)
    assert ("R" in found) == (reach == "all" or (reach == "own" and is_author))


def test_damaged_contents_are_judged_or_refused_and_nothing_else() -> None:
    random, codes = Random(22), set[str]()
    world = club(*EVERYTHING, row("m", "Any", "CUD"))
    message = world.send("mark", "m")
    contents = {**EVERY_CONTENT, "AC_Bundle": bundle(*((type_, EVERY_CONTENT[type_]) for type_ in sorted(OPERATIONS)))}
    for _ in range(4_000):
        type_ = random.choice(sorted(contents))
        content = deepcopy(contents[type_])
        damage(random, content)
        codes.add(world.code("olga", type_, content, tags=about(message)))
    assert codes >= {"", "INVALID_COMMIT", "UNAUTHORIZED", "BITMASK_MISMATCH", "AC_BUNDLE_FAILED"}


def test_judging_looks_up_and_does_not_search() -> None:
    """Ten thousand rows for one type and role cost one lookup and, for target roles, one step."""
    schema = [row("Grant", "Admin", "C", "Guest")] * 10_000 + [row(f"t{i}", "Any", "C") for i in range(1_000)]
    policy = club(*schema).policy
    assert len(policy._targets["Grant"]) == 1
    assert policy._given["Grant", "C"] == ADMIN


def test_a_policy_is_made_of_the_manifest_alone() -> None:
    content = club(*EVERYTHING).events[0].content
    assert content
    assert parse_manifest(content) == club(*EVERYTHING).policy
