"""The schemas of the version 1 document as matrices, cell by cell: every role, every event type, every op."""

from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.primitives.types import PREDEFINED_V1, Target
from enc.core.rules.policy_types import Subject
from tests.core.rules.v1.matrices import CELLS, MATRICES, NOT_CREATED, PEOPLE, WITH_TARGETS, expected, ops_of
from tests.core.world import World, person, pub
from tests.core.world_v1 import ENDPOINT, change, has, initial, manifest

# Each table is written out from the document, not made from the schema it is held against. A cell is ops, after C the


def world_of(name: str) -> tuple[dict[str, dict[str, str]], World]:
    table, schema = MATRICES[name]
    declared = {role for entry in schema for role in (entry["role"], *entry.get("target_roles", ()))}
    people = {who: " ".join(r for r in roles.split() if r in declared | {"Owner"}) for who, roles in PEOPLE.items()}
    return table, World(manifest(schema, initial(**people)))


def creates(world: World, who: str, event: str) -> set[str]:
    """Return C by trying it: for types that are about a role, with every role."""
    codes: dict[str, str] = {}
    if event in WITH_TARGETS:
        for role, bit in world.policy.roles.items():
            content = change("tom", 0, bit) if event == "Move" else has("tom", role, endpoint=ENDPOINT)
            codes[f"C {role}"] = world.code(who, event, content)
        codes["C Owner"] = world.code(
            who, event, change("tom", 0, 2) if event == "Move" else has("tom", "Owner", endpoint=ENDPOINT)
        )
    else:
        codes["C"] = world.code(who, event, content_of(world, event))
    assert set(codes.values()) <= {"", "UNAUTHORIZED", "OWNER_BIT_PROTECTED", "OWNER_SELF_REVOKE_FORBIDDEN"}
    return {op for op, code in codes.items() if not code}


def content_of(world: World, event: str) -> Any:
    if event == "Migrate":
        return world.migrate("node2")
    if event == "Force_Move":
        return change("tom", 0, 1 << 32)
    return {"new_owner": pub("tom")} if event == "Transfer_Owner" else {}


def revises(world: World, who: str, event: str, is_author: bool) -> set[str]:
    """Return U and D by trying them on an event of the type."""
    world.memory.targets[bytes(32)] = Target(event, person(who if is_author else "someone").public)
    tags = (("r", "00" * 32),)
    tried = {
        "U": world.code(who, "Update", "new", tags=tags),
        "D": world.code(who, "Delete", {"reason": "author"}, tags=tags),
    }
    assert set(tried.values()) <= {"", "INVALID_TARGET" if event in PREDEFINED_V1 else "UNAUTHORIZED"}
    return {op for op, code in tried.items() if not code}


def reads(world: World, who: str, event: str, is_author: bool) -> set[str]:
    if event in ("Update", "Delete"):
        return set()  # they count as their target's type
    return set(
        world.policy.rights(
            Subject(event),
            world.bitmask(who),
            is_author=is_author,
            closed=frozenset(),
            is_node=world.is_node(who),
        )
    )


@pytest.mark.parametrize(("name", "event", "who", "is_author"), CELLS)
def test_a_cell(name: str, event: str, who: str, is_author: bool) -> None:
    table, world = world_of(name)
    roles = {"Any", *world.policy.traits_of(world.bitmask(who))}
    roles |= {"Self"} if is_author else set()
    roles |= {"Node"} if who == "node" else set()
    found = reads(world, who, event, is_author) | revises(world, who, event, is_author)
    if event == "Resume":
        world.state = replace(world.state, lifecycle="paused")
    if event not in NOT_CREATED:
        found |= creates(world, who, event)
    assert found == expected(table, event, roles)


def test_the_tables_have_as_many_ops_as_the_document_s() -> None:
    counts = [
        sum(len(ops_of(cell)) for row_ in table.values() for cell in row_.values()) for table, _ in MATRICES.values()
    ]
    assert counts == [37, 13, 17, 20]


def test_what_the_section_5_table_means_by_all_is_every_role_that_can_be_given() -> None:
    _, world = world_of("section 5")
    assert set(world.policy.roles) == {"Admin", "Member", "DataView"}
    assert creates(world, "olga", "Grant") == {"C Admin", "C Member", "C DataView"}
    assert creates(world, "adam", "Move") == {"C Member"}


# Appendix A: who writes and who reads each type


@pytest.mark.parametrize(
    ("type_", "writers", "readers"),
    [
        ("public", "olga", "olga dave otto"),
        ("private", "olga", "olga"),
        ("inbox", "olga dave otto", "olga"),
    ],
)
def test_the_access_patterns_of_the_personal_enclave(type_: str, writers: str, readers: str) -> None:
    _, world = world_of("personal")
    people = ("olga", "dave", "otto")
    content = {"kind": "post", "text": "Hello world"}
    assert [who for who in people if not world.code(who, type_, content)] == writers.split()
    event = world.send("olga", type_, content)
    assert [who for who in people if "R" in world.rights(who, event)] == readers.split()
