"""Keeps one enclave's damaged data from stopping the others.

A transaction fails as a whole if it meets a damaged page. So a batch that fails is written again in
parts, until the damaged enclaves are alone. For some time their commits are then rejected at once.
If too many parts fail, the damage is not that of single enclaves: then the store has failed.
"""

from collections.abc import Sequence

import structlog
from msgspec import Struct

from enc.core.errors import EncError, Unavailable
from enc.node.store.damage import DamagedData
from enc.node.store.steps import Step
from enc.node.store.store_interface import Store

FIRST_PAUSE_MS, MAX_PAUSE_MS = 1_000, 600_000
"""How long an enclave's commits are rejected after its data could not be read: at first briefly,
since the error may pass, and twice as long each further time.
"""
MORE_FAILURES = 8
"""Failed writes, beside two for each halving, after which the store counts as failed."""

_log = structlog.get_logger("enc.damage")


class _Pause(Struct, frozen=True):
    until: int
    length: int


class DamagedEnclaves:
    """The enclaves whose data was found to be damaged. For the sequencer's thread."""

    def __init__(self) -> None:
        self._pauses: dict[bytes, _Pause] = {}

    def __len__(self) -> int:
        return len(self._pauses)

    def has(self, enclave: bytes, now: int) -> bool:
        """Return whether the enclave's commits are rejected at this time."""
        pause = self._pauses.get(enclave)
        return pause is not None and pause.until > now

    def check(self, enclave: bytes, now: int) -> None:
        """Raise DamagedData if the enclave's commits are rejected at this time."""
        if self.has(enclave, now):
            raise damaged_enclave(self._pauses[enclave].until - now)

    def add(self, enclave: bytes, now: int, reason: str) -> DamagedData:
        """Reject the enclave's commits for some time, and return the error for its senders."""
        before = self._pauses.get(enclave)
        length = min(MAX_PAUSE_MS, 2 * before.length if before else FIRST_PAUSE_MS)
        self._pauses[enclave] = _Pause(now + length, length)
        _log.error("enclave_damaged", enclave=enclave.hex(), reason=reason, pause_ms=length)
        return damaged_enclave(length)


def damaged_enclave(retry_after_ms: int) -> DamagedData:
    return DamagedData(
        "the enclave's data on this node cannot be read: its operator must repair it", retry_after_ms=retry_after_ms
    )


def write_in_parts(store: Store, steps: Sequence[Step], now: int) -> dict[bytes, EncError]:
    """Write the steps of all enclaves whose data is sound, and return the errors of the others.

    DamagedData stands for damage of this enclave; another error, for steps that were not written for
    another reason. Raises the error if nothing was written.
    """
    try:
        store.write(steps, now)
        return {}
    except DamagedData as e:
        return _PartWriter(store, now, e).write(steps)


class _PartWriter:
    def __init__(self, store: Store, now: int, first: DamagedData) -> None:
        self._store, self._now, self._first = store, now, first
        self._failures = 0
        self._ended: EncError | None = None
        """The error of all that is not written yet, once the store has failed."""

    def write(self, steps: Sequence[Step]) -> dict[bytes, EncError]:
        most = 2 * len(_enclaves(steps)).bit_length() + MORE_FAILURES
        errors = dict[bytes, EncError]()
        parts = [steps] if len(_enclaves(steps)) == 1 else _halves(steps)
        while parts:
            part = parts.pop()
            error = self._ended or self._try(part)
            enclaves = _enclaves(part)
            if error is None:
                continue
            if self._failures > most:
                error = self._ended = Unavailable(self._first.message, retry_after_ms=1000)
            if isinstance(error, DamagedData) and len(enclaves) > 1:
                parts += _halves(part)
            else:
                errors |= dict.fromkeys(enclaves, error)
        if self._ended is not None and len(errors) == len(_enclaves(steps)):
            raise self._ended
        return errors

    def _try(self, steps: Sequence[Step]) -> EncError | None:
        try:
            self._store.write(steps, self._now)
        except DamagedData as e:
            self._failures += 1
            return e
        except EncError as e:
            self._ended = e
            return e
        return None


def _enclaves(steps: Sequence[Step]) -> list[bytes]:
    return list(dict.fromkeys(step.transition.state.enclave for step in steps))


def _halves(steps: Sequence[Step]) -> list[Sequence[Step]]:
    enclaves = _enclaves(steps)
    first = frozenset(enclaves[: len(enclaves) // 2])
    return [[step for step in steps if (step.transition.state.enclave in first) is is_in] for is_in in (True, False)]
