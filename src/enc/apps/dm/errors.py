"""What direct messages refuse, each by its own name. What another side made wrong is kept, and shown as unreadable.

PeerError
├── DecryptFailed
│   └── Unopened           sealed, and does not open
│       ├── Truncated          cut short: no whole base64, or less than a nonce and a tag
│       ├── Swapped            opens with the key of another message of the same contact
│       ├── SealedForAnother   opens with the key of another contact
│       └── WrongKey           opens with no key that is known: altered, or sealed with another
├── EpochRefused
│   ├── EpochReplayed      its number is not greater than the one before
│   ├── EpochUnknown       a message of an epoch that was never made
│   └── EpochForeign       sealed with another key than its author's
└── NotAllowed             signed by somebody who may not do that in this mailbox
MisuseError
├── UnknownContact         nobody to write to, or in another State than the call needs
├── NoEpoch                the contact has given nothing to seal with yet, or it is used up
├── NoPlace                nobody knows where the contact's mailbox is
└── NoSuchMessage          not in the thread, or not one's own, or not there any more
"""

from enc.core.errors import DecryptFailed, MisuseError, PeerError


class Unopened(DecryptFailed):
    pass


class Truncated(Unopened):
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
