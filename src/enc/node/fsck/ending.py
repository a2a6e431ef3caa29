"""Checks the end of an enclave's log: the state from which the node would continue, and that
nothing is beyond it.
"""

from enc.core.machine.enclave import seal
from enc.core.machine.replay import Replay
from enc.core.machine.state import EnclaveState
from enc.node.fsck.difference import Difference
from enc.node.fsck.trees import TreeCheck
from enc.node.store.sqlite.check import WRONG
from enc.node.store.store_interface import Store


class FinalStateCheck:
    """Checks that run after the whole log was replayed."""

    def __init__(self, store: Store, enclave: bytes, seq_pub: bytes, replay: Replay, trees: TreeCheck) -> None:
        self._store, self._enclave, self._seq_pub = store, enclave, seq_pub
        self._replay, self._trees = replay, trees

    def _difference(self, seq: int | None, what: str) -> Difference:
        return Difference(self._enclave, seq, what)

    def check_state(self, stored: EnclaveState) -> EnclaveState:
        """Check that the stored state is the one that the log implies, and return it."""
        if self._replay.events <= stored.seq:
            raise self._difference(self._replay.events, "the event is missing")
        state = self._replay.finish()
        # No event shows whether the clock closed the last bundle; the stored min_timestamp does (section 8.4).
        step = seal(state, stored.min_timestamp, self._trees)
        if step is not None:
            self._trees.put(None, step)
            state = step.state
        for name in EnclaveState.__struct_fields__:
            if getattr(stored, name) != getattr(state, name):
                raise self._difference(state.seq, f"state: {name}: {WRONG}")
        return state

    def check_nothing_beyond(self, state: EnclaveState) -> None:
        """Check that bundles and heads end with the log, and that no event of the open bundle
        counts as closed.
        """
        size, store, enclave = state.log.size, self._store, self._enclave
        if store.bundle(enclave, size) is not None:
            raise self._difference(state.seq, f"bundle {size}: must not exist")
        if store.head(enclave, size + 1) is not None:
            raise self._difference(state.seq, f"head of size {size + 1}: must not exist")
        if store.head(enclave) != (store.head(enclave, size) if size else None):
            raise self._difference(state.seq, f"latest head: not that of size {size}")
        for seq in (state.bundle.first_seq, state.seq) if state.bundle else ():
            if store.bundle_of(enclave, seq) is not None:
                raise self._difference(seq, "the bundle that holds it: still open, but stored as closed")

    def check_node(self, state: EnclaveState) -> None:
        """Check that the log is, was or will be this node's, and that its clock has shown the times
        in its events.
        """
        takes_over = [first for key, first in self._replay.sequencers if key == self._seq_pub]
        if state.sequencer == self._seq_pub:
            takes_over.append(state.seq + 1)
        if not takes_over:
            raise self._difference(None, "this node's key does not occur in the log")
        if max(takes_over) < self._trees.adopted:
            raise self._difference(self._trees.adopted, "head: signed by this node, which never adopted the log")
        if self._replay.sequencers == [(self._seq_pub, 0)] and state.min_timestamp > self._store.shown():
            raise self._difference(state.seq, "the node's clock: behind the timestamps of its events")
