"""Update and Delete: finding the target and changing its status (docs/protocol.md, sections 14.9
and 14.10).

Between the two steps the policy checks U or D on the target's type.
"""

from enc.core.errors import EventDeleted, EventNotFound, InvalidTarget
from enc.core.primitives.types import Commit, Target
from enc.core.rules.content import check_reason, content_object, revised_id
from enc.core.rules.policy_types import Draft
from enc.core.trees.state_key import DELETED, status_key


def find_target(commit: Commit, draft: Draft, predefined: frozenset[str]) -> tuple[bytes, Target]:
    """Return the event that an Update or Delete names. It must be in the log and be a content
    event."""
    target_id = revised_id(commit)
    if commit.type == "Delete":
        check_reason(content_object(commit))
    target = draft.target(target_id)
    if target is None:
        raise EventNotFound("the target is not in this enclave")
    if target.type in predefined:
        raise InvalidTarget(f"a {target.type} cannot be updated or deleted")
    return target_id, target


def revise(commit: Commit, target_id: bytes, draft: Draft) -> None:
    """Write the target's new status, and erase its content and that of its latest Update."""
    status = draft.leaf(status_key(target_id))
    if status == DELETED:
        raise EventDeleted("the target has been deleted")
    draft.erases += [target_id] if status is None else [target_id, status]
    if commit.type == "Delete":
        draft.writes[status_key(target_id)] = DELETED
    else:
        draft.supersedes.append(target_id)
