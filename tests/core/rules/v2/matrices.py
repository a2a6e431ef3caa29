"""The event-operator matrices of the applications, written out from the document."""

import re
from typing import Any

import pytest

Cells = dict[str, frozenset[str]]


def matrix(text: str) -> dict[str, Cells]:
    """Parse a matrix: rows by event, with the ops and denials of every column. `-` is an empty cell."""
    head, *rows = [re.split(r"  +", line.strip()) for line in text.strip().splitlines()]
    return {
        event: {column: frozenset(re.findall("_?[CRUDPN]", cell)) for column, cell in zip(head[1:], cells, strict=True)}
        for event, *cells in rows
    }


DM_MATRIX = matrix("""
    event                      OWNER  OUTSIDER  FRIEND  BLOCKED  Sender
    invite                     RD     C         -       -        -
    Gate(invites)              CR     -         -       -        -
    message                    RD     -         C       _U_D     UD
    sent                       CRU    -         -       -        -
    rotate                     CR     -         -       -        -
    Move(OUTSIDER, FRIEND)     CR     -         -       -        -
    Move(OUTSIDER, BLOCKED)    CR     -         -       -        -
    Move(FRIEND, OUTSIDER)     CR     -         -       -        -
    Move(FRIEND, BLOCKED)      CR     -         -       -        -
    Move(BLOCKED, FRIEND)      CR     -         -       -        -
    Move(BLOCKED, OUTSIDER)    CR     -         -       -        -
    Terminate                  CR     -         -       -        -
""")


PERSONAL_MATRIX = matrix("""
    event             OWNER  OUTSIDER  dataview
    public            CRUD   -         P
    private           CRUD   -         -
    notice            RD     C         P
    Gate(notices)     CR     -         -
    Shared(profile)   CRUD   -         P
    Grant(dataview)   CR     -         -
    Revoke(dataview)  CR     -         -
    Terminate         CR     -         -
""")


def cells(rows: dict[str, Cells], actors: dict[str, str]) -> list[Any]:
    """Return every event with every actor, both as the event's author and not."""
    return [
        pytest.param(event, name, [*columns.split(), *more], id=" ".join([event, "by", columns, *more]))
        for event in rows
        for name, columns in actors.items()
        for more in ([], ["Sender"])
    ]


def expected(row: Cells, columns: list[str]) -> str:
    given = frozenset().union(*(row.get(column, frozenset()) for column in columns))
    return "".join(op for op in "CRUDPN" if op in given and f"_{op}" not in given)
