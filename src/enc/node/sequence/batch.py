"""A batch of commits that becomes one transaction, and the steps that it consists of."""

from enc.core.errors import EncError
from enc.core.machine.state import Transition
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.signer import Signer
from enc.core.primitives.types import Event, Target, TreeHead
from enc.core.rules.policy_types import Effects
from enc.core.trees.merkle_log import Edge
from enc.core.trees.tree_head import sign_head
from enc.node.limits.quota import Spending
from enc.node.sequence.batch_overlay import BatchOverlay
from enc.node.sequence.recipients import RecipientCache
from enc.node.store.steps import Step


class CommitBatch:
    """A transaction that is being put together."""

    def __init__(self, now: int, spending: Spending) -> None:
        self.now, self.spending = now, spending
        self.committed: dict[bytes, Event] = {}
        """Events by the hash of their commits: those of this batch, and earlier ones that it
        repeats.
        """
        self.overlays: dict[bytes, BatchOverlay] = {}
        self.steps: list[Step] = []
        self.unreadable: dict[bytes, EncError] = {}
        """Errors of commits of which it is unknown, because of damage, whether they were accepted before."""
        self.failed: dict[bytes, EncError] = {}
        """Errors of enclaves whose steps were not written although those of others were."""
        self.unloaded: list[bytes] = []
        """Enclaves whose bundle it closes although their state is not in memory."""


class StepBuilder:
    """Completes transitions to steps: signs heads and finds recipients."""

    def __init__(self, key: Signer, recipients: RecipientCache) -> None:
        self._key, self._recipients = key, recipients

    def add(
        self,
        batch: CommitBatch,
        overlay: BatchOverlay,
        transition: Transition,
        event: Event | None,
        effects: Effects,
        target: Target | None = None,
    ) -> None:
        """Add a step to the batch; a sealing step has no event."""
        heads = self._sign_heads(transition, overlay)
        if event is None:
            step = Step(transition=transition, heads=heads)
        else:
            subject = transition.state.policy.subject(event, target)
            step = Step(
                transition=transition,
                event=event,
                effects=effects,
                subject=subject.type,
                heads=heads,
                recipients=self._recipients.recipients_of(event, subject, effects, transition, overlay),
            )
        overlay.add(transition, event)
        batch.steps.append(step)

    def _sign_heads(self, transition: Transition, overlay: BatchOverlay) -> tuple[TreeHead, ...]:
        """Return a signed head for each tree size that the step reached."""
        if not transition.closed:
            return ()
        state, before = transition.state, overlay.state.log if overlay.state else Edge()
        heads = []
        for bundle in transition.closed:
            before = before.append(log_leaf(bundle.events_root, bundle.state_hash))[0]
            heads.append(sign_head(self._key, state.enclave, state.min_timestamp, before.size, before.root()))
        return tuple(heads)
