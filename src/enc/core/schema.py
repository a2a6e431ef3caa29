"""What a version 1 manifest is made of: roles with their bits, the rows of its schema, and who starts with which role.

A role is one bit of a bitmask. Of the reserved ones only Owner is ever stored; Self, Node and Any are true of someone
at a moment. Custom roles take the bits from 32 on, in the order in which the schema names them first.
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
"""Types whose C entries must say for which roles, in `target_roles`."""


class Row(Struct, frozen=True):
    """One entry of the schema: `role` has `ops` on `event`; `targets` are the bits of its `target_roles`."""

    event: str
    role: int
    ops: frozenset[str]
    targets: int


class Assignment(Struct, frozen=True):
    """A role that the manifest itself gives, with an endpoint if it names one."""

    identity: bytes
    role: str
    endpoint: str | None = None
