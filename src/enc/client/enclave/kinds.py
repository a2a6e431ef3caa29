"""The `kind` convention of personal enclaves: few event types, one per set of rights; many kinds.

A schema is permanent, so its types stand for rights; the field `kind` of a content says what it is.
Nodes ignore it, and apps may define their own kinds.
"""

from collections.abc import Mapping
from typing import Any

from enc.core.errors import InvalidCommit, MisuseError
from enc.core.primitives.encoding import strict_json

KINDS: Mapping[str, tuple[str, ...]] = {
    "public": ("post", "profile", "follow"),
    "private": ("config", "block"),
    "inbox": ("dm_request",),
}
"""The recommended kinds, by event type."""


def of_kind(kind: str, **fields: Any) -> dict[str, Any]:
    """Return a content of a kind: `enclave.commit("public", of_kind("post", text="hello"))`."""
    if not kind:
        raise MisuseError("kind: expected a name")
    return {"kind": kind, **fields}


def kind_of(content: str | None) -> str | None:
    """Return the kind that a content's author gave it; None without one."""
    try:
        found = strict_json(content or "")
    except InvalidCommit:
        return None
    kind = found.get("kind") if isinstance(found, dict) else None
    return kind if isinstance(kind, str) else None
