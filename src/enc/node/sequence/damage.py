"""Keeps one enclave's damaged data from stopping the others.

A transaction fails as a whole if it meets a damaged page. So a batch that fails is written again in
parts, until the damaged enclaves are alone. For some time their commits are then rejected at once.
"""

from collections.abc import Sequence

import structlog

from enc.node.store.damage import RETRY_MS, DamagedData
from enc.node.store.steps import Step
from enc.node.store.store_interface import Store

_log = structlog.get_logger("enc.damage")


class DamagedEnclaves:
    """The enclaves whose data was found to be damaged lately. For the sequencer's thread."""

    def __init__(self) -> None:
        self._until: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._until)

    def has(self, enclave: bytes, now: int) -> bool:
        """Return whether the enclave was found to be damaged less than RETRY_MS ago."""
        return self._until.get(enclave, now) > now

    def add(self, enclave: bytes, now: int, error: DamagedData) -> None:
        _log.error("enclave_damaged", enclave=enclave.hex(), reason=error.message)
        self._until[enclave] = now + RETRY_MS


def write_in_parts(store: Store, steps: Sequence[Step], now: int) -> dict[bytes, DamagedData]:
    """Write the steps of all enclaves whose data is sound, and return the errors of the others."""
    try:
        store.write(steps, now)
    except DamagedData as e:
        enclaves = list(dict.fromkeys(step.transition.state.enclave for step in steps))
        if len(enclaves) == 1:
            return {enclaves[0]: e}
        half = frozenset(enclaves[: len(enclaves) // 2])
        parts = (
            [step for step in steps if (step.transition.state.enclave in half) is is_in] for is_in in (True, False)
        )
        return {enclave: error for part in parts for enclave, error in write_in_parts(store, part, now).items()}
    return {}
