"""Checks the rights of a group before sending, with errors in a group's own terms.

They are checked against the state that was just read. The node checks them again.
"""

from typing import Any

from enc.apps.group.errors import Irreplaceable, Muted, NotAMember, NotAnAdmin, NotTheOwner
from enc.apps.group.fold import GroupFold
from enc.apps.group.views import GroupMember
from enc.core.errors import MisuseError
from enc.core.primitives.encoding import compact_json

MAX_TEXT = 256 << 10
"""Bytes of one text."""
MAX_TOPIC = 4 << 10
MAX_PROFILE = 16 << 10
"""Bytes, as JSON."""

_IS = {
    "OUTSIDER": "neither a member nor an applicant",
    "PENDING": "an applicant",
    "MEMBER": "a member",
    "BLOCKED": "blocked",
}


def check_member(me: GroupMember) -> None:
    if not me.is_member:
        raise NotAMember("only members may do this")


def check_admin(me: GroupMember, action: str) -> None:
    check_member(me)
    if not me.is_admin:
        raise NotAnAdmin(f"only an admin {action}")


def check_owner(me: GroupMember, action: str) -> None:
    check_member(me)
    if not me.is_owner:
        raise NotTheOwner(f"only the owner {action}")


def check_state(who: GroupMember, expected: str) -> None:
    """Raise MisuseError unless the person an action is about has the expected State."""
    if who.state == expected:
        return
    if who.is_member and expected == "OUTSIDER":
        raise MisuseError("they are already a member")
    raise MisuseError(f"they are {_IS[who.state]}, not {_IS[expected]}" if expected != "OUTSIDER" else _other(who))


def _other(who: GroupMember) -> str:
    return "they have applied: approve them" if who.state == "PENDING" else "they are blocked: unblock them first"


def check_trait(who: GroupMember, trait: str, *, has: bool) -> None:
    check_state(who, "MEMBER")
    if (trait in who.traits) != has:
        named = {"admin": "an admin", "owner": "the owner"}.get(trait, trait)
        raise MisuseError(f"they are not {named}" if has else f"they are already {named}")


def check_replaceable(fold: GroupFold) -> None:
    """Raise Irreplaceable if the group cannot do without us."""
    me = fold.myself()
    if me.is_owner:
        raise Irreplaceable("you own the group, and nobody else could make admins or move it: transfer it first")
    others = (person for person in fold.membership.people() if person.is_admin and person.identity != fold.me)
    if me.is_admin and not any(others):
        raise Irreplaceable("you are the only admin, and nobody else could make epochs: make another admin first")


def check_writing(fold: GroupFold, type_: str, to: bytes | None) -> None:
    """Raise unless we may write an event of this type about that entry."""
    me, entry = fold.myself(), None if to is None else fold.messages.entries.get(to)
    check_member(me)
    if type_ == "notice":
        check_admin(me, "may make announcements")
    if to is not None and entry is None:
        raise MisuseError("no such entry in the conversation")
    if type_ == "Update" and entry is not None and entry.author != fold.me:
        raise MisuseError("only its author may edit an entry")
    is_notice = type_ == "notice" or (type_ == "Update" and entry is not None and entry.kind == "notice")
    if me.is_muted and not is_notice:
        raise Muted("you are muted in this group: you may read, but not write")


def check_deleting(fold: GroupFold, id_: bytes) -> None:
    author, entry = fold.membership.author_of(id_), fold.messages.entries.get(id_)
    if author is None:
        raise MisuseError("no such entry in the conversation")
    if author != fold.me and entry is None:
        raise MisuseError("only its author may take back a reaction")
    if author != fold.me:
        check_admin(fold.myself(), "may delete messages of others")


def check_text(text: str, most: int = MAX_TEXT, name: str = "text", least: int = 1) -> None:
    """Raise MisuseError unless the text has an allowed size and is valid Unicode."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise MisuseError(f"{name}: not text: it holds a lone surrogate, or bytes that are not UTF-8") from None
    if not least <= size <= most:
        raise MisuseError(f"{name}: expected {least} to {most} bytes, got {size}")


def check_json(value: Any, most: int, name: str) -> None:
    check_text(compact_json(value), most, name)
