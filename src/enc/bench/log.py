"""What is stored of a generated log besides its lines, for its header, its heads and erasures."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from enc.core.machine.archive import Header
from enc.core.primitives.hashing import EMPTY_HASH
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import TreeHead
from enc.core.trees.merkle_log import Edge
from enc.core.trees.tree_head import sign_head


class SignedBundle(Struct, frozen=True):
    """A closed bundle, as its node signed it."""

    leaf: bytes
    root: bytes
    """The root of the log that ends with it."""
    last_seq: int
    closed_at: int
    sequencer: bytes


class ProvedBundle(Struct, frozen=True):
    """One complete bundle, for the proof of an event in it."""

    index: int
    last_seq: int
    ids: tuple[bytes, ...]
    events_root: bytes
    state_hash: bytes


class Earlier(Struct, frozen=True):
    """An archive pulled while the log was shorter: its first `places` lines, then `more`."""

    header: Header
    places: int
    time: int
    more: tuple[bytes, ...] = ()


class Log(Struct, kw_only=True):
    """Places are line numbers from 0. The seq of a faulty node may differ."""

    enclave: bytes
    enc_v: int
    keys: Mapping[bytes, PrivateKey]
    """The nodes' keys, by public key."""
    created_at: int
    bundles: list[SignedBundle] = []
    sequencers: list[tuple[bytes, int]] = []
    proved_bundle: ProvedBundle | None = None
    erased_by: dict[int, int] = {}
    """The place of an erased event, and the place of the event that erased it."""
    gone_at: dict[int, int] = {}
    """The place of an event with auto-delete, and its time."""
    earlier: list[Earlier] = []
    places: int = 0
    last_seq: int = -1
    time: int = 0

    def head(self, size: int, by: bytes | None = None, root: bytes | None = None) -> TreeHead:
        """Return the head of this size, optionally by another sequencer or with another root."""
        if size == 0:
            return sign_head(self.keys[self.sequencers[0][0]], self.enclave, self.created_at, 0, EMPTY_HASH)
        bundle = self.bundles[size - 1]
        key = self.keys[bundle.sequencer if by is None else by]
        return sign_head(key, self.enclave, bundle.closed_at, size, bundle.root if root is None else root)

    def other_root(self, size: int, leaf: bytes) -> bytes:
        """Return the root of a log of this size that ends with another leaf."""
        return Edge().extend([*self.leaves(size - 1), leaf])[0].root()

    def leaves(self, size: int) -> Sequence[bytes]:
        return [bundle.leaf for bundle in self.bundles[:size]]

    def bundle_of(self, seq: int) -> int:
        """Return the first size of the log that covers this event, or its last size."""
        sizes = (i + 1 for i, bundle in enumerate(self.bundles) if bundle.last_seq >= seq)
        return next(sizes, len(self.bundles))

    def header(self, sth: TreeHead | None, checkpoint_root: bytes) -> Header:
        return Header(
            enclave=self.enclave,
            enc_v=self.enc_v,
            sequencers=tuple(self.sequencers),
            events=self.places,
            sth=sth,
            checkpoint_seq=self.last_seq,
            checkpoint_root=checkpoint_root,
        )
