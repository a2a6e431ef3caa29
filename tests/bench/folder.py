"""A generated fleet, read with the kernel alone."""

import json
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from enc.core.errors import InvalidProof
from enc.core.machine.archive import Header, read_archive
from enc.core.machine.enclave import apply, apply_manifest, checkpoint_root, judge, judge_manifest, seal
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.state import EnclaveState
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.types import Event, TreeHead
from enc.core.rules.policy_types import Effects
from enc.core.trees.merkle_log import Edge
from enc.core.trees.proof import (
    LogLeaf,
    WireBundleProof,
    WireInclusion,
    bundle_proof_from_wire,
    check_event_proof,
    inclusion_from_wire,
)
from enc.core.trees.tree_head import WireHead, check_bound_head, head_from_wire


class Archive(Struct):
    header: Header
    events: list[Event]


class Head(Struct):
    head: TreeHead
    line: dict[str, Any]


def read(path: Path) -> Archive:
    header, events = read_archive([path.read_bytes()])
    return Archive(header, list(events))


def archives(out: Path, enclave: str = "") -> list[Archive]:
    """Return the archives of an enclave, or all; the whole log before the earlier one."""
    return [read(path) for path in sorted(out.glob(f"{enclave}*.enc"), key=lambda path: len(path.suffixes))]


def heads(out: Path, enclave: str = "") -> list[Head]:
    lines = [json.loads(line) for line in (out / "heads.jsonl").read_text().splitlines()]
    found = [line for line in lines if line["enclave"].startswith(enclave)]
    return [Head(head_from_wire(WireHead(**line["sth"])), line) for line in found]


def planted(out: Path) -> list[dict[str, Any]]:
    return json.loads((out / "planted.json").read_text())


def signer(head: TreeHead, archive: Archive) -> bytes | None:
    """Return which of an enclave's sequencers signed a head for it."""
    for key, _ in archive.header.sequencers:
        try:
            check_bound_head(head, key, archive.header.enclave)
        except InvalidProof:
            continue
        return key
    return None


class TrustingReplay:
    """Replay a log as its node made it; events are judged unless `unjudged` names them.

    `early` and `late`: the seq of an event before which a bundle closes, or does not close, against
    the rule. `leaf`: the state_hash that one bundle has instead of its own.
    """

    def __init__(
        self, archive: Archive, unjudged: int = -1, early: int = -1, late: int = -1, leaf: tuple[int, bytes] = (-1, b"")
    ) -> None:
        self.memory = EnclaveMemory()
        first, *rest = archive.events
        self._leaf, self.roots, self.last = leaf, {0: Edge().root()}, [-1]
        self.state: EnclaveState
        self._keep(first, apply_manifest(first, *judge_manifest(first)))
        for event in rest:
            lied = event.seq == unjudged
            effects = Effects() if lied else judge(self.state, event, self.memory, sequencer=self.state.sequencer)
            if event.seq == early:
                self._seal()
            at = event.timestamp if event.seq != late else self.state.min_timestamp
            moved = apply(self.state, replace(event, timestamp=at), effects, self.memory)
            self._keep(event, moved)
            if event.seq == late:
                self.state = replace(self.state, min_timestamp=event.timestamp)
        self.open = self.state
        self.checkpoint = checkpoint_root(self.state, self.memory)
        self._seal()

    def _seal(self) -> None:
        if self.state.bundle is not None:
            min_timestamp = self.state.min_timestamp
            self._keep(None, seal(self.state, 1 << 52, self.memory))
            self.state = replace(self.state, min_timestamp=min_timestamp)

    def _keep(self, event: Event | None, transition: Any) -> None:
        log = self.state.log if hasattr(self, "state") else Edge()
        self.memory.put(event, transition)
        for bundle in transition.closed:
            index, wrong = self._leaf
            log = log.append(log_leaf(bundle.events_root, wrong if bundle.index == index else bundle.state_hash))[0]
            self.roots[log.size] = log.root()
            self.last.append(bundle.first_seq + bundle.count - 1)
        self.state = replace(transition.state, log=log)
        self.bundles = self.memory.bundles


def check_proof(head: Head, archive: Archive) -> None:
    inclusion, member = dict(head.line["inclusion"]), dict(head.line["membership"])
    leaf = LogLeaf(bytes.fromhex(inclusion.pop("events_root")), bytes.fromhex(inclusion.pop("state_hash")))
    assert bytes.fromhex(member.pop("events_root")) == leaf.events_root
    assert member.pop("leaf_index") == inclusion["li"]
    event = archive.events[head.line["seq"]]
    assert event.seq == head.line["seq"]
    bundle = bundle_proof_from_wire(WireBundleProof(**member))
    check_event_proof(event.id, bundle, leaf, inclusion_from_wire(WireInclusion(**inclusion)), head.head)
