"""A feed: one subscription over many connections, sessions and Queries; each event once, in order.

It does no I/O: its driver passes in messages and sends what the feed returns. After a lost
connection, before a session ends, and where the node truncated the stored events, it asks again
from the last seq it returned. It sends a new Query before it closes the old one, so no event is
missed.
"""

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.json import Decoder

from enc.client.enclave.search import beyond
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.enclave_session import RENEW_S
from enc.client.link.sequencer_lookup import fetch_history, has_unknown_signer
from enc.client.verify.decode_answers import WireItem, read
from enc.client.verify.items import Item, check_order, verify_items
from enc.client.verify.log_verifier import LogVerifier
from enc.client.wire.flow import Flow
from enc.core.errors import (
    Banned,
    EncError,
    EnclaveMigrated,
    EnclavePurged,
    EnclaveSuspended,
    EnclaveTerminated,
    InvalidProof,
    SessionExpired,
    Unauthorized,
    Unavailable,
    WorldError,
    from_wire,
)
from enc.core.log.filter import MAX_LIMIT, Filter, parse_filter
from enc.core.primitives.encoding import decode_json
from enc.core.primitives.sealing import open_text
from enc.core.primitives.types import Event
from enc.core.session.envelope import seal_request
from enc.core.session.session import TransportKeys, client_keys

MOVE_CHECK_S = 60.0
"""How often to check whether the enclave, as far as this client knows, has moved; seconds."""

_message, _item = Decoder(dict[str, Any]), Decoder(WireItem)

_ENDS: Mapping[str, tuple[type[EncError], str]] = {
    "enclave_terminated": (EnclaveTerminated, "the enclave is terminated: no more events"),
    "enclave_migrated": (EnclaveMigrated, "another node is the sequencer from here on"),
    "banned": (Banned, "the node's operator has banned you"),
    "enclave_suspended": (EnclaveSuspended, "the node's operator has suspended the enclave"),
    "enclave_purged": (EnclavePurged, "the node's operator has deleted the enclave: no more events"),
    "access_revoked": (Unauthorized, "you may not read this enclave any more"),
}
"""Reasons of the node that end the feed."""


class UnknownSequencer(WorldError):
    """The Migrates must be fetched before an event can be verified."""


RECOVERABLE = (EnclaveMigrated, UnknownSequencer)
"""Errors from which `Feed.recover` may recover."""


class FeedStep(Struct, frozen=True):
    """The result of a message: events to return, and messages to send."""

    items: tuple[Item, ...] = ()
    send: tuple[str, ...] = ()
    is_good: bool = False
    """Whether the node fulfils the Query."""


class _Query(Struct):
    """One Query of the feed on the current connection."""

    keys: TransportKeys
    filter: Filter
    replaces: str | None = None
    """The Query to close once this one has sent the stored events."""
    last: Event | None = None
    """The last event that it brought."""
    is_stored: bool = False
    """Whether the stored events have arrived, or as many as one Query returns."""
    is_cut: bool = False
    """Whether more events were stored: then its live events leave a gap."""


class Feed:
    """`after`: the seq after which to begin; None begins with the next new event."""

    def __init__(
        self, reader: EnclaveReader, verifier: LogVerifier, wire_filter: Mapping[str, Any], after: int | None
    ) -> None:
        self._reader, self._verifier = reader, verifier
        self._wire = dict(wire_filter)
        self._last = after
        self._newest: Event | None = None
        self._queries: dict[str, _Query] = {}
        self._closed: set[str] = set()
        self._names = 0
        self._renew_at = 0
        self._is_renewed = False
        """Whether the session was renewed and nothing has arrived in it yet."""
        self._is_learned = False
        """Whether the log's Migrates were fetched since the enclave moved."""

    @property
    def url(self) -> str | None:
        """The URL to connect to; None: the client's own node."""
        return self._reader.node.url

    def recover(self, error: EncError) -> Flow[None]:
        """Fetch missing Migrates, or follow the enclave to another node; else raise `error`."""
        if (yield from self.check_moved()):  # another user of the reader has already followed the enclave
            return
        if isinstance(error, UnknownSequencer | EnclaveMigrated):
            history = yield from fetch_history(self._reader.session)
        if isinstance(error, EnclaveMigrated):
            error = EnclaveMigrated(error.message, new_sequencer=(history.sequencer or b"").hex())
        if not isinstance(error, UnknownSequencer):
            yield from self._reader.follow(error)
        self._is_learned = isinstance(error, UnknownSequencer)
        self._verifier = yield from self._reader.session.verifier()

    def check_moved(self) -> Flow[bool]:
        """Whether to reconnect, because the enclave is now known to be at another node."""
        before, self._verifier = self._verifier, (yield from self._reader.session.verifier())
        return self._verifier is not before

    @property
    def due_in(self) -> float:
        """Seconds until `tick` must be called."""
        return max(self._renew_at - self._reader.session.now() / 1000, 0.0)

    def connected(self) -> tuple[str, ...]:
        """Return the messages to send on a new connection; forgets the Queries of the old one."""
        self._queries.clear()
        self._closed.clear()
        return (self._ask(),)

    def tick(self) -> tuple[str, ...]:
        """Return a Query in a new session if the current one ends soon."""
        return (self._ask(),) if self.due_in == 0 else ()

    def receive(self, text: str | bytes) -> FeedStep:
        """Process one message from the node. Raises the errors that end the feed."""
        raw = text.encode() if isinstance(text, str) else text
        with self._verifier.blame_node("message", raw):
            message = decode_json(raw, _message, InvalidProof)
            type_, sub_id = message.get("type"), str(message.get("sub_id", ""))
            if type_ in ("Event", "EOSE", "Closed") and sub_id not in self._queries and sub_id not in self._closed:
                raise InvalidProof("sub_id: not a subscription of this feed")
        query = self._queries.get(sub_id)
        if type_ == "Error":
            return self._refused(from_wire(message), sub_id)
        if query is None:
            return FeedStep()
        if type_ == "Event":
            return self._event(message, query, raw)
        if type_ == "EOSE":
            return self._end_of_stored(sub_id, query, message.get("more") is True, raw)
        return self._closed_by_node(sub_id, query, str(message.get("reason"))) if type_ == "Closed" else FeedStep()

    # Queries

    def _ask(self, replaces: str | None = None) -> str:
        """Return a Query for all events after the last one, in a session that is valid for a while."""
        session = self._reader.session.transport_session()
        self._renew_at = session.token.expires - RENEW_S + 1
        self._names += 1
        sub_id = f"feed-{self._names}"
        older = replaces or next(iter(self._queries), None)
        keys = client_keys(session, self._verifier.sequencer, self._reader.enclave)
        wire = self._wire | self._place()
        self._queries[sub_id] = _Query(keys, parse_filter(wire), older)
        body = {"filter": wire}
        sealed = seal_request(session, self._verifier.sequencer, self._reader.enclave, "Query", body, os.urandom(24))
        return msgspec.json.encode({**sealed, "sub_id": sub_id}).decode()

    def _place(self) -> dict[str, Any]:
        """Return where to begin: after the last event, or at the newest one, which is not returned."""
        if self._last is None:
            return {"limit": 1, "reverse": True}
        seq = self._wire.get("seq", {})
        return {"seq": beyond(seq, self._last) if self._last >= 0 else seq, "limit": MAX_LIMIT}

    def _close(self, sub_id: str) -> tuple[str, ...]:
        if self._queries.pop(sub_id, None) is None:
            return ()
        self._closed.add(sub_id)
        return (msgspec.json.encode({"type": "Close", "sub_id": sub_id}).decode(),)

    # Messages

    def _event(self, message: dict[str, Any], query: _Query, raw: bytes) -> FeedStep:
        """Check order within one Query; drop events that another Query has already brought."""
        with self._verifier.blame_node("event", raw):
            text = open_text(query.keys.response, message.get("event"))
            wire = read(text, _item)
        if not self._is_learned and has_unknown_signer(self._verifier, [wire]):
            raise UnknownSequencer("the sequencer of an event is not known yet")
        (item,) = verify_items(self._verifier, [wire], query.filter, text)
        with self._verifier.blame_node("event", text):
            check_order([*([query.last] if query.last else []), item.event])
        query.last, self._is_renewed = item.event, False
        self._reader.session.notice(item.event, item.seq)
        if self._last is None:
            self._newest = item.event
        elif not query.is_cut and item.seq > self._last:
            with self._verifier.blame_node("event", text):
                check_order([*([self._newest] if self._newest else []), item.event])
            self._last, self._newest = item.seq, item.event
            return FeedStep((item,), is_good=True)
        return FeedStep(is_good=True)

    def _end_of_stored(self, sub_id: str, query: _Query, more: bool, raw: bytes) -> FeedStep:
        """Handle the end of the stored events; if they were truncated, ask for the rest."""
        with self._verifier.blame_node("EOSE", raw):
            if query.is_stored or (more and query.last is None):
                raise InvalidProof("a second EOSE, or no events but `more` is set")
        query.is_stored, self._is_renewed = True, False
        if self._last is None:
            self._last = self._newest.seq if self._newest else -1
            more = False
        query.is_cut = more
        asked = (self._ask(replaces=sub_id),) if more else ()
        return FeedStep(send=(*asked, *self._close(query.replaces or "")), is_good=True)

    def _closed_by_node(self, sub_id: str, query: _Query, reason: str) -> FeedStep:
        del self._queries[sub_id]
        self._closed.add(sub_id)
        if reason in _ENDS:
            raise _ENDS[reason][0](_ENDS[reason][1])
        if any(not other.is_cut for other in self._queries.values()):
            return FeedStep()
        if reason == "shutting_down" or not query.is_stored:
            raise Unavailable(f"the node has closed the subscription: {reason}")
        if reason == "session_expired":
            self._reader.session.renew()
        return FeedStep(send=(self._ask(),))

    def _refused(self, error: EncError, sub_id: str) -> FeedStep:
        """Handle a refused Query. The driver reconnects after RateLimited and any WorldError."""
        query = self._queries.pop(sub_id, None)
        if query is None and not isinstance(error, WorldError):
            return FeedStep()  # for a Close that crossed the end of its Query
        if isinstance(error, SessionExpired) and not self._is_renewed:
            self._reader.session.renew()
            self._is_renewed = True
            return FeedStep(send=(self._ask(),))
        raise error
