"""A store in dictionaries, for tests."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from msgspec.json import encode
from msgspec.structs import replace

from enc.core.errors import Duplicate, EnclaveExists, EventNotFound, ReplayFailed
from enc.core.log.commit import auto_delete_at
from enc.core.log.event import erase, is_erasable, wire_event
from enc.core.log.filter import Filter
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.state import ClosedBundle, EnclaveState
from enc.core.primitives.types import Commit, Event, KeyRecord, RecordKind, Target, TreeHead, Withheld
from enc.core.rules.content import revised_id
from enc.core.rules.policy_types import Policy
from enc.core.trees.state_key import DELETED
from enc.node.store import spent_requests
from enc.node.store.events import EventWithStatus, RawEvent, SearchItem, search_item
from enc.node.store.restrictions import Restriction, RestrictionKind, RestrictionStore
from enc.node.store.spent_requests import SpentRequest, check_unspent, too_many_spent
from enc.node.store.steps import AppendRun, Step
from enc.node.store.store_interface import Charge, ReadRights, Usage
from enc.node.store.withheld_store import WithheldContent, WithheldEvent
from enc.testing.memory_push import PushMemory


@dataclass
class _Enclave:
    state: EnclaveState
    memory: EnclaveMemory = field(default_factory=EnclaveMemory)
    events: list[Event] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)
    by_id: dict[bytes, int] = field(default_factory=dict)
    by_hash: dict[tuple[bytes, int], int] = field(default_factory=dict)
    statuses: dict[int, bytes] = field(default_factory=dict)
    heads: list[TreeHead | None] = field(default_factory=list)
    terminated_at: int | None = None
    purged: bool = False
    charges: tuple[Charge, ...] = ()
    withheld: dict[int, WithheldContent] = field(default_factory=dict)

    def take(self, step: Step) -> None:
        event = step.event
        self.state = step.transition.state
        self.memory.put(event, step.transition)
        self.heads += step.heads
        if event is None:
            return
        self.by_id[event.id] = self.by_hash[event.hash, event.exp] = event.seq
        self.events.append(event)
        self.subjects.append(step.subject)
        for old in step.effects.supersedes:
            self.statuses[self.by_id[old]] = event.id
        if event.type == "Delete":
            self.statuses[self.by_id[revised_id(event)]] = DELETED
        for gone in step.effects.erases:
            self.erase(gone)
        if step.effects.lifecycle == "terminated":
            self.terminated_at = event.timestamp

    def erase(self, event_id: bytes) -> None:
        seq = self.by_id[event_id]
        self.events[seq] = erase(self.events[seq])
        self.withheld.pop(seq, None)

    def withhold(self, seq: int, statement: Withheld | None, own: WithheldContent) -> None:
        self.events[seq] = replace(self.events[seq], content=None, withheld=statement)
        self.withheld[seq] = own

    def carry_over(self, old: "_Enclave") -> None:
        """Withhold again what is withheld in the log that this one replaces."""
        for seq, own in old.withheld.items():
            before, event = old.events[seq], next(iter(self.events[seq : seq + 1]), None)
            if event and event.id == before.id and (event.content is not None or event.withheld is not None):
                self.withhold(seq, before.withheld, own)

    @property
    def size(self) -> int:
        """Bytes of the events, as wire JSON, of contents kept aside, and of the tree nodes."""
        nodes = self.memory.tree_nodes.items()
        aside = {seq: own.content for seq, own in self.withheld.items()}
        whole = (replace(each, content=aside.get(each.seq, each.content), withheld=None) for each in self.events)
        return sum(len(encode(wire_event(event))) for event in whole) + sum(len(h) + len(n) for h, n in nodes)

    def found(self, seq: int) -> EventWithStatus:
        status = self.statuses.get(seq)
        if status is None:
            return EventWithStatus(self.events[seq], "active")
        return (
            EventWithStatus(self.events[seq], "deleted")
            if status == DELETED
            else EventWithStatus(self.events[seq], "updated", status)
        )

    def goes_at(self, event: Event) -> int | None:
        """Return when the content is to be erased: by the event's own tag or, for an Update, by its
        target's.
        """
        own = self.withheld.get(event.seq)
        if event.content is None and (own is None or own.content is None):
            return None
        if not is_erasable(event, self.state.policy.predefined):
            return None
        whose = [event, self.events[self.by_id[revised_id(event)]]] if event.type == "Update" else [event]
        return min((when for each in whose if (when := auto_delete_at(each)) is not None), default=None)


class MemoryRestrictions:
    """A RestrictionStore in a dictionary."""

    def __init__(self) -> None:
        self._all: dict[tuple[RestrictionKind, str], Restriction] = {}

    def read_all(self) -> list[Restriction]:
        return list(self._all.values())

    def find(self, kind: RestrictionKind, target: str) -> Restriction | None:
        return self._all.get((kind, target))

    def put(self, restriction: Restriction) -> None:
        self._all[restriction.kind, restriction.target] = restriction

    def remove(self, kind: RestrictionKind, targets: Sequence[str]) -> None:
        for target in targets:
            self._all.pop((kind, target), None)


class MemoryStaging:
    """A Staging of a MemoryStore: an enclave that is not visible yet."""

    def __init__(self, store: "MemoryStore", enclave: bytes, held: int) -> None:
        self._store, self._enclave, self._held = store, enclave, held
        self.name = os.urandom(32)
        self.size = 0
        self._steps: list[Step] = []

    @property
    def _staged(self) -> _Enclave:
        return self._store._staged[self.name]

    def write(self, steps: Sequence[Step | AppendRun]) -> None:
        for step in chain.from_iterable(step.steps() if isinstance(step, AppendRun) else [step] for step in steps):
            staged = self._store._staged.setdefault(self.name, _Enclave(step.transition.state))
            event = step.event
            if event is not None and (event.hash, event.exp) in staged.by_hash:
                raise ReplayFailed(event.seq, Duplicate("the commit is already in the log"))
            staged.take(step)
            self._steps.append(step)
            if event is not None and event.seq > self._held:
                self.size += len((event.content or "").encode())

    def target(self, event_id: bytes) -> Target | None:
        return self._store._memory(self.name).target(event_id)

    def rest(self, clock: int) -> bool:
        for event in self._staged.events:
            when = self._staged.goes_at(event)
            if when is not None and when <= clock:
                self._staged.erase(event.id)
        return False

    def adopt(self, state: EnclaveState, payer: bytes, clock: int) -> None:
        store, old, staged = self._store, self._store._all.get(self._enclave), self._staged
        if (old is None) != (self._held < 0):
            raise EnclaveExists("the enclave was created or removed while its log was imported")
        more = (Charge(self._held + 1, state.seq, payer),) if state.seq > self._held else ()
        staged.state, staged.charges = state, (old.charges if old else ()) + more
        if old is not None:
            staged.carry_over(old)
        store._all[self._enclave] = store._staged.pop(self.name)
        store._again(self._enclave, self._steps)
        store._clock = max(store._clock, clock)
        used = store.usage(payer)
        events = state.seq - self._held
        store._used[payer] = Usage(used.enclaves + (old is None), used.events + events, used.bytes + self.size)

    def drop(self) -> None:
        self._store._staged.pop(self.name, None)


class MemoryStore(PushMemory):
    """A Store that does not outlive its process."""

    def __init__(self) -> None:
        super().__init__()
        self._all: dict[bytes, _Enclave] = {}
        self._used: dict[bytes, Usage] = {}
        self._clock = 0
        self._staged: dict[bytes, _Enclave] = {}
        self._spent: dict[bytes, SpentRequest] = {}
        self.restrictions: RestrictionStore = MemoryRestrictions()
        self._ordered: set[bytes] = set()
        """Enclaves that were purged by order."""

    def _get(self, enclave: bytes) -> _Enclave | None:
        found = self._all.get(enclave)
        return None if found is None or found.purged else found

    def write(self, steps: Sequence[Step], clock: int) -> None:
        self._clock = max(self._clock, clock)
        for step in steps:
            state = step.transition.state
            self._all.setdefault(state.enclave, _Enclave(state)).take(step)
            if step.event is not None:
                self._charge(step.event)
                self._push(step)

    def write_nodes(self, enclave: bytes, nodes: Sequence[tuple[bytes, bytes]]) -> None:
        self._all[enclave].memory.tree_nodes.update(nodes)

    def _charge(self, event: Event) -> None:
        used = self.usage(event.from_)
        size = len((event.content or "").encode())
        self._used[event.from_] = Usage(used.enclaves + (event.type == "Manifest"), used.events + 1, used.bytes + size)

    def clock(self) -> int:
        return self._clock

    def shown(self) -> int:
        return self._clock

    def restored(self) -> str:
        return ""

    def usage(self, identity: bytes) -> Usage:
        return self._used.get(identity, Usage())

    def size(self, enclave: bytes) -> int:
        found = self._get(enclave) or self._staged.get(enclave)
        return 0 if found is None else found.size

    def largest_size(self) -> int:
        return max((found.size for found in self._all.values()), default=0)

    def reusable(self) -> int:
        return 0

    def spend(self, request: SpentRequest, clock: int) -> None:
        self._clock = max(self._clock, clock)
        kept = [each for each in self._spent.values() if each.until > clock]
        own = [each for each in kept if each.identity == request.identity]
        wait = min((each.until for each in own or kept), default=clock) - clock
        check_unspent(request.digest in self._spent, len(own), wait)
        if len(kept) >= spent_requests.MAX_SPENT:
            raise too_many_spent(wait)
        self._spent = {each.digest: each for each in [*kept, request]}

    # Enclaves

    def load(self, enclave: bytes, policy: Policy | None = None) -> EnclaveState | None:
        found = self._all.get(enclave)
        return found.state if found else None

    def manifest(self, enclave: bytes) -> str | None:
        found = self._all.get(enclave)
        return found.events[0].content if found else None

    def count(self) -> int:
        return sum(not found.purged for found in self._all.values())

    def enclaves(self) -> Iterator[bytes]:
        yield from sorted(self._ordered.union(self._all))

    def overdue(self, clock: int, limit: int) -> list[bytes]:
        states = [found.state for found in self._all.values() if not found.purged]
        due = [(s.bundle.deadline(s.policy.bundle), s.enclave) for s in states if s.bundle]
        return [enclave for deadline, enclave in sorted(due) if deadline <= clock][:limit]

    # What lies behind a state

    def _memory(self, enclave: bytes) -> EnclaveMemory:
        found = self._get(enclave) or self._staged.get(enclave)
        return found.memory if found else EnclaveMemory()

    def read_node(self, enclave: bytes, node_hash: bytes) -> bytes:
        return self._memory(enclave).read_node(node_hash)

    def read_hash(self, enclave: bytes, level: int, index: int) -> bytes:
        return self._memory(enclave).read_hash(level, index)

    def target(self, enclave: bytes, event_id: bytes) -> Target | None:
        return self._memory(enclave).target(event_id)

    # A registry's records

    def record(self, enclave: bytes, kind: RecordKind, key: bytes) -> KeyRecord | None:
        return self._memory(enclave).record(kind, key)

    def record_of(self, enclave: bytes, event_id: bytes) -> KeyRecord | None:
        return self._memory(enclave).record_of(event_id)

    def listed(
        self, enclave: bytes, after: bytes, limit: int, *, app: str | None = None, creator: bytes | None = None
    ) -> list[KeyRecord]:
        records = (record for (_, _), record in sorted(self._memory(enclave).records.items()))
        return [
            record
            for record in records
            if record.kind == "enclave" and record.entry is not None and record.key > after
            if (record.creator == creator if creator is not None else app in (None, record.app))
        ][:limit]

    # Events

    def event(self, enclave: bytes, event_id: bytes) -> EventWithStatus | None:
        found = self._get(enclave)
        return found.found(found.by_id[event_id]) if found and event_id in found.by_id else None

    def committed(self, enclave: bytes, commit_hash: bytes, exp: int) -> Event | None:
        found = self._get(enclave)
        seq = found.by_hash.get((commit_hash, exp)) if found else None
        return found.events[seq] if found and seq is not None else None

    def committed_among(self, commits: Sequence[Commit]) -> dict[bytes, Event]:
        found = ((commit.hash, self.committed(commit.enclave, commit.hash, commit.exp)) for commit in commits)
        return {commit_hash: event for commit_hash, event in found if event is not None}

    def events(self, enclave: bytes, first_seq: int, count: int) -> list[Event]:
        found = self._get(enclave)
        return found.events[first_seq : first_seq + count] if found else []

    def items(self, enclave: bytes, first_seq: int, count: int) -> list[RawEvent]:
        found = self._get(enclave)
        events = self.events(enclave, first_seq, count)
        return [
            RawEvent(event.seq, event.type, found.subjects[event.seq], event.from_, b"", encode(wire_event(event))[:-1])
            for event in events
            if found
        ]

    def ids(self, enclave: bytes, first_seq: int, count: int) -> list[bytes]:
        return [event.id for event in self.events(enclave, first_seq, count)]

    def find(self, enclave: bytes, filter_: Filter, readable: ReadRights) -> Iterator[SearchItem]:
        found = self._get(enclave)
        if found is None:
            return
        seqs = range(len(found.events))
        for seq in reversed(seqs) if filter_.reverse else seqs:
            item, subject = found.found(seq), found.subjects[seq]
            if item.status != "deleted" and filter_.matches(item.event) and readable.admits(item.event, subject):
                yield search_item(item.event, item.updated_by)

    def find_in_steps(self, enclave: bytes, filter_: Filter, readable: ReadRights) -> Iterator[Sequence[SearchItem]]:
        return ((item,) for item in self.find(enclave, filter_, readable))

    # Bundles and heads

    def bundle(self, enclave: bytes, index: int) -> ClosedBundle | None:
        bundles = self._memory(enclave).bundles
        return bundles[index] if 0 <= index < len(bundles) else None

    def bundle_of(self, enclave: bytes, seq: int) -> ClosedBundle | None:
        bundles = self._memory(enclave).bundles
        return next((b for b in bundles if b.first_seq <= seq < b.first_seq + b.count), None)

    def head(self, enclave: bytes, size: int | None = None) -> TreeHead | None:
        found = self._get(enclave)
        heads = found.heads if found else []
        size = len(heads) if size is None else size
        return heads[size - 1] if 0 < size <= len(heads) else None

    # Erasure by time

    def expired(self, clock: int, limit: int) -> list[tuple[bytes, bytes]]:
        due = [
            (when, enclave, event.seq, event.id)
            for enclave, found in self._all.items()
            for event in found.events
            if (when := found.goes_at(event)) is not None and when <= clock
        ]
        return [(enclave, event_id) for _, enclave, _, event_id in sorted(due)[:limit]]

    def erase(self, due: Sequence[tuple[bytes, bytes]]) -> None:
        for enclave, event_id in due:
            found = self._get(enclave)
            if found is None:
                continue
            for event in found.events:
                if event.id == event_id or (event.type == "Update" and revised_id(event) == event_id):
                    found.erase(event.id)

    # Withheld contents

    def enclave_of(self, event_id: bytes) -> bytes | None:
        return next((each for each, found in self._all.items() if event_id in found.by_id), None)

    def withhold(self, enclave: bytes, event_id: bytes, statement: Withheld, note: str, *, keep: bool) -> None:
        found, seq = self._place(enclave, event_id)
        event, own = found.events[seq], found.withheld.get(seq)
        content = event.content if own is None else own.content
        found.withhold(seq, statement, WithheldContent(content if keep else None, note))

    def unwithhold(self, enclave: bytes, event_id: bytes) -> None:
        found, seq = self._place(enclave, event_id)
        found.events[seq] = replace(found.events[seq], content=found.withheld.pop(seq).content, withheld=None)

    def _place(self, enclave: bytes, event_id: bytes) -> tuple[_Enclave, int]:
        found = self._get(enclave)
        if found is None or event_id not in found.by_id:
            raise EventNotFound("event: not in this enclave")
        return found, found.by_id[event_id]

    def withheld_content(self, enclave: bytes, event_id: bytes) -> WithheldContent | None:
        found = self._get(enclave)
        return None if found is None else found.withheld.get(found.by_id.get(event_id, -1))

    def withheld_events(self, skip: int, limit: int) -> list[WithheldEvent]:
        return [
            WithheldEvent(enclave, event.seq, event.id, event.withheld, found.withheld.get(event.seq))
            for enclave, found in self._all.items()
            for event in found.events
            if event.withheld is not None
        ][skip : skip + limit]

    def terminated(self, before: int, limit: int) -> list[bytes]:
        due = [
            (found.terminated_at, enclave)
            for enclave, found in self._all.items()
            if found.terminated_at is not None and found.terminated_at <= before and not found.purged
        ]
        return [enclave for _, enclave in sorted(due)[:limit]]

    def purge(self, enclave: bytes, limit: int = 10_000) -> bool:
        """Delete everything at once, which costs nothing here."""
        found = self._get(enclave)
        if found is not None:
            self._all[enclave] = _Enclave(found.state, terminated_at=found.terminated_at, purged=True)
            self._forget(enclave)
            charged = [charge.identity for charge in found.charges if not charge.first_seq]
            used = self.usage(creator := (charged or [found.events[0].from_])[0])
            self._used[creator] = Usage(used.enclaves - 1, used.events, used.bytes)
        return True

    def purge_by_order(self, enclave: bytes, order: Restriction) -> None:
        """Delete everything at once, as `purge` does."""
        found = self._get(enclave)
        self.purge(enclave)
        if found is not None:
            del self._all[enclave]
        self._ordered.add(enclave)
        self.restrictions.put(order)

    # Logs on their way in

    def stage(self, enclave: bytes, held: int = -1) -> MemoryStaging:
        return MemoryStaging(self, enclave, held)

    def charges(self, enclave: bytes) -> tuple[Charge, ...]:
        found = self._get(enclave)
        return found.charges if found else ()

    def delete_orphans(self, before: int, limit: int = 10_000) -> bool:
        """Return True: abandoned imports are deleted at once."""
        return True

    def has(self, enclave: bytes) -> bool:
        return enclave in self._all or enclave in self._ordered

    def is_purged(self, enclave: bytes) -> bool:
        found = self._all.get(enclave)
        return enclave in self._ordered or (found is not None and found.purged)

    def close(self) -> None:
        """Do nothing."""
