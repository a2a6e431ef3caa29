"""What a store writes: transitions of enclaves with their events."""

from collections.abc import Sequence

from msgspec import Struct

from enc.core.machine.state import EnclaveState, Transition
from enc.core.primitives.types import Event, TreeHead
from enc.core.rules.policy_types import Effects
from enc.node.store.push_interface import Recipients


class Step(Struct, frozen=True, kw_only=True):
    """One transition of one enclave, ready to be stored. A step that only seals a bundle has no
    event.
    """

    transition: Transition
    event: Event | None = None
    effects: Effects = Effects()
    subject: str = ""
    """Type that decides the rights R, P and N. For an Update or Delete it is the target's type."""
    heads: tuple[TreeHead | None, ...] = ()
    """One for each bundle that the step closed; None for a size of which the node signs no head."""
    recipients: Recipients = ()
    """Everyone to whom the event is pushed or notified."""


class AppendRun(Struct, frozen=True):
    """Consecutive events of one log that only extend it, ready to be stored."""

    events: Sequence[Event]
    state: EnclaveState
    """State after the last of them."""

    def steps(self) -> list[Step]:
        """Return the same events as steps of one event each."""
        transition = Transition(state=self.state)
        return [Step(transition=transition, event=event, subject=event.type) for event in self.events]
