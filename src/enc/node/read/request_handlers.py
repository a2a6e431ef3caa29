"""Handlers of sealed requests: open, check rights, look up, prove, seal.

Each call runs on a thread of the read pool, in short steps (enc.node.read.steps), against one
durable state, and changes nothing, except a Checkpoint with a hold. Whoever sees a request go by
can send it again, so one that changes something is accepted once: enc.node.store.spent_requests.

A new request also needs its type in enc.core.session.envelope, its path in enc.node.api.http_api
(SEALED_PATHS), and its description in enc.node.openapi (sealed_schemas, document).
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from enc.core.errors import (
    EnclaveNotFound,
    EnclaveTerminated,
    InvalidNamespace,
    InvalidQuery,
    Unauthorized,
)
from enc.core.log.event import wire_event
from enc.core.log.filter import MAX_LIMIT, Filter, parse_filter
from enc.core.machine.state import EnclaveState
from enc.core.primitives.encoding import check_numbers, convert_json, unhex
from enc.core.primitives.signer import Signer
from enc.core.primitives.types import Event
from enc.core.session.envelope import OpenedBody, RequestType, SealedRequest, open_request
from enc.core.trees.state_key import Namespace, status_key, tree_key
from enc.node.limits.restrictions import NO_RESTRICTIONS, Restrictions
from enc.node.read.access import Access
from enc.node.read.deliveries import deliveries
from enc.node.read.proofs import ProofRoot, Proofs, Wire
from enc.node.read.pulls import Pulls
from enc.node.read.request_bodies import (
    BundleBody,
    CheckpointBody,
    ExportBody,
    InclusionBody,
    QueryBody,
    StateBatchBody,
    StateBody,
    StateKey,
)
from enc.node.read.seal_answer import sealed_answer
from enc.node.read.state_rights import StateRights
from enc.node.read.steps import Steps, finish
from enc.node.sequence.checkpoint import MAX_HOLD_MS, Checkpoint
from enc.node.sequence.state_cache import StateCache
from enc.node.store.events import ITEM_START, SearchItem, item_end
from enc.node.store.spent_requests import SpentRequest, spent_request
from enc.node.store.store_interface import Store
from enc.runtime.rate_limit import RateLimiter

MAX_KEYS = 256
"""Most keys of one State_Batch."""
EXPORT_STEP = 64
"""Events that an export reads at a time."""
PURGED = "the enclave was terminated and its data was purged"
_NEXT = b"," + ITEM_START

T = TypeVar("T")


class OpenedRequest(Struct, frozen=True):
    """A sealed request, opened: its plain outside, its content with the keys for the answer, and
    the asker's rights.
    """

    outer: SealedRequest
    inner: OpenedBody
    access: Access
    proofs: Proofs
    address: str | None = None
    """The address that sent it, if it is known."""

    @property
    def namespaces(self) -> Sequence[Namespace]:
        """Namespaces that this enclave's state has."""
        return self.access.state.policy.namespaces


class SealedHandlers:
    """One handler for each type of sealed request. Safe to use from any thread."""

    def __init__(
        self,
        states: StateCache,
        store: Store,
        key: Signer,
        clock: Callable[[], int],
        rates: RateLimiter,
        checkpoint: Callable[[bytes, int, SpentRequest], Checkpoint],
        max_page: int,
        restrictions: Restrictions = NO_RESTRICTIONS,
        may_copy: Callable[[bytes], bool] = lambda identity: False,
    ) -> None:
        """`may_copy`: whether an identity may export logs that this node sequences."""
        self.restrictions, self._may_copy = restrictions, may_copy
        self._states, self._store, self._key, self._clock = states, store, key, clock
        self._rates, self._checkpoint, self._max_page = rates, checkpoint, max_page
        self._by_type: dict[RequestType, Callable[[OpenedRequest], bytes | Steps[bytes]]] = {
            "Query": self._query,
            "Inclusion_Proof": self._inclusion,
            "Bundle_Proof": self._bundle,
            "State_Proof": self._state,
            "State_Batch": self._state_batch,
            "Checkpoint": self._hold_checkpoint,
            "Export": self._export,
            "Pull": self._pull,
            "Deliveries": self._deliveries,
        }
        self._pulls = Pulls(store, max_page)

    def answer(self, request: SealedRequest, address: str | None = None) -> Steps[bytes]:
        """Return the sealed answer to a request, given by its plain outside, that an address sent."""
        req = self.open(request, address)
        yield request.from_
        with self._unless_purged(request.enclave):
            plain = self._by_type[request.type](req)
            if isinstance(plain, Generator):
                plain = yield from plain
            yield None
            return sealed_answer(req.inner.keys, plain)

    def public(self, enclave: bytes, work: Callable[[Proofs], Wire]) -> bytes:
        """Return JSON that anyone may request about an enclave's log."""
        with self._unless_purged(enclave):
            return msgspec.json.encode(work(Proofs(self._store, self._key, self.state(enclave), self._clock())))

    @contextmanager
    def _unless_purged(self, enclave: bytes) -> Iterator[None]:
        """Raise EnclaveTerminated or EnclavePurged for any error if the enclave's data was purged while it
        was read.
        """
        try:
            yield
        except Exception:
            self.restrictions.check_not_purged(enclave)
            if self._store.is_purged(enclave):
                raise EnclaveTerminated(PURGED) from None
            raise

    def state(self, enclave: bytes) -> EnclaveState:
        """Return the durable state of an enclave; raise EnclaveNotFound, or EnclaveTerminated or
        EnclavePurged if it was purged.
        """
        self.restrictions.check_not_purged(enclave)
        state = self._states.get(enclave)
        if state is None:
            raise EnclaveNotFound("no such enclave on this node")
        if state.lifecycle == "terminated" and self._store.is_purged(enclave):
            raise EnclaveTerminated(PURGED)
        return state

    def access(self, enclave: bytes, identity: bytes) -> Access:
        """Return an identity's current rights in an enclave; raise EnclaveSuspended, or what `state` raises."""
        self.restrictions.check_enclave(enclave)
        return Access(self._store, self.state(enclave), identity)

    def open(self, request: SealedRequest, address: str | None = None) -> OpenedRequest:
        """Check the session and open the request; raises if the asker does not hold the session's
        key, or if the operator forbids the request.
        """
        self.restrictions.check_request(request.enclave, request.type)
        state = self.state(request.enclave)
        opened = open_request(request, self._key, self._clock() // 1000)
        self.restrictions.check_sender(request.from_, request.type)
        self._rates.take(request.from_)
        return OpenedRequest(
            request,
            opened,
            Access(self._store, state, request.from_),
            Proofs(self._store, self._key, state, self._clock()),
            address,
        )

    def check_allowed(self, request: SealedRequest) -> None:
        """Raise EnclavePurged, EnclaveSuspended or Banned if the operator forbids an opened request."""
        self.restrictions.check_request(request.enclave, request.type)
        self.restrictions.check_sender(request.from_, request.type)

    # Events

    def _query(self, req: OpenedRequest) -> Steps[bytes]:
        body = parse_query(req.inner)
        filter_ = parse_filter(body.filter)
        req.access.check_reads()
        items, more = yield from self.page(req.access, filter_, self._max_page)
        rest = b',"more":true}' if more else b"}"
        if body.proof:
            parts = [(yield from self._with_proofs(req.proofs, items))]
            rest = self._head_and_state(req.proofs) + rest
        else:
            parts = _parts(items)
        return b"".join((b'{"events":[', *parts, b"]", rest))

    def items_with_proofs(self, state: EnclaveState, items: Sequence[SearchItem]) -> bytes:
        """Return these items with their proofs, not sealed, in the form of a Query's answer with
        `proof`.

        For items that anyone may read.
        """
        proofs = Proofs(self._store, self._key, state, self._clock())
        parts = finish(self._with_proofs(proofs, items))
        return b"".join((b'{"events":[', parts, b"]", self._head_and_state(proofs), b"}"))

    def _head_and_state(self, proofs: Proofs) -> bytes:
        """Return what the proofs of a page rest on: one tree head, and the newest leaf under it."""
        sth = b',"sth":' + msgspec.json.encode(proofs.sth())
        if not proofs.size:
            return sth
        return sth + b',"state":' + msgspec.json.encode(proofs.bare_inclusion(proofs.size - 1, proofs.size))

    def page(self, access: Access, filter_: Filter, max_bytes: int) -> Steps[tuple[list[SearchItem], bool]]:
        """Return the items of one answer, and whether the limit or `max_bytes` cut them.

        If any item matches, at least one is returned.
        """
        items, size = list[SearchItem](), 0
        for found in self._store.find_in_steps(access.state.enclave, filter_, access.readable()):
            yield None
            for item in found:
                size += len(item.head) + len(item.rest)
                if items and (len(items) == filter_.limit or size > max_bytes):
                    return items, True
                items.append(item)
        return items, False

    def _with_proofs(self, proofs: Proofs, items: Sequence[SearchItem]) -> Steps[bytes]:
        """Return the items, each with its proof under the answer's tree head; null while its bundle
        is open.
        """
        root = proofs.root_at(None, current=False) if proofs.size else None
        inclusions: dict[int, msgspec.Raw] = {}
        parts = list[bytes]()
        for item in items:
            wire: Wire = {"event": msgspec.Raw(item.event), "status": item.status}
            if item.updated_by is not None:
                wire["updated_by"] = item.updated_by.hex()
            bundle = proofs.bundle_of(item.seq)
            wire["proof"] = None
            if bundle is not None and root is not None:
                if bundle.index not in inclusions:
                    inclusion = proofs.inclusion_of(bundle, proofs.size)
                    inclusions[bundle.index] = msgspec.Raw(msgspec.json.encode(inclusion))
                wire["proof"] = {
                    "bundle": proofs.member(bundle, item.seq),
                    "inclusion": inclusions[bundle.index],
                    "status": proofs.state(status_key(item.id), root),
                }
            parts.append(msgspec.json.encode(wire))
            yield None
        return b",".join(parts)

    # Proofs

    def _inclusion(self, req: OpenedRequest) -> bytes:
        """Answer anyone: the state proof of one's own key, which anyone may request at any leaf,
        contains this proof.
        """
        body = _read(req.inner, InclusionBody)
        size = _number(body.tree_size, "tree_size")
        check_numbers(InvalidQuery, leaf_index=body.leaf_index)
        return msgspec.json.encode(req.proofs.inclusion(body.leaf_index, size))

    def _bundle(self, req: OpenedRequest) -> bytes:
        body = _read(req.inner, BundleBody)
        if (body.event_id is UNSET) == (body.leaf_index is UNSET):
            raise InvalidQuery("expected one of event_id and leaf_index")
        req.access.check_reads()
        if body.leaf_index is not UNSET:
            check_numbers(InvalidQuery, leaf_index=body.leaf_index)
            return msgspec.json.encode(req.proofs.whole_bundle(body.leaf_index))
        return msgspec.json.encode(req.proofs.membership(unhex(body.event_id, 32, "event_id", InvalidQuery)))

    def _state(self, req: OpenedRequest) -> bytes:
        body = _read(req.inner, StateBody)
        (key,), root = self._keys_and_root(req, [body], body.tree_size, body.mode)
        return msgspec.json.encode({**req.proofs.state(key, root), **req.proofs.root_evidence(root)})

    def _state_batch(self, req: OpenedRequest) -> Steps[bytes]:
        body = _read(req.inner, StateBatchBody)
        if not 1 <= len(body.keys) <= MAX_KEYS:
            raise InvalidQuery(f"keys: expected 1 to {MAX_KEYS}")
        keys, root = self._keys_and_root(req, body.keys, body.tree_size, body.mode)
        proofs = list[Wire]()
        for key in keys:
            proofs.append(req.proofs.state(key, root))
            yield None
        return msgspec.json.encode({"proofs": proofs, **req.proofs.root_evidence(root)})

    def _keys_and_root(
        self, req: OpenedRequest, asked: Sequence[StateKey], size: int | UnsetType, mode: str
    ) -> tuple[list[bytes], ProofRoot]:
        """Return the keys of the tree to prove, and the root to prove them under.

        Raises Unauthorized if the asker may not have one of them proved.
        """
        if mode not in ("verified", "current"):
            raise InvalidQuery("mode: expected verified or current")
        keys, rights = [_tree_key(key, req.namespaces) for key in asked], StateRights(req.access)
        for key in asked:
            rights.check(key)
        return keys, req.proofs.root_at(_number(size, "tree_size"), mode == "current")

    def _hold_checkpoint(self, req: OpenedRequest) -> bytes:
        body = _read(req.inner, CheckpointBody)
        if not 0 <= body.hold * 1000 <= MAX_HOLD_MS:
            raise InvalidQuery(f"hold: expected 0 to {MAX_HOLD_MS // 1000} seconds")
        if not req.access.is_owner:
            raise Unauthorized("checkpoint: needs the right to create Migrate")
        found = self._checkpoint(req.outer.enclave, body.hold * 1000, spent_request(req.outer, req.address))
        return msgspec.json.encode({"seq": found.seq, "ct_root": found.ct_root.hex()})

    def _export(self, req: OpenedRequest) -> Steps[bytes]:
        """Return stored events, also deleted ones: what an archive is made from."""
        body = _read(req.inner, ExportBody)
        check_numbers(InvalidQuery, from_seq=body.from_seq)
        if not 1 <= body.limit <= MAX_LIMIT:
            raise InvalidQuery(f"limit: expected 1 to {MAX_LIMIT}")
        state, events, size = req.access.state, list[bytes](), 0
        if not self._is_other_node(state, req.outer.from_) and not req.access.is_owner:
            raise Unauthorized(
                "export: only for identities that may create a Migrate, and for the node that continues the log"
            )
        for event in islice(self._log(state, body.from_seq), body.limit):
            line = msgspec.json.encode(wire_event(event))
            size += len(line)
            if size > self._max_page and events:
                break
            events.append(line)
            yield None
        rest = b'],"seq":%d,"sth":%b}' % (state.seq, msgspec.json.encode(req.proofs.sth()))
        return b'{"events":[' + b",".join(events) + rest

    def _is_other_node(self, state: EnclaveState, identity: bytes) -> bool:
        """Return whether an identity is the node that continues the log, or that copies it ahead of
        its move.
        """
        if state.sequencer != self._key.public:
            return identity == state.sequencer
        return self._may_copy(identity)

    def _log(self, state: EnclaveState, seq: int) -> Iterator[Event]:
        """Yield the log from `seq` up to the state, a few events at a time."""
        while seq <= state.seq:
            events = self._store.events(state.enclave, seq, min(EXPORT_STEP, state.seq + 1 - seq))
            if not events:
                return
            yield from events
            seq = events[-1].seq + 1

    # Pushes

    def _pull(self, req: OpenedRequest) -> Steps[bytes]:
        """Return batches of the asker's own queue on this node; the outer enclave only serves the
        session.
        """
        who = req.outer.from_
        return self._pulls.answer(req.inner, who, lambda enclave: self.access(enclave, who))

    def _deliveries(self, req: OpenedRequest) -> bytes:
        return deliveries(self._store, req.inner, req.access)


def parse_query(opened: OpenedBody) -> QueryBody:
    return _read(opened, QueryBody)


def _read(opened: OpenedBody, type_: type[T]) -> T:
    return convert_json(opened.body, type_, InvalidQuery)


def _parts(items: Sequence[SearchItem]) -> list[bytes]:
    """Return the items' JSON with commas in between.

    A page may be megabytes, so the caller joins the parts once.
    """
    parts = list[bytes]()
    before = ITEM_START
    for item in items:
        parts += (before, item.head, item.rest, item_end(item.updated_by))
        before = _NEXT
    return parts


def _number(value: int | UnsetType, field: str) -> int | None:
    if value is UNSET:
        return None
    check_numbers(InvalidQuery, **{field: value})
    return value


def _tree_key(key: StateKey, namespaces: Sequence[Namespace]) -> bytes:
    if key.namespace not in namespaces:
        raise InvalidNamespace(f"namespace: expected one of {', '.join(namespaces)}")
    return tree_key(key.namespace, unhex(key.key, 32, "key", InvalidQuery))  # type: ignore[arg-type]
