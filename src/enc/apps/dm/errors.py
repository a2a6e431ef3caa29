"""Errors of direct messages. What another side sent wrong is stored and shown as unreadable.

PeerError
├── DecryptFailed
│   └── Unopened           does not open
│       ├── Truncated          cut short: invalid base64, or shorter than a nonce and a tag
│       ├── Swapped            opens with the key of another message of the same contact
│       ├── SealedForAnother   opens with the key of another contact
│       └── WrongKey           no known key opens it: altered, or sealed with another key
├── EpochRefused
│   ├── EpochReplayed      its number is not greater than the previous one
│   ├── EpochUnknown       a message names an epoch that was never made
│   └── EpochForeign       sealed with another key than its author's
└── NotAllowed             its author has no right to do that in this mailbox
MisuseError
├── UnknownContact         not a contact, or not in the State that the call needs
├── NoEpoch                the contact has given no key to seal with yet, or it is used up
├── NoPlace                the contact's mailbox is unknown
└── NoSuchMessage          not in the thread, not the caller's own, or deleted
"""

from enc.core.errors import DecryptFailed, MisuseError, PeerError


class Unopened(DecryptFailed):
    pass


class TruncatedMessage(Unopened):
    code = "DM_TRUNCATED"


class Swapped(Unopened):
    code = "DM_SWAPPED"


class SealedForAnother(Unopened):
    code = "DM_SEALED_FOR_ANOTHER"


class WrongKey(Unopened):
    code = "DM_WRONG_KEY"


class EpochRefused(PeerError):
    pass


class EpochReplayed(EpochRefused):
    code = "DM_EPOCH_REPLAYED"


class EpochUnknown(EpochRefused):
    code = "DM_EPOCH_UNKNOWN"


class EpochForeign(EpochRefused):
    code = "DM_EPOCH_FOREIGN"


class NotAllowed(PeerError):
    code = "DM_NOT_ALLOWED"


class UnknownContact(MisuseError):
    pass


class NoEpoch(MisuseError):
    pass


class NoPlace(MisuseError):
    pass


class NoSuchMessage(MisuseError):
    pass
