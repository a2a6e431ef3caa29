"""An identity's rights in an enclave, as of one durable state."""

from functools import cached_property

from enc.core.errors import Unauthorized
from enc.core.machine.state import EnclaveState, view
from enc.core.primitives.types import Event, Target
from enc.core.rules.policy_types import ReadScope, Subject
from enc.node.store.store_interface import ReadRights, Store
from enc.node.store.stored_enclave_reader import StoredEnclaveReader


class Access:
    """One identity's rights in one enclave."""

    def __init__(self, store: Store, state: EnclaveState, identity: bytes) -> None:
        self.state, self.identity = state, identity
        self._is_node = identity == state.sequencer
        self._store = store
        self._view = view(state, StoredEnclaveReader(store, state.enclave))

    @cached_property
    def bitmask(self) -> int:
        return self._view.bitmask(self.identity)

    @cached_property
    def scope(self) -> ReadScope:
        return self.state.policy.read_scope(self.bitmask, self.state.closed_gates, is_node=self._is_node)

    @property
    def rights_key(self) -> tuple[int, bool]:
        """What the rights in a state depend on: identities with equal keys have equal rights."""
        return self.bitmask, self._is_node

    def in_state(self, state: EnclaveState, bitmask: int) -> "Access":
        """Return the rights of the same identity in another state, where it has this bitmask."""
        access = Access(self._store, state, self.identity)
        access.bitmask = bitmask
        return access

    @property
    def is_owner(self) -> bool:
        return self.state.policy.is_owner(self.bitmask)

    def check_reads(self) -> None:
        """Raise Unauthorized if the identity may read no type."""
        if not self.scope:
            raise Unauthorized("this identity may not read any type of this enclave")

    def readable(self) -> ReadRights:
        return ReadRights(identity=self.identity, scope=self.scope, each=self._reads)

    def _reads(self, event: Event, subject: str) -> bool:
        """Return whether one event may be read, if its type alone does not decide."""
        policy = self.state.policy
        target: Target | None = None
        if event.type in ("Update", "Delete"):
            target = Target(subject, event.from_)
        return "R" in self.rights(policy.subject(event, target), is_author=event.from_ == self.identity)

    def rights(self, subject: Subject, *, is_author: bool) -> frozenset[str]:
        """Return which of R, P and N this identity has on an event of this subject."""
        return self.state.policy.rights(
            subject, self.bitmask, is_author=is_author, closed=self.state.closed_gates, is_node=self._is_node
        )
