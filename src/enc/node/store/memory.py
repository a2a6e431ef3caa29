"""A store in dictionaries: for tests, and for nodes that need not outlive their process."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from enc.core.commit import auto_delete_at
from enc.core.content import revised_id
from enc.core.enclave import ClosedBundle, EnclaveState
from enc.core.event import erase, is_erasable
from enc.core.filter import Filter
from enc.core.memory import EnclaveMemory
from enc.core.state_key import DELETED
from enc.core.types import Event, Target, TreeHead
from enc.node.store.base import Found, Readable, Step


@dataclass
class _Enclave:
    state: EnclaveState
    memory: EnclaveMemory = field(default_factory=EnclaveMemory)
    events: list[Event] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)
    by_id: dict[bytes, int] = field(default_factory=dict)
    by_hash: dict[bytes, int] = field(default_factory=dict)
    statuses: dict[int, bytes] = field(default_factory=dict)
    heads: list[TreeHead] = field(default_factory=list)

    def take(self, step: Step) -> None:
        event = step.event
        self.state = step.transition.state
        self.memory.put(event, step.transition)
        self.heads += step.heads
        if event is None:
            return
        self.by_id[event.id] = self.by_hash[event.hash] = event.seq
        self.events.append(event)
        self.subjects.append(step.subject)
        for old in step.effects.supersedes:
            self.statuses[self.by_id[old]] = event.id
        if event.type == "Delete":
            self.statuses[self.by_id[revised_id(event)]] = DELETED
        for gone in step.effects.erases:
            self.erase(self.by_id[gone])

    def erase(self, seq: int) -> None:
        self.events[seq] = erase(self.events[seq])

    def found(self, seq: int) -> Found:
        status = self.statuses.get(seq)
        if status is None:
            return Found(self.events[seq], "active")
        return Found(self.events[seq], "deleted") if status == DELETED else Found(self.events[seq], "updated", status)


class MemoryStore:
    """A Store that forgets."""

    def __init__(self) -> None:
        self._enclaves: dict[bytes, _Enclave] = {}
        self._clock = 0

    def clock(self) -> int:
        return self._clock

    def write(self, steps: Sequence[Step], clock: int) -> None:
        self._clock = max(self._clock, clock)
        for step in steps:
            state = step.transition.state
            self._enclaves.setdefault(state.enclave, _Enclave(state)).take(step)

    def load(self, enclave: bytes) -> EnclaveState | None:
        found = self._enclaves.get(enclave)
        return found.state if found else None

    def enclaves(self) -> Iterator[bytes]:
        yield from sorted(self._enclaves)

    def overdue(self, clock: int) -> list[bytes]:
        states = [found.state for found in self._enclaves.values()]
        return [s.enclave for s in states if s.bundle and s.bundle.deadline(s.policy.bundle) <= clock]

    def read_node(self, enclave: bytes, node_hash: bytes) -> bytes:
        return self._enclaves[enclave].memory.read_node(node_hash)

    def read_hash(self, enclave: bytes, level: int, index: int) -> bytes:
        return self._enclaves[enclave].memory.read_hash(level, index)

    def target(self, enclave: bytes, event_id: bytes) -> Target | None:
        return self._enclaves[enclave].memory.target(event_id)

    def event(self, enclave: bytes, event_id: bytes) -> Found | None:
        found = self._enclaves.get(enclave)
        return found.found(found.by_id[event_id]) if found and event_id in found.by_id else None

    def committed(self, enclave: bytes, commit_hash: bytes) -> Event | None:
        found = self._enclaves.get(enclave)
        return found.events[found.by_hash[commit_hash]] if found and commit_hash in found.by_hash else None

    def events(self, enclave: bytes, first_seq: int, count: int) -> list[Event]:
        found = self._enclaves.get(enclave)
        return found.events[first_seq : first_seq + count] if found else []

    def find(self, enclave: bytes, filter_: Filter, readable: Readable) -> Iterator[Found]:
        found = self._enclaves.get(enclave)
        seqs = range(len(found.events) if found else 0)
        for seq in reversed(seqs) if filter_.reverse else seqs:
            assert found is not None  # noqa: S101
            item = found.found(seq)
            if (
                item.status != "deleted"
                and filter_.matches(item.event)
                and readable.admits(item.event, found.subjects[seq])
            ):
                yield item

    def bundle(self, enclave: bytes, index: int) -> ClosedBundle | None:
        bundles = self._enclaves[enclave].memory.bundles
        return bundles[index] if 0 <= index < len(bundles) else None

    def bundle_of(self, enclave: bytes, seq: int) -> ClosedBundle | None:
        bundles = self._enclaves[enclave].memory.bundles
        return next((b for b in bundles if b.first_seq <= seq < b.first_seq + b.count), None)

    def head(self, enclave: bytes, size: int | None = None) -> TreeHead | None:
        heads = self._enclaves[enclave].heads
        size = len(heads) if size is None else size
        return heads[size - 1] if 0 < size <= len(heads) else None

    def expired(self, clock: int, limit: int) -> list[tuple[bytes, bytes]]:
        due = [
            (when, enclave, event.id)
            for enclave, found in self._enclaves.items()
            for event in found.events
            if event.content is not None
            and is_erasable(event)
            and (when := auto_delete_at(event)) is not None
            and when <= clock
        ]
        return [(enclave, event_id) for _, enclave, event_id in sorted(due)[:limit]]

    def erase(self, enclave: bytes, event_id: bytes) -> None:
        found = self._enclaves[enclave]
        for event in found.events:
            if event.id == event_id or (event.type == "Update" and revised_id(event) == event_id):
                found.erase(event.seq)

    def purge(self, enclave: bytes) -> None:
        self._enclaves[enclave] = _Enclave(self._enclaves[enclave].state)

    def close(self) -> None:
        """Nothing to close."""
