"""Closes bundles whose time is up and that no event closed, as part of a batch.

Sealing must never fail a batch of commits: damaged data keeps only its own bundle open, and without
a signer bundles wait for the next batch.
"""

import time
from collections.abc import Callable

import structlog

from enc.core.errors import Unavailable
from enc.core.machine import enclave as machine
from enc.core.primitives.signer import SignerUnavailable
from enc.core.rules.manifest_header import read_bundle_rules
from enc.core.rules.policy_types import Effects
from enc.node.ops.internal_errors import internal_error
from enc.node.sequence.batch import CommitBatch, StepBuilder
from enc.node.sequence.batch_overlay import BatchOverlay, NodeCache
from enc.node.sequence.damage import DamagedEnclaves
from enc.node.sequence.state_cache import StateCache
from enc.node.store.damage import DamagedData
from enc.node.store.store_interface import Store

MAX_SEALS = 4096
"""Maximum number of idle bundles that one transaction looks at."""
SEAL_S, SEAL_PAUSE_S = 0.02, 0.05
"""Seconds for which one transaction closes them; seconds until the next one does if some are left."""
IDLE_S = 0.2
"""Seconds after which an idle sequencer looks for bundles to seal."""

_log = structlog.get_logger("enc.sealing")


class BundleSealer:
    """For the sequencer's thread."""

    def __init__(
        self,
        store: Store,
        sequencer: bytes,
        states: StateCache,
        nodes: NodeCache,
        steps: StepBuilder,
        damaged: DamagedEnclaves,
        overlay_of: Callable[[bytes, CommitBatch], BatchOverlay],
    ) -> None:
        """`overlay_of` returns the batch's overlay of an enclave whose state is in memory."""
        self._store, self._sequencer, self._states, self._nodes = store, sequencer, states, nodes
        self._steps, self._damaged, self._overlay_of = steps, damaged, overlay_of
        self._is_behind, self._due = False, 0.0
        """Whether overdue bundles are left, and when the next batch closes some."""
        self._failed: set[bytes] = set()
        """Enclaves that could not be sealed since the start."""

    @property
    def pause_s(self) -> float:
        """Seconds after which an idle sequencer seals again."""
        return SEAL_PAUSE_S if self._is_behind else IDLE_S

    def seal(self, batch: CommitBatch) -> None:
        """Close overdue bundles, for one slice."""
        began = time.perf_counter()
        if began < self._due:
            return
        self._is_behind = False
        for enclave in self._overdue(batch):
            if enclave in self._failed or self._damaged.has(enclave, batch.now):
                continue
            if time.perf_counter() - began >= SEAL_S or not self._try(enclave, batch):
                self._is_behind = True
                self._due = time.perf_counter() + SEAL_PAUSE_S
                break

    def _overdue(self, batch: CommitBatch) -> list[bytes]:
        try:
            return self._store.overdue(batch.now, MAX_SEALS + len(self._failed) + len(self._damaged))
        except DamagedData as e:
            _log.error("seal_failed", reason=e.message)
            return []

    def _try(self, enclave: bytes, batch: CommitBatch) -> bool:
        """Close the enclave's bundle; return False if no other one can be closed now either."""
        try:
            self._seal_one(enclave, batch)
        except SignerUnavailable:
            return False
        except DamagedData as e:
            self._damaged.add(enclave, batch.now, e.message)
            batch.overlays.pop(enclave, None)
        except Unavailable:
            raise
        except Exception as e:  # one damaged enclave must not stop the others; fsck reports more
            internal_error(e, "seal")
            self._failed.add(enclave)
            batch.overlays.pop(enclave, None)
        return True

    def _seal_one(self, enclave: bytes, batch: CommitBatch) -> None:
        overlay = self._overlay(enclave, batch)
        if overlay.state is None or overlay.state.sequencer != self._sequencer:
            return
        transition = machine.seal(overlay.state, batch.now, overlay)
        if transition is not None:
            self._steps.add(batch, overlay, transition, None, Effects())

    def _overlay(self, enclave: bytes, batch: CommitBatch) -> BatchOverlay:
        """Return the batch's overlay, or one of its own for a state that is not in memory: to close
        a bundle, no rules are parsed.
        """
        if enclave in batch.overlays or enclave in self._states:
            return self._overlay_of(enclave, batch)
        manifest = self._store.manifest(enclave)
        state = None if manifest is None else self._store.load(enclave, read_bundle_rules(manifest))
        batch.unloaded.append(enclave)
        return BatchOverlay(self._store, enclave, state, self._nodes)
