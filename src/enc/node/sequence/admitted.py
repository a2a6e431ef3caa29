"""Commits that passed admission, and their outcomes."""

from typing import Any

from msgspec import Struct

from enc.core.errors import Duplicate, EncError
from enc.core.log.receipt import build_receipt, wire_receipt
from enc.core.machine.early_tree import EarlyTree
from enc.core.machine.enclave import judge_manifest
from enc.core.machine.state import EnclaveState
from enc.core.primitives.types import Commit, Event, Receipt
from enc.core.rules.policy_types import Effects, Policy


class Judgement(Struct, frozen=True):
    """The result of judging a commit before its turn, and the state in which it was judged."""

    state: EnclaveState | None
    policy: Policy | None
    """The rules that a Manifest states."""
    result: Effects | EncError
    early: EarlyTree = EarlyTree()
    """The tree after the commit, if its nodes are stored already."""

    def effects_in(self, state: EnclaveState | None) -> Effects | None:
        """Return the effects, or raise the error, if the commit is judged alike in this state;
        otherwise return None.
        """
        if not self.holds_in(state):
            return None
        if isinstance(self.result, EncError):
            raise self.result
        return self.result

    def holds_in(self, state: EnclaveState | None) -> bool:
        """Return whether the commit is judged alike in this state."""
        before = self.state
        if before is None or state is None:
            return before is state
        return (
            before.pending is state.pending  # events that only extend the log share it
            and (before.root, before.closed_gates, before.lifecycle)
            == (state.root, state.closed_gates, state.lifecycle)
            and before.sequencer == state.sequencer
        )


class AdmittedCommit(Struct, frozen=True):
    """A commit that passed admission (form, hash, signature, expiry), a value that identifies its
    sender, and the address that it came from.
    """

    commit: Commit
    sender: Any = None
    address: str = ""
    policy: Policy | None = None
    """The enclave's rules, if it exists: while a commit refers to them, they are not parsed again."""
    judgement: Judgement | None = None
    """The judgement, if the commit was prepared, or of a Manifest."""


def request_of(sender: object) -> str:
    """Return the id of the request that a sender belongs to; empty if it has none."""
    return getattr(sender, "request", "")


CommitOutcome = tuple[AdmittedCommit, Receipt | EncError]


def duplicate(first: Event, commit: Commit) -> Duplicate:
    """Return the error for a commit that became `first` before.

    If the signature is the same, the error contains the first one's receipt.
    """
    context = {"receipt": wire_receipt(build_receipt(first))} if first.sig == commit.sig else {}
    return Duplicate("the commit was already accepted", **context)


def judged_manifest(admitted: AdmittedCommit) -> tuple[Policy, Effects]:
    """Return the rules and the effects of a Manifest of an enclave that does not exist yet."""
    known = admitted.judgement
    effects = None if known is None else known.effects_in(None)
    if known is None or known.policy is None or effects is None:
        return judge_manifest(admitted.commit)
    return known.policy, effects
