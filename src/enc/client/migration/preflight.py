"""Checks of a node before an enclave is moved to it: after the Migrate, a refusal would strand it."""

import os

import msgspec
from msgspec import Struct
from msgspec.json import Decoder

from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.node_link import NodeLink
from enc.client.verify.decode_answers import read
from enc.client.wire.flow import Call, Flow, Pause
from enc.core.errors import EnclaveExists, EnclaveNotFound, InvalidArchive, InvalidProof, PeerError, Unauthorized
from enc.core.log.event import WireEvent, event_from_wire
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.replay import Replay
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.sealing import NONCE_SIZE
from enc.core.primitives.types import Event, TreeHead
from enc.core.session.envelope import answer_text, seal_request
from enc.core.session.session import Session, client_keys
from enc.core.trees.merkle_log import Edge
from enc.core.trees.tree_head import parse_head

MAX_WAIT_S = 30
"""How long a move waits for the end of the log's first bundle, in seconds."""


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


def may_migrate(reader: EnclaveReader) -> Flow[bool]:
    """Return whether the client's identity may move the enclave, as its node says."""
    try:
        yield from reader.session.ask("/checkpoint", "Checkpoint", {"hold": 0})
    except Unauthorized:
        return False
    return True


def fetch_terms(node: NodeLink) -> Flow[NodeTerms]:
    """Return the terms in the node's `/info`."""
    try:
        return read((yield from node.caller.request(Call("/info"))), _terms)
    except InvalidProof:
        return NodeTerms()


def check_existing_log(
    node: NodeLink, session: Session, replay: Replay, manifest: Event, sealed: TreeHead
) -> Flow[None]:
    """Check that the node will replace the log that it holds for this enclave by the moved one: it
    must be a prefix of that log, or a copy of its Manifest. To replace a copy, the moved log needs
    more than one bundle.

    `manifest`: event 0 of the log; `sealed`: the old node's head, which may count a bundle that the
    replay does not.
    """
    try:
        head = parse_head((yield from node.caller.request(Call(f"/{replay.state.enclave.hex()}/sth"))))
    except (EnclaveNotFound, InvalidProof):
        return
    if head.ts and begins_with(replay, head):
        return
    held = yield from _held_events(node, session, replay.state.enclave)
    if held and held[0].id == manifest.id and not head.ts:
        return
    copied = bool(held) and held[0].hash == manifest.hash and held[0].sequencer == (yield from node.seq_pub())
    if not copied or len(held) > 1:
        raise EnclaveExists(_OTHER_LOG)
    if max(replay.state.log.size, sealed.ts) == 0:
        timeout_s = replay.state.policy.bundle.timeout / 1000
        if timeout_s > MAX_WAIT_S:
            raise EnclaveExists(_TOO_SHORT)
        yield Pause(timeout_s)  # then the Migrate opens the second bundle


_OTHER_LOG = (
    "the node holds another log under this enclave's id, for example because somebody sent it a copy of the Manifest "
    "and other events: nothing was moved; move to another node, or ask the node's operator"
)
_TOO_SHORT = (
    "somebody sent the node a copy of the Manifest, and the log has no closed bundle yet: nothing was moved; try again "
    "when the first bundle has closed"
)


class _Export(Struct):
    events: list[WireEvent]
    seq: int


_export = Decoder(_Export)


def _held_events(node: NodeLink, session: Session, enclave: bytes) -> Flow[list[Event]]:
    """Return the first two events of the node's log; none if it does not export them to us."""
    seq_pub = yield from node.seq_pub()
    body = {"from_seq": 0, "limit": 2}
    sealed = seal_request(session, seq_pub, enclave, "Export", body, os.urandom(NONCE_SIZE))
    try:
        answer = yield from node.caller.request(Call("/export", msgspec.json.encode(sealed)))
        page = read(answer_text(client_keys(session, seq_pub, enclave), answer), _export)
        return [event_from_wire(event) for event in page.events]
    except PeerError:
        return []


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
