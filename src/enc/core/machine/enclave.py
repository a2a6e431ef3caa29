"""The state machine: from a state and a commit, it computes the next state or raises an error with
a documented code.

    judge(state, commit, …) -> Effects              checks lifecycle and policy; changes nothing
    apply(state, event, effects, …) -> Transition   given the finalised event: the next state, and what to store

A state is frozen and small, whatever the log's size: the edge of the log, the edge of the open
bundle, a root, and the changes since that root. Everything older is read through a StoredEnclave.
Nodes, replays of archives and audits use the same two functions, so all of them reach the same
roots.
"""

from collections.abc import Generator

from msgspec.structs import replace

from enc.core.errors import (
    CheckpointMismatch,
    EnclaveExists,
    EnclaveMigrated,
    EnclavePaused,
    EnclaveTerminated,
    Expired,
    InvalidCommit,
    InvalidLifecycleState,
    Unavailable,
)
from enc.core.log.commit import MAX_EXP_WINDOW_MS, SKEW_MS
from enc.core.machine.early_tree import MAX_PENDING, EarlyTree
from enc.core.machine.state import ClosedBundle, EnclaveState, StoredEnclave, Transition, view
from enc.core.primitives.hashing import log_leaf, sha256
from enc.core.primitives.types import Commit, Event, KeyRecord
from enc.core.registry.entries import judge_registry
from enc.core.rules.content import Migrate, parse_migrate
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import Draft, Effects, Lifecycle, NoState, Policy, turned
from enc.core.trees import sparse_merkle
from enc.core.trees.bundle import closes_after, closes_before, open_bundle
from enc.core.trees.merkle_log import LogNodes
from enc.core.trees.sparse_merkle import TreeNodes, hash_leaves
from enc.core.trees.state_key import LIFECYCLE_KEY

_ENDS_AS: dict[str, Lifecycle] = {
    "Pause": "paused",
    "Resume": "active",
    "Terminate": "terminated",
    "Migrate": "migrated",
}


# Judging


def judge_manifest(commit: Commit) -> tuple[Policy, Effects]:
    """Judge the first commit of an enclave; return its policy and its initial state."""
    if commit.type != "Manifest":
        raise InvalidCommit("type: an enclave starts with its Manifest")
    if commit.content is None:
        raise InvalidCommit("content: a Manifest is never erased")
    policy = parse_manifest(commit.content)
    draft = Draft(NoState())
    policy.write_initial_state(draft)
    return policy, draft.effects()


def judge(
    state: EnclaveState,
    commit: Commit,
    reader: StoredEnclave,
    *,
    sequencer: bytes,
    takeover: bool = False,
    checkpoint: bool = True,
) -> Effects:
    """Return what the commit changes if the node with key `sequencer` finalises it next, or raise
    why it may not.

    Checks the lifecycle, then authorisation with gates, then state and rank. The caller checks
    hash, signature, duplicates and expiry. With `takeover`, another sequencer than the expected one
    may finalise a Migrate that names it. Without `checkpoint`, a Migrate's root is not compared:
    callers that do not see deleted events cannot compute it.
    """
    draft, migrate = _begin(state, commit, reader, sequencer, takeover)
    if state.policy.registry:
        judge_registry(commit, state.policy, draft)
    else:
        state.policy.judge(commit, draft)
    if migrate is not None and checkpoint:
        _check_checkpoint(state, migrate, reader)
    elif migrate is not None and migrate.prev_seq != state.seq:
        raise CheckpointMismatch("prev_seq: not the event before it", seq=state.seq)
    lifecycle = _ENDS_AS.get(commit.type)
    if lifecycle is not None and state.policy.lifecycle_in_state:
        draft.writes[LIFECYCLE_KEY] = _lifecycle_leaf(lifecycle)
    return draft.effects(lifecycle, migrate.new_sequencer if migrate else None)


def judge_in_steps(
    state: EnclaveState, commit: Commit, reader: StoredEnclave, *, sequencer: bytes
) -> Generator[None, None, Effects]:
    """Do what `judge` does for an AC_Bundle, and hash the leaves that it writes, in short steps."""
    draft, _ = _begin(state, commit, reader, sequencer, takeover=False)
    yield from state.policy.judge_operations(commit, draft)
    effects = draft.effects()
    yield from hash_leaves(effects.writes)
    return effects


def _begin(
    state: EnclaveState, commit: Commit, reader: StoredEnclave, sequencer: bytes, takeover: bool
) -> tuple[Draft, Migrate | None]:
    """Check what does not depend on the rules. Return the present state to judge against, and what
    a Migrate says."""
    if commit.type == "Manifest":
        raise EnclaveExists("the enclave already exists")
    _check_lifecycle(state, commit, sequencer, takeover)
    migrate = parse_migrate(commit) if commit.type == "Migrate" else None
    if sequencer != state.sequencer and (migrate is None or migrate.new_sequencer != sequencer):
        raise InvalidCommit("new_sequencer: a forced Migrate names the node that finalises it")
    return view(state, reader), migrate


def _check_lifecycle(state: EnclaveState, commit: Commit, sequencer: bytes, takeover: bool) -> None:
    if state.lifecycle == "terminated":
        raise EnclaveTerminated("the enclave is terminated")
    if sequencer != state.sequencer and not (takeover and commit.type == "Migrate"):
        raise EnclaveMigrated("another node is the sequencer", new_sequencer=state.sequencer.hex())
    if state.lifecycle == "paused" and commit.type not in ("Resume", "Terminate", "Migrate"):
        raise EnclavePaused("the enclave is paused: only Resume, Terminate and Migrate are accepted")
    if state.lifecycle == "active" and commit.type == "Resume":
        raise InvalidLifecycleState("the enclave is not paused")


def _lifecycle_leaf(lifecycle: Lifecycle) -> bytes | None:
    return None if lifecycle == "active" else sha256(lifecycle.encode())


def _check_checkpoint(state: EnclaveState, migrate: Migrate, reader: StoredEnclave) -> None:
    root = checkpoint_root(state, reader)
    if (migrate.prev_seq, migrate.ct_root) != (state.seq, root):
        raise CheckpointMismatch("not the log's checkpoint", seq=state.seq, ct_root=root.hex())


def next_timestamp(state: EnclaveState | None, commit: Commit, clock: int) -> int:
    """Return the timestamp of the event that the commit becomes now, for a node whose clock shows
    `clock`."""
    min_timestamp = state.min_timestamp if state else 0
    if min_timestamp > clock + SKEW_MS:
        raise Unavailable("the log is ahead of this node's clock", retry_after_ms=min_timestamp - clock)
    timestamp = max(clock, min_timestamp)
    if timestamp > commit.exp + SKEW_MS:
        raise Expired("exp has passed")
    if commit.exp > timestamp + MAX_EXP_WINDOW_MS + SKEW_MS:
        raise InvalidCommit("exp: more than an hour ahead")
    return timestamp


# Applying


def apply_manifest(event: Event, policy: Policy, effects: Effects) -> Transition:
    """Return the enclave after its Manifest. `policy` and `effects` are judge_manifest's."""
    state = EnclaveState(
        enclave=event.enclave, policy=policy, seq=-1, min_timestamp=event.timestamp, sequencer=event.sequencer
    )
    return apply(state, event, effects, _NothingStored())


class _NothingStored:
    def read_node(self, node_hash: bytes) -> bytes:
        raise KeyError(node_hash)


def apply(
    state: EnclaveState,
    event: Event,
    effects: Effects,
    reader: sparse_merkle.TreeNodeReader,
    early: EarlyTree = EarlyTree(),  # noqa: B008
) -> Transition:
    """Return the enclave after `event`, whose commit `judge` allowed with these effects.

    `early`: updates of the tree whose new nodes are stored already.
    """
    if (plain := _plain(state, event, effects)) is not None:
        return plain
    step = _Step(state, reader, early)
    if state.bundle is not None and closes_before(state.bundle, event, state.policy.bundle):
        step.close()
    leaves = step.leaves
    if state.migrated and state.policy.lifecycle_in_state:
        leaves[LIFECYCLE_KEY] = _lifecycle_leaf(state.lifecycle)
    if effects.writes or effects.supersedes:
        leaves.update(effects.leaves(event.id))
    if effects.records:
        step.records = effects.final_records(event.id)
    bundle = step.state.bundle
    migrates = effects.lifecycle == "migrated"
    step.state = replace(
        step.state,
        seq=event.seq,
        min_timestamp=event.timestamp,
        sequencer=effects.new_sequencer or event.sequencer,
        lifecycle=state.lifecycle if migrates else effects.lifecycle or state.lifecycle,
        migrated=migrates,
        bundle=open_bundle(event) if bundle is None else bundle.add(event),
        pending={**step.state.pending, **leaves} if leaves else step.state.pending,
        closed_gates=turned(state.closed_gates, effects.gates),
    )
    if step.state.bundle is not None and closes_after(step.state.bundle, event, state.policy.bundle):
        step.close()
    elif len(step.state.pending) > MAX_PENDING:
        step.flush()
    return step.transition()


def _plain(state: EnclaveState, event: Event, effects: Effects) -> Transition | None:
    """Return the step for the most common case: an event that only extends the log, in a bundle
    that stays open.

    Returns None in other cases. After a Migrate no bundle is open.
    """
    bundle, config = state.bundle, state.policy.bundle
    if bundle is None or closes_before(bundle, event, config):
        return None
    if effects.writes or effects.supersedes or effects.records or effects.lifecycle or effects.new_sequencer:
        return None
    bundle = bundle.add(event)
    if closes_after(bundle, event, config):
        return None
    after = replace(state, seq=event.seq, min_timestamp=event.timestamp, sequencer=event.sequencer, bundle=bundle)
    return Transition(state=after)


def seal(state: EnclaveState, clock: int, reader: sparse_merkle.TreeNodeReader) -> Transition | None:
    """Close the open bundle if `clock` has reached its deadline, after which no event can enter;
    else return None.

    The deadline becomes `min_timestamp`, so that a replay draws the same boundary.
    """
    if state.bundle is None or clock < (deadline := state.bundle.deadline(state.policy.bundle)):
        return None
    step = _Step(state, reader)
    step.close()
    step.state = replace(step.state, min_timestamp=max(state.min_timestamp, deadline))
    return step.transition()


class _Step:
    """One transition under construction: the state so far, and what must be stored for it."""

    def __init__(
        self,
        state: EnclaveState,
        reader: sparse_merkle.TreeNodeReader,
        early: EarlyTree = EarlyTree(),  # noqa: B008
    ) -> None:
        self.state, self._reader, self._early = state, reader, early
        self.leaves: dict[bytes, bytes | None] = {}
        self.closed: list[ClosedBundle] = []
        self.flushed = False
        self.records: tuple[KeyRecord, ...] = ()
        self.log_nodes: LogNodes = {}
        self.tree_nodes: TreeNodes = {}

    def read_node(self, node_hash: bytes) -> bytes:
        return self.tree_nodes.get(node_hash) or self._reader.read_node(node_hash)

    def flush(self) -> None:
        """Write the pending changes into the tree."""
        root = self._early.find(self.state.root, self.state.pending)
        if root is None:
            root, nodes = sparse_merkle.update(self, self.state.root, self.state.pending)
            self.tree_nodes.update(nodes)
        self.flushed = True
        self.state = replace(self.state, root=root, pending={})

    def close(self) -> None:
        """Close the open bundle, which appends one leaf to the log."""
        self.flush()
        state, bundle = self.state, self.state.bundle
        if bundle is None:
            return
        events_root = bundle.events_root()
        log, nodes = state.log.append(log_leaf(events_root, state.root))
        self.log_nodes.update(nodes)
        self.closed.append(ClosedBundle(state.log.size, bundle.first_seq, bundle.count, events_root, state.root))
        self.state = replace(state, log=log, bundle=None)

    def transition(self) -> Transition:
        return Transition(
            state=self.state,
            leaves=self.leaves,
            closed=tuple(self.closed),
            log_nodes=self.log_nodes,
            tree_nodes=self.tree_nodes,
            flushed=self.flushed,
            records=self.records,
        )


def state_hash(state: EnclaveState, reader: sparse_merkle.TreeNodeReader) -> bytes:
    """Return the root of the sparse tree after the latest event."""
    return sparse_merkle.update(reader, state.root, state.pending)[0]


def checkpoint_root(state: EnclaveState, reader: sparse_merkle.TreeNodeReader) -> bytes:
    """Return the root of the log with its last bundle counted as closed, which a Migrate names as
    `ct_root`."""
    if state.bundle is None:
        return state.log.root()
    leaf = log_leaf(state.bundle.events_root(), state_hash(state, reader))
    return state.log.append(leaf)[0].root()
