"""Proofs that let a client check a row against its enclave: the row's event and, if available, a
proof of inclusion.

A row has an event if it has `enclave` and one of `event_id`, `id` or `seq`. The event is rebuilt
from the view `events`, with its author's and its sequencer's signatures, which are checked here
again. Only the node can prove that the event is in the log, under a head that the sequencer signed.
It is asked like any client asks it, and its answer has the form of a proof file for `enc verify`.
If the node cannot be asked, the response states why.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from enc.core.errors import EncError, InvalidCommit, MisuseError, Unavailable, WorldError
from enc.core.log.commit import version_of
from enc.core.log.event import WireEvent, check_event, event_from_wire
from enc.core.primitives.encoding import convert_json
from enc.core.primitives.types import Event
from enc.dataview.serving.columns import ViewSchema
from enc.dataview.serving.database import Snapshot

if TYPE_CHECKING:
    from enc.client import Client, Enclave

MAX_PROVED = 100
"""Most rows of a page with proofs: each may need a request to a node."""
PAGE_S = 10.0
"""Time limit for the requests to nodes for one page."""
AT_ONCE = 2
NAMES = ("event_id", "id", "seq")
"""Columns that identify an event of the row's enclave; the first that a view has is used."""
_PARTS = (
    "enclave seq id type author timestamp exp content content_hash tags hash alg sig sequencer seq_sig enc_v".split()
)
_STATEMENT = "withheld"
"""A database that an earlier version wrote may lack this column."""


class EventReference(Struct, frozen=True):
    """How a view's rows identify their event."""

    name: str

    @property
    def columns(self) -> tuple[str, str]:
        return ("enclave", self.name)


def event_reference(view: ViewSchema) -> EventReference | None:
    if view.column("enclave") is None:
        return None
    return next((EventReference(name) for name in NAMES if view.column(name) is not None), None)


class RowEvent(Struct, frozen=True):
    """A row's event, or why there is none."""

    event: Event | None = None
    why: str = ""


def events_of(snapshot: Snapshot, reference: EventReference, rows: Sequence[sa.Row[Any]]) -> list[RowEvent]:
    """Return the rows' events from the view `events` in the same snapshot."""
    stored = snapshot.view("events")
    if stored is None or any(stored.schema.column(name) is None for name in _PARTS):
        return [RowEvent(why="the view `events` is not published here, so events cannot be rebuilt") for _ in rows]
    table = snapshot.table(stored.schema)
    column = table.c["seq" if reference.name == "seq" else "id"]
    found = sa.select(*(table.c[name] for name in (*_PARTS, _STATEMENT) if name in table.c))
    return [_event(snapshot, found, table, column, row, reference) for row in rows]


def _event(
    snapshot: Snapshot, found: sa.Select[Any], table: sa.Table, column: Any, row: sa.Row[Any], reference: EventReference
) -> RowEvent:
    enclave, name = row._mapping["enclave"], row._mapping[reference.name]
    if enclave is None or name is None:
        return RowEvent(why="this row does not identify an event")
    rows = snapshot.rows(found.where(table.c.enclave == enclave, column == name).limit(1))
    if not rows:
        return RowEvent(why="this row's event is not in the view `events`")
    try:
        return RowEvent(rebuild_event(rows[0]._asdict()))
    except EncError as e:
        return RowEvent(why=f"this row's event is invalid: {e.message}")


def rebuild_event(row: Mapping[str, Any]) -> Event:
    """Rebuild the event of a row of `events` and check its hash and signatures."""
    wire = {name: row[name] for name in ("hash", "enclave", "type", "content", "exp", "sig", "id", "sequencer", "seq")}
    wire |= {"from": row["author"], "seq_sig": row["seq_sig"], "timestamp": row["timestamp"] // 1000}
    wire["tags"] = msgspec.json.decode(row["tags"] or "[]")
    wire["alg"] = row["alg"] or "schnorr"
    if row["content"] is None:
        wire["content_hash"] = row["content_hash"]
        wire["withheld"] = msgspec.json.decode(row.get(_STATEMENT) or "null")
    event = event_from_wire(convert_json(wire, WireEvent, InvalidCommit))
    check_event(event, row["enc_v"] or version_of(event))
    return event


class Prover:
    """Requests proofs from nodes. `connect` makes a client; each thread has its own.

    Nodes may be slow, and other readers must not wait for them: only a few pages run at a time,
    each with a time limit.
    """

    def __init__(self, connect: "Callable[[], Client] | None", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._connect, self._clock, self._own = connect, clock, threading.local()
        self._places = threading.BoundedSemaphore(AT_ONCE)

    def prove(self, found: Sequence[RowEvent]) -> list[dict[str, Any]]:
        """Return for each row what can be proved. A node that does not answer is not asked again
        for this page.
        """
        if not self._places.acquire(blocking=False):
            raise Unavailable("too many requests for proofs; retry later", retry_after_ms=1000)
        try:
            unanswered: dict[bytes, str] = {}
            deadline = self._clock() + PAGE_S
            return [self._shown(each, unanswered, deadline) for each in found]
        finally:
            self._places.release()

    def _shown(self, found: RowEvent, unanswered: dict[bytes, str], deadline: float) -> dict[str, Any]:
        event = found.event
        if event is None:
            return {"shows": "nothing", "why": found.why, "event": None, "proof": None}
        from enc.core.log.event import wire_event

        proof, why = self._proof(event, unanswered, deadline)
        shows = "signatures" if proof is None else "inclusion"
        return {"shows": shows, "why": why, "event": wire_event(event), "proof": proof}

    def _proof(self, event: Event, unanswered: dict[bytes, str], deadline: float) -> tuple[msgspec.Raw | None, str]:
        if self._connect is None:
            return None, f"{_ONLY}: no node is configured"
        if event.enclave in unanswered:
            return None, unanswered[event.enclave]
        if self._clock() > deadline:
            return None, f"{_ONLY}: the node takes too long for this many rows; request fewer"
        try:
            return msgspec.Raw(_prove(self._client().enclave(event.enclave), event)), ""
        except EncError as e:
            why = f"{_ONLY}: {e.code or 'no proof'}: {e.message}"
            if isinstance(e, WorldError | MisuseError):
                unanswered[event.enclave] = why
            return None, why

    def _client(self) -> "Client":
        if not hasattr(self._own, "client"):
            assert self._connect is not None  # noqa: S101
            self._own.client = self._connect()
        return self._own.client  # type: ignore[no-any-return]


_ONLY = "only the signatures of author and sequencer can be shown"


def _prove(enclave: "Enclave", event: Event) -> bytes:
    return enclave.proof(event.id, wait=False).file.json().strip()
