"""Bundles: runs of events that share one leaf of the log (docs/protocol.md, section 8).

`events_root` is the root of a perfect tree over the event ids, padded on the right by repeating the
last one. The open bundle keeps only the edge of that tree, so that adding an event costs one hash
however large bundles are.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from enc.core.errors import InvalidProof, MisuseError
from enc.core.primitives.hashing import log_node
from enc.core.primitives.types import BundleProof
from enc.core.trees.merkle_log import Edge


class BundleConfig(Struct, frozen=True):
    """When a bundle closes; fixed by the Manifest for the enclave's whole life."""

    size: int = 256
    timeout: int = 5000


class Sequenced(Protocol):
    """The fields of an event that bundle boundaries depend on."""

    @property
    def id(self) -> bytes: ...
    @property
    def seq(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def sequencer(self) -> bytes: ...


class OpenBundle(Struct, frozen=True):
    """The bundle that the latest event is in, while further events may enter it."""

    first_seq: int
    first_timestamp: int
    sequencer: bytes
    ids: Edge
    last_id: bytes

    @property
    def count(self) -> int:
        return self.ids.size

    def deadline(self, config: BundleConfig) -> int:
        """Return the time from which no event can enter."""
        return self.first_timestamp + config.timeout

    def events_root(self) -> bytes:
        """Return the root as if the bundle closed now: O(log count) hashes."""
        return _padded_root(self.ids, self.last_id)

    def add(self, event: Sequenced) -> "OpenBundle":
        """Return this bundle with one more event: one hash, amortised."""
        return OpenBundle(self.first_seq, self.first_timestamp, self.sequencer, self.ids.with_leaf(event.id), event.id)

    def add_all(self, events: Sequence[Sequenced]) -> "OpenBundle":
        """Return this bundle with these events, of which there must be at least one."""
        ids = self.ids.with_leaves([event.id for event in events])
        return OpenBundle(self.first_seq, self.first_timestamp, self.sequencer, ids, events[-1].id)


def open_bundle(event: Sequenced) -> OpenBundle:
    """Return a new bundle with its first event."""
    return OpenBundle(event.seq, event.timestamp, event.sequencer, Edge(1, (event.id,)), event.id)


def closes_before(bundle: OpenBundle, event: Sequenced, config: BundleConfig) -> bool:
    """Return whether the bundle closes before this event: it is dated at or after the deadline, or
    another sequencer signed it (a forced Migrate)."""
    return event.timestamp >= bundle.deadline(config) or event.sequencer != bundle.sequencer


def closes_after(bundle: OpenBundle, event: Sequenced, config: BundleConfig) -> bool:
    """Return whether the bundle closes after this event, its latest: it is full, or the event is a
    Migrate."""
    return bundle.count >= config.size or event.type == "Migrate"


def split(events: Iterable[Sequenced], config: BundleConfig) -> Iterator[OpenBundle]:
    """Yield the bundles of a whole log, in order. They depend on the events alone. The last may
    still be open."""
    bundle: OpenBundle | None = None
    for event in events:
        if bundle is not None and closes_before(bundle, event, config):
            yield bundle
            bundle = None
        bundle = open_bundle(event) if bundle is None else bundle.add(event)
        if closes_after(bundle, event, config):
            yield bundle
            bundle = None
    if bundle is not None:
        yield bundle


def events_root(ids: Sequence[bytes]) -> bytes:
    """Return the root over the ids of one bundle."""
    if not ids:
        raise MisuseError("a bundle must hold at least one event")
    return _padded_root(Edge().extend(ids)[0], ids[-1])


def _padded_root(ids: Edge, last_id: bytes) -> bytes:
    heights = [level for level in range(ids.size.bit_length()) if ids.size >> level & 1]
    height, root, padding = heights[0], ids.peaks[-1], last_id
    for _ in range(height):
        padding = log_node(padding, padding)
    for next_height, peak in zip(heights[1:], reversed(ids.peaks[:-1]), strict=True):
        while height < next_height:
            root, padding, height = log_node(root, padding), log_node(padding, padding), height + 1
        root, padding, height = log_node(peak, root), log_node(padding, padding), height + 1
    return root


class BundleTree:
    """The whole tree over the ids of one bundle. Building it takes one hash for each id, a proof
    none."""

    def __init__(self, ids: Sequence[bytes]) -> None:
        self.size = len(ids)
        level, padding = list(ids), ids[-1]
        self._levels: list[list[bytes]] = []
        while len(level) > 1:
            if len(level) & 1:
                level.append(padding)
            self._levels.append(level)
            level = [log_node(level[i], level[i + 1]) for i in range(0, len(level), 2)]
            padding = log_node(padding, padding)

    def prove(self, index: int) -> BundleProof:
        """Prove the membership of event number `index`."""
        if not 0 <= index < self.size:
            raise MisuseError(f"no event {index} in a bundle of {self.size}")
        return BundleProof(index, tuple(level[(index >> i) ^ 1] for i, level in enumerate(self._levels)), self.size)


def prove_membership(ids: Sequence[bytes], index: int) -> BundleProof:
    """Prove the membership of event number `index` in the bundle with these ids."""
    return BundleTree(ids).prove(index)


def check_membership(proof: BundleProof, event_id: bytes, events_root: bytes) -> None:
    """Check that the event with this id is number `ei` of the `size` events under `events_root`.

    An index in the padding is rejected, because it would give one event two places. Raises
    InvalidProof.
    """
    if not 0 <= proof.ei < proof.size:
        raise InvalidProof("bundle: the event index is not below the bundle's size")
    if len(proof.s) != (proof.size - 1).bit_length():
        raise InvalidProof("bundle: the wrong number of siblings for this size")
    found, index = event_id, proof.ei
    for sibling in proof.s:
        found = log_node(sibling, found) if index & 1 else log_node(found, sibling)
        index >>= 1
    if found != events_root:
        raise InvalidProof("bundle: the siblings lead to another root")
