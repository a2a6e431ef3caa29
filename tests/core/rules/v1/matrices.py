"""The schemas of the version 1 document as matrices, written out from the document."""

import re

from enc.core.primitives.types import PREDEFINED_V1
from tests.core.world import Json
from tests.core.world_v1 import EXAMPLE, PERSONAL_V1, REGISTRY, row

# Each table is written out from the document, not made from the schema that it is compared with. A
# cell holds ops and, after C, the roles that it is for; `-` is an empty cell. Without a row nobody
# has a right, except for Migrate, which is always the Owner's.


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
    """Return the schema that a table describes."""
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
"""Types for which no entry gives C: a second Manifest is rejected, the others follow other types' rights."""


CELLS = [
    (name, event, who, is_author)
    for name, (table, _) in MATRICES.items()
    for event in dict.fromkeys([*sorted(PREDEFINED_V1), *table, "other"])
    if event != "*"
    for who in [*PEOPLE, "otto", "node"]
    for is_author in (False, True)
]


def cells_of(table: dict[str, dict[str, str]], event: str, roles: set[str]) -> list[str]:
    """Return the cells that apply to someone with these roles."""
    found = [table.get(row_, {}) for row_ in (event, "*")]
    return [cell for cells in found for role, cell in cells.items() if role in roles and cell != "-"]


def expected(table: dict[str, dict[str, str]], event: str, roles: set[str]) -> set[str]:
    """Return the ops of someone with these roles; C of some types as `C Role` for each role that it covers."""
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
