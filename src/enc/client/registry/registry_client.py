"""A client of a registry: where an enclave is, how to reach a node, what an identity has published.

A registry is an enclave, and its answers are its events. So nothing is accepted on trust: each
entry comes with its own signatures and a proof that it is current, under a head that extends every
one seen before. Omissions cannot be detected; but the node that a registry names must still prove
that the enclave moved to it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from msgspec import Struct, field
from msgspec.json import Decoder

from enc.client.enclave.writes import as_bytes
from enc.client.errors import TimedOut, Unreachable
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.verify.decode_answers import WirePage, read
from enc.client.verify.items import Item, verify_items
from enc.client.wire.flow import Call, Flow, work
from enc.client.wire.single_flight import SingleFlight
from enc.client.wire.transport import base_url
from enc.core.errors import InvalidProof, MisuseError
from enc.core.log.filter import parse_filter
from enc.core.primitives.encoding import check_numbers, unhex
from enc.core.primitives.types import Event, Ownership
from enc.core.registry.ownership import MAX_FORCED
from enc.core.registry.reg_entry import (
    EnclaveEntry,
    IdentityEntry,
    NodeEntry,
    parse_enclave,
    parse_identity,
    parse_node,
)

CACHE_S = 300.0
"""How long an answer is cached, in seconds."""
MAX_CACHED = 1024
MAX_LISTED = 100
_TYPES = ("Reg_Node", "Reg_Enclave", "Reg_Identity")
_Kind = Literal["resolve", "identity", "nodes", "enclaves"]

T = TypeVar("T")


class Registry(Struct, frozen=True, kw_only=True):
    """The registry to use: its node's URL, its enclave id, and its sequencer's key if known."""

    url: str
    enclave: bytes
    seq_pub: bytes | None = None

    def __post_init__(self) -> None:
        if len(self.enclave) != 32 or len(self.seq_pub or bytes(32)) != 32:
            raise MisuseError("registry: an enclave's id and a sequencer's key must be 32 bytes")


def parse_registry(text: str) -> Registry:
    """Parse URL#ID or URL#ID:KEY: the registry's node, its enclave id, and its sequencer's key."""
    url, has_id, rest = text.partition("#")
    id_, has_key, key = rest.partition(":")
    if not has_id:
        raise MisuseError("registry: expected URL#ID or URL#ID:KEY")
    seq_pub = as_bytes(key, "registry: key") if has_key else None
    return Registry(url=base_url(url), enclave=as_bytes(id_, "registry: id"), seq_pub=seq_pub)


class RegistryRecord(Struct, frozen=True):
    """A registry's entry for an enclave, verified; `known` and `forced_from` are its statement."""

    enclave: bytes
    entry: EnclaveEntry
    item: Item
    known: Ownership
    forced_from: tuple[Ownership, ...] = ()

    @property
    def sequencer(self) -> bytes:
        return self.known.sequencer

    @property
    def holder(self) -> bytes:
        return self.known.holder

    @property
    def is_proved(self) -> bool:
        """Whether it is proved under a signed head; else its bundle is still open."""
        return self.item.fact is not None


class Resolution(Struct, frozen=True):
    """Where an enclave is."""

    record: RegistryRecord
    node: NodeEntry

    @property
    def enclave(self) -> bytes:
        return self.record.enclave

    @property
    def sequencer(self) -> bytes:
        return self.node.seq_pub

    @property
    def urls(self) -> tuple[str, ...]:
        """The node's HTTP URLs, the preferred one first."""
        return tuple(each.uri for each in self.node.endpoints if each.uri.startswith(("http://", "https://")))

    @property
    def migrates(self) -> tuple[Event, ...]:
        """The Migrates in the entry."""
        return tuple(link.event for link in self.record.entry.links)

    @property
    def origin(self) -> bytes | None:
        """The first sequencer, if the enclave's creator signed the entry; else None."""
        manifest = self.record.entry.manifest_event
        return manifest.sequencer if self.record.item.author == manifest.from_ else None


class _Evidence(Struct):
    """The values by which the next registration is judged (docs/protocol.md, 23.1). A registry of
    an earlier version does not give them."""

    proved_at: int = 0
    proved_root: str = ""
    moved_at: int = -1
    moved_time: int = 0


class _Left(_Evidence):
    sequencer: str = ""
    holder: str = ""
    proved_size: int = 0


class _AllEvidence(_Evidence):
    forced_from: list[_Left] = []


class _Entry(Struct):
    """The fields of an answer besides its events."""

    sequencer: str = ""
    holder: str = ""
    proved_size: int = 0
    evidence: _AllEvidence = field(default_factory=_AllEvidence)


class _Answer(_Entry, kw_only=True):
    proof: WirePage
    enclave: _Entry | None = None


class _Listed(Struct, kw_only=True):
    enclaves: list[dict[str, Any]]
    next: str | None = None


_answer, _listed = Decoder(_Answer), Decoder(_Listed)


@contextmanager
def _naming_registry() -> Iterator[None]:
    """Say in the error that the registry did not answer, not the enclave's node."""
    try:
        yield
    except (Unreachable, TimedOut) as e:
        e.message = f"the registry does not answer: {e.message}"
        raise


class RegistryClient:
    """`reader`: of the registry's enclave. `clock`: monotonic seconds."""

    def __init__(self, reader: EnclaveReader, clock: Callable[[], float]) -> None:
        self.reader, self._clock = reader, clock
        self._cache: OrderedDict[tuple[str, bytes], tuple[float, Any]] = OrderedDict()
        self._asking = SingleFlight()

    def resolve(self, enclave: bytes, *, fresh: bool = False) -> Flow[Resolution]:
        """Return where an enclave is.

        EnclaveNotFound and NodeNotFound are the registry's statements.
        """
        return (yield from self._cached("resolve", enclave, self._resolution, fresh))

    def lookup(self, identity: bytes, *, fresh: bool = False) -> Flow[IdentityEntry]:
        """Return what an identity has published. IdentityNotFound is the registry's statement."""
        return (yield from self._cached("identity", identity, self._identity, fresh))

    def record(self, enclave: bytes) -> Flow[RegistryRecord]:
        """Return the registry's current entry for an enclave, wherever its node is."""
        answer, items, text = yield from self._ask("enclaves", enclave)
        return self._record(enclave, answer, items, text)

    def node(self, seq_pub: bytes) -> Flow[NodeEntry]:
        """Return how to reach a node, as published by the node."""
        _, items, text = yield from self._ask("nodes", seq_pub)
        return self._node(seq_pub, items, text)

    def listing(self, search: Mapping[str, str]) -> Flow[tuple[list[dict[str, Any]], str | None]]:
        """Return an unverified page of enclaves, for display, and where the next page begins."""
        with _naming_registry():
            verifier = yield from self.reader.session.verifier()
            text = yield from self.reader.node.caller.request(Call(f"/enclaves?{urlencode(search)}"))
        with verifier.blame_node("enclaves", text):
            wire = read(text, _listed)
            if len(wire.enclaves) > MAX_LISTED or (wire.next is not None and wire.next <= search.get("after", "")):
                raise InvalidProof("enclaves: too many, or `next` does not advance")
        return wire.enclaves, wire.next

    # Cache

    def _cached(self, kind: _Kind, key: bytes, ask: Callable[[bytes], Flow[T]], fresh: bool) -> Flow[T]:
        until, found = self._cache.get((kind, key), (0.0, None))
        if found is not None and not fresh and self._clock() < until:
            return found  # type: ignore[no-any-return]
        self._cache.pop((kind, key), None)
        return (yield from self._asking.run((kind, key), lambda: self._ask_and_cache(kind, key, ask)))

    def _ask_and_cache(self, kind: _Kind, key: bytes, ask: Callable[[bytes], Flow[T]]) -> Flow[T]:
        found = yield from ask(key)
        self._cache[kind, key] = self._clock() + CACHE_S, found
        if len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return found

    def forget(self, key: bytes) -> None:
        """Drop the cached answers for a key that has changed."""
        for kind in ("resolve", "identity"):
            self._cache.pop((kind, key), None)
            self._asking.forget((kind, key))

    # Checking

    def _ask(self, kind: _Kind, key: bytes) -> Flow[tuple[_Answer, list[Item], bytes]]:
        """Return an answer whose entries are verified current events of the registry."""
        reader = self.reader
        with _naming_registry():
            verifier = yield from reader.session.verifier()
            since = verifier.size
            text = yield from reader.node.caller.request(Call(f"/{kind}/{key.hex()}?proof=1"))
        with verifier.blame_node(kind, text):
            wire = read(text, _answer)
            filter_ = parse_filter({"type": list(_TYPES)})
        items = yield from work(lambda: verify_items(verifier, wire.proof.events, filter_, text))
        items = yield from reader.proved(items, wire.proof, text, since)
        with verifier.blame_node(kind, text):
            if any(item.status != "active" or item.content is None for item in items):
                raise InvalidProof("the entry is superseded")
        return wire, items, text

    def _resolution(self, enclave: bytes) -> Flow[Resolution]:
        answer, items, text = yield from self._ask("resolve", enclave)
        record = self._record(enclave, answer.enclave or _Entry(), items, text)
        return Resolution(record, self._node(record.sequencer, items, text))

    def _record(self, enclave: bytes, stated: _Entry, items: list[Item], text: bytes) -> RegistryRecord:
        with self.reader.session.known_verifier().blame_node("enclave", text):
            for item in _of("Reg_Enclave", items):
                entry = parse_enclave(item.event)
                known = _ownership(stated, stated.evidence)
                if entry.manifest_event.enclave != enclave:
                    raise InvalidProof("the entry belongs to another enclave")
                if entry.declared_sequencer != known.sequencer:
                    raise InvalidProof("sequencer: not the one that the entry's Migrates lead to")
                if known.holder != item.author:
                    raise InvalidProof("holder: not the entry's author")
                left = stated.evidence.forced_from
                if len(left) > MAX_FORCED:
                    raise InvalidProof(f"forced_from: more than {MAX_FORCED}")
                return RegistryRecord(enclave, entry, item, known, tuple(_ownership(each, each) for each in left))
            raise InvalidProof("the entry is missing")

    def _node(self, seq_pub: bytes, items: list[Item], text: bytes) -> NodeEntry:
        with self.reader.session.known_verifier().blame_node("node", text):
            for item in _of("Reg_Node", items):
                entry = parse_node(item.event)
                if entry.seq_pub != seq_pub or item.author != seq_pub:
                    raise InvalidProof("the entry belongs to another node, or has another author")
                return entry
            raise InvalidProof("the entry is missing")

    def _identity(self, identity: bytes) -> Flow[IdentityEntry]:
        _, items, text = yield from self._ask("identity", identity)
        with self.reader.session.known_verifier().blame_node("identity", text):
            for item in _of("Reg_Identity", items):
                entry = parse_identity(item.event)
                if entry.id_pub != identity or item.author != identity:
                    raise InvalidProof("the entry belongs to another identity, or has another author")
                return entry
            raise InvalidProof("the entry is missing")


def _ownership(who: _Entry | _Left, evidence: _Evidence) -> Ownership:
    """Return the ownership that the registry states."""
    numbers = {"proved_size": who.proved_size, "proved_at": evidence.proved_at, "moved_time": evidence.moved_time}
    check_numbers(InvalidProof, **numbers)
    return Ownership(
        sequencer=unhex(who.sequencer, 32, "sequencer", InvalidProof),
        holder=unhex(who.holder, 32, "holder", InvalidProof),
        proved_root=unhex(evidence.proved_root, 32, "proved_root", InvalidProof) if evidence.proved_root else b"",
        moved_at=max(evidence.moved_at, -1),
        **numbers,
    )


def _of(type_: str, items: list[Item]) -> Iterator[Item]:
    return (item for item in items if item.type == type_)
