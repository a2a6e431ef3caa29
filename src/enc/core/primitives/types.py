"""The protocol's data types: frozen, with lengths checked when they are parsed, so that no other
code checks again.

Hashes, keys and signatures are bytes here and lower-case hex on the wire. The modules named after
each type build, parse and check them.
"""

from typing import Any, Literal, Protocol

from msgspec import Struct

from enc.core.errors import InvalidCommit
from enc.core.primitives.encoding import strict_json
from enc.core.primitives.signing import Alg

Tags = tuple[tuple[str, ...], ...]

VERSIONS = (1, 2)
"""Versions of the protocol that this project implements."""

PREDEFINED = frozenset(
    "Manifest Move Grant Revoke Transfer Gate AC_Bundle Shared Own Update Delete Pause Resume Terminate Migrate".split()
)
"""Types with rules of their own in version 2. Every other type is a content event."""

PREDEFINED_V1 = frozenset(
    "Manifest Grant Grant_Push Revoke Revoke_Self Move Force_Move Transfer_Owner AC_Bundle "
    "Update Delete Pause Resume Terminate Migrate".split()
)
"""The same in version 1. `Policy.predefined` is one of the two."""


REGISTRY_TYPES = frozenset(["Reg_Node", "Reg_Enclave", "Reg_Identity"])
"""Content events with rules of their own, but only in a registry."""


class CommitLimits(Struct, frozen=True):
    """Maximum sizes in a commit (docs/protocol.md, section 5.2). A node may configure its own."""

    content: int = 1 << 20
    type: int = 64
    tags: int = 64
    tag_strings: int = 16
    tag_string: int = 4096


class Commit(Struct, frozen=True, kw_only=True):
    """A proposed event, signed by a client. `content` is None only in an Event whose content was
    erased or is withheld."""

    hash: bytes
    enclave: bytes
    from_: bytes
    type: str
    content: str | None
    content_hash: bytes
    exp: int
    tags: Tags
    alg: Alg = "schnorr"
    sig: bytes


class Withheld(Struct, frozen=True, kw_only=True):
    """A node's signed statement that it withholds the content of one event."""

    reason: str
    """A code such as `court_order` (enc.core.log.withheld.REASONS)."""
    ts: int
    """When the node withheld it, in Unix milliseconds, by the node's clock."""
    node: bytes
    sig: bytes


class Event(Commit, frozen=True, kw_only=True):
    """A commit that its sequencer ordered and signed."""

    id: bytes
    timestamp: int
    sequencer: bytes
    seq: int
    seq_sig: bytes
    withheld: Withheld | None = None
    """Only without a content, and not verified by parsing: `enc.core.log.event.withheld_by` does."""

    @property
    def author(self) -> bytes:
        return self.from_

    @property
    def target(self) -> bytes | None:
        """The id of the event that an Update or Delete names; None for every other type."""
        named = [tag[1] for tag in self.tags if len(tag) > 1 and tag[0] == "r"]
        if self.type not in ("Update", "Delete") or len(named) != 1:
            return None
        try:
            return bytes.fromhex(named[0])
        except ValueError:
            return None

    @property
    def json(self) -> Any:
        """The content, parsed as JSON; None if it is missing or is not JSON that all parsers read
        alike."""
        return json_of(self.content)

    def __repr__(self) -> str:
        return f"Event({event_text(self)})"


def json_of(content: str | None) -> Any:
    """Return a content parsed as JSON; None if it is missing or is not JSON (see `strict_json`)."""
    try:
        return None if content is None else strict_json(content)
    except InvalidCommit:
        return None


SHOWN = 40
"""Characters of a content in a `repr`."""


class _Shown(Protocol):
    """What `event_text` needs of an event or of a row."""

    @property
    def seq(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def author(self) -> bytes: ...
    @property
    def content(self) -> str | None: ...
    @property
    def withheld(self) -> Withheld | None: ...


def event_text(event: _Shown) -> str:
    """Return an event in a few words, for a `repr`."""
    return f"{event.seq} {event.type} by {event.author.hex()[:8]}: {_content_text(event)}"


def _content_text(event: _Shown) -> str:
    content = event.content
    if content is None:
        return "erased" if event.withheld is None else f"withheld by the node ({event.withheld.reason})"
    return repr(content if len(content) <= SHOWN else f"{content[:SHOWN]}…")


class Receipt(Struct, frozen=True, kw_only=True):
    """The sequencer's signed confirmation that a commit is now an event. It does not name the
    enclave, which the sender knows."""

    id: bytes
    hash: bytes
    timestamp: int
    sequencer: bytes
    seq: int
    alg: Alg = "schnorr"
    sig: bytes
    seq_sig: bytes


class TreeHead(Struct, frozen=True):
    """A signed root of the log. `bound_sig` also binds the enclave: only such a head is evidence by
    itself."""

    t: int
    ts: int
    r: bytes
    sig: bytes
    bound_sig: bytes | None = None


class InclusionProof(Struct, frozen=True):
    """Leaf `li` is in the log of `ts` leaves."""

    ts: int
    li: int
    p: tuple[bytes, ...]


class ConsistencyProof(Struct, frozen=True):
    """The log of `ts1` leaves is a prefix of the log of `ts2` leaves."""

    ts1: int
    ts2: int
    p: tuple[bytes, ...]


class BundleProof(Struct, frozen=True):
    """An event is number `ei` of the `size` events of its bundle."""

    ei: int
    s: tuple[bytes, ...]
    size: int


class StateProof(Struct, frozen=True):
    """The sparse tree holds `v` at key `k`, or nothing (None)."""

    k: bytes
    v: bytes | None
    b: bytes
    s: tuple[bytes, ...]


class Target(Struct, frozen=True):
    """What the rules need to know of the earlier event that an Update or Delete is about."""

    type: str
    from_: bytes
    auto_delete: bool = False


RecordKind = Literal["node", "enclave", "identity"]


class Ownership(Struct, frozen=True, kw_only=True, array_like=True):
    """Who owns an enclave, as of the evidence that a registry has accepted (docs/protocol.md,
    section 23.1)."""

    sequencer: bytes
    holder: bytes
    proved_size: int = 0
    proved_at: int = 0
    proved_root: bytes = b""
    moved_at: int = -1
    moved_time: int = 0


class KeyRecord(Struct, frozen=True, kw_only=True):
    """What a registry stores for one key: its active entry and, for an enclave, facts that outlive
    every entry."""

    kind: RecordKind
    key: bytes
    """A sequencer's key, an enclave's id, an identity's key."""
    entry: bytes | None
    """Id of the active entry; None once it is deleted. In Effects, b"" stands for the event whose
    effects they are."""
    holder: bytes
    """Key that may replace or delete the entry."""
    proved_size: int = 0
    """Size of the latest tree under which someone proved to own the enclave. Older proofs are not
    accepted."""
    proved_at: int = 0
    """Time of that proof's head. Passages start after it."""
    proved_root: bytes = b""
    """A root under which the owners are known; empty if nothing was proved."""
    sequencer: bytes = b""
    moved_at: int = -1
    """Seq of the latest Migrate that was submitted."""
    moved_time: int = 0
    """Its timestamp. Older evidence has no effect."""
    forced_from: tuple[Ownership, ...] = ()
    """For each forced Migrate on record: what was known before it. A later head may take it back."""
    manifest: bytes = b""
    """Id of the Manifest's event. It identifies the log for good."""
    creator: bytes = b""
    app: str = ""
    text: str = ""
    """Text that a search looks through."""
