"""The form of version 1's access-control contents, which is checked before any rule
(docs/protocol.md, 21.6).

A missing or mistyped field raises InvalidCommit, which names it. Extra fields are kept and ignored.
"""

import re
from typing import Any

from msgspec import Struct

from enc.core.errors import InvalidCommit
from enc.core.primitives.encoding import unhex
from enc.core.primitives.signing import check_public_key
from enc.core.rules.content import text_field

OPERATIONS = frozenset(["Grant", "Grant_Push", "Revoke", "Revoke_Self", "Move", "Force_Move"])
"""Operations that change one identity's roles, alone or inside an AC_Bundle."""

ANY_BITS = (1 << 256) - 1
"""For callers that do not know the roles."""

_BITMASK = re.compile(r"0x(0|[1-9a-f][0-9a-f]{0,63})")


class Operation(Struct, frozen=True, kw_only=True):
    """One access-control operation. `role` is empty in a Move or Force_Move, the two bitmasks 0 in
    all others."""

    type: str
    identity: bytes
    """Identity whose roles change; in a Revoke_Self the actor."""
    role: str = ""
    endpoint: object = None
    from_: int = 0
    to: int = 0


def read_operation(type_: str, content: dict[str, Any], path: str, *, actor: bytes, bits: int) -> Operation:
    """Return the operation that `actor` requests. `bits` are those of assignable roles; other bits
    are rejected."""
    identity = actor if type_ == "Revoke_Self" else read_identity(content, "identity", path)
    if type_ in ("Move", "Force_Move"):
        from_, to = (_read_bitmask(content, field, path, bits) for field in ("from", "to"))
        return Operation(type=type_, identity=identity, from_=from_, to=to)
    if type_ == "Grant_Push" and "endpoint" not in content:
        raise InvalidCommit(f"{path}.endpoint: missing")
    return Operation(
        type=type_, identity=identity, role=text_field(content, "role", path), endpoint=content.get("endpoint")
    )


def read_identity(content: dict[str, Any], field: str, path: str) -> bytes:
    identity = unhex(content.get(field), 32, f"{path}.{field}")
    check_public_key(identity, f"{path}.{field}")
    return identity


def _read_bitmask(content: dict[str, Any], field: str, path: str, bits: int) -> int:
    text = text_field(content, field, path)
    if not is_bitmask(text):
        raise InvalidCommit(f"{path}.{field}: expected 0x and lower-case hex without leading zeros, at most 256 bits")
    bitmask = int(text, 16)
    if bitmask & ~bits:
        raise InvalidCommit(f"{path}.{field}: contains a bit that is reserved or belongs to no role")
    return bitmask


def is_bitmask(text: str) -> bool:
    return _BITMASK.fullmatch(text) is not None


def wire_bitmask(bitmask: int) -> str:
    """Return a bitmask as contents and errors spell it."""
    return hex(bitmask)
