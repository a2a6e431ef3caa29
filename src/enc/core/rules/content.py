"""The form of predefined events' contents, which is checked before any rule (docs/protocol.md,
section 14).

A missing or mistyped field raises InvalidCommit, which names it. Extra fields are kept and ignored.
"""

from typing import Any, NoReturn

from msgspec import Struct

from enc.core.errors import InvalidCommit, InvalidEndpointUrl, PeerError
from enc.core.primitives.encoding import MAX_INT, strict_json, unhex
from enc.core.primitives.signing import check_public_key
from enc.core.primitives.types import Commit

MAX_ENDPOINT = 2048
AC_OPERATIONS = frozenset(["Move", "Grant", "Revoke", "Transfer", "Gate"])
"""Operations that change one identity's access or a gate, alone or inside an AC_Bundle."""


def _wrong(path: str, why: str) -> NoReturn:
    raise InvalidCommit(f"{path}: {why}")


def content_object(commit: Commit, *, empty: bool = False) -> dict[str, Any]:
    """Return the JSON object in the content of a predefined event; with `empty`, "" counts as
    {}."""
    if empty and commit.content == "":
        return {}
    if commit.content is None:
        _wrong("content", f"a {commit.type} is never erased")
    value = strict_json(commit.content)
    if not isinstance(value, dict):
        _wrong("content", "expected a JSON object")
    return value


def text_field(content: dict[str, Any], field: str, path: str) -> str:
    value = content.get(field)
    if not isinstance(value, str):
        _wrong(f"{path}.{field}", "expected a string")
    return value


def check_operation(type_: str, content: dict[str, Any], path: str) -> None:
    """Check the fields of a Move, Grant, Revoke, Transfer or Gate, alone or inside an AC_Bundle."""
    if type_ == "Gate":
        text_field(content, "alias", path)
        if content.get("state") not in ("open", "closed"):
            _wrong(f"{path}.state", "expected open or closed")
        return
    target = unhex(content.get("target"), 32, f"{path}.target")
    check_public_key(target, f"{path}.target")
    for field in ("from", "to") if type_ == "Move" else ("trait",):
        text_field(content, field, path)


def check_reason(content: dict[str, Any]) -> None:
    """Check the fields of a Delete."""
    if content.get("reason") not in ("author", "moderator"):
        _wrong("content.reason", "expected author or moderator")
    if "note" in content and not isinstance(content["note"], str):
        _wrong("content.note", "expected a string")


def revised_id(commit: Commit) -> bytes:
    """Return the id of the event that an Update or Delete is about, from its one `r` tag."""
    found = [tag for tag in commit.tags if tag[0] == "r"]
    if len(found) != 1 or not 2 <= len(found[0]) <= 3 or found[0][2:] not in ((), ("target",)):
        _wrong("tags", f'a {commit.type} carries exactly one ["r", id] or ["r", id, "target"]')
    return unhex(found[0][1], 32, "tags: r")


def check_endpoint(endpoint: object, path: str, error: type[PeerError] = InvalidEndpointUrl) -> None:
    """Check the form of an endpoint. Which addresses a node calls is the node's own decision, not a
    rule of the log."""
    if not isinstance(endpoint, str) or not 0 < len(endpoint) <= MAX_ENDPOINT:
        raise error(f"{path}: expected a URL of at most {MAX_ENDPOINT} characters")


class Migrate(Struct, frozen=True):
    """The next sequencer, the last seq before the Migrate, and the checkpoint root there."""

    new_sequencer: bytes
    prev_seq: int
    ct_root: bytes


def parse_migrate(commit: Commit) -> Migrate:
    content = content_object(commit)
    new_sequencer = unhex(content.get("new_sequencer"), 32, "content.new_sequencer")
    check_public_key(new_sequencer, "content.new_sequencer")
    prev_seq = content.get("prev_seq")
    if type(prev_seq) is not int or not 0 <= prev_seq <= MAX_INT:
        _wrong("content.prev_seq", "expected a sequence number")
    return Migrate(new_sequencer, prev_seq, unhex(content.get("ct_root"), 32, "content.ct_root"))
