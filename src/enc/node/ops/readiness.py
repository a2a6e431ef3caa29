"""Whether a commit of ordinary size would succeed now, and if not, each reason."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import structlog
from msgspec import Struct

from enc.node.ops.internal_errors import internal_error

HOLD_S = 1.0
"""Seconds for which a result is reused."""

Code = Literal[
    "restored",
    "stopping",
    "commits_waiting",
    "admission_not_answering",
    "long_admission_not_answering",
    "signature_workers_not_answering",
    "sequencer_not_answering",
    "signer_not_answering",
    "clock_wrong",
    "store_not_writable",
    "disk_not_writable",
    "disk_low",
    "internal_error",
]

_log = structlog.get_logger("enc.health")


class NotReady(Struct, frozen=True):
    """A reason why the node is not ready."""

    code: Code
    message: str


Check = Callable[[], Awaitable[NotReady | None]]
"""Tries one part of the node; returns why it fails."""


class Readiness:
    """Runs all checks at the same time, at most once in HOLD_S, however many requests there are."""

    def __init__(self, checks: Sequence[Check]) -> None:
        self._checks = checks
        self._running: asyncio.Task[tuple[NotReady, ...]] | None = None
        """The last run."""
        self._until = 0.0
        """Loop time until which its result is reused."""
        self.codes: tuple[Code, ...] = ()
        """Codes of the last result."""

    async def reasons(self) -> tuple[NotReady, ...]:
        """Return why the node is not ready; empty if it is."""
        loop = asyncio.get_running_loop()
        if self._running is None or (self._running.done() and loop.time() >= self._until):
            self._running = loop.create_task(self._run())
            self._until = loop.time() + HOLD_S
        return await asyncio.shield(self._running)

    async def _run(self) -> tuple[NotReady, ...]:
        found = await asyncio.gather(*map(_result, self._checks))
        reasons = tuple(reason for reason in found if reason is not None)
        self._log_change(reasons)
        return reasons

    def _log_change(self, reasons: tuple[NotReady, ...]) -> None:
        codes = tuple(reason.code for reason in reasons)
        if codes and codes != self.codes:
            _log.error("not_ready", codes=codes, reasons=[reason.message for reason in reasons])
        elif self.codes and not codes:
            _log.info("ready_again")
        self.codes = codes


async def _result(check: Check) -> NotReady | None:
    try:
        return await check()
    except Exception as e:  # a check that fails must not hide the others
        return NotReady("internal_error", internal_error(e, "health").message)
