"""What is kept of a log in the making besides its lines: enough for its header, its heads, and what is erased."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from enc.core.archive import Header
from enc.core.hashing import EMPTY_HASH
from enc.core.merkle_log import Edge
from enc.core.signing import PrivateKey
from enc.core.tree_head import sign_head
from enc.core.types import TreeHead


class Bundle(Struct, frozen=True):
    """A closed bundle, as its node signed for it."""

    leaf: bytes
    root: bytes
    """Of the log that ends with it."""
    last_seq: int
    closed_at: int
    sequencer: bytes


class Witnessed(Struct, frozen=True):
    """One bundle in full, so that an event of it can be proved."""

    index: int
    last_seq: int
    ids: tuple[bytes, ...]
    events_root: bytes
    state_hash: bytes


class Earlier(Struct, frozen=True):
    """An archive that somebody pulled while the log was shorter: its first `places` lines, then `more`."""

    header: Header
    places: int
    time: int
    more: tuple[bytes, ...] = ()


class Log(Struct, kw_only=True):
    """Places are lines, from 0. A lying node's seq may be another number."""

    enclave: bytes
    enc_v: int
    keys: Mapping[bytes, PrivateKey]
    """Those of the nodes, by public key."""
    founded_at: int
    bundles: list[Bundle] = []
    sequencers: list[tuple[bytes, int]] = []
    witnessed: Witnessed | None = None
    erased_by: dict[int, int] = {}
    """Place of an event whose content is gone, and the place of the event that took it."""
    gone_at: dict[int, int] = {}
    """Place of an event with auto-delete, and its time."""
    earlier: list[Earlier] = []
    places: int = 0
    last_seq: int = -1
    time: int = 0

    def head(self, size: int, by: bytes | None = None, root: bytes | None = None) -> TreeHead:
        """The head of this size; by another sequencer, or with another root, if these are given."""
        if size == 0:
            return sign_head(self.keys[self.sequencers[0][0]], self.enclave, self.founded_at, 0, EMPTY_HASH)
        bundle = self.bundles[size - 1]
        key = self.keys[bundle.sequencer if by is None else by]
        return sign_head(key, self.enclave, bundle.closed_at, size, bundle.root if root is None else root)

    def other_root(self, size: int, leaf: bytes) -> bytes:
        """The root of a log of this size that ends with another leaf."""
        return Edge().extend([*self.leaves(size - 1), leaf])[0].root()

    def leaves(self, size: int) -> Sequence[bytes]:
        return [bundle.leaf for bundle in self.bundles[:size]]

    def bundle_of(self, seq: int) -> int:
        """The size of the log that first covers this event, or its last size."""
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
