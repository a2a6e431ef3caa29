"""What a client needs to check a row against its enclave: the event it rests on, and where it can be had, a proof.

A row rests on one event if it has `enclave` and one of `event_id`, `id` or `seq`. The event is rebuilt from the view
`events`, with its author's and its sequencer's signatures, which are checked here once more. A proof that it is in the
log, under a head that the sequencer signed, only the node can give; it is asked as any client asks it, and its proof is
in the form of a proof file, which `enc verify` takes. Where it cannot be asked, the answer says so, and why.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from enc.core.commit import version_of
from enc.core.encoding import convert_json
from enc.core.errors import EncError, InvalidCommit, MisuseError, Unavailable, WorldError
from enc.core.event import WireEvent, check_event, event_from_wire
from enc.core.types import Event
from enc.dataview.serving.columns import ViewSchema
from enc.dataview.serving.database import Moment

if TYPE_CHECKING:
    from enc.client import Client, Enclave

MAX_PROVED = 100
"""Rows of a page with proofs: each may be a request to a node."""
PAGE_S = 10.0
"""How long nodes are asked for one page."""
AT_ONCE = 2
NAMES = ("event_id", "id", "seq")
"""Columns that name an event of the row's enclave; the first that a view has is used."""
_PARTS = (
    "enclave seq id type author timestamp exp content content_hash tags hash alg sig sequencer seq_sig enc_v".split()
)


class Basis(Struct, frozen=True):
    """How the rows of a view name the event that each rests on."""

    name: str

    @property
    def columns(self) -> tuple[str, str]:
        return ("enclave", self.name)


def basis_of(view: ViewSchema) -> Basis | None:
    if view.column("enclave") is None:
        return None
    return next((Basis(name) for name in NAMES if view.column(name) is not None), None)


class Found(Struct, frozen=True):
    """What is known of a row's event: the event with its version, or why there is none."""

    event: Event | None = None
    why: str = ""


def events_of(moment: Moment, basis: Basis, rows: Sequence[sa.Row[Any]]) -> list[Found]:
    """The events that rows rest on, as the view `events` has them at the same moment."""
    stored = moment.view("events")
    if stored is None or any(stored.schema.column(name) is None for name in _PARTS):
        return [Found(why="there is no view `events` here to rebuild events from") for _ in rows]
    table = moment.table(stored.schema)
    column = table.c["seq" if basis.name == "seq" else "id"]
    found = sa.select(*(table.c[name] for name in _PARTS))
    return [_event(moment, found, table, column, row, basis) for row in rows]


def _event(
    moment: Moment, found: sa.Select[Any], table: sa.Table, column: Any, row: sa.Row[Any], basis: Basis
) -> Found:
    enclave, name = row._mapping["enclave"], row._mapping[basis.name]
    if enclave is None or name is None:
        return Found(why="this row names no event")
    rows = moment.rows(found.where(table.c.enclave == enclave, column == name).limit(1))
    if not rows:
        return Found(why="this row's event is not in the view `events`")
    try:
        return Found(rebuilt(rows[0]._asdict()))
    except EncError as e:
        return Found(why=f"this row's event does not check: {e.message}")


def rebuilt(row: Mapping[str, Any]) -> Event:
    """The event of a row of `events`, with all that it proves by itself checked."""
    wire = {name: row[name] for name in ("hash", "enclave", "type", "content", "exp", "sig", "id", "sequencer", "seq")}
    wire |= {"from": row["author"], "seq_sig": row["seq_sig"], "timestamp": row["timestamp"] // 1000}
    wire["tags"] = msgspec.json.decode(row["tags"] or "[]")
    wire["alg"] = row["alg"] or "schnorr"
    if row["content"] is None:
        wire["content_hash"] = row["content_hash"]
    event = event_from_wire(convert_json(wire, WireEvent, InvalidCommit))
    check_event(event, row["enc_v"] or version_of(event))
    return event


class Prover:
    """Asks nodes for proofs. `connect` makes a client; each thread has one of its own.

    Nodes may be slow, and other readers must not wait for them: few pages at a time, and so long for each.
    """

    def __init__(self, connect: "Callable[[], Client] | None", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._connect, self._clock, self._own = connect, clock, threading.local()
        self._places = threading.BoundedSemaphore(AT_ONCE)

    def prove(self, found: Sequence[Found]) -> list[dict[str, Any]]:
        """For each row what can be shown of its event. A node that does not answer is asked no more for this page."""
        if not self._places.acquire(blocking=False):
            raise Unavailable("too many verified answers are under way", retry_after_ms=1000)
        try:
            silent: dict[bytes, str] = {}
            deadline = self._clock() + PAGE_S
            return [self._shown(each, silent, deadline) for each in found]
        finally:
            self._places.release()

    def _shown(self, found: Found, silent: dict[bytes, str], deadline: float) -> dict[str, Any]:
        event = found.event
        if event is None:
            return {"shows": "nothing", "why": found.why, "event": None, "proof": None}
        from enc.core.event import wire_event

        proof, why = self._proof(event, silent, deadline)
        shows = "signatures" if proof is None else "inclusion"
        return {"shows": shows, "why": why, "event": wire_event(event), "proof": proof}

    def _proof(self, event: Event, silent: dict[bytes, str], deadline: float) -> tuple[msgspec.Raw | None, str]:
        if self._connect is None:
            return None, f"{_ONLY}: no node is configured here"
        if event.enclave in silent:
            return None, silent[event.enclave]
        if self._clock() > deadline:
            return None, f"{_ONLY}: the node takes too long for so many rows; ask for fewer"
        try:
            return msgspec.Raw(_prove(self._client().enclave(event.enclave), event)), ""
        except EncError as e:
            why = f"{_ONLY}: {e.code or 'no proof'}: {e.message}"
            if isinstance(e, WorldError | MisuseError):
                silent[event.enclave] = why
            return None, why

    def _client(self) -> "Client":
        if not hasattr(self._own, "client"):
            assert self._connect is not None  # noqa: S101
            self._own.client = self._connect()
        return self._own.client  # type: ignore[no-any-return]


_ONLY = "only the signatures of author and sequencer can be shown"


def _prove(enclave: "Enclave", event: Event) -> bytes:
    from enc.client.proof_file import Proof

    fact = enclave.proof(event.id, wait=False)
    return Proof(enclave.id, enclave.sequencer(), fact, tuple(enclave.sequencers().moves)).json().strip()
