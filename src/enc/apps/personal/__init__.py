"""The personal store: one enclave with its owner's profile, private documents and received
notices.
"""

from enc.apps.personal.audience import Audience
from enc.apps.personal.book_sync import Synced, sync_book
from enc.apps.personal.dataviews import Dataview
from enc.apps.personal.documents import Document
from enc.apps.personal.ledger import Ledger, LedgerEntry
from enc.apps.personal.notice_verification import CONFIRMERS, NotConfirmed, Question, Received, Refuted, Unconfirmed
from enc.apps.personal.profile import Profile
from enc.apps.personal.store import Personal

__all__ = [
    "CONFIRMERS",
    "Audience",
    "Dataview",
    "Document",
    "Ledger",
    "LedgerEntry",
    "NotConfirmed",
    "Personal",
    "Profile",
    "Question",
    "Received",
    "Refuted",
    "Synced",
    "Unconfirmed",
    "sync_book",
]
