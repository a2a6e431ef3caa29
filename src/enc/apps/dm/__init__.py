"""Direct messages: each person has a mailbox that its owner reads and contacts write to, sealed."""

from enc.apps.dm.errors import (
    EpochForeign,
    EpochRefused,
    EpochReplayed,
    EpochUnknown,
    NoEpoch,
    NoPlace,
    NoSuchMessage,
    NotAllowed,
    SealedForAnother,
    Swapped,
    Truncated,
    UnknownContact,
    Unopened,
    WrongKey,
)
from enc.apps.dm.fold import Fold, Refusal
from enc.apps.dm.mailbox import Mailbox
from enc.apps.dm.outbox import Repaired
from enc.apps.dm.peer import Contact, Invite
from enc.apps.dm.rotation import Rotation
from enc.apps.dm.thread import Entry

__all__ = [
    "Contact",
    "Entry",
    "EpochForeign",
    "EpochRefused",
    "EpochReplayed",
    "EpochUnknown",
    "Fold",
    "Invite",
    "Mailbox",
    "NoEpoch",
    "NoPlace",
    "NoSuchMessage",
    "NotAllowed",
    "Refusal",
    "Repaired",
    "Rotation",
    "SealedForAnother",
    "Swapped",
    "Truncated",
    "UnknownContact",
    "Unopened",
    "WrongKey",
]
