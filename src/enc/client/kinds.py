"""The `kind` convention of personal enclaves: few types of events, by who reads and writes; many kinds of contents.

A schema is for good, so its types stand for rights; what a content is, its field `kind` says. No node looks at it, and
an app may have kinds of its own.
"""

from collections.abc import Mapping
from typing import Any

from enc.core.encoding import strict_json
from enc.core.errors import InvalidCommit, MisuseError

KINDS: Mapping[str, tuple[str, ...]] = {
    "public": ("post", "profile", "follow"),
    "private": ("config", "block"),
    "inbox": ("dm_request",),
}
"""The recommended ones, by event type."""


def of_kind(kind: str, **fields: Any) -> dict[str, Any]:
    """A content of a kind: `enclave.commit("public", of_kind("post", text="hello"))`."""
    if not kind:
        raise MisuseError("kind: expected a name")
    return {"kind": kind, **fields}


def kind_of(content: str | None) -> str | None:
    """The kind of a content, by the word of whoever wrote it; None where it says none."""
    try:
        found = strict_json(content or "")
    except InvalidCommit:
        return None
    kind = found.get("kind") if isinstance(found, dict) else None
    return kind if isinstance(kind, str) else None
