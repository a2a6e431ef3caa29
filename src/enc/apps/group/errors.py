"""What goes wrong in a group, beyond what a node or a client says.

MisuseError
├── NotAMember     only members read and speak
├── NotAnAdmin     only admins do that
├── NotTheOwner    only the owner does that
├── Muted          who is muted reads, and does not speak
├── Irreplaceable  the owner, or the only admin, would be gone: say that it is meant
├── TooManyMembers one epoch would have to be sealed to more than an event can hold
└── NotAGroup      the enclave's Manifest is not that of a group: none of a group's promises would hold
PeerError
└── NotAlone       somebody was in a new group before its door was closed
WorldError
└── NotSealable    there is no epoch that we could seal under; an admin's client must make one first
"""

from enc.core.errors import MisuseError, PeerError, WorldError


class NotAMember(MisuseError):
    code = "NOT_A_MEMBER"


class NotAnAdmin(MisuseError):
    code = "NOT_AN_ADMIN"


class NotTheOwner(MisuseError):
    code = "NOT_THE_OWNER"


class Muted(MisuseError):
    code = "MUTED"


class Irreplaceable(MisuseError):
    code = "IRREPLACEABLE"


class TooManyMembers(MisuseError):
    code = "TOO_MANY_MEMBERS"


class NotAGroup(MisuseError):
    code = "NOT_A_GROUP"


class NotSealable(WorldError):
    code, status = "NOT_SEALABLE", 503


class NotAlone(PeerError):
    code, status = "NOT_ALONE", 409
