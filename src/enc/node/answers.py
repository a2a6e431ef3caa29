"""Answers to sealed requests: open, check rights, look up, prove, seal.

Each runs on a thread of its own pool, against one durable state, and touches nothing.
"""

import os
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from enc.core.enclave import EnclaveState
from enc.core.encoding import check_numbers, convert_json, unhex
from enc.core.envelope import Opened, Request, RequestType, open_request
from enc.core.errors import (
    EnclaveNotFound,
    EnclaveTerminated,
    InvalidNamespace,
    InvalidQuery,
    Unauthorized,
)
from enc.core.event import wire_event
from enc.core.filter import MAX_LIMIT, Filter, parse_filter
from enc.core.sealing import NONCE_SIZE, encrypt
from enc.core.session import TransportKeys
from enc.core.signing import PrivateKey
from enc.core.state_key import Namespace, status_key, tree_key
from enc.core.types import Event
from enc.node.access import Access
from enc.node.deliveries import deliveries
from enc.node.directory import StateCache
from enc.node.proofs import Ground, Proofs, Wire
from enc.node.pulls import Pulls
from enc.node.sequencer import MAX_HOLD_MS, Checkpoint
from enc.node.store.base import ITEM_START, SearchItem, Store, item_end
from enc.runtime.rate_limit import RateLimiter

MAX_KEYS = 256
"""Keys that one State_Batch may name."""
EXPORT_STEP = 64
"""Events that an export reads at once."""
PURGED = "the enclave was terminated, and its data is gone"
_NEXT = b"," + ITEM_START

T = TypeVar("T")


class _Query(Struct):
    filter: dict[str, Any]
    proof: bool = False


class _Inclusion(Struct):
    leaf_index: int
    tree_size: int | UnsetType = UNSET


class _Bundle(Struct):
    event_id: str | UnsetType = UNSET
    leaf_index: int | UnsetType = UNSET


class _Key(Struct):
    namespace: str
    key: str


class _State(_Key):
    tree_size: int | UnsetType = UNSET
    mode: str = "verified"


class _Batch(Struct):
    keys: list[_Key]
    tree_size: int | UnsetType = UNSET
    mode: str = "verified"


class _Checkpoint(Struct):
    hold: int = 0


class _Export(Struct):
    from_seq: int = 0
    limit: int = MAX_LIMIT


class Asked(Struct, frozen=True):
    """A request, opened: who asks, what, and under which keys the answer goes back."""

    request: Request
    opened: Opened
    access: Access
    proofs: Proofs

    @property
    def namespaces(self) -> Sequence[Namespace]:
        """The parts that this enclave's state has."""
        return self.access.state.policy.namespaces


class Answers:
    """`answer` takes a request's plain outside and gives the sealed answer's bytes; safe to use from any thread."""

    def __init__(
        self,
        states: StateCache,
        store: Store,
        key: PrivateKey,
        clock: Callable[[], int],
        rates: RateLimiter,
        checkpoint: Callable[[bytes, int], Checkpoint],
        max_page: int,
    ) -> None:
        self._states, self._store, self._key, self._clock = states, store, key, clock
        self._rates, self._checkpoint, self._max_page = rates, checkpoint, max_page
        self._kinds: dict[RequestType, Callable[[Asked], bytes]] = {
            "Query": self._query,
            "Inclusion_Proof": self._inclusion,
            "Bundle_Proof": self._bundle,
            "State_Proof": self._state,
            "State_Batch": self._state_batch,
            "Checkpoint": self._take_checkpoint,
            "Export": self._export,
            "Pull": self._pull,
            "Deliveries": self._deliveries,
        }
        self._pulls = Pulls(store, max_page)

    def answer(self, request: Request) -> bytes:
        asked = self.open(request)
        with self._unless_purged(request.enclave):
            return sealed_answer(asked.opened.keys, self._kinds[request.type](asked))

    def public(self, enclave: bytes, work: Callable[[Proofs], Wire]) -> bytes:
        """What anybody may ask about an enclave's log."""
        with self._unless_purged(enclave):
            return msgspec.json.encode(work(Proofs(self._store, self._key, self.state(enclave), self._clock())))

    @contextmanager
    def _unless_purged(self, enclave: bytes) -> Iterator[None]:
        """An enclave's data may go while it is read: then that is the answer, whatever was missed first."""
        try:
            yield
        except Exception:
            if self._store.is_purged(enclave):
                raise EnclaveTerminated(PURGED) from None
            raise

    def state(self, enclave: bytes) -> EnclaveState:
        """The durable state of an enclave that can be read."""
        state = self._states.get(enclave)
        if state is None:
            raise EnclaveNotFound("no such enclave on this node")
        if state.lifecycle == "terminated" and self._store.is_purged(enclave):
            raise EnclaveTerminated(PURGED)
        return state

    def access(self, enclave: bytes, identity: bytes) -> Access:
        """What someone may read now."""
        return Access(self._store, self.state(enclave), identity)

    def open(self, request: Request) -> Asked:
        """Whose request it is, and that they hold the session's key."""
        state = self.state(request.enclave)
        opened = open_request(request, self._key, self._clock() // 1000)
        self._rates.take(request.from_)
        return Asked(
            request,
            opened,
            Access(self._store, state, request.from_),
            Proofs(self._store, self._key, state, self._clock()),
        )

    # Events

    def _query(self, asked: Asked) -> bytes:
        body = read_query(asked.opened)
        filter_ = parse_filter(body.filter)
        asked.access.check_reads()
        items, more = self.page(asked.access, filter_, self._max_page)
        parts, rest = _parts(items), b',"more":true}' if more else b"}"
        if body.proof:
            parts = [b",".join(msgspec.json.encode(wire) for wire in self._proved(asked.proofs, items))]
            rest = self._grounds(asked.proofs) + rest
        return b"".join((b'{"events":[', *parts, b"]", rest))

    def evidence(self, state: EnclaveState, items: Sequence[SearchItem]) -> bytes:
        """These items with their proofs, in the open: what a Query with `proof` says, for what anybody may read."""
        proofs = Proofs(self._store, self._key, state, self._clock())
        parts = b",".join(msgspec.json.encode(wire) for wire in self._proved(proofs, items))
        return b"".join((b'{"events":[', parts, b"]", self._grounds(proofs), b"}"))

    def _grounds(self, proofs: Proofs) -> bytes:
        """What the proofs of a page stand on: one head, and the newest leaf under it."""
        sth = b',"sth":' + msgspec.json.encode(proofs.sth())
        if not proofs.size:
            return sth
        return sth + b',"state":' + msgspec.json.encode(proofs.bare_inclusion(proofs.size - 1, proofs.size))

    def page(self, access: Access, filter_: Filter, max_bytes: int) -> tuple[list[SearchItem], bool]:
        """What one answer holds, and whether the limit or the page's bytes cut it. At least one item, if there is."""
        found = self._store.find(access.state.enclave, filter_, access.readable())
        items, size = list[SearchItem](), 0
        for item in islice(found, filter_.limit):
            size += len(item.head) + len(item.rest)
            if size > max_bytes and items:
                return items, True
            items.append(item)
        return items, next(found, None) is not None

    def _proved(self, proofs: Proofs, items: Sequence[SearchItem]) -> Iterator[Wire]:
        """Each item with what ties it to the answer's head; nothing does while its bundle is open."""
        ground = proofs.ground(None, current=False) if proofs.size else None
        inclusions: dict[int, Wire] = {}
        for item in items:
            wire: Wire = {"event": msgspec.Raw(item.event), "status": item.status}
            if item.updated_by is not None:
                wire["updated_by"] = item.updated_by.hex()
            bundle = proofs.bundle_of(item.seq)
            wire["proof"] = None
            if bundle is not None and ground is not None:
                if bundle.index not in inclusions:
                    inclusions[bundle.index] = proofs.bare_inclusion(bundle.index, proofs.size)
                wire["proof"] = {
                    "bundle": proofs.member(bundle, item.seq),
                    "inclusion": inclusions[bundle.index],
                    "status": proofs.state(status_key(item.id), ground),
                }
            yield wire

    # Proofs

    def _inclusion(self, asked: Asked) -> bytes:
        """For anyone: the state proof of one's own key, which anyone may have at any leaf, brings this one with it."""
        body = _read(asked.opened, _Inclusion)
        size = _number(body.tree_size, "tree_size")
        check_numbers(InvalidQuery, leaf_index=body.leaf_index)
        return msgspec.json.encode(asked.proofs.inclusion(body.leaf_index, size))

    def _bundle(self, asked: Asked) -> bytes:
        body = _read(asked.opened, _Bundle)
        if (body.event_id is UNSET) == (body.leaf_index is UNSET):
            raise InvalidQuery("expected one of event_id and leaf_index")
        asked.access.check_reads()
        if body.leaf_index is not UNSET:
            check_numbers(InvalidQuery, leaf_index=body.leaf_index)
            return msgspec.json.encode(asked.proofs.whole_bundle(body.leaf_index))
        return msgspec.json.encode(asked.proofs.membership(unhex(body.event_id, 32, "event_id", InvalidQuery)))

    def _state(self, asked: Asked) -> bytes:
        body = _read(asked.opened, _State)
        ground = self._ground(asked, [body], body.tree_size, body.mode)
        proof = asked.proofs.state(_tree_key(body, asked.namespaces), ground)
        return msgspec.json.encode({**proof, **asked.proofs.grounds(ground)})

    def _state_batch(self, asked: Asked) -> bytes:
        body = _read(asked.opened, _Batch)
        if not 1 <= len(body.keys) <= MAX_KEYS:
            raise InvalidQuery(f"keys: expected 1 to {MAX_KEYS}")
        ground = self._ground(asked, body.keys, body.tree_size, body.mode)
        proofs = [asked.proofs.state(_tree_key(key, asked.namespaces), ground) for key in body.keys]
        return msgspec.json.encode({"proofs": proofs, **asked.proofs.grounds(ground)})

    def _ground(self, asked: Asked, keys: Sequence[_Key], size: int | UnsetType, mode: str) -> Ground:
        """The root to prove under. Who may read nothing may still ask for what this enclave says of themselves."""
        if mode not in ("verified", "current"):
            raise InvalidQuery("mode: expected verified or current")
        own = tree_key("rbac", asked.request.from_)
        if any(_tree_key(key, asked.namespaces) != own for key in keys):
            asked.access.check_reads()
        return asked.proofs.ground(_number(size, "tree_size"), mode == "current")

    def _take_checkpoint(self, asked: Asked) -> bytes:
        body = _read(asked.opened, _Checkpoint)
        if not 0 <= body.hold * 1000 <= MAX_HOLD_MS:
            raise InvalidQuery(f"hold: expected 0 to {MAX_HOLD_MS // 1000} seconds")
        if not asked.access.is_owner:
            raise Unauthorized("only who may Migrate may ask for a checkpoint")
        found = self._checkpoint(asked.request.enclave, body.hold * 1000)
        return msgspec.json.encode({"seq": found.seq, "ct_root": found.ct_root.hex()})

    def _export(self, asked: Asked) -> bytes:
        """All events as they are stored, deleted ones too: what an archive is made from."""
        body = _read(asked.opened, _Export)
        check_numbers(InvalidQuery, from_seq=body.from_seq)
        if not 1 <= body.limit <= MAX_LIMIT:
            raise InvalidQuery(f"limit: expected 1 to {MAX_LIMIT}")
        state, events, size = asked.access.state, list[bytes](), 0
        goes_on = state.sequencer != self._key.public and asked.request.from_ == state.sequencer
        if not goes_on and not asked.access.is_owner:
            raise Unauthorized("only who may Migrate, and the node that goes on after one, may export the log")
        for event in islice(self._log(state, body.from_seq), body.limit):
            line = msgspec.json.encode(wire_event(event))
            size += len(line)
            if size > self._max_page and events:
                break
            events.append(line)
        rest = b'],"seq":%d,"sth":%b}' % (state.seq, msgspec.json.encode(asked.proofs.sth()))
        return b'{"events":[' + b",".join(events) + rest

    def _log(self, state: EnclaveState, seq: int) -> Iterator[Event]:
        """The log from `seq` up to the state, a few events at a time."""
        while seq <= state.seq:
            events = self._store.events(state.enclave, seq, min(EXPORT_STEP, state.seq + 1 - seq))
            if not events:
                return
            yield from events
            seq = events[-1].seq + 1

    # Pushes

    def _pull(self, asked: Asked) -> bytes:
        """The enclave outside serves the session alone: what is asked for is the asker's own, on all of the node."""
        who = asked.request.from_
        return self._pulls.answer(asked.opened, who, lambda enclave: self.access(enclave, who))

    def _deliveries(self, asked: Asked) -> bytes:
        return deliveries(self._store, asked.opened, asked.access)


def read_query(opened: Opened) -> _Query:
    return _read(opened, _Query)


def _read(opened: Opened, type_: type[T]) -> T:
    return convert_json(opened.body, type_, InvalidQuery)


def _parts(items: Sequence[SearchItem]) -> list[bytes]:
    """The items' JSON with commas between. A page may be megabytes, so they are joined once, by the caller."""
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


def _tree_key(key: _Key, namespaces: Sequence[Namespace]) -> bytes:
    if key.namespace not in namespaces:
        raise InvalidNamespace(f"namespace: expected one of {', '.join(namespaces)}")
    return tree_key(key.namespace, unhex(key.key, 32, "key", InvalidQuery))  # type: ignore[arg-type]


def sealed_answer(keys: TransportKeys, plaintext: bytes) -> bytes:
    return sealed(b'{"type":"Response","content":"', keys, plaintext, b'"}')


def sealed(before: bytes, keys: TransportKeys, plaintext: bytes, after: bytes) -> bytes:
    """Base64 text under the session's answer key, between two others. Megabytes are joined once: a nonce is a whole
    number of base64's groups, so its text and the ciphertext's are the text of both."""
    nonce = os.urandom(NONCE_SIZE)
    ciphertext = encrypt(keys.response, plaintext, nonce)
    return b"".join((before, b2a_base64(nonce, newline=False), b2a_base64(ciphertext, newline=False), after))
