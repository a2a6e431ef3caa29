"""Reads one enclave, for one identity, through one node: everything that a client can ask, as
flows.

Every answer is verified before it is returned. Each method states what it verifies.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from enc.client.keys.identity import Identity
from enc.client.link.enclave_session import EnclaveSession
from enc.client.link.follow_moves import follow_moves
from enc.client.link.node_link import NodeLink
from enc.client.link.sequencer_lookup import fetch_history, has_unknown_signer
from enc.client.verify.decode_answers import (
    WirePage,
    anchor_decoder,
    anchor_of,
    bundle_decoder,
    digest,
    head_of,
    membership_decoder,
    page_decoder,
    read,
    state_decoder,
    state_facts_of,
)
from enc.client.verify.facts import Anchor, EventFact, StateFact, check_anchor, check_state_facts
from enc.client.verify.items import Item, check_order, prove_items, verify_items
from enc.client.wire.flow import Flow, Pause, work
from enc.client.wire.single_flight import SingleFlight
from enc.core.errors import (
    EncError,
    EventNotFound,
    EventPending,
    InvalidProof,
    MisuseError,
    TreeSizeNotFound,
)
from enc.core.log.filter import parse_filter
from enc.core.primitives.types import BundleProof
from enc.core.rules.manifest_schemas import ContentSchemas
from enc.core.session.envelope import RequestType
from enc.core.trees.bundle import check_membership, events_root
from enc.core.trees.proof import bundle_proof_from_wire
from enc.core.trees.state_key import Namespace


class ItemPage(Struct, frozen=True):
    items: list[Item]
    more: bool


class BundleIds(Struct, frozen=True):
    """The ids of all events of one closed bundle; they show whether events were withheld."""

    index: int
    ids: tuple[bytes, ...]
    anchor: Anchor


class EventPlace(Struct, frozen=True):
    """An event's place in the log, and its status."""

    membership: BundleProof
    anchor: Anchor
    status: StateFact


class EnclaveReader:
    """Reads one enclave through its session. Every method returns verified results only."""

    def __init__(self, session: EnclaveSession) -> None:
        self.session = session
        self.once = SingleFlight()
        self.schemas: ContentSchemas | None = None
        """Those of the Manifest, once it was read."""

    @property
    def enclave(self) -> bytes:
        return self.session.enclave

    @property
    def identity(self) -> Identity:
        return self.session.identity

    @property
    def node(self) -> NodeLink:
        """The node that the session asks at present."""
        return self.session.node

    def follow(self, error: EncError) -> Flow[None]:
        """Switch to the node that has the enclave now, or raise `error`."""
        return self.session.follow(error)

    # Events

    @follow_moves
    def page(self, wire_filter: Mapping[str, Any], *, proof: bool = False) -> Flow[ItemPage]:
        """Return one page of events.

        Each is verified, matches the filter and is in the requested order. With `proof`, each event
        of a closed bundle is also proved to be in the log under one accepted head. Whether matching
        events were left out cannot be verified here.
        """
        filter_ = parse_filter(dict(wire_filter))
        verifier = yield from self.session.verifier()
        since = verifier.size if proof else 0
        text = yield from self.session.ask(
            "/", "Query", {"filter": dict(wire_filter), **({"proof": True} if proof else {})}
        )
        with verifier.blame_node("page", text):
            wire = read(text, page_decoder)
            if len(wire.events) > filter_.limit:
                raise InvalidProof("more events than requested")
            if not wire.events and wire.more:
                raise InvalidProof("no events, but `more` is set")
        if has_unknown_signer(verifier, wire.events):
            yield from fetch_history(self.session)
        items = yield from work(lambda: verify_items(verifier, wire.events, filter_, text))
        with verifier.blame_node("page", text):
            check_order([item.event for item in items], filter_.reverse)
        for item in items:
            self.session.notice(item.event, item.seq)
        if proof:
            items = yield from self.proved(items, wire, text, since)
        return ItemPage(items, wire.more)

    def proved(self, items: Sequence[Item], wire: WirePage, text: bytes, since: int) -> Flow[list[Item]]:
        """Return the items of a page with their proofs, all under the page's head."""
        verifier = yield from self.session.verifier()
        with verifier.blame_node("page", text):
            head = head_of(wire.sth)
        yield from self.session.verify_head(head, text, since)
        with verifier.blame_node("page", text):
            newest = anchor_of(wire.state, head) if head.ts else None
            found = prove_items(items, wire.events, newest, head, verifier)
        verifier.pin_head(head)
        return found

    def event_fact(self, event_id: bytes, *, wait: bool = False) -> Flow[EventFact]:
        """Return an event with its proof and status. With `wait`, waits until its bundle is closed."""
        page = yield from self.page({"id": event_id.hex()})
        fact = yield from self.status_fact(event_id, wait=wait)
        if not page.items:
            raise EventNotFound("the event is in the log, but it is deleted or you may not read it")
        return EventFact(page.items[0].event, fact.membership, fact.anchor, fact.status)

    @follow_moves
    def place(self, event_id: bytes, *, wait: bool = False) -> Flow[tuple[BundleProof, Anchor]]:
        """Return an event's place in its bundle, and the bundle's anchor under an accepted head."""
        text = yield from self._membership(event_id, wait)
        verifier = yield from self.session.verifier()
        with verifier.blame_node("bundle", text):
            wire = read(text, membership_decoder)
            membership, root = bundle_proof_from_wire(wire), digest(wire.events_root, "events_root")
            check_membership(membership, event_id, root)
        anchor = yield from self.anchor(wire.leaf_index)
        with verifier.blame_node("bundle", text):
            if anchor.leaf.events_root != root:
                raise InvalidProof("events_root: differs from the leaf")
        return membership, anchor

    def status_fact(self, event_id: bytes, *, wait: bool = False) -> Flow[EventPlace]:
        """Return an event's place in the log and its status, also if the event may not be read."""
        membership, anchor = yield from self.place(event_id, wait=wait)
        status = yield from self.state_fact("event_status", event_id)
        with self.session.known_verifier().blame_node("status", event_id.hex().encode()):
            if status.anchor.index < anchor.index:
                raise InvalidProof("older than the event")
        return EventPlace(membership, anchor, status)

    def _membership(self, event_id: bytes, wait: bool) -> Flow[bytes]:
        backoff = self.node.caller.backoff()
        while True:
            try:
                return (yield from self.session.ask("/bundle", "Bundle_Proof", {"event_id": event_id.hex()}))
            except EventPending as e:
                if not wait:
                    raise
                pause = backoff.wait(e)
            yield Pause(pause)

    @follow_moves
    def anchor(self, index: int) -> Flow[Anchor]:
        """Return leaf `index` of the log under an accepted head."""
        verifier = yield from self.session.verifier()
        since = verifier.size
        text = yield from self.session.ask("/inclusion", "Inclusion_Proof", {"leaf_index": index})
        with verifier.blame_node("inclusion", text):
            wire = read(text, anchor_decoder)
            anchor = anchor_of(wire, head_of(wire.sth))
        yield from self.session.verify_head(anchor.head, text, since)
        with verifier.blame_node("inclusion", text):
            if anchor.index != index:
                raise InvalidProof("leaf_index: not the requested leaf")
            check_anchor(anchor, self.enclave, verifier.sequencer)
        verifier.pin_head(anchor.head)
        return anchor

    @follow_moves
    def bundle(self, index: int) -> Flow[BundleIds]:
        """Return the ids of all events of a closed bundle, proved to be complete."""
        text = yield from self.session.ask("/bundle", "Bundle_Proof", {"leaf_index": index})
        verifier = yield from self.session.verifier()
        with verifier.blame_node("bundle", text):
            wire = read(text, bundle_decoder)
            ids = tuple(digest(id_, f"ids[{i}]") for i, id_ in enumerate(wire.ids))
            if not ids or wire.leaf_index != index:
                raise InvalidProof("leaf_index: not the requested leaf")
            if len(set(ids)) < len(ids):
                raise InvalidProof("ids: one appears twice, as in padding")
        anchor = yield from self.anchor(index)
        with verifier.blame_node("bundle", text):
            if events_root(ids) != anchor.leaf.events_root:
                raise InvalidProof("ids: do not match the leaf")
        return BundleIds(index, ids, anchor)

    # State

    def state_fact(
        self, namespace: Namespace, key: bytes, tree_size: int | None = None, *, own: tuple[bytes, str] | None = None
    ) -> Flow[StateFact]:
        """Return the proved value of a key: after the last closed bundle, or after `tree_size`
        bundles.

        `own`: the owner and name of the Own slot whose key it is. Without it the node cannot
        recognise the key of another identity's slot, and proves it only to readers of all Own
        slots.
        """
        body: dict[str, Any] = {"namespace": namespace, "key": key.hex()}
        if own is not None:
            body["own"] = {"identity": own[0].hex(), "key": own[1]}
        facts = yield from self._state("/state", "State_Proof", body, [(namespace, key)], tree_size)
        return facts[0]

    def state_facts(
        self, keys: Sequence[tuple[Namespace, bytes]], tree_size: int | None = None
    ) -> Flow[list[StateFact]]:
        """`state_fact` for up to 256 keys, all after the same bundle."""
        body = {"keys": [{"namespace": namespace, "key": key.hex()} for namespace, key in keys]}
        return (yield from self._state("/state-batch", "State_Batch", body, keys, tree_size))

    @follow_moves
    def _state(
        self,
        path: str,
        type_: RequestType,
        body: dict[str, Any],
        keys: Sequence[tuple[Namespace, bytes]],
        tree_size: int | None,
    ) -> Flow[list[StateFact]]:
        if tree_size is not None and tree_size < 1:
            raise MisuseError("tree_size: expected a number of bundles, from 1")
        verifier = yield from self.session.verifier()
        since = verifier.size
        try:
            text = yield from self.session.ask(path, type_, _sized(body, tree_size))
        except TreeSizeNotFound as e:
            if (1 if tree_size is None else tree_size) <= since:
                raise verifier.forgery(
                    f"state: {e.message}; but {since} bundles were closed", e.message.encode()
                ) from e
            raise
        with verifier.blame_node("state", text):
            wire = read(text, state_decoder)
            head = head_of(wire.sth)
        yield from self.session.verify_head(head, text, since)
        with verifier.blame_node("state", text):
            facts = state_facts_of(wire, head, keys, tree_size)
            check_state_facts(facts, self.enclave, verifier.sequencer)
        verifier.pin_head(head)
        return facts


def _sized(body: dict[str, Any], tree_size: int | None) -> dict[str, Any]:
    return body if tree_size is None else {**body, "tree_size": tree_size}
