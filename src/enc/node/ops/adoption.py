"""Compares a restored store with what others have of its node's enclaves.

Whoever has a larger log, another log of the same size, or an enclave that the store lacks, has
something that the node signed, or that an owner did, after the copy was made. A node that continued
from the copy would contradict it.
"""

from collections.abc import Collection, Iterable

from msgspec import Struct

from enc.core.errors import InvalidArchive
from enc.core.log.event import check_sequenced
from enc.core.machine.state import EnclaveState
from enc.core.primitives.types import Event
from enc.core.rules.content import parse_migrate
from enc.node.store.store_interface import Store

PAGE = 1000
"""Events that are compared at once."""


class LogAsCopied(Struct, frozen=True):
    """How much of the node's logs a store has."""

    enclaves: int
    open_bundles: int
    """Enclaves whose last events are in no bundle yet: no witness can know whether there were more."""
    newest: int
    """Timestamp of the newest event, in Unix milliseconds; 0 without an enclave."""


class StoreComparison:
    """A restored store, and the key of its node. Each method returns in words what is newer
    elsewhere, or None.
    """

    def __init__(self, store: Store, seq_pub: bytes, lost: Collection[bytes] = ()) -> None:
        """`lost`: enclaves that the store lacks as a whole, and that the node never signs for again."""
        self._store, self.seq_pub, self.lost = store, seq_pub, lost

    def extent(self) -> LogAsCopied:
        """Return what the store has of the enclaves whose sequencer the node is."""
        enclaves = open_bundles = newest = 0
        for enclave in self._store.enclaves():
            state = self._store.load(enclave)
            if state is None or state.sequencer != self.seq_pub or self._store.is_purged(enclave):
                continue
            (last,) = self._store.events(enclave, state.seq, 1)
            enclaves, newest = enclaves + 1, max(newest, last.timestamp)
            open_bundles += state.bundle is not None
        return LogAsCopied(enclaves, open_bundles, newest)

    def lacks(self, enclave: bytes) -> bool:
        """Return whether the store has nothing of the enclave."""
        return self._store.load(enclave) is None

    def concerns(self, enclave: bytes, sequencer: bytes) -> bool:
        """Return whether the node signs for this enclave: now, according to the store, or according
        to the other side, which names this sequencer.
        """
        if sequencer == self.seq_pub:
            return True
        state = self._store.load(enclave)
        return state is not None and state.sequencer == self.seq_pub

    def check_root(self, enclave: bytes, sequencer: bytes, size: int, root: bytes | None) -> str | None:
        """Compare with a log of `size` bundles. `root`: its root there, if it is known."""
        state = self._state(enclave, sequencer)
        if not isinstance(state, EnclaveState):
            return state
        if size > state.log.size:
            return f"a log of {size} bundles; this store has {state.log.size}"
        head = self._store.head(enclave, size) if size and root is not None else None
        return f"another log of {size} bundles" if head is not None and head.r != root else None

    def check_move(self, enclave: bytes, sequencer: bytes, moved_at: int) -> str | None:
        """Compare with a sequencer that others name, since the Migrate with seq `moved_at`, or from
        the Manifest on if that is negative.
        """
        state = self._state(enclave, sequencer)
        if not isinstance(state, EnclaveState) or state.sequencer == sequencer:
            return state if isinstance(state, str) else None
        for event in self._store.events(enclave, max(moved_at, 0), 1):
            if sequencer == (event.sequencer if moved_at < 0 else _migrated_to(event)):
                return None  # an earlier sequencer
        return f"a move to {sequencer.hex()}"

    def check_events(self, enclave: bytes, events: Iterable[Event]) -> str | None:
        """Compare with the events of an archive, from event 0 on. What is newer there must be signed."""
        if self._store.is_purged(enclave) or enclave in self.lost:
            return None
        state = self._store.load(enclave)
        ids: list[bytes] = []
        for seq, event in enumerate(events):
            if event.seq != seq:
                raise InvalidArchive(f"event {event.seq}: expected event {seq}")
            if seq % PAGE == 0:
                ids = self._store.ids(enclave, seq, PAGE)
            if seq % PAGE < len(ids) and ids[seq % PAGE] == event.id:
                continue
            if self.concerns(enclave, event.sequencer):
                check_sequenced(event)
                if state is None or seq > state.seq:
                    return f"event {seq}; this store has {_extent(state)}"
                return f"another event {seq}"
        return None

    def _state(self, enclave: bytes, sequencer: bytes) -> EnclaveState | str | None:
        """Return the enclave's state; or what to say if the store lacks it; or None if nothing is to
        be compared.
        """
        state = self._store.load(enclave)
        if state is None:
            is_lacking = sequencer == self.seq_pub and enclave not in self.lost
            return "an enclave that this store lacks" if is_lacking else None
        if self._store.is_purged(enclave) or not self.concerns(enclave, sequencer):
            return None
        return state


def _migrated_to(event: Event) -> bytes | None:
    return parse_migrate(event).new_sequencer if event.type == "Migrate" else None


def _extent(state: EnclaveState | None) -> str:
    return "no such enclave" if state is None else f"events up to {state.seq}"
