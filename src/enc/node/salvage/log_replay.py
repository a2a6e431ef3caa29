"""Replays a log that was found into the new store, and keeps its heads.

A head that the node has signed is kept where it can be read. Where it cannot, the node signs the
same size and root again: the log implies both. A head of another root is a contradiction, and then
the log is not salvaged.
"""

from collections.abc import Sequence
from contextlib import suppress

from enc.core.errors import EnclaveExists, InvalidProof, ReplayFailed
from enc.core.machine.enclave import seal
from enc.core.machine.state import ClosedBundle, EnclaveState, Transition
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.signer import Signer
from enc.core.primitives.types import TreeHead
from enc.core.trees.tree_head import check_bound_head, sign_head
from enc.node.imports.replay import StagedReplay
from enc.node.salvage.found_log import FoundLog
from enc.node.salvage.log_staging import SalvageStaging
from enc.node.signatures.import_check import ImportSignaturePool
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.steps import Step


class SalvageReplay(StagedReplay):
    """The replay of one log that was found."""

    def __init__(
        self, store: SqliteStore, staging: SalvageStaging, key: Signer, log: FoundLog, checkers: ImportSignaturePool
    ) -> None:
        super().__init__(store, staging, key, log.enclave, None, checkers, write=staging.write)
        self._found = log
        self.signed_again = 0
        """How many heads of this node could not be read, and were signed again."""
        self.without_head = 0
        """How many sizes, reached under other sequencers, have no head that could be read."""

    @property
    def is_own(self) -> bool:
        """Return whether the log is, was or will be this node's."""
        keys = [self.replay.state.sequencer, *(key for key, _ in self.replay.sequencers)]
        return self._key.public in keys

    def adopt(self) -> EnclaveState:
        """Check the end of the log, close the last bundle if it was closed, and make the log visible."""
        state = self.replay.finish()
        closing = self._closing(state)
        if closing is not None:
            self.staging.write([Step(transition=closing, heads=self._heads(closing))])
            state = closing.state
        is_alone = self.replay.sequencers == [(self._key.public, 0)]
        self.staging.adopt(state, b"", state.min_timestamp if is_alone else 0)
        return state

    def _closing(self, state: EnclaveState) -> Transition | None:
        """Return the step that closed the last bundle by the clock, if the store says that there was one."""
        if state.bundle is None:
            return None
        closing = seal(state, state.bundle.deadline(state.policy.bundle), self._overlay)
        position = self._found.position
        is_known = position is not None and position[0] == state.seq
        if closing is None or (is_known and position is not None and position[1] < closing.state.min_timestamp):
            return None
        return closing if is_known or self._found.has_closed(closing.closed[0]) else None

    def _heads(self, transition: Transition) -> tuple[TreeHead | None, ...]:
        return tuple(self._head(bundle, transition.state.min_timestamp) for bundle in transition.closed)

    def _head(self, bundle: ClosedBundle, closed_at: int) -> TreeHead | None:
        self._log = self._log.append(log_leaf(bundle.events_root, bundle.state_hash))[0]
        size, root, last = self._log.size, self._log.root(), bundle.first_seq + bundle.count - 1
        sequencer = next(key for key, first in reversed(self.replay.sequencers) if first <= last)
        signers = dict.fromkeys([self._key.public, sequencer, self.replay.sequencers[-1][0]])
        for head in self._found.heads(bundle.index):
            if head.ts == size and _is_signed(head, [*signers], self._enclave):
                if head.r != root:
                    failure = EnclaveExists(f"a different tree head of size {size} was signed")
                    raise ReplayFailed(last, failure)
                return head
        if sequencer != self._key.public:  # it may have signed a head of this size of a copied Manifest
            self.without_head += 1
            return None
        self.signed_again += 1
        return sign_head(self._key, self._enclave, closed_at, size, root)


def _is_signed(head: TreeHead, signers: Sequence[bytes], enclave: bytes) -> bool:
    for signer in signers:
        with suppress(InvalidProof):
            check_bound_head(head, signer, enclave)
            return True
    return False
