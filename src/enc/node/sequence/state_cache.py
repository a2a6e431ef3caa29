"""A cache of the durable states of enclaves in use.

The sequencer puts a state here after it is on disk; readers find it here or load it. An enclave
that is not used leaves memory and costs only disk.
"""

import threading
from collections import OrderedDict
from weakref import WeakValueDictionary

from enc.core.machine.state import EnclaveState
from enc.core.rules.manifest_header import read_version
from enc.core.rules.policy_types import Policy
from enc.node.store.store_interface import Store

CAPACITY = 2048
"""Maximum number of cached states."""
MAX_WEIGHT = 4 << 20
"""Maximum size of the Manifests of cached states: a policy may take sixty times its Manifest's size
in memory.
"""


class _Load:
    """A state that a thread is loading."""

    def __init__(self, enclave: bytes) -> None:
        self.enclave, self.is_stale = enclave, False


class StateCache:
    """Durable states by enclave. Safe to use from any thread."""

    def __init__(self, store: Store, capacity: int = CAPACITY) -> None:
        self._store, self._capacity = store, capacity
        self._states: OrderedDict[bytes, EnclaveState] = OrderedDict()
        self._policies: WeakValueDictionary[bytes, Policy] = WeakValueDictionary()
        """The rules of enclaves that are still referred to, also if their state was dropped. They never
        change.
        """
        self._weights: dict[bytes, int] = {}
        self._weight = 0
        self._loads: list[_Load] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, enclave: bytes) -> bool:
        """Return whether `get` need not parse the enclave's Manifest."""
        return enclave in self._states or enclave in self._policies

    def get(self, enclave: bytes) -> EnclaveState | None:
        """Return the state after the latest durable step; None if the enclave does not exist here."""
        with self._lock:
            state = self._states.get(enclave)
            if state is not None:
                self._states.move_to_end(enclave)
                return state
            load = _Load(enclave)
            self._loads.append(load)
        try:
            loaded = self._store.load(enclave, self._policies.get(enclave))
            with self._lock:
                if not load.is_stale:
                    return None if loaded is None else self._put(loaded)
        finally:
            with self._lock:
                self._loads.remove(load)
        return self.get(enclave)

    def version(self, enclave: bytes) -> int | None:
        """Return the version of the enclave's rules without loading its state; None if it does not
        exist here.
        """
        state = self._states.get(enclave)
        if state is not None:
            return state.policy.enc_v
        manifest = self._store.manifest(enclave)
        return None if manifest is None else read_version(manifest)

    def forget(self, enclave: bytes) -> None:
        """Drop a state, so that it is loaded again: it was changed elsewhere, or a write that was
        reported as failed may have reached the disk.
        """
        with self._lock:
            self._outdate_loads(enclave)
            if self._states.pop(enclave, None) is not None:
                self._weight -= self._weights.pop(enclave)

    def put(self, state: EnclaveState) -> EnclaveState:
        """Cache a durable state, unless a later one is cached: a reader may have loaded it before
        the last write.
        """
        with self._lock:
            self._outdate_loads(state.enclave)
            return self._put(state)

    def _outdate_loads(self, enclave: bytes) -> None:
        """Have the threads load again that are loading this state: what they read may be old."""
        for load in self._loads:
            load.is_stale = load.is_stale or load.enclave == enclave

    def _put(self, state: EnclaveState) -> EnclaveState:
        known = self._states.get(state.enclave)
        if known is None:
            self._weights[state.enclave] = weight = state.policy.size
            self._weight += weight
            self._policies[state.enclave] = state.policy
        if known is None or _age(known) <= _age(state):
            self._states[state.enclave] = known = state
        self._states.move_to_end(state.enclave)
        while len(self._states) > self._capacity or (self._weight > MAX_WEIGHT and len(self._states) > 1):
            self._weight -= self._weights.pop(self._states.popitem(last=False)[0])
        return known


def _age(state: EnclaveState) -> tuple[int, int]:
    """Return a key by which later states compare greater: more events, or as many and one more
    closed bundle.
    """
    return state.seq, state.log.size
