"""Access control, version 2: State, trait, Context (docs/protocol.md, sections 11 to 16).

    bitmask    bits 0-7 the State (OUTSIDER 0, states[i] = i + 1), bit 8 + i trait i
    columns    what an actor is now: its State, its traits, and the Contexts that apply
    entry      one row of the manifest: on certain events it gives ops to certain columns, or denies them
    effective  the ops that some entry gives and no entry denies; an entry whose gate is closed does not count

Every commit is judged in this order: content, authorisation, state, rank. An empty policy allows
nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from itertools import compress
from typing import Any, ClassVar

from msgspec import Struct

from enc.core.errors import (
    GateClosed,
    InvalidCommit,
    InvalidStateForGrant,
    InvalidStateForTransfer,
    InvalidTransferTarget,
    RankInsufficient,
    StateMismatch,
    TraitAlreadyHeld,
    Unauthorized,
)
from enc.core.primitives.types import PREDEFINED, Commit, Target
from enc.core.rules.ac_bundle import judge_bundle, operations_of
from enc.core.rules.content import AC_OPERATIONS, check_endpoint, check_operation, content_object, text_field
from enc.core.rules.dialect import Dialect
from enc.core.rules.dialects import DialectV2
from enc.core.rules.policy_types import Draft, EndpointChange, EventKind, Reach, ReadScope, Subject
from enc.core.rules.revision import find_target, revise
from enc.core.rules.v2.manifest_parts import OUTSIDER, InitialMember, RuleEntry, Trait
from enc.core.rules.v2.rule_table import MAX_SETS, Rows, RuleTable, first_of, positions_of
from enc.core.trees.bundle import BundleConfig
from enc.core.trees.state_key import Namespace, own_slot, shared_slot, tree_key

_BITS = bytes.maketrans(b"01", bytes([0, 1]))
"""Makes a number in binary digits a list of selectors."""

MAX_SCOPES = 64
"""Cached read scopes of a policy: each takes an item for each type that the manifest names."""


class _Act(Struct, frozen=True):
    """One op that an actor attempts on a kind of event."""

    actor: bytes
    op: str
    subject: Subject
    contexts: frozenset[str] = frozenset()


class PolicyV2(Struct, frozen=True, kw_only=True, dict=True, weakref=True):
    """The rules of a version 2 manifest. Made by `parse_manifest`."""

    manifest: Mapping[str, Any]
    size: int = 0
    """Length of the Manifest's content."""
    states: tuple[str, ...]
    traits: Mapping[str, Trait]
    entries: tuple[RuleEntry, ...]
    gates: Mapping[str, frozenset[str]]
    init: tuple[InitialMember, ...]
    bundle: BundleConfig
    registry: bool = False

    enc_v = 2
    lifecycle_in_state = True
    predefined = PREDEFINED
    namespaces: ClassVar[tuple[Namespace, ...]] = ("rbac", "event_status", "kv")

    @property
    def content_types(self) -> frozenset[str]:
        return frozenset(row.event for row in self.entries if "C" in row.ops) - self.predefined

    # Reading a bitmask

    def state_of(self, bitmask: int) -> str:
        index = bitmask & 0xFF
        return self.states[index - 1] if 0 < index <= len(self.states) else OUTSIDER

    def with_state(self, bitmask: int, state: str, *, keep_traits: bool) -> int:
        index = 0 if state == OUTSIDER else self.states.index(state) + 1
        return (bitmask & ~0xFF if keep_traits else 0) | index

    def traits_of(self, bitmask: int) -> list[str]:
        return list(self._held(bitmask >> 8)[0])

    def rank_of(self, bitmask: int) -> int | None:
        """Return the smallest rank among the traits held; None without any."""
        return self._held(bitmask >> 8)[1]

    def columns_of(self, bitmask: int, contexts: Iterable[str] = ()) -> frozenset[str]:
        return frozenset([self.state_of(bitmask), *self._held(bitmask >> 8)[0], "Public", *contexts])

    @property
    def initial_members(self) -> tuple[bytes, ...]:
        return tuple(member.identity for member in self.init)

    @property
    def names(self) -> Mapping[str, list[str]]:
        ranked = [f"{name}({trait.rank})" for name, trait in self.traits.items()]
        return {"states": list(self.states), "traits": ranked}

    @cached_property
    def slots(self) -> Mapping[str, frozenset[str]]:
        return {
            type_: frozenset(entry.key for entry in self.entries if entry.event == type_ and entry.key is not None)
            for type_ in ("Shared", "Own")
        }

    @property
    def dialect(self) -> Dialect:
        return DialectV2()

    def is_owner(self, bitmask: int) -> bool:
        """Return whether this is a holder of trait `owner` or, if no such trait is declared, of
        State `OWNER`."""
        if "owner" in self.traits:
            return bool(bitmask >> self.traits["owner"].bit & 1)
        return self.state_of(bitmask) == "OWNER"

    def new_owners(self, commit: Commit) -> frozenset[bytes]:
        """Return the new owners, also from a bundle. Trait `owner` passes by a Transfer or a Grant,
        State `OWNER` by a Move."""
        if commit.type == "Manifest":
            return frozenset(member.identity for member in self.init if self.is_owner(self._first_bitmask(member)))
        if commit.type == "AC_Bundle":
            found = list(operations_of(commit, AC_OPERATIONS))
        elif commit.type in AC_OPERATIONS:
            found = [(commit.type, content_object(commit), "content")]
        else:
            found = []
        for operation in found:
            check_operation(*operation)
        return frozenset(bytes.fromhex(fields["target"]) for type_, fields, _ in found if self._gives(type_, fields))

    def _gives(self, type_: str, fields: dict[str, Any]) -> bool:
        if "owner" in self.traits:
            return type_ in ("Transfer", "Grant") and fields["trait"] == "owner"
        return type_ == "Move" and fields["to"] == "OWNER"

    # Evaluation

    @cached_property
    def _table(self) -> RuleTable:
        return RuleTable(self.entries)

    @cached_property
    def _held(self) -> Callable[[int], tuple[tuple[str, ...], int | None]]:
        """The names and the smallest rank of a set of traits, which is a bitmask without its State."""
        return lru_cache(MAX_SETS)(partial(_held, tuple(self.traits), [each.rank for each in self.traits.values()]))

    def _open_giving(self, op: str, subject: Subject, among: Rows) -> Rows:
        """Return which of these entries give the op on such an event; none if any of them denies it."""
        gives, denies = self._table.about(op, subject)
        return 0 if denies & among else gives & among

    def _closed(self, draft: Draft) -> Rows:
        """Return the entries whose gate is closed, as the draft's own Gates leave them."""
        if draft.closed_rows is None:
            draft.closed_rows = self._table.behind(draft.closed_gates)
        return draft.closed_rows

    def _authorise(self, act: _Act, draft: Draft) -> Rows:
        """Return the open entries that give the actor this op; raise Unauthorized or GateClosed if
        none does."""
        matching = self._table.of_columns(self.columns_of(draft.bitmask(act.actor), act.contexts))
        giving = self._open_giving(act.op, act.subject, matching & ~self._closed(draft))
        if giving:
            return giving
        would_give = self._open_giving(act.op, act.subject, matching)
        if would_give:
            alias = self.entries[first_of(would_give)].alias
            raise GateClosed(f"the gate {alias} is closed", alias=alias)
        raise Unauthorized(f"no entry of the manifest allows {act.op} on {act.subject.type}")

    def _check_rank(self, act: _Act, target: bytes, giving: Rows, draft: Draft) -> None:
        """Compare ranks. Only needed if the authority comes from traits alone and another holder of
        a trait is the target."""
        if act.actor == target or (target_rank := self.rank_of(draft.bitmask(target))) is None:
            return
        actor_mask = draft.bitmask(act.actor)
        if giving & self._table.of_columns(frozenset([self.state_of(actor_mask), "Public", *act.contexts])):
            return
        actor_rank = self.rank_of(actor_mask)
        if actor_rank is None or actor_rank >= target_rank:
            raise RankInsufficient("the target's rank is not below yours")

    # Judging

    def write_initial_state(self, draft: Draft) -> None:
        for member in self.init:
            draft.set_bitmask(member.identity, self._first_bitmask(member))

    def _first_bitmask(self, member: InitialMember) -> int:
        mask = self.with_state(0, member.state, keep_traits=False)
        for name in member.traits:
            mask |= 1 << self.traits[name].bit
        return mask

    def judge(self, commit: Commit, draft: Draft) -> None:
        if commit.type == "AC_Bundle":
            for _ in self.judge_operations(commit, draft):
                pass
        elif commit.type in ("Update", "Delete"):
            self._judge_revision(commit, draft)
        elif commit.type in AC_OPERATIONS:
            check_operation(commit.type, content := content_object(commit), "content")
            self._operate(commit.type, commit.from_, content, draft)
        elif commit.type in ("Shared", "Own"):
            self._judge_slot(commit, draft)
        elif commit.type == "Migrate":
            self._judge_migrate(commit, draft)
        else:
            if commit.type in ("Pause", "Resume", "Terminate"):
                content_object(commit, empty=True)
            self._authorise(_Act(commit.from_, "C", Subject(commit.type)), draft)

    def _operate(self, type_: str, actor: bytes, content: dict[str, Any], draft: Draft) -> None:
        """Judge one access-control operation, alone or inside an AC_Bundle."""
        if type_ == "Gate":
            self._gate(actor, content, draft)
            return
        target = bytes.fromhex(content["target"])
        if type_ == "Move":
            self._move(actor, target, content, draft)
        elif type_ == "Transfer":
            self._transfer(actor, target, content["trait"], draft)
        else:
            self._grant_or_revoke(type_, actor, target, content, draft)

    def _move(self, actor: bytes, target: bytes, content: dict[str, Any], draft: Draft) -> None:
        subject = Subject("Move", from_state=content["from"], to_state=content["to"])
        act = _Act(actor, "C", subject, _self(actor, target))
        giving = self._authorise(act, draft)
        mask = draft.bitmask(target)
        if (actual := self.state_of(mask)) != content["from"]:
            raise StateMismatch(
                f"the target is {actual}, not {content['from']}", expected=content["from"], actual=actual
            )
        self._check_rank(act, target, giving, draft)
        keep = bool(giving & self._table.preserving)
        if not keep and (lost := self.traits_of(mask)):
            draft.endpoints.append(EndpointChange(target, tuple(lost), None))
        draft.set_bitmask(target, self.with_state(mask, content["to"], keep_traits=keep))

    def _grant_or_revoke(self, type_: str, actor: bytes, target: bytes, content: dict[str, Any], draft: Draft) -> None:
        trait = content["trait"]
        act = _Act(actor, "C", Subject(type_, trait=trait), _self(actor, target))
        giving = self._authorise(act, draft)
        mask = draft.bitmask(target)
        giving &= self._table.in_scope(self.state_of(mask))
        if not giving:
            raise InvalidStateForGrant(f"{type_} of {trait} is not allowed for State {self.state_of(mask)}")
        self._check_rank(act, target, giving, draft)
        bit = 1 << self.traits[trait].bit
        if type_ == "Revoke":
            draft.set_bitmask(target, mask & ~bit)
            draft.endpoints.append(EndpointChange(target, (trait,), None))
            return
        draft.set_bitmask(target, mask | bit)
        if "endpoint" in content:
            check_endpoint(content["endpoint"], "endpoint")
            draft.endpoints.append(EndpointChange(target, (trait,), content["endpoint"]))

    def _transfer(self, actor: bytes, target: bytes, trait: str, draft: Draft) -> None:
        giving = self._authorise(_Act(actor, "C", Subject("Transfer", trait=trait)), draft)
        bit = 1 << self.traits[trait].bit
        if target == actor:
            raise InvalidTransferTarget("target: a trait cannot be transferred to oneself")
        mask = draft.bitmask(target)
        if mask & bit:
            raise TraitAlreadyHeld(f"the target already holds {trait}")
        if not giving & self._table.in_scope(self.state_of(mask)):
            raise InvalidStateForTransfer(f"{trait} cannot be transferred to State {self.state_of(mask)}")
        draft.set_bitmask(actor, draft.bitmask(actor) & ~bit)
        draft.set_bitmask(target, mask | bit)
        draft.endpoints.append(EndpointChange(actor, (trait,), None))

    def _gate(self, actor: bytes, content: dict[str, Any], draft: Draft) -> None:
        alias = content["alias"]
        if not self.gates.get(alias, frozenset()) & self.columns_of(draft.bitmask(actor)):
            raise Unauthorized(f"you may not open or close the gate {alias}")
        behind, closes = self._table.behind(frozenset([alias])), content["state"] == "closed"
        draft.closed_rows = self._closed(draft) | behind if closes else self._closed(draft) & ~behind
        draft.turn(alias, closes=closes)

    def judge_operations(self, commit: Commit, draft: Draft) -> Iterator[None]:
        def operate(operation: tuple[str, dict[str, Any]]) -> None:
            self._operate(operation[0], commit.from_, operation[1], draft)

        return judge_bundle(commit, AC_OPERATIONS, _checked, operate)

    def _judge_slot(self, commit: Commit, draft: Draft) -> None:
        """Judge a Shared or Own: C sets an unset slot, U a set one, D removes it. The slot holds
        the content's hash."""
        content = content_object(commit)
        key = text_field(content, "key", "content")
        if "value" not in content:
            raise InvalidCommit("content.value: missing; null deletes the slot")
        own = commit.type == "Own"
        slot = tree_key("kv", own_slot(commit.from_, key) if own else shared_slot(key))
        delete = content["value"] is None
        op = "D" if delete else "C" if draft.leaf(slot) is None else "U"
        contexts = frozenset(["Self"]) if own else frozenset[str]()
        self._authorise(_Act(commit.from_, op, Subject(commit.type, key=key), contexts), draft)
        draft.writes[slot] = None if delete else commit.content_hash

    def _judge_migrate(self, commit: Commit, draft: Draft) -> None:
        """Judge a Migrate: only an owner may, and by the manifest's entry if it has one."""
        if not self.is_owner(draft.bitmask(commit.from_)):
            raise Unauthorized("only the owner may Migrate")
        if self._table.names("C", "Migrate"):
            self._authorise(_Act(commit.from_, "C", Subject("Migrate")), draft)

    def _judge_revision(self, commit: Commit, draft: Draft) -> None:
        """Judge an Update or Delete: it needs U or D on the target's type."""
        target_id, target = find_target(commit, draft, PREDEFINED)
        contexts = frozenset(["Self", "Sender"]) if target.from_ == commit.from_ else frozenset[str]()
        self._authorise(_Act(commit.from_, commit.type[0], Subject(target.type), contexts), draft)
        revise(commit, target_id, draft)

    # Reading and delivery

    def subject(self, commit: Commit, target: Target | None) -> Subject:
        """Return the subject. An Update or Delete counts as its target's type, so that subscribers
        of a type get its edits."""
        if commit.type in ("Update", "Delete"):
            return Subject(target.type if target else commit.type)
        if commit.type not in ("Move", "Grant", "Revoke", "Transfer", "Shared", "Own"):
            return Subject(commit.type)
        content = content_object(commit)
        if commit.type == "Move":
            return Subject("Move", from_state=content["from"], to_state=content["to"])
        if commit.type in ("Shared", "Own"):
            return Subject(commit.type, key=content["key"])
        return Subject(commit.type, trait=content["trait"])

    def rights(
        self,
        subject: Subject,
        bitmask: int,
        *,
        is_author: bool,
        closed: frozenset[str],
        is_node: bool = False,
    ) -> frozenset[str]:
        """Return the rights. The sequencer has none as such: version 2 has no column `Node`."""
        columns = self.columns_of(bitmask, ("Self", "Sender") if is_author else ())
        among = self._table.of_columns(columns) & ~self._table.behind(closed)
        return frozenset(op for op in "RPN" if self._open_giving(op, subject, among))

    def read_scope(self, bitmask: int, closed: frozenset[str], *, is_node: bool = False) -> ReadScope:
        return self._scopes(self.columns_of(bitmask), closed)

    @cached_property
    def _scopes(self) -> Callable[[frozenset[str], frozenset[str]], ReadScope]:
        return lru_cache(MAX_SCOPES)(partial(_read_scope, self.entries, self._table))


def _held(names: Sequence[str], ranks: Sequence[int], held: int) -> tuple[tuple[str, ...], int | None]:
    bits = f"{held:b}"[::-1].encode().translate(_BITS)
    return tuple(compress(names, bits)), min(compress(ranks, bits), default=None)


def _read_scope(
    entries: Sequence[RuleEntry], table: RuleTable, columns: frozenset[str], closed: frozenset[str]
) -> ReadScope:
    open_ = table.reading & ~table.behind(closed)
    own = _extents(entries, open_ & table.of_columns(columns | {"Self", "Sender"}))
    others = _extents(entries, open_ & table.of_columns(columns))
    reaches = {
        type_: _reach(own.get(type_, own["*"]), others.get(type_, others["*"]))
        # An Update or Delete counts as its target's type, so an entry that names them has no effect.
        for type_ in (own.keys() | others.keys()) - {"*", "Update", "Delete"}
    }
    return ReadScope(reaches, _reach(own["*"], others["*"]))


def _extents(entries: Sequence[RuleEntry], rows: Rows) -> dict[str, Reach]:
    """Return how much of each type these entries let one read, in one pass over them; `*` is for
    other types."""
    gives, denies = defaultdict[str, set[EventKind]](set), defaultdict[str, set[EventKind]](set)
    for entry in (entries[i] for i in positions_of(rows)):
        for ops, found in ((entry.ops, gives), (entry.denies, denies)):
            if "R" in ops:
                found[entry.event] |= entry.kinds
    to_all = _extent(gives["*"], denies["*"])
    if None in denies["*"]:
        return {"*": to_all}
    everything, nothing = bool(gives["*"]), set[EventKind]()
    return {
        type_: _extent(gives.get(type_, nothing), denies.get(type_, nothing), everything)
        for type_ in gives.keys() | denies.keys()
    } | {"*": to_all}


def _extent(given: set[EventKind], denied: set[EventKind], everything: bool = False) -> Reach:
    """Return how much of a type may be read, by the kinds that entries give and deny; None is every
    kind."""
    everything = everything or None in given
    if None in denied or not (everything or given - denied):
        return "none"
    return "all" if everything and not denied else "some"


def _reach(own: Reach, others: Reach) -> Reach:
    if own == others:
        return own
    return "own" if (own, others) == ("all", "none") else "some"


def _checked(type_: str, operation: dict[str, Any], path: str) -> tuple[str, dict[str, Any]]:
    check_operation(type_, operation, path)
    return type_, operation


def _self(actor: bytes, target: bytes) -> frozenset[str]:
    return frozenset(["Self"]) if actor == target else frozenset()
