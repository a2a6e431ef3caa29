"""Errors of a group, in addition to those of a node or a client.

MisuseError
├── NotAMember     only members may read and write
├── NotAnAdmin     only admins may do this
├── NotTheOwner    only the owner may do this
├── Muted          muted members may read, but not write
├── Irreplaceable  the owner or the only admin would leave: the caller must confirm it
├── TooManyMembers an epoch for so many members does not fit into one event
└── NotAGroup      the enclave's Manifest is not that of a group, so a group's guarantees do not hold
PeerError
└── NotAlone       someone joined a new group before its gate was closed
WorldError
└── NotSealable    we hold no epoch to seal under; an admin's client must make one first
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
