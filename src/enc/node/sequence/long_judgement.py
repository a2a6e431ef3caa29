"""Judges commits that take long in short steps, and stores the tree nodes that they will need.

An AC_Bundle of 1,000 operations changes as many leaves. Their new nodes are spread over the whole
table of nodes, so that writing them takes most of a transaction's time. They are keyed by hash:
nodes that are stored in small transactions before the commit's own change nothing, and if the
commit is then rejected nothing refers to them.
"""

from collections.abc import Callable, Generator

from msgspec.structs import replace

from enc.core.errors import EncError
from enc.core.machine import enclave as machine
from enc.core.machine.early_tree import EarlyTree, build_early_tree
from enc.core.machine.state import EnclaveState, StoredEnclave
from enc.core.rules.policy_types import Effects
from enc.core.trees.sparse_merkle import hash_leaves
from enc.node.limits.quota import Quota, Spending
from enc.node.sequence.admitted import AdmittedCommit, Judgement, duplicate, judged_manifest
from enc.node.sequence.batch_overlay import BatchOverlay, NodeCache
from enc.node.sequence.state_cache import StateCache
from enc.node.store.store_interface import Store

MIN_EARLY = 32
"""Changes of the tree from which its nodes are stored early: fewer take about two milliseconds."""
NODES_PER_WRITE = 64
"""Each is on a page of its own if the enclave is large."""
MAX_TRIES = 4
"""How often a commit is judged because its enclave changed meanwhile; then the sequencer judges it at once."""

Judging = Generator[None, None, Judgement]
StoringTree = Generator[None, None, EarlyTree]


class LongJudgement:
    """Judges AC_Bundles and Manifests. For the sequencer's thread, between two batches."""

    def __init__(
        self,
        store: Store,
        sequencer: bytes,
        clock: Callable[[], int],
        states: StateCache,
        nodes: NodeCache,
        quota: Quota,
    ) -> None:
        self._store, self._sequencer, self._clock, self._quota = store, sequencer, clock, quota
        self._states, self._nodes = states, nodes

    def judge(self, admitted: AdmittedCommit) -> Judging:
        """Judge in the enclave's present state; again if that has changed before the end."""
        enclave = admitted.commit.enclave
        for _ in range(MAX_TRIES):
            state = self._states.get(enclave)
            overlay = BatchOverlay(self._store, enclave, state, self._nodes)
            judgement = yield from judge_in_steps(admitted, state, overlay, self._sequencer)
            if state is not None and isinstance(judgement.result, Effects):
                try:
                    early = yield from self._store_early(admitted, state, judgement.result, overlay)
                except EncError as e:
                    return replace(judgement, result=e)
                judgement = replace(judgement, early=early)
            if judgement.holds_in(self._states.get(enclave)):
                break
        return judgement

    def _store_early(
        self, admitted: AdmittedCommit, state: EnclaveState, effects: Effects, overlay: BatchOverlay
    ) -> StoringTree:
        """Store the new nodes of the tree after the commit, unless it would be rejected now."""
        if len(effects.writes) < MIN_EARLY or effects.supersedes:
            return EarlyTree()
        try:
            timestamp = self._check(admitted, state)
        except EncError:  # the sequencer answers with it
            return EarlyTree()
        early = yield from build_early_tree(state, effects.writes, overlay, timestamp)
        nodes = sorted(early.nodes.items())  # neighbours may share a page
        for start in range(0, len(nodes), NODES_PER_WRITE):
            some = nodes[start : start + NODES_PER_WRITE]
            self._store.write_nodes(state.enclave, some)
            self._nodes.put(some)
            yield
        return replace(early, nodes={})

    def _check(self, admitted: AdmittedCommit, state: EnclaveState) -> int:
        """Return the event's time; raise if the commit repeats another, or for a quota or its `exp`."""
        commit = admitted.commit
        Spending(self._store, self._quota).check(commit)
        if (first := self._store.committed(commit.enclave, commit.hash, commit.exp)) is not None:
            raise duplicate(first, commit)
        return machine.next_timestamp(state, commit, self._clock())


def judge_in_steps(
    admitted: AdmittedCommit, state: EnclaveState | None, reader: StoredEnclave, sequencer: bytes
) -> Judging:
    """Judge an AC_Bundle or a Manifest in this state of the enclave; None: it does not exist."""
    try:
        if state is not None:
            effects = yield from machine.judge_in_steps(state, admitted.commit, reader, sequencer=sequencer)
            return Judgement(state, None, effects)
        policy, effects = judged_manifest(admitted)
        yield from hash_leaves(effects.writes)
        return Judgement(None, policy, effects)
    except EncError as e:
        return Judgement(state, None, e)
