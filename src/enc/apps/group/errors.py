"""What a group's client raises beyond what the client and the kernel do.

PeerError
└── NotAlone       somebody got into a new group before its door was closed: it was given up
MisuseError
├── NotAMember     what is asked takes a member, or an admin
└── NotAGroup      the enclave's Manifest is not that of a group: none of a group's promises would hold
WorldError
└── NotSealable    there is no epoch that we could seal under; an admin's client must make one first
"""

from enc.core.errors import MisuseError, PeerError, WorldError


class NotAMember(MisuseError):
    code = "NOT_A_MEMBER"


class NotAGroup(MisuseError):
    code = "NOT_A_GROUP"


class NotSealable(WorldError):
    code, status = "NOT_SEALABLE", 503


class NotAlone(PeerError):
    code, status = "NOT_ALONE", 409
