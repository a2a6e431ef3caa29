"""The fold over an enclave's control events: roles, slots and sequencers. Pure; no Spark.

    fold(state, events, complete) -> FoldResult     the state after the events, and the changed rows

Control events change an enclave's own state: its Manifest, access control, slots, gates, lifecycle.
Each is checked against the enclave's Manifest as its node checked it. An event that the rules
reject changes nothing; if no earlier event is missing, it is evidence against the node. Without the
Manifest (a reader of few types never sees it), only slots and the lifecycle are folded, because
these events are self-contained.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from enc.core.errors import EncError, EnclavePaused, EnclaveTerminated, InvalidLifecycleState
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import PREDEFINED, PREDEFINED_V1, Event
from enc.core.rules.content import content_object, parse_migrate, text_field
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import Draft, NoState, Policy
from enc.core.trees.state_key import identity_key, own_slot, shared_slot, tree_key
from enc.dataview.fold.content_fold import REVISIONS

CONTROL: Mapping[int, frozenset[str]] = {1: PREDEFINED_V1 - {*REVISIONS}, 2: PREDEFINED - {*REVISIONS}}
"""By version, the types that this fold handles."""

_LIFECYCLE = {"Pause": "paused", "Resume": "active", "Terminate": "terminated"}


class RoleInterval(Struct):
    """An identity's role, and the event that assigned it."""

    bitmask: str
    from_seq: int
    since: int
    by: str
    event: str


class FoldState(Struct):
    """An enclave's state between two batches. Stored as JSON in the table `fold`."""

    manifest: str | None = None
    enc_v: int | None = None
    registry: bool = False
    creator: str | None = None
    created: int | None = None
    roles: dict[str, RoleInterval] = field(default_factory=dict)
    """By identity. Identities without any role are absent."""
    closed: list[str] = field(default_factory=list)
    """Closed gates."""
    slots: dict[str, str] = field(default_factory=dict)
    """`content_hash` by type, owner and key, as `_slot_name` writes them."""
    lifecycle: str = "active"
    lifecycle_seq: int | None = None
    sequencers: list[tuple[str, int]] = field(default_factory=list)
    refused: int = 0


Row = dict[str, Any]


class FoldResult(Struct):
    """Changed rows by key, in their current form. A slot without a value is deleted."""

    state: FoldState
    access: dict[tuple[str, int], Row] = field(default_factory=dict)
    slots: dict[tuple[str, str, str], Row] = field(default_factory=dict)
    enclave: Row | None = None
    refused: list[Row] = field(default_factory=list)


def fold(state: FoldState, events: Iterable[Event], enc_v: int | None = None, *, complete: bool = True) -> FoldResult:
    """Fold control events in order of seq into `state`, which is modified.

    `complete`: no earlier event is missing.
    """
    folded = FoldResult(state)
    step = _EnclaveFold(folded, complete)
    state.enc_v = state.enc_v or enc_v
    for event in events:
        step.apply(event)
    folded.enclave = step.enclave_row()
    return folded


class _StateLeaves(NoState):
    """The leaves that the rules read, taken from the state of the fold."""

    def __init__(self, state: FoldState) -> None:
        self.leaves: dict[bytes, bytes | None] = {}
        for identity, standing in state.roles.items():
            mask = int(standing.bitmask, 16).to_bytes(32, "big")
            self.leaves[identity_key(bytes.fromhex(identity))] = mask
        self.closed_gates = frozenset(state.closed)
        for name, digest in state.slots.items():
            type_, owner, key = name.split(" ", 2)
            self.leaves[_slot_key(type_, owner, key)] = bytes.fromhex(digest)

    def leaf(self, key: bytes) -> bytes | None:
        return self.leaves.get(key)


def _slot_key(type_: str, owner: str, key: str) -> bytes:
    return tree_key("kv", own_slot(bytes.fromhex(owner), key) if type_ == "Own" else shared_slot(key))


class _EnclaveFold:
    """One pass over an enclave's events."""

    def __init__(self, folded: FoldResult, complete: bool) -> None:
        self.folded, self.state, self.complete = folded, folded.state, complete
        self.policy: Policy | None = parse_manifest(self.state.manifest) if self.state.manifest is not None else None
        self.roles = _StateLeaves(self.state)

    def apply(self, event: Event) -> None:
        try:
            self._apply(event)
        except EncError as e:
            self._refuse(event, e)

    def _refuse(self, event: Event, error: EncError) -> None:
        self.state.refused += 1
        if self.complete:
            reason = f"the enclave's rules reject this {event.type}: {error.message}"
            row = {"seq": event.seq, "id": event.id.hex(), "code": error.code, "reason": reason}
            self.folded.refused.append(row)

    def _apply(self, event: Event) -> None:
        if event.type == "Manifest":
            self._apply_manifest(event)
            return
        self._check_lifecycle(event)
        draft = Draft(self.roles, event.sequencer)
        if self.policy is not None:
            self.policy.judge(event, draft)
        if event.type in ("Shared", "Own"):
            self._apply_slot(event)
        elif event.type == "Migrate":
            self._apply_migrate(event)
        elif event.type in _LIFECYCLE:
            self.state.lifecycle, self.state.lifecycle_seq = _LIFECYCLE[event.type], event.seq
        elif self.policy is not None:
            self._change_roles(event, self.policy.dialect.affected_identities(event), draft)
            self._change_gates(self.policy, draft)
        self.roles.leaves.update(draft.writes)

    def _apply_manifest(self, event: Event) -> None:
        policy = parse_manifest(event.content or "")
        self.policy, state = policy, self.state
        state.manifest, state.enc_v, state.registry = event.content, policy.enc_v, policy.registry
        state.creator, state.created = event.from_.hex(), event.timestamp
        state.sequencers = [(event.sequencer.hex(), 0)]
        draft = Draft(self.roles)
        policy.write_initial_state(draft)
        self._change_roles(event, policy.initial_members, draft)
        self.roles.leaves.update(draft.writes)

    def _check_lifecycle(self, event: Event) -> None:
        """Check the lifecycle like the state machine: nothing after Terminate, little while paused."""
        if self.state.lifecycle == "terminated":
            raise EnclaveTerminated("the enclave is terminated")
        if self.state.lifecycle == "paused" and event.type not in ("Resume", "Terminate", "Migrate"):
            raise EnclavePaused("the enclave is paused")
        if self.complete and self.state.lifecycle == "active" and event.type == "Resume":
            raise InvalidLifecycleState("the enclave is not paused")

    # Roles

    def _change_roles(self, event: Event, identities: Iterable[bytes], draft: Draft) -> None:
        for identity in dict.fromkeys(identities):
            bitmask = draft.bitmask(identity)
            before = self.state.roles.get(identity.hex())
            if bitmask == (int(before.bitmask, 16) if before else 0):
                continue
            if before is not None:
                del self.state.roles[identity.hex()]
                self._record_access(identity.hex(), before, event)
            if bitmask:
                now = RoleInterval(f"{bitmask:x}", event.seq, event.timestamp, event.from_.hex(), event.id.hex())
                self.state.roles[identity.hex()] = now
                self._record_access(identity.hex(), now, None)

    def _record_access(self, identity: str, standing: RoleInterval, until: Event | None) -> None:
        """Record an interval of `access`, open or ended by an event."""
        bitmask = int(standing.bitmask, 16)
        policy = self.policy
        self.folded.access[identity, standing.from_seq] = {
            "identity": identity,
            "state": policy.state_of(bitmask) if policy else "",
            "traits": list(policy.traits_of(bitmask)) if policy else [],
            "bitmask": standing.bitmask,
            "owner": policy.is_owner(bitmask) if policy else False,
            "from_seq": standing.from_seq,
            "to_seq": until.seq if until else None,
            "since": standing.since,
            "until": until.timestamp if until else None,
            "changed_by": standing.by,
            "event": standing.event,
        }

    def _change_gates(self, policy: Policy, draft: Draft) -> None:
        now = draft.closed_gates
        kept = [alias for alias in self.state.closed if alias in now]
        self.state.closed = [*kept, *(alias for alias in policy.gates if alias in now - self.roles.closed_gates)]
        self.roles.closed_gates = now

    # Slots

    def _apply_slot(self, event: Event) -> None:
        content = content_object(event)
        key, value = text_field(content, "key", "content"), content.get("value")
        owner = event.from_.hex() if event.type == "Own" else ""
        name = f"{event.type} {owner} {key}"
        if value is None:
            self.state.slots.pop(name, None)
        else:
            self.state.slots[name] = event.content_hash.hex()
        self.roles.leaves[_slot_key(event.type, owner, key)] = event.content_hash if value is not None else None
        self.folded.slots[event.type, owner, key] = {
            "kind": event.type,
            "owner": owner,
            "key": key,
            "value": None if value is None else compact_json(value),
            "content_hash": event.content_hash.hex(),
            "author": event.from_.hex(),
            "seq": event.seq,
            "id": event.id.hex(),
            "timestamp": event.timestamp,
        }

    # Sequencers

    def _apply_migrate(self, event: Event) -> None:
        """Apply a Migrate. The old sequencer hands over after it; a forced one starts with the
        Migrate itself.
        """
        new = parse_migrate(event).new_sequencer
        first = event.seq if event.sequencer == new else event.seq + 1
        kept = [each for each in self.state.sequencers if each[1] < first]
        self.state.sequencers = [*kept, (new.hex(), first)]

    def enclave_row(self) -> Row:
        state, policy = self.state, self.policy
        manifest = policy.manifest if policy else {}
        meta = manifest.get("meta")
        return {
            "enc_v": state.enc_v,
            "creator": state.creator,
            "created": state.created,
            "manifest": state.manifest,
            "meta": compact_json(meta) if meta is not None else None,
            "registry": state.registry,
            "lifecycle": state.lifecycle,
            "lifecycle_seq": state.lifecycle_seq,
            "closed_gates": sorted(state.closed),
            "sequencers": [{"sequencer": key, "from_seq": first} for key, first in state.sequencers],
            "refused": state.refused,
        }
