"""Evidence that an auditor takes from a log: one event, two events, or enough of the log to show a fault.

event  an event that does not verify by itself. No signature shows who altered it: it convicts nobody.
order  two events that one sequencer signed with descending timestamps. Their signatures convict it.
log    the log from its Manifest on, without the contents that no rule needs, and, if the fault is in
       one, a signed head or a node's proof under it. A checker replays the log (enc.core.machine.audit_replay) and
       must find the same fault in the same place. This convicts only a signer whose own signatures bind
       it to everything before the fault (LogAttribution). If other sequencers signed a part of the log, an
       `anchor` does: a head that the accused signed over that part.
"""

import base64
from collections.abc import Iterable
from typing import Any

from enc.core.log.event import wire_event
from enc.core.machine.archive import pack_events
from enc.core.machine.claim import Claim
from enc.core.machine.fault import FaultKind
from enc.core.primitives.types import Event, TreeHead
from enc.core.trees.tree_head import wire_head

MAX_EVENTS = 1_000_000
"""Most events of a log in one piece of evidence."""


def single_parts(fault: FaultKind, line: bytes, enc_v: int) -> dict[str, Any]:
    """Return the parts for one event, as in the archive."""
    return {"fault": fault, "enc_v": enc_v, "line": line.decode(errors="replace")}


def order_parts(first: Event, then: Event) -> dict[str, Any]:
    return {"events": [wire_event(first), wire_event(then)]}


def log_parts(
    fault: FaultKind,
    seq: int,
    events: Iterable[Event],
    head: TreeHead | None = None,
    claim: Claim | None = None,
    checkpoint: tuple[int, bytes] | None = None,
    anchor: TreeHead | None = None,
) -> dict[str, Any]:
    return {
        "fault": fault,
        "seq": seq,
        "log": base64.b64encode(pack_events(events)).decode(),
        "head": None if head is None else wire_head(head),
        "claim": None if claim is None else claim.wire(),
        "checkpoint": None if checkpoint is None else {"seq": checkpoint[0], "ct_root": checkpoint[1].hex()},
        "anchor": None if anchor is None else wire_head(anchor),
    }
