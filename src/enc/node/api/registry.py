"""Lookups in the registry that this node serves: nodes, enclaves, identities (docs/node-api.md,
Registry lookups).

Every answer comes from the records that the sequencer stores with each event, so it is current as
soon as the receipt is sent. It names the entry that it rests on; with `?proof=1` it includes that
entry with its proofs, as a Query does.
"""

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Raw
from msgspec.json import encode
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from enc.core.errors import (
    EnclaveNotFound,
    IdentityNotFound,
    InvalidQuery,
    NodeNotFound,
    PeerError,
)
from enc.core.machine.state import EnclaveState
from enc.core.primitives.encoding import unhex
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import KeyRecord
from enc.core.registry.reg_entry import MAX_LABEL
from enc.node.api.http_api import address_of
from enc.node.api.read_pool import ReadPool
from enc.node.read.registry_index import RegistryIndex, Wire
from enc.node.read.request_handlers import SealedHandlers
from enc.node.read.steps import Steps, one_step
from enc.node.store.events import search_item
from enc.node.store.store_interface import Store

MAX_PAGE_ENCLAVES = 100
"""Most enclaves of one page."""
DEFAULT_PAGE_ENCLAVES = 50
MAX_SEARCH = 64
"""Most characters of a search text."""
MAX_SCANNED = 5_000
"""Most records that one page scans; a search with few matches continues on the next page."""
SCAN_STEP = 500
MAX_PAGE_BYTES = 8 << 20
"""Most bytes of entries that one page reads."""
CACHE_CONTROL = "public, no-cache"
"""Caches may keep an answer, and must revalidate it before use."""


class RegistryApi:
    """Routes of the registry's lookups."""

    def __init__(self, store: Store, handlers: SealedHandlers, seq_pub: bytes, registry: bytes | None) -> None:
        self._store, self._handlers = store, handlers
        self._index = RegistryIndex(store, handlers, seq_pub, registry)

    def routes(self, reads: ReadPool) -> list[Route]:
        """Return the routes for HttpApi; each runs on a thread of `reads`."""
        works: Mapping[str, Callable[[HttpRequest], Steps[bytes]]] = {
            "/nodes/{seq_pub}": self._with_optional_proof(self._node),
            "/enclaves/{enclave_id}": self._with_optional_proof(self._enclave),
            "/resolve/{enclave_id}": self._with_optional_proof(self._resolve),
            "/identity/{id_pub}": self._with_optional_proof(self._identity),
            "/enclaves": self._list,
        }
        return [Route(path, _with_etag(reads, work), methods=["GET"]) for path, work in works.items()]

    # Lookups

    def _with_optional_proof(
        self, look: Callable[[EnclaveState, HttpRequest], Wire]
    ) -> Callable[[HttpRequest], Steps[bytes]]:
        def work(request: HttpRequest) -> bytes:
            with_proof = _parameter(request, "proof")
            if with_proof not in (None, "0", "1"):
                raise InvalidQuery("proof: expected 0 or 1")
            state = self._index.state()
            wire = look(state, request)
            return encode({**wire, "proof": self._proof(state, wire)} if with_proof == "1" else wire)

        return lambda request: one_step(lambda: work(request))

    def _proof(self, state: EnclaveState, wire: Wire) -> Raw:
        """Return the entries that an answer rests on, with their proofs."""
        parts = [wire] if "entry" in wire else list(wire.values())
        events = [self._index.event(state, bytes.fromhex(part["entry"]["id"])) for part in parts]
        return Raw(self._handlers.items_with_proofs(state, [search_item(event) for event in events]))

    def _node(self, state: EnclaveState, request: HttpRequest) -> Wire:
        return self._node_of(state, _key(request, "seq_pub", NodeNotFound))

    def _node_of(self, state: EnclaveState, seq_pub: bytes) -> Wire:
        found = self._index.lookup(state, "node", seq_pub)
        if found is None:
            raise NodeNotFound("no such node is registered")
        return found

    def _enclave(self, state: EnclaveState, request: HttpRequest) -> Wire:
        found = self._index.lookup(state, "enclave", _key(request, "enclave_id", EnclaveNotFound))
        if found is None:
            raise EnclaveNotFound("no such enclave is registered")
        return found

    def _resolve(self, state: EnclaveState, request: HttpRequest) -> Wire:
        enclave = self._enclave(state, request)
        return {"enclave": enclave, "node": self._node_of(state, bytes.fromhex(enclave["sequencer"]))}

    def _identity(self, state: EnclaveState, request: HttpRequest) -> Wire:
        found = self._index.lookup(state, "identity", _key(request, "id_pub", IdentityNotFound))
        if found is None:
            raise IdentityNotFound("no such identity is registered")
        return found

    # Listing

    def _list(self, request: HttpRequest) -> Steps[bytes]:
        """Return a page of enclaves by rising id.

        `next` is where to continue; a page with `next` may be empty, since each page scans a
        bounded number of records.
        """
        asked = _ListQuery(request)
        state = self._index.state()
        after, scanned, size = asked.after, 0, 0
        page = list[Wire]()
        while scanned < MAX_SCANNED:
            yield None
            records = self._store.listed(state.enclave, after, SCAN_STEP, app=asked.app, creator=asked.creator)
            for record in records:
                if asked.matches(record):
                    if len(page) >= asked.limit or size > MAX_PAGE_BYTES:
                        return _page(page, after)
                    wire, read = self._index.render(state, record)
                    size += read
                    page.append(wire)
                    yield None
                after = record.key
            scanned += len(records)
            if len(records) < SCAN_STEP:
                return _page(page, None)
        return _page(page, after)


class _ListQuery:
    """Query parameters of a listing."""

    def __init__(self, request: HttpRequest) -> None:
        self.app = _parameter(request, "app", MAX_LABEL)
        text = _parameter(request, "q", MAX_SEARCH)
        self._text = text.casefold() if text else None
        creator, after, limit = (_parameter(request, name) for name in ("creator", "after", "limit"))
        self.creator = unhex(creator, 32, "creator", InvalidQuery) if creator is not None else None
        self.after = unhex(after, 32, "after", InvalidQuery) if after is not None else b""
        if limit is None:
            limit = str(DEFAULT_PAGE_ENCLAVES)
        if not (limit.isascii() and limit.isdigit() and len(limit) <= 3 and 1 <= int(limit) <= MAX_PAGE_ENCLAVES):
            raise InvalidQuery(f"limit: expected 1 to {MAX_PAGE_ENCLAVES}")
        self.limit = int(limit)

    def matches(self, record: KeyRecord) -> bool:
        return self.app in (None, record.app) and (self._text is None or self._text in record.text)


def _page(enclaves: list[Wire], after: bytes | None) -> bytes:
    return encode({"enclaves": enclaves} if after is None else {"enclaves": enclaves, "next": after.hex()})


def _key(request: HttpRequest, name: str, error: type[PeerError]) -> bytes:
    return unhex(request.path_params[name], 32, name, error)


def _parameter(request: HttpRequest, name: str, most: int = 64) -> str | None:
    texts = request.query_params.getlist(name)
    if len(texts) > 1:
        raise InvalidQuery(f"{name}: expected once")
    if texts and not 1 <= len(texts[0]) <= most:
        raise InvalidQuery(f"{name}: expected 1 to {most} characters")
    return texts[0] if texts else None


def _with_etag(
    reads: ReadPool, work: Callable[[HttpRequest], Steps[bytes]]
) -> Callable[[HttpRequest], Awaitable[Response]]:
    """Return a handler that adds an ETag, and answers 304 to a client that has the current one."""

    async def handle(request: HttpRequest) -> Response:
        body = await reads.run_steps(address_of(request.scope), work(request))
        tag = f'"{sha256(body)[:16].hex()}"'
        headers = {"ETag": tag, "Cache-Control": CACHE_CONTROL}
        known_tags = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
        if tag in known_tags or "*" in known_tags:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    return handle
