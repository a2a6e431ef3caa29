"""Access control, version 1: roles, bits, schema (docs/protocol.md, section 21).

    bitmask    one bit a role: Owner is bit 1, custom roles are bits 32, 33, …
    active     an actor's roles for one event: those it holds, Any, Node if it is the sequencer, Self if the event is
               about itself or its own event
    row        one entry of the schema: a role has ops on an event type; `*` is every type
    targets    for which roles a row gives C on Grant, Grant_Push, Revoke, Revoke_Self and Move

There are no denials, gates or ranks. Every commit is judged in this order: content, C (U, D),
state, target roles. An empty schema allows nothing but a Migrate by the Owner.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar

from msgspec import Struct

from enc.core.errors import BitmaskMismatch, OwnerBitProtected, OwnerSelfRevokeForbidden, Unauthorized
from enc.core.primitives.types import PREDEFINED_V1, Commit, Target
from enc.core.rules.ac_bundle import judge_bundle
from enc.core.rules.content import check_endpoint, content_object
from enc.core.rules.dialect import Dialect
from enc.core.rules.dialects import DialectV1
from enc.core.rules.policy_types import Draft, EndpointChange, Reach, ReadScope, Subject
from enc.core.rules.revision import find_target, revise
from enc.core.rules.v1.content import OPERATIONS, Operation, read_identity, read_operation, wire_bitmask
from enc.core.rules.v1.manifest_parts import ANY, EVERY_EVENT, NODE, OWNER, SELF, Assignment, SchemaEntry
from enc.core.trees.bundle import BundleConfig
from enc.core.trees.state_key import Namespace

MAX_SETS = 256
"""Cached lists of roles: one for each set of roles that is held."""


class PolicyV1(Struct, frozen=True, kw_only=True, dict=True, weakref=True):
    """The rules of a version 1 manifest. Made by `parse_manifest`."""

    manifest: Mapping[str, Any]
    size: int = 0
    """Length of the Manifest's content."""
    roles: Mapping[str, int]
    """The custom roles, each with its bit."""
    rows: tuple[SchemaEntry, ...]
    initial: tuple[Assignment, ...]
    bundle: BundleConfig
    registry: bool = False

    enc_v = 1
    lifecycle_in_state = False
    predefined = PREDEFINED_V1
    namespaces: ClassVar[tuple[Namespace, ...]] = ("rbac", "event_status")
    gates: ClassVar[Mapping[str, frozenset[str]]] = {}
    slots: ClassVar[Mapping[str, frozenset[str]]] = {"Shared": frozenset(), "Own": frozenset()}

    @property
    def content_types(self) -> frozenset[str]:
        return frozenset(row.event for row in self.rows if "C" in row.ops) - self.predefined

    # Reading a bitmask

    @cached_property
    def _assignable(self) -> Mapping[str, int]:
        """The roles that an identity can hold."""
        return {"Owner": OWNER, **self.roles}

    @cached_property
    def _bits(self) -> int:
        return sum(self._assignable.values())

    def state_of(self, bitmask: int) -> str:
        """Return "": version 1 has roles, but no States."""
        return ""

    def traits_of(self, bitmask: int) -> list[str]:
        """Return the names of the roles held, by rising bit."""
        return list(self._held(bitmask))

    @cached_property
    def _held(self) -> Callable[[int], tuple[str, ...]]:
        return lru_cache(MAX_SETS)(partial(_held, self._assignable))

    @property
    def initial_members(self) -> tuple[bytes, ...]:
        return tuple(dict.fromkeys(given.identity for given in self.initial))

    @property
    def names(self) -> Mapping[str, list[str]]:
        return {"roles": list(self._assignable)}

    @cached_property
    def dialect(self) -> Dialect:
        return DialectV1(self.roles)

    def is_owner(self, bitmask: int) -> bool:
        return bool(bitmask & OWNER)

    def new_owners(self, commit: Commit) -> frozenset[bytes]:
        """Return the new owners. Only a Transfer_Owner passes the ownership on."""
        if commit.type == "Manifest":
            return frozenset(given.identity for given in self.initial if given.role == "Owner")
        if commit.type == "Transfer_Owner":
            return frozenset([read_identity(content_object(commit), "new_owner", "content")])
        return frozenset()

    # Evaluation

    @cached_property
    def _given(self) -> Mapping[tuple[str, str], int]:
        """The roles that have an op on an event type, by the rows that name that type."""
        found = defaultdict[tuple[str, str], int](int)
        for row in self.rows:
            for op in row.ops:
                found[row.event, op] |= row.role
        return dict(found)

    @cached_property
    def _targets(self) -> Mapping[str, Mapping[int, int]]:
        """The roles for which each role has C on an event type: by event and acting role, the union
        of `target_roles`."""
        found = defaultdict[str, dict[int, int]](dict)
        for row in self.rows:
            if "C" in row.ops:
                found[row.event][row.role] = found[row.event].get(row.role, 0) | row.targets
        return dict(found)

    def _roles_with(self, op: str, type_: str) -> int:
        """Return the roles that have the op on events of a type."""
        return self._given.get((type_, op), 0) | self._given.get((EVERY_EVENT, op), 0)

    def _authorise(self, op: str, type_: str, active: int) -> None:
        if not self._roles_with(op, type_) & active:
            raise Unauthorized(f"no entry of the schema allows {op} on {type_}")

    def _check_targets(self, type_: str, bits: int, active: int) -> None:
        """Check that all these roles are among the target roles of rows that give the actor C."""
        for event in (type_, EVERY_EVENT):
            for role, targets in self._targets.get(event, {}).items():
                if role & active:
                    bits &= ~targets
        if bits:
            raise Unauthorized(f"no target_roles of the schema allow this {type_}")

    def _active_roles(self, actor: bytes, draft: Draft, *, is_self: bool = False) -> int:
        return _active_roles(draft.bitmask(actor), is_self=is_self, is_node=actor == draft.sequencer)

    # Judging

    def write_initial_state(self, draft: Draft) -> None:
        for given in self.initial:
            draft.set_bitmask(given.identity, draft.bitmask(given.identity) | self._assignable[given.role])
            if given.endpoint is not None:
                draft.endpoints.append(EndpointChange(given.identity, (given.role,), given.endpoint))

    def judge(self, commit: Commit, draft: Draft) -> None:
        if commit.type in ("Update", "Delete"):
            self._judge_revision(commit, draft)
        elif commit.type in OPERATIONS:
            self._operate(self._operation(commit, commit.type, content_object(commit), "content"), commit.from_, draft)
        elif commit.type == "AC_Bundle":
            for _ in self.judge_operations(commit, draft):
                pass
        elif commit.type == "Transfer_Owner":
            self._judge_transfer(commit, draft)
        elif commit.type == "Migrate":
            if not self.is_owner(draft.bitmask(commit.from_)):
                raise Unauthorized("only the Owner may Migrate")
        else:
            if commit.type in ("Pause", "Resume", "Terminate"):
                content_object(commit, empty=True)
            self._authorise("C", commit.type, self._active_roles(commit.from_, draft))

    def judge_operations(self, commit: Commit, draft: Draft) -> Iterator[None]:
        """Judge an AC_Bundle, which needs no entry of its own."""

        def operate(operation: Operation) -> None:
            self._operate(operation, commit.from_, draft)

        return judge_bundle(commit, OPERATIONS, partial(self._operation, commit), operate)

    def _operation(self, commit: Commit, type_: str, content: dict[str, Any], path: str) -> Operation:
        return read_operation(type_, content, path, actor=commit.from_, bits=self._bits)

    def _operate(self, operation: Operation, actor: bytes, draft: Draft) -> None:
        if operation.type == "Revoke_Self" and operation.role == "Owner":
            raise OwnerSelfRevokeForbidden("Owner role cannot be self-revoked")
        active = self._active_roles(actor, draft, is_self=actor == operation.identity)
        self._authorise("C", operation.type, active)
        if operation.type in ("Move", "Force_Move"):
            self._move(operation, active, draft)
        else:
            self._grant_or_revoke(operation, active, draft)

    def _grant_or_revoke(self, operation: Operation, active: int, draft: Draft) -> None:
        """Grant or revoke a role. Granting one that is held, or revoking one that is not, changes
        nothing."""
        # No target roles include Owner; an unknown role is treated like it, and so rejected.
        bit = self.roles.get(operation.role, OWNER)
        self._check_targets(operation.type, bit, active)
        bitmask = draft.bitmask(operation.identity)
        if operation.type in ("Revoke", "Revoke_Self"):
            self._set(operation.identity, bitmask & ~bit, draft)
            return
        if operation.type == "Grant_Push":
            check_endpoint(operation.endpoint, "endpoint")
            draft.endpoints.append(EndpointChange(operation.identity, (operation.role,), str(operation.endpoint)))
        self._set(operation.identity, bitmask | bit, draft)

    def _move(self, operation: Operation, active: int, draft: Draft) -> None:
        """Change an identity's roles. Force_Move skips the check of target roles, but never changes
        the Owner."""
        actual, changed = draft.bitmask(operation.identity), operation.from_ ^ operation.to
        if actual != operation.from_:
            raise BitmaskMismatch(
                "the identity has other roles", expected=wire_bitmask(operation.from_), actual=wire_bitmask(actual)
            )
        if OWNER & (changed if operation.type == "Move" else operation.from_ | operation.to):
            raise OwnerBitProtected(f"Owner role cannot be modified by {operation.type}")
        if operation.type == "Move":
            self._check_targets("Move", changed, active)
        self._set(operation.identity, operation.to, draft)

    def _judge_transfer(self, commit: Commit, draft: Draft) -> None:
        """Judge a Transfer_Owner. To oneself, it changes nothing. The new Owner keeps its other
        roles."""
        new_owner = read_identity(content_object(commit), "new_owner", "content")
        self._authorise("C", "Transfer_Owner", self._active_roles(commit.from_, draft))
        if not self.is_owner(draft.bitmask(commit.from_)):
            raise Unauthorized("only the Owner may transfer the ownership")
        if new_owner != commit.from_:
            self._set(commit.from_, draft.bitmask(commit.from_) & ~OWNER, draft)
            self._set(new_owner, draft.bitmask(new_owner) | OWNER, draft)

    def _set(self, identity: bytes, bitmask: int, draft: Draft) -> None:
        """Write the roles if they change. Losing a role also removes its endpoint."""
        before = draft.bitmask(identity)
        if bitmask != before:
            draft.set_bitmask(identity, bitmask)
            if lost := self.traits_of(before & ~bitmask):
                draft.endpoints.append(EndpointChange(identity, tuple(lost), None))

    def _judge_revision(self, commit: Commit, draft: Draft) -> None:
        """Judge an Update or Delete: it needs U or D on the target's type."""
        target_id, target = find_target(commit, draft, PREDEFINED_V1)
        active = self._active_roles(commit.from_, draft, is_self=commit.from_ == target.from_)
        self._authorise(commit.type[0], target.type, active)
        revise(commit, target_id, draft)

    # Reading and delivery

    def subject(self, commit: Commit, target: Target | None) -> Subject:
        """Return the subject. An Update or Delete counts as its target's type, so that subscribers
        of a type get its edits."""
        revises = commit.type in ("Update", "Delete")
        return Subject(target.type if revises and target else commit.type)

    def rights(
        self,
        subject: Subject,
        bitmask: int,
        *,
        is_author: bool,
        closed: frozenset[str],
        is_node: bool = False,
    ) -> frozenset[str]:
        active = _active_roles(bitmask, is_self=is_author, is_node=is_node)
        return frozenset(op for op in "RPN" if self._roles_with(op, subject.type) & active)

    def read_scope(self, bitmask: int, closed: frozenset[str], *, is_node: bool = False) -> ReadScope:
        active = _active_roles(bitmask, is_self=False, is_node=is_node)
        # An Update or Delete counts as its target's type, so a row that names them has no effect.
        types = {event for event, op in self._given if op == "R"} - {EVERY_EVENT, "Update", "Delete"}
        reaches = {type_: _reach(self._roles_with("R", type_), active) for type_ in types}
        return ReadScope(reaches, _reach(self._given.get((EVERY_EVENT, "R"), 0), active))


def _held(roles: Mapping[str, int], bitmask: int) -> tuple[str, ...]:
    return tuple([name for name, bit in roles.items() if bitmask & bit])


def _active_roles(bitmask: int, *, is_self: bool, is_node: bool) -> int:
    """Return all roles that apply: those held, and Any, Self and Node as they apply to this
    event."""
    return bitmask | ANY | (SELF if is_self else 0) | (NODE if is_node else 0)


def _reach(who: int, active: int) -> Reach:
    if who & active:
        return "all"
    return "own" if who & SELF else "none"
