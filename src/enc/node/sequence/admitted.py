"""Commits that passed admission, and their outcomes."""

from typing import Any

from msgspec import Struct

from enc.core.errors import Duplicate, EncError
from enc.core.log.receipt import build_receipt, wire_receipt
from enc.core.primitives.types import Commit, Event, Receipt


class AdmittedCommit(Struct, frozen=True):
    """A commit that passed admission (form, hash, signature, expiry), and a value that identifies
    its sender.
    """

    commit: Commit
    sender: Any = None


CommitOutcome = tuple[AdmittedCommit, Receipt | EncError]


def duplicate(first: Event, commit: Commit) -> Duplicate:
    """Return the error for a commit that became `first` before.

    If the signature is the same, the error contains the first one's receipt.
    """
    context = {"receipt": wire_receipt(build_receipt(first))} if first.sig == commit.sig else {}
    return Duplicate("the commit was already accepted", **context)
