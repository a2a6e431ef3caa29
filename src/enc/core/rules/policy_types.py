"""Types that both versions of the access rules share: Policy, Draft, Effects.

A manifest becomes a Policy. A Policy judges a commit against the present state and writes the
changes into a Draft. An accepted Draft becomes Effects, which the state machine applies.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from enc.core.primitives.types import REGISTRY_TYPES, Commit, KeyRecord, RecordKind, Target
from enc.core.rules.dialect import Dialect
from enc.core.trees.bundle import BundleConfig
from enc.core.trees.state_key import CLOSED, Namespace, gate_key, identity_key, status_key


class StateReader(Protocol):
    """The parts of an enclave's present state that the rules read."""

    def leaf(self, key: bytes) -> bytes | None:
        """Return the value at a key of the sparse tree, after the latest event."""
        ...

    def target(self, event_id: bytes) -> Target | None:
        """Return the event with this id, if the enclave's log holds it."""
        ...

    def record(self, kind: RecordKind, key: bytes) -> KeyRecord | None:
        """Return the registry's record for a key."""
        ...

    def record_of(self, event_id: bytes) -> KeyRecord | None:
        """Return the record whose active entry is this event."""
        ...

    @property
    def closed_gates(self) -> frozenset[str]:
        """The aliases of the gates that are closed after the latest event."""
        ...


Lifecycle = Literal["active", "paused", "terminated", "migrated"]


class EndpointChange(Struct, frozen=True):
    """Registers an endpoint for each of these traits of an identity; without `url`, ends their
    endpoints.

    One change for all traits that an operation takes away: an AC_Bundle may take 248 from each of
    1,000 identities. In version 1 they are names of roles.
    """

    identity: bytes
    traits: tuple[str, ...]
    url: str | None


class Effects(Struct, frozen=True):
    """Everything that an accepted commit changes, besides extending the log."""

    writes: Mapping[bytes, bytes | None] = {}
    """Leaves of the sparse tree to set or, with None, to remove."""
    supersedes: tuple[bytes, ...] = ()
    """Events whose status becomes this event's id, which is known once it is finalised."""
    erases: tuple[bytes, ...] = ()
    """Events whose contents are erased."""
    endpoints: tuple[EndpointChange, ...] = ()
    lifecycle: Lifecycle | None = None
    """The enclave's new lifecycle, if the event changes it. `migrated`: another node continues the
    log."""
    new_sequencer: bytes | None = None
    records: tuple[KeyRecord, ...] = ()
    """New versions of a registry's records; `entry` b"" stands for this event's id."""
    gates: Mapping[str, bool] = {}
    """Gates that the commit opens or closes, by alias: whether it closes them. Their leaves are in
    `writes`.
    """

    def leaves(self, event_id: bytes) -> dict[bytes, bytes | None]:
        """Return all changes of the tree, once the event has its id."""
        return {**self.writes, **{status_key(old): event_id for old in self.supersedes}}

    def final_records(self, event_id: bytes) -> tuple[KeyRecord, ...]:
        """Return all changed records, once the event has its id."""
        return tuple(replace(record, entry=event_id) if record.entry == b"" else record for record in self.records)


class NoState:
    """The empty state before the first event; a base for readers that hold leaves and no events."""

    closed_gates = frozenset[str]()

    def leaf(self, key: bytes) -> bytes | None:
        return None

    def target(self, event_id: bytes) -> Target | None:
        return None

    def record(self, kind: RecordKind, key: bytes) -> KeyRecord | None:
        return None

    def record_of(self, event_id: bytes) -> KeyRecord | None:
        return None


class Draft:
    """Effects under construction. Reads see earlier writes; nothing outside changes until all is
    accepted.

    `sequencer` is the key of the enclave's present sequencer, which version 1 treats as a role.
    """

    def __init__(self, state: StateReader, sequencer: bytes = b"") -> None:
        self._state, self.sequencer = state, sequencer
        self.writes: dict[bytes, bytes | None] = {}
        self.supersedes: list[bytes] = []
        self.erases: list[bytes] = []
        self.endpoints: list[EndpointChange] = []
        self.records: list[KeyRecord] = []
        self._gates: dict[str, bool] = {}
        self.closed_rows: int | None = None
        """The rules behind closed gates, in the policy's own form: set and kept by the policy."""

    def leaf(self, key: bytes) -> bytes | None:
        return self.writes[key] if key in self.writes else self._state.leaf(key)

    def target(self, event_id: bytes) -> Target | None:
        return self._state.target(event_id)

    def record(self, kind: RecordKind, key: bytes) -> KeyRecord | None:
        """Return the record from before the commit. No commit changes two records."""
        return self._state.record(kind, key)

    def record_of(self, event_id: bytes) -> KeyRecord | None:
        return self._state.record_of(event_id)

    def bitmask(self, identity: bytes) -> int:
        return int.from_bytes(self.leaf(identity_key(identity)) or b"", "big")

    def set_bitmask(self, identity: bytes, bitmask: int) -> None:
        self.writes[identity_key(identity)] = bitmask.to_bytes(32, "big") if bitmask else None

    @property
    def closed_gates(self) -> frozenset[str]:
        """The aliases of the gates that are closed after this draft."""
        return turned(self._state.closed_gates, self._gates)

    def turn(self, alias: str, *, closes: bool) -> None:
        """Close or open a gate."""
        self.writes[gate_key(alias)] = CLOSED if closes else None
        self._gates[alias] = closes

    def effects(self, lifecycle: Lifecycle | None = None, new_sequencer: bytes | None = None) -> Effects:
        return Effects(
            writes=self.writes,
            supersedes=tuple(self.supersedes),
            erases=tuple(self.erases),
            endpoints=tuple(self.endpoints),
            lifecycle=lifecycle,
            new_sequencer=new_sequencer,
            records=tuple(self.records),
            gates=self._gates,
        )


def turned(closed: frozenset[str], gates: Mapping[str, bool]) -> frozenset[str]:
    """Return which gates are closed after these turns."""
    if not gates:
        return closed
    return closed.difference(gates).union(alias for alias, closes in gates.items() if closes)


EventKind = str | tuple[str, str] | None


class Subject(Struct, frozen=True):
    """The properties of an event that rules match: its type, and fields of its content."""

    type: str
    from_state: str | None = None
    to_state: str | None = None
    key: str | None = None
    trait: str | None = None

    @property
    def kind(self) -> EventKind:
        """What distinguishes events of one type: a Move's States, a slot's key, a trait; None if
        nothing does."""
        if self.from_state is not None and self.to_state is not None:
            return (self.from_state, self.to_state)
        return self.key if self.key is not None else self.trait


Reach = Literal["none", "own", "some", "all"]
"""Which events of a type an identity may read: none, its own, some (ask `rights` for each), or
all."""


class ReadScope(Struct, frozen=True):
    """What an identity may read, by type; `others` is for types that are not listed."""

    types: Mapping[str, Reach]
    others: Reach

    def of(self, type_: str) -> Reach:
        return self.types.get(type_, self.others)

    def __bool__(self) -> bool:
        return self.others != "none" or any(reach != "none" for reach in self.types.values())


class Policy(Protocol):
    """The access rules of an enclave, from its Manifest."""

    @property
    def enc_v(self) -> int: ...
    @property
    def bundle(self) -> BundleConfig: ...
    @property
    def manifest(self) -> Mapping[str, Any]: ...
    @property
    def size(self) -> int:
        """Length of the Manifest's content."""
        ...

    @property
    def registry(self) -> bool: ...
    @property
    def lifecycle_in_state(self) -> bool:
        """Whether Pause, Terminate and Migrate are leaves of the sparse tree."""
        ...

    @property
    def predefined(self) -> frozenset[str]:
        """The types with rules of their own. Every other type is a content event."""
        ...

    @property
    def content_types(self) -> frozenset[str]:
        """The types of content events that the Manifest lets anybody create; `*`: any type."""
        ...

    @property
    def namespaces(self) -> tuple[Namespace, ...]:
        """The parts of the sparse tree that the enclave uses."""
        ...

    @property
    def gates(self) -> Mapping[str, frozenset[str]]:
        """The gates, by alias, each with the columns that may turn it."""
        ...

    @property
    def slots(self) -> Mapping[str, frozenset[str]]:
        """The keys of the slots that the Manifest declares, by type: `Shared` and `Own`."""
        ...

    @property
    def dialect(self) -> Dialect:
        """The version's dialect, which writes contents and reads whom they concern."""
        ...

    @property
    def initial_members(self) -> tuple[bytes, ...]:
        """The identities to which the Manifest itself gives a State or role."""
        ...

    @property
    def names(self) -> Mapping[str, list[str]]:
        """The Manifest's names of States, traits or roles, by kind, for people."""
        ...

    def write_initial_state(self, draft: Draft) -> None:
        """Write the initial state into the draft."""
        ...

    def judge(self, commit: Commit, draft: Draft) -> None:
        """Write what the commit changes into the draft, or raise. The caller has checked the
        lifecycle."""
        ...

    def judge_operations(self, commit: Commit, draft: Draft) -> Iterator[None]:
        """Do the same for an AC_Bundle, one operation per step: each step is short, and a bundle
        may need a thousand of them.
        """
        ...

    def subject(self, commit: Commit, target: Target | None) -> Subject:
        """Return the properties by which R, P and N are decided; `target` is that of an Update or
        Delete."""
        ...

    def rights(
        self,
        subject: Subject,
        bitmask: int,
        *,
        is_author: bool,
        closed: frozenset[str],
        is_node: bool = False,
    ) -> frozenset[str]:
        """Return which of R, P and N an identity with this bitmask has on such an event.

        `closed`: the aliases of the closed gates. `is_node`: the identity is the sequencer.
        """
        ...

    def read_scope(self, bitmask: int, closed: frozenset[str], *, is_node: bool = False) -> ReadScope: ...

    def is_owner(self, bitmask: int) -> bool: ...

    def new_owners(self, commit: Commit) -> frozenset[bytes]:
        """Return the identities that the commit makes owners, if it is valid: a Manifest's first
        owners, or those to whom the ownership passes.

        It reads nothing but the commit, so that anyone who has the commit can see who received the
        enclave.
        """
        ...

    def state_of(self, bitmask: int) -> str:
        """Return the name of the State, for people and apps."""
        ...

    def traits_of(self, bitmask: int) -> list[str]:
        """Return the names of the traits held."""
        ...


def kept_types(policy: Policy) -> frozenset[str]:
    """Return the types whose contents, those of Updates excepted, are never erased: the rules read
    them."""
    return policy.predefined | REGISTRY_TYPES if policy.registry else policy.predefined


def recipients(
    policy: Policy,
    subject: Subject,
    author: bytes,
    bitmasks: Mapping[bytes, int],
    closed: frozenset[str],
    sequencer: bytes = b"",
) -> dict[bytes, Literal["P", "N"]]:
    """Return which of these identities get the event pushed (P) or only a notice (N), by the state
    after the event."""
    found: dict[bytes, Literal["P", "N"]] = {}
    for identity, bitmask in bitmasks.items():
        rights = policy.rights(
            subject, bitmask, is_author=identity == author, closed=closed, is_node=identity == sequencer
        )
        if "P" in rights:
            found[identity] = "P"
        elif "N" in rights:
            found[identity] = "N"
    return found
