"""The schemas of the version 1 document as matrices, cell by cell: every role, every event type, every op."""

import re
from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.primitives.types import PREDEFINED_V1, Target
from enc.core.rules.policy import Subject
from tests.core.world import Json, World, person, pub
from tests.core.world_v1 import ENDPOINT, EXAMPLE, PERSONAL_V1, REGISTRY, change, has, initial, manifest, row

# Each table is written out from the document, not made from the schema it is held against. A cell is ops, after C the
# roles it is for; `-` is an empty cell. What has no row, nobody has: but for Migrate, which is always the Owner's.


def matrix(text: str) -> dict[str, dict[str, str]]:
    head, *rows = [re.split(r"  +", line.strip()) for line in text.strip().splitlines()]
    return {event: dict(zip(head[1:], cells, strict=True)) for event, *cells in rows}


SECTION_5 = matrix("""
    event           Owner                     Admin      Member     Self  DataView
    Grant           C(Admin,Member,DataView)  C(Member)  R          -     N
    Revoke          C(Admin,Member,DataView)  C(Member)  R          -     N
    Revoke_Self     -                         -          C(Member)  -     N
    Move            C(Admin,Member,DataView)  C(Member)  R          -     N
    Force_Move      C                         -          R          -     N
    Transfer_Owner  C                         -          R          -     N
    Pause           C                         -          R          -     N
    Resume          C                         -          R          -     N
    Terminate       C                         -          R          -     N
    Migrate         C                         -          R          -     N
    Chat_Message    -                         -          CR         UD    N
""")
"""Section 5 of the document: the schema as an event, role and CRUD matrix."""

SECTION_7 = matrix("""
    event         Owner            Admin      Member     Self
    Grant         C(Admin,Member)  C(Member)  R          -
    Revoke        C(Admin,Member)  C(Member)  R          -
    Revoke_Self   -                -          C(Member)  -
    Terminate     C                -          R          -
    Chat_Message  -                -          CR         UD
""")
"""Section 7: the example of a Manifest."""

SECTION_8 = matrix("""
    event           Owner        DataView  Self  Any
    Reg_Node        -            -         UD    C
    Reg_Enclave     -            -         UD    C
    Reg_Identity    -            -         UD    C
    Grant_Push      C(DataView)  -         -     -
    Revoke          C(DataView)  -         -     -
    Transfer_Owner  C            -         -     -
    Pause           C            -         -     -
    Resume          C            -         -     -
    Terminate       C            -         -     -
    *               -            P         -     R
""")
"""Section 8: the Registry."""

APPENDIX_A = matrix("""
    event           Owner        DataView  Any
    public          CUD          P         R
    private         CRUD         -         -
    inbox           RD           P         C
    Grant           C(DataView)  -         -
    Grant_Push      C(DataView)  -         -
    Revoke          C(DataView)  -         -
    Transfer_Owner  C            -         -
    Terminate       C            -         -
    Pause           C            -         -
    Resume          C            -         -
""")
"""Appendix A: the personal enclave."""

WITH_TARGETS = ("Grant", "Grant_Push", "Revoke", "Revoke_Self", "Move")


def ops_of(cell: str) -> str:
    return cell.partition("(")[0].strip("-")


def targets_of(cell: str) -> list[str]:
    return re.findall(r"\w+", cell.partition("(")[2])


def entries(table: dict[str, dict[str, str]]) -> list[Json]:
    """The schema that a table describes."""
    return [
        row(event, role, ops_of(cell), *targets_of(cell))
        for event, cells in table.items()
        for role, cell in cells.items()
        if cell != "-"
    ]


PEOPLE = {"olga": "Owner", "adam": "Admin", "mark": "Member", "dave": "DataView", "amy": "Admin Member"}
MATRICES = {
    "section 5": (SECTION_5, entries(SECTION_5)),
    "section 7": (SECTION_7, EXAMPLE),
    "registry": (SECTION_8, REGISTRY),
    "personal": (APPENDIX_A, PERSONAL_V1),
}
NOT_CREATED = ("Manifest", "Update", "Delete", "AC_Bundle")
"""Types of which nobody has C by an entry: a second Manifest is refused, the others go by other types' rights."""


def world_of(name: str) -> tuple[dict[str, dict[str, str]], World]:
    table, schema = MATRICES[name]
    declared = {role for entry in schema for role in (entry["role"], *entry.get("target_roles", ()))}
    people = {who: " ".join(r for r in roles.split() if r in declared | {"Owner"}) for who, roles in PEOPLE.items()}
    return table, World(manifest(schema, initial(**people)))


CELLS = [
    (name, event, who, is_author)
    for name, (table, _) in MATRICES.items()
    for event in dict.fromkeys([*sorted(PREDEFINED_V1), *table, "other"])
    if event != "*"
    for who in [*PEOPLE, "otto", "node"]
    for is_author in (False, True)
]


def cells_of(table: dict[str, dict[str, str]], event: str, roles: set[str]) -> list[str]:
    """The cells that speak to someone with these roles."""
    found = [table.get(row_, {}) for row_ in (event, "*")]
    return [cell for cells in found for role, cell in cells.items() if role in roles and cell != "-"]


def expected(table: dict[str, dict[str, str]], event: str, roles: set[str]) -> set[str]:
    """The ops of someone with these roles, by the table; C of some types as `C Role` for each role it is for."""
    cells = cells_of(table, event, roles)
    ops = {op for cell in cells for op in ops_of(cell)}
    if event in WITH_TARGETS:
        ops = ops - {"C"} | {f"C {role}" for cell in cells for role in targets_of(cell)}
    if event == "Migrate":
        ops = ops - {"C"} | ({"C"} if "Owner" in roles else set())
    if event in PREDEFINED_V1:
        ops -= {"U", "D"}
    if event in ("Update", "Delete"):
        ops = set()
    return ops


def creates(world: World, who: str, event: str) -> set[str]:
    """C, by trying: with every role for the types that are about one."""
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
    """U and D, by trying, on an event of the type."""
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
            is_closed=lambda alias: False,
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
