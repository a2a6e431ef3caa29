"""Updates a sparse Merkle tree in short steps, so that a large batch of changes holds no thread for
long. The result is that of `sparse_merkle.update`."""

from collections.abc import Generator, Mapping

from enc.core.primitives.hashing import EMPTY_HASH
from enc.core.trees.sparse_merkle import TreeNodeReader, TreeNodes, children, update

STEP = 32
"""Changes per step: about a millisecond."""


class AddedNodes:
    """Reads nodes that are not stored yet, and behind them the stored ones."""

    def __init__(self, reader: TreeNodeReader, nodes: TreeNodes) -> None:
        self._reader, self._nodes = reader, nodes

    def read_node(self, node_hash: bytes) -> bytes:
        return self._nodes.get(node_hash) or self._reader.read_node(node_hash)


def update_in_steps(
    reader: TreeNodeReader, root: bytes, changes: Mapping[bytes, bytes | None], step: int = STEP
) -> Generator[None, None, tuple[bytes, TreeNodes]]:
    """Set these keys, or remove those with None; return the new root and the new nodes.

    Yields after every step. Neighbouring keys share a step, since they share nodes.
    """
    made, keys = TreeNodes(), sorted(changes)
    for start in range(0, len(keys), step):
        some = {key: changes[key] for key in keys[start : start + step]}
        root, nodes = update(AddedNodes(reader, made), root, some)
        made.update(nodes)
        yield
    return root, (yield from _reachable(made, root))


def _reachable(nodes: TreeNodes, root: bytes) -> Generator[None, None, TreeNodes]:
    """Return the new nodes of the tree with this root, without those that a later step replaced."""
    found, waiting = TreeNodes(), [] if root == EMPTY_HASH else [root]
    while waiting:
        node_hash = waiting.pop()
        if (record := nodes.get(node_hash)) is None:  # stored before: so are all below it
            continue
        found[node_hash] = record
        waiting += children(record)
        if len(found) % (8 * STEP) == 0:
            yield
    return found
