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
    TruncatedMessage,
    UnknownContact,
    Unopened,
    WrongKey,
)
from enc.apps.dm.fold import MailboxFold, Refusal
from enc.apps.dm.mailbox import Mailbox
from enc.apps.dm.outbox import Repaired
from enc.apps.dm.peer import Invite, MailboxContact
from enc.apps.dm.rotation import Rotation
from enc.apps.dm.thread import ThreadEntry

__all__ = [
    "EpochForeign",
    "EpochRefused",
    "EpochReplayed",
    "EpochUnknown",
    "Invite",
    "Mailbox",
    "MailboxContact",
    "MailboxFold",
    "NoEpoch",
    "NoPlace",
    "NoSuchMessage",
    "NotAllowed",
    "Refusal",
    "Repaired",
    "Rotation",
    "SealedForAnother",
    "Swapped",
    "ThreadEntry",
    "TruncatedMessage",
    "UnknownContact",
    "Unopened",
    "WrongKey",
]
