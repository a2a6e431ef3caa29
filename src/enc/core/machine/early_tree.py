"""The tree after an event, computed in short steps before the event exists.

The changes of an AC_Bundle are known once it is judged. Its nodes are keyed by hash, so a node may
store them before the event: if it never comes, nothing refers to them.
"""

from collections.abc import Generator, Mapping

from msgspec import Struct

from enc.core.machine.state import EnclaveState
from enc.core.trees.sparse_merkle import TreeNodeReader, TreeNodes
from enc.core.trees.stepwise_update import AddedNodes, update_in_steps

Changes = Mapping[bytes, bytes | None]

MAX_PENDING = 256
"""Maximum number of pending changes before they are written into the tree, even inside a bundle: the
next event may have to write them all besides its own."""


class EarlyUpdate(Struct, frozen=True):
    """One update of the tree: from a root, by some changes, to a root."""

    before: bytes
    changes: Changes
    after: bytes


class EarlyTree(Struct, frozen=True):
    """The updates that an event will need, and their new nodes, which are stored before it."""

    updates: tuple[EarlyUpdate, ...] = ()
    nodes: TreeNodes = {}

    def find(self, root: bytes, changes: Changes) -> bytes | None:
        """Return the root after this update if it was computed."""
        return next((each.after for each in self.updates if each.before == root and each.changes == changes), None)


def build_early_tree(
    state: EnclaveState, leaves: Changes, reader: TreeNodeReader, timestamp: int
) -> Generator[None, None, EarlyTree]:
    """Compute in steps the tree after an event of this time that changes these leaves, if the event
    will write its changes into the tree."""
    bundle, config = state.bundle, state.policy.bundle
    overdue = bundle is not None and timestamp >= bundle.deadline(config)
    closes = (1 if bundle is None or overdue else bundle.count + 1) >= config.size
    batches = [state.pending, leaves] if overdue else [{**state.pending, **leaves}]
    if not closes and len(batches[-1]) <= MAX_PENDING:
        batches.pop()
    early, root = EarlyTree(), state.root
    for changes in batches:
        after, nodes = yield from update_in_steps(AddedNodes(reader, early.nodes), root, changes)
        early = EarlyTree((*early.updates, EarlyUpdate(root, changes, after)), {**early.nodes, **nodes})
        root = after
    return early
