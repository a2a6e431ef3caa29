"""Parts of a version 1 manifest: roles with their bits, the rows of its schema, and the initial
roles of identities.

A role is one bit of a bitmask. Of the reserved roles only Owner is ever stored; Self, Node and Any
depend on the actor and the event. Custom roles take the bits from 32 on, in the order in which the
schema first names them.
"""

from collections.abc import Mapping

from msgspec import Struct

SELF, OWNER, NODE, ANY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
RESERVED: Mapping[str, int] = {"Self": SELF, "Owner": OWNER, "Node": NODE, "Any": ANY}
FIRST_CUSTOM = 32
MAX_ROLES = 256 - FIRST_CUSTOM
"""A bitmask has 256 bits."""

OPS = frozenset("CRUDPN")
EVERY_EVENT = "*"
WITH_TARGETS = frozenset(["Grant", "Grant_Push", "Revoke", "Revoke_Self", "Move"])
"""Types whose entries with C must list the roles concerned in `target_roles`."""


class SchemaEntry(Struct, frozen=True):
    """One entry of the schema: `role` has `ops` on `event`; `targets` are the bits of its
    `target_roles`."""

    event: str
    role: int
    ops: frozenset[str]
    targets: int


class Assignment(Struct, frozen=True):
    """A role that the manifest itself assigns, with its endpoint if it has one."""

    identity: bytes
    role: str
    endpoint: str | None = None
