"""Which commits a node accepts although there is no room: those that free space or let people leave.

A commit that may always be accepted can fill a disk as well. So each of them must be small, and only
as many of them are accepted over a quota as their enclave can need.
"""

from msgspec.json import encode

from enc.core.errors import InvalidCommit
from enc.core.primitives.types import Commit
from enc.core.rules.content import content_object

ENDING = frozenset(["Delete", "Terminate", "Migrate"])
"""An event is deleted once; after the other two, no more commits are accepted."""
LEAVING = frozenset(["Pause", "Resume", "Revoke", "Revoke_Self"])
ALLOWED = "Delete, Terminate, Migrate, Pause, Resume, Revoke, and Moves to no role"
MAX_BYTES = 16_384
"""Largest commit that is accepted although there is no room: content and tags."""

_MOVES = frozenset(["Move", "Force_Move"])
_NO_ROLE = ("OUTSIDER", "0x0")


def size_of(commit: Commit) -> int:
    """Return the bytes of a commit's content and tags."""
    return len((commit.content or "").encode()) + len(encode(commit.tags))


def is_ending(commit: Commit) -> bool:
    """Return whether a commit must be accepted however little room there is."""
    return commit.type in ENDING and size_of(commit) <= MAX_BYTES


def is_growth(commit: Commit) -> bool:
    """Return whether a commit is rejected when there is no room."""
    if size_of(commit) > MAX_BYTES:
        return True
    return commit.type not in ENDING | LEAVING and not _leaves(commit)


def _leaves(commit: Commit) -> bool:
    """Return whether the commit moves an identity out of the enclave."""
    if commit.type not in _MOVES:
        return False
    try:
        return content_object(commit).get("to") in _NO_ROLE
    except InvalidCommit:
        return False
