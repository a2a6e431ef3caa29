"""Checks of a node before an enclave is moved to it: after the Migrate, a refusal would strand it."""

from msgspec import Struct
from msgspec.json import Decoder

from enc.client.link.node_link import NodeLink
from enc.client.verify.decode_answers import read
from enc.client.wire.flow import Call, Flow
from enc.core.errors import EnclaveExists, EnclaveNotFound, InvalidArchive, InvalidProof, Unauthorized
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.replay import Replay
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.types import TreeHead
from enc.core.trees.merkle_log import Edge
from enc.core.trees.tree_head import parse_head


class _Imports(Struct, frozen=True):
    at_once: int = 1
    total_bytes: int = 1 << 62


class _Limits(Struct, frozen=True):
    manifest: int = 1 << 62


class NodeTerms(Struct, frozen=True):
    """Which enclaves a node accepts; omitted fields mean no restriction."""

    create: str = "open"
    enc_v: list[int] = []
    imports: _Imports = _Imports()
    limits: _Limits = _Limits()

    def check_open(self) -> None:
        """Raise Unauthorized if the node accepts no enclaves."""
        if self.create == "closed":
            raise Unauthorized("the node accepts no enclaves: nothing was moved")
        if self.imports.at_once == 0:
            raise Unauthorized("the node accepts no imports: nothing was moved")

    def check_fits(self, replay: Replay, log_bytes: int, manifest: int) -> None:
        """Check this log: `unfolded` bytes as JSON lines, with a Manifest of `manifest` bytes."""
        enc_v = replay.state.policy.enc_v
        if self.enc_v and enc_v not in self.enc_v:
            raise InvalidArchive(f"the node hosts no enclaves of version {enc_v}: nothing was moved")
        if log_bytes > self.imports.total_bytes:
            most = self.imports.total_bytes
            raise InvalidArchive(f"the log has {log_bytes} bytes, but the node accepts {most}: nothing was moved")
        if manifest > self.limits.manifest:
            most = self.limits.manifest
            raise InvalidArchive(f"the Manifest has {manifest} bytes, but the node accepts {most}: nothing was moved")


_terms = Decoder(NodeTerms)


def fetch_terms(node: NodeLink) -> Flow[NodeTerms]:
    """Return the terms in the node's `/info`."""
    try:
        return read((yield from node.caller.request(Call("/info"))), _terms)
    except InvalidProof:
        return NodeTerms()


def check_existing_log(node: NodeLink, replay: Replay) -> Flow[None]:
    """Check that a log the node still holds for this enclave is a prefix of this one."""
    enclave = replay.state.enclave
    try:
        head = parse_head((yield from node.caller.request(Call(f"/{enclave.hex()}/sth"))))
    except (EnclaveNotFound, InvalidProof):
        return
    if not begins_with(replay, head):
        raise EnclaveExists("the node holds another log under this enclave's id: nothing was moved")


def begins_with(replay: Replay, head: TreeHead) -> bool:
    """Whether a head belongs to a prefix of the log; its last bundle may count as closed."""
    store, size = replay.store, replay.state.log.size
    if head.ts > size:
        return head.ts == checkpoint_size(replay) and head.r == replay.checkpoint_root()
    bundles = store.bundles[: head.ts] if isinstance(store, EnclaveMemory) else []
    edge, _ = Edge().extend(log_leaf(bundle.events_root, bundle.state_hash) for bundle in bundles)
    return edge.root() == head.r


def checkpoint_size(replay: Replay) -> int:
    """Return the bundles of the log, counting the last one as closed."""
    return replay.state.log.size + (replay.state.bundle is not None)
