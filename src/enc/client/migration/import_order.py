"""Orders a node to import an enclave, and waits until it is done."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.json import Decoder

from enc.client.enclave.backup import BackupProgress
from enc.client.errors import Unreachable
from enc.client.link.node_link import NodeLink
from enc.client.verify.decode_answers import read
from enc.client.wire.flow import Call, Flow, Pause
from enc.core.errors import (
    EnclaveNotFound,
    InvalidProof,
    Unavailable,
    from_wire,
)
from enc.core.log.event import sequenced
from enc.core.log.receipt import check_receipt, parse_receipt
from enc.core.primitives.types import Commit, Event
from enc.core.rules.content import parse_migrate

FIRST_POLL_S, POLL_S = 0.05, 0.5
"""Seconds before the first question for the status, and most seconds between two: each pause is
twice as long as the one before.
"""
MAX_RETRIES, RETRY_S = 3, 1.0
"""Number of retries of an import that the node could not finish for now, and the pause before each.
"""

StepName = Literal["copy", "hold", "sign", "migrate", "import", "wait", "verify", "register"]
OnStep = Callable[[StepName, str], None]
"""Called at the end of each step, with its result."""


class _Status(Struct, kw_only=True):
    status: Literal["running", "done", "failed"]
    events: int = 0
    total: int = 0
    receipt: dict[str, Any] | UnsetType = UNSET
    error: dict[str, Any] | UnsetType = UNSET


_status = Decoder(_Status)


def run_import(
    node: NodeLink,
    order: dict[str, Any],
    migrate: Commit,
    archive: Path | None,
    *,
    report: OnStep,
    progress: BackupProgress,
) -> Flow[Event]:
    """Order the import, wait for its end, and return the Migrate as an event of the log.

    `migrate`: the Migrate in the order, an event or still a commit. `archive`: a copy of the log to
    upload; without it the node pulls the log.
    """
    body = msgspec.json.encode(order)
    call = Call("/import", body) if archive is None else _upload(body, archive)
    status = Call(f"/import/{migrate.hash.hex()}")
    answer = _read_status((yield from node.caller.request(call)))
    report("import", f"requested from {node.url}")
    retries, pause = MAX_RETRIES, FIRST_POLL_S
    while answer.status == "running" or (retries and _is_temporary(answer)):
        if answer.status == "failed":
            retries -= 1
            yield Pause(RETRY_S)
            answer = _read_status((yield from node.caller.request(call)))
            continue
        progress(answer.events, answer.total)
        yield Pause(pause)
        pause = min(2 * pause, POLL_S)
        try:
            answer = _read_status((yield from node.caller.request(status)))
        except EnclaveNotFound:  # the node restarted meanwhile: it has kept nothing, or all
            answer = _read_status((yield from node.caller.request(call)))
    if answer.status == "failed" or answer.receipt is UNSET:
        raise from_wire(answer.error if answer.error is not UNSET else {})
    event = _finalised(migrate, answer.receipt)
    report("wait", f"{event.seq + 1} events are at {node.url}")
    return event


def _is_temporary(answer: _Status) -> bool:
    """Whether the import failed for a reason that may be gone at the next try."""
    error = {} if answer.error is UNSET else answer.error
    return answer.status == "failed" and isinstance(from_wire(error), Unavailable)


def _upload(order: bytes, archive: Path) -> Call:
    return Call("/import", order + b"\n", file=archive, kind="application/x-enc-import")


def _read_status(body: bytes) -> _Status:
    try:
        return read(body, _status)
    except InvalidProof as e:
        raise Unreachable(f"/import: not a node's answer: {e.message}") from None


def _finalised(migrate: Commit, wire: dict[str, Any]) -> Event:
    """Return the Migrate as an event, according to its receipt."""
    if isinstance(migrate, Event):
        return migrate
    receipt = parse_receipt(msgspec.json.encode(wire))
    check_receipt(receipt, migrate, receipt.sequencer)
    if receipt.sequencer != parse_migrate(migrate).new_sequencer:
        raise InvalidProof("receipt: the Migrate was accepted by another node than it names")
    return sequenced(migrate, receipt.id, receipt.timestamp, receipt.sequencer, receipt.seq, receipt.seq_sig)
