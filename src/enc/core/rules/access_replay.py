"""Replays the events that change access, without the log, the trees and the signatures."""

from enc.core.primitives.types import Event
from enc.core.rules.policy_types import Draft, Effects, Lifecycle, NoState, Policy
from enc.core.trees.state_key import identity_key

_ELSE = frozenset(["Update", "Delete", "Shared", "Own"])
"""Predefined types that change neither rights nor endpoints."""


class AccessReplay(NoState):
    """The rights in an enclave after the events that were applied.

    Only events of `access_types` matter. They must be applied in order, after `start` or from the
    Manifest on.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._leaves: dict[bytes, bytes | None] = {}

    def start(self) -> Effects:
        """Give the rights that the Manifest gives, as `apply` does for the Manifest."""
        draft = Draft(self)
        self._policy.write_initial_state(draft)
        return self._keep(draft)

    def apply(self, event: Event) -> Effects:
        """Apply an event, which was allowed when it was accepted, and return what it changes."""
        if event.seq == 0:
            return self.start()
        draft = Draft(self, event.sequencer)
        self._policy.judge(event, draft)
        return self._keep(draft, "terminated" if event.type == "Terminate" else None)

    def _keep(self, draft: Draft, lifecycle: Lifecycle | None = None) -> Effects:
        self._leaves.update(draft.writes)
        self.closed_gates = draft.closed_gates
        return draft.effects(lifecycle)

    def bitmask(self, identity: bytes) -> int:
        return int.from_bytes(self.leaf(identity_key(identity)) or b"", "big")

    def leaf(self, key: bytes) -> bytes | None:
        return self._leaves.get(key)


def access_types(policy: Policy) -> frozenset[str]:
    """Return the types of the events that may change rights or endpoints."""
    return policy.predefined - _ELSE
