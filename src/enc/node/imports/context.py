"""What all imports of a node share: its parts, and what its operator allows."""

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from enc.core.errors import EnclaveTerminated, Unauthorized
from enc.core.machine.state import EnclaveState
from enc.core.primitives.signer import Signer
from enc.core.primitives.types import CommitLimits
from enc.node.imports.orders import ImportOrder
from enc.node.limits.quota import StorageRules
from enc.node.limits.restrictions import NO_RESTRICTIONS, Restrictions
from enc.node.sequence.sequencer import Sequencer
from enc.node.sequence.state_cache import StateCache
from enc.node.store.store_interface import Store, Usage
from enc.runtime.rate_limit import RateLimiter

T = TypeVar("T")


class ImportPolicy(Struct, frozen=True, kw_only=True):
    """What this node's operator allows imports to do."""

    may_create: Callable[[bytes], bool]
    rates: RateLimiter
    rules: StorageRules
    at_once: int
    total_bytes: int
    max_ratio: int
    """Most bytes of a log for each byte of its archive."""
    limits: CommitLimits
    max_manifest: int
    private_endpoints: bool
    restrictions: Restrictions = NO_RESTRICTIONS


class ImportContext(Struct, frozen=True, kw_only=True):
    """The parts of the node that an import uses. For any thread."""

    store: Store
    states: StateCache
    sequencer: Sequencer
    key: Signer
    clock: Callable[[], int]
    policy: ImportPolicy
    cores: frozenset[int]
    """Cores that check signatures."""

    def call(self, work: Callable[[], T]) -> T:
        """Run `work` on the sequencer's thread, the only one that writes, and return its result."""
        return self.sequencer.call(work).result()

    def held(self, enclave: bytes) -> EnclaveState | None:
        """Return the state of what this node holds; raise EnclaveTerminated if it was terminated, and
        EnclavePurged or EnclaveSuspended.
        """
        self.policy.restrictions.check_enclave(enclave)
        state = self.states.get(enclave)
        if state is not None and state.lifecycle == "terminated":
            raise EnclaveTerminated("the enclave was terminated")
        return state

    def check_quota(self, order: ImportOrder, held: EnclaveState | None, size: int, stored: int = 0) -> None:
        """Charge everything that is new on this node to the Migrate's author; raise Unauthorized
        over a quota. `size`: bytes of contents that will be charged; `stored`: those of the whole log.
        """
        self.policy.rules.enclave_quota.check(order.total, stored)
        quota, used = self.policy.rules.quota, self.store.usage(order.migrate.from_)
        events = order.total - (held.seq + 1 if held else 0)
        used = Usage(used.enclaves + (held is None), used.events + max(events, 0), used.bytes + size)
        for name in ("enclaves", "events", "bytes"):
            most = getattr(quota, name)
            if most and getattr(used, name) > most and (name != "enclaves" or held is None):
                raise Unauthorized(f"this identity has used up its quota of {name} on this node: {most}")
