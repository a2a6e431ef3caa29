"""People with every role, and schemas for tests of version 1's access control."""

from typing import Any

from hypothesis import strategies as st

from enc.core.errors import (
    EncError,
)
from enc.core.rules.policy_types import EndpointChange
from enc.core.rules.v1.content import OPERATIONS
from tests.core.world import Json, World, person, pub
from tests.core.world_v1 import ENDPOINT, OWNER, change, has, initial, manifest, row

# The first row of every schema here names all roles, so that each has the same bit everywhere.
ROLES = ("Admin", "Member", "Guest", "DataView")


ADMIN, MEMBER, GUEST, DATAVIEW = (1 << 32 + i for i in range(4))


DECLARES = row("declares", "Owner", "", *ROLES)


PEOPLE = {
    "olga": "Owner",
    "adam": "Admin Member",
    "mark": "Member",
    "mary": "Member",
    "gina": "Guest",
    "dave": "DataView",
    "both": "Member Guest",
}
"""Everybody else, such as otto, has no role."""


EVERYBODY = "olga adam mark gina dave otto node".split()


def club(*schema: Json, **people: str) -> World:
    return World(manifest([DECLARES, *schema], initial(**PEOPLE | people)))


def is_(error: EncError, kind: type[EncError], **context: Any) -> bool:
    return (type(error), error.context) == (kind, context)


def ended(name: str, *roles: str) -> EndpointChange:
    return EndpointChange(person(name).public, roles, None)


def allowed(world: World, *what: Any, **more: Any) -> str:
    """Return the people who may do it; all others must be unauthorized."""
    codes = {name: world.code(name, *what, **more) for name in EVERYBODY}
    assert set(codes.values()) <= {"", "UNAUTHORIZED"}
    return " ".join(name for name, code in codes.items() if not code)


FORCED = row("Force_Move", "Owner", "C")


PASSES_ON = row("Transfer_Owner", "Owner", "C")


EVERYTHING = (
    *(row(type_, "Owner", "C", *ROLES) for type_ in ("Grant", "Grant_Push", "Revoke", "Move")),
    *(row(type_, "Admin", "C", "Member", "Guest") for type_ in ("Grant", "Revoke", "Move")),
    row("Revoke_Self", "Any", "C", *ROLES),
    FORCED,
    PASSES_ON,
)


EVERY_CONTENT: dict[str, Json] = {
    "Grant": has("mark", "Guest"),
    "Grant_Push": has("mark", "Guest", endpoint=ENDPOINT),
    "Revoke": has("mark", "Guest"),
    "Revoke_Self": {"role": "Guest"},
    "Move": change("mark", MEMBER, 0),
    "Force_Move": change("mark", MEMBER, 0),
    "Transfer_Owner": {"new_owner": pub("mark")},
    "Delete": {"reason": "author"},
}


NAMES = ("olga", "adam", "mark", "otto")


people = st.sampled_from(NAMES)


roles = st.sampled_from([*ROLES, "Owner", "Any", "nothing"])


masks = st.sets(st.sampled_from([OWNER, ADMIN, MEMBER, GUEST, DATAVIEW])).map(sum)


@st.composite
def operations(draw: st.DrawFn) -> tuple[str, Json]:
    """Draw one operation; a Move usually names the present bitmask, for which None stands."""
    type_, name = draw(st.sampled_from(sorted(OPERATIONS))), draw(people)
    if type_ in ("Move", "Force_Move"):
        from_ = draw(st.one_of(st.none(), st.none(), masks))
        return type_, {"name": name, "from": from_, "to": draw(masks)}
    return type_, has(name, draw(roles), endpoint=ENDPOINT)
