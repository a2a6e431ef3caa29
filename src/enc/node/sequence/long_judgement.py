"""Judges commits that take long in short steps, and stores the tree nodes that they will need.

An AC_Bundle of 1,000 operations changes as many leaves. Their new nodes are spread over the whole
table of nodes, so that writing them takes most of a transaction's time. They are keyed by hash:
nodes that are stored in small transactions before the commit's own change nothing, and if the
commit is then rejected nothing refers to them. But they stay, and nobody is charged for them: so they
are stored only while the commit would be accepted.
"""

from collections.abc import Callable, Generator

from msgspec.structs import replace

from enc.core.errors import EncError, Expired
from enc.core.log.commit import SKEW_MS
from enc.core.machine import enclave as machine
from enc.core.machine.early_tree import EarlyTree, build_early_tree
from enc.core.machine.state import EnclaveState, StoredEnclave
from enc.core.primitives.types import Commit
from enc.core.rules.policy_types import Effects
from enc.core.trees.sparse_merkle import hash_leaves
from enc.node.limits.quota import Spending
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
MARGIN_MS = 2_000
"""A commit that expires so soon is rejected as expired: until it is prepared it might be too late,
and its nodes would be stored for nothing.
"""

Judging = Generator[None, None, Judgement]
StoringTree = Generator[None, None, EarlyTree]


class LongJudgement:
    """Judges AC_Bundles and Manifests. For the sequencer's thread, between two batches."""

    def __init__(
        self,
        store: Store,
        sequencer: bytes,
        states: StateCache,
        nodes: NodeCache,
        check_accepts: Callable[[Commit], int],
        spending: Callable[[], Spending],
    ) -> None:
        """`check_accepts` raises if no commit of this enclave is accepted now, and returns the time;
        `spending` returns the accounts of identities as they are stored.
        """
        self._store, self._sequencer, self._states, self._nodes = store, sequencer, states, nodes
        self._check_accepts, self._spending = check_accepts, spending

    def judge(self, admitted: AdmittedCommit) -> Judging:
        """Judge in the enclave's present state; again if that has changed before the end."""
        enclave, stores = admitted.commit.enclave, True
        for _ in range(MAX_TRIES):
            state = self._states.get(enclave)
            overlay = BatchOverlay(self._store, enclave, state, self._nodes)
            judgement = yield from judge_in_steps(admitted, state, overlay, self._sequencer)
            if stores and state is not None and isinstance(judgement.result, Effects):
                stores = len(judgement.result.writes) < MIN_EARLY  # once, or others could have nodes stored for nothing
                try:
                    early = yield from self._store_early(admitted.commit, state, judgement.result, overlay)
                except EncError as e:
                    return replace(judgement, result=e)
                judgement = replace(judgement, early=early)
            if judgement.holds_in(self._states.get(enclave)):
                break
        return judgement

    def _store_early(self, commit: Commit, state: EnclaveState, effects: Effects, overlay: BatchOverlay) -> StoringTree:
        """Store the new nodes of the tree after the commit, if the tree is written at all.

        Raises if the commit would be rejected now. It is asked before each write: nobody pays for
        nodes of a commit that is rejected.
        """
        if len(effects.writes) < MIN_EARLY or effects.supersedes:
            return EarlyTree()
        timestamp = self._check(commit, state)
        self._spending().check(commit, state)
        if (first := self._store.committed(commit.enclave, commit.hash, commit.exp)) is not None:
            raise duplicate(first, commit)
        early = yield from build_early_tree(state, effects.writes, overlay, timestamp)
        nodes = sorted(early.nodes.items())  # neighbours may share a page
        for start in range(0, len(nodes), NODES_PER_WRITE):
            self._check(commit, state)
            some = nodes[start : start + NODES_PER_WRITE]
            self._store.write_nodes(state.enclave, some)
            self._nodes.put(some)
            yield
        return replace(early, nodes={})

    def _check(self, commit: Commit, state: EnclaveState) -> int:
        """Return the event's time; raise if the commit would be rejected for its enclave or its `exp`."""
        timestamp = machine.next_timestamp(state, commit, self._check_accepts(commit))
        if timestamp + MARGIN_MS > commit.exp + SKEW_MS:
            raise Expired("exp has passed, or passes before the commit is judged")
        return timestamp


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
