"""Group chat: members, moderation and sealed messages in one enclave (docs/group.md; protocol.md
26).

group = Group.create(client, topic="plans")        the creator is owner and admin
group.invite(bob)                                   a member, with an epoch of the new members
group.say("hello")                                  sealed to the members
for change in group.follow(): …                     history, then live
"""

from enc.apps.group.epochs import Keys
from enc.apps.group.errors import (
    Irreplaceable,
    Muted,
    NotAGroup,
    NotAlone,
    NotAMember,
    NotAnAdmin,
    NotSealable,
    NotTheOwner,
    TooManyMembers,
)
from enc.apps.group.fold import GroupFold
from enc.apps.group.following import Following
from enc.apps.group.group import Group
from enc.apps.group.invitations import CONFIRMERS, invitations, invitations_in
from enc.apps.group.manifest import check_group, group_manifest
from enc.apps.group.views import (
    Change,
    EpochView,
    GroupEntry,
    GroupMember,
    GroupStatus,
    Invitation,
    Invited,
    Reaction,
    Sent,
)

__all__ = [
    "CONFIRMERS",
    "Change",
    "EpochView",
    "Following",
    "Group",
    "GroupEntry",
    "GroupFold",
    "GroupMember",
    "GroupStatus",
    "Invitation",
    "Invited",
    "Irreplaceable",
    "Keys",
    "Muted",
    "NotAGroup",
    "NotAMember",
    "NotAlone",
    "NotAnAdmin",
    "NotSealable",
    "NotTheOwner",
    "Reaction",
    "Sent",
    "TooManyMembers",
    "check_group",
    "group_manifest",
    "invitations",
    "invitations_in",
]
